"""Backbones turn the nodes of a graph into logits.

A backbone is an ordinary PyG-style module, ``forward(x, edge_index) -> logits``. Ours also take a prepared
`Graph`, which spares them the work that is the same in every step. Any other `torch.nn.Module` with that
``forward`` works in their place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from oddnode.graph import Graph
from oddnode.ops import Beginning, DropoutStream, dropout_factor

if TYPE_CHECKING:
    from oddnode.graph import TrainingSet

__all__ = ["Backbone", "embed_with", "run_backbone"]


class Backbone(nn.Module):
    """Two steps: ``embed`` gives a node's hidden features, ``head`` turns them into logits."""

    dropout: float
    #: Where dropout masks come from in training; torch's own random numbers where there is none.
    stream: DropoutStream | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of every node."""
        return self.run(Graph(x, edge_index))

    def run(self, graph: Graph) -> Tensor:
        """Logits of every node of a prepared graph."""
        return self.head(self.embed(graph), graph)

    @abstractmethod
    def embed(self, graph: Graph) -> Tensor:
        """The features before the last layer (after activation and dropout)."""

    @abstractmethod
    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        """The last layer."""

    def begin(self, graph: Graph) -> Beginning | None:
        """What a training pass and an evaluation of the same weights have in common: all before the first dropout.

        ``None`` where there is no such part, or none that is worth keeping.
        """
        return None

    def finish(self, beginning: Beginning, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Logits, from what `begin` gave: of every node, or of those named."""
        raise NotImplementedError(f"{type(self).__name__} has no beginning to finish")

    def prepare(self, data: TrainingSet) -> None:
        """Called once before training; for backbones that take more than features from the data."""

    def begin_epoch(self, epoch: int) -> None:
        """Called before every training pass; for backbones that learn in stages."""

    @property
    def is_deterministic(self) -> bool:
        """Whether two passes in training mode give the same logits."""
        return self.dropout == 0.0


class LayeredBackbone(Backbone):
    """What the backbones below share: between layers stand batch norm, an activation and dropout.

    Subclasses say in ``_layer`` what a hidden layer is before batch norm, and in ``head`` what the last layer is.

    Parameters
    ----------
    width : int
        Channels of a hidden layer.
    num_layers, num_hidden : int
        How many layers the user asked for, and how many of them are hidden: at least one.
    dropout : float
        Share of hidden features dropped in training.
    """

    def __init__(self, width: int, num_layers: int, num_hidden: int, dropout: float):
        super().__init__()
        if num_hidden < 1:
            raise ValueError(f"num_layers is {num_layers}, expected {num_layers - num_hidden + 1} or more")
        self.dropout = dropout
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(num_hidden))

    @abstractmethod
    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        """A hidden layer before batch norm; the first one (``hidden`` is ``None``) takes the graph's features."""

    def embed(self, graph: Graph) -> Tensor:
        return self._embed(Beginning(self._layer(0, None, graph)), graph)

    def begin(self, graph: Graph) -> Beginning | None:
        # A subclass with an embed or a run of its own may do anything.
        is_layered = type(self).embed is LayeredBackbone.embed and type(self).run is Backbone.run
        return Beginning(self._layer(0, None, graph)) if is_layered else None

    def finish(self, beginning: Beginning, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        if nodes is None:
            return self.head(self._embed(beginning, graph), graph)
        rows, part = self._around(nodes, graph)
        return self.head(self._embed(beginning, graph, rows), part)

    def _around(self, nodes: Tensor, graph: Graph) -> tuple[Tensor, Graph]:
        """The nodes whose hidden features the head needs for ``nodes``, and the graph to apply it on."""
        return nodes, graph

    def _embed(self, beginning: Beginning, graph: Graph, rows: Tensor | None = None) -> Tensor:
        """Hidden features, of all nodes or of those named: only the last layer's can be had for some nodes alone."""
        last = len(self.norms) - 1
        for layer in range(last):
            hidden = self._activate(beginning, layer)
            beginning = Beginning(self._layer(layer + 1, hidden, graph))
        return self._activate(beginning, last, rows)

    def _activate(self, before: Beginning, layer: int, rows: Tensor | None = None) -> Tensor:
        if not self.training or self.dropout == 0.0:
            return before.activated(self.norms[layer], rows)
        if self.stream is None:
            return F.dropout(before.activated(self.norms[layer], rows), self.dropout)
        nodes = torch.arange(len(before.values), device=before.values.device) if rows is None else rows
        scales = self.stream.scales(nodes, before.values.shape[1], self.dropout, layer, before.values.dtype)
        return before.activated(self.norms[layer], rows, scales, dropout_factor(self.dropout))


def run_backbone(module: nn.Module, graph: Graph) -> Tensor:
    """Logits of every node, from one of our backbones or from anybody's module."""
    if isinstance(module, Backbone):
        return module.run(graph)
    logits = module(graph.x, graph.edge_index)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != graph.num_nodes:
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"{type(module).__name__}.forward(x, edge_index) returned {found}, "
            f"expected logits [nodes, classes] with {graph.num_nodes} rows"
        )
    return logits


def embed_with(module: nn.Module, graph: Graph) -> Tensor:
    """The features before the last layer.

    For a user's module these are what goes into the layer that is called last among those with parameters of their
    own and no layers inside (a `torch.nn.Linear`, a PyG convolution taken as a whole, ...).
    """
    if isinstance(module, Backbone):
        return module.embed(graph)
    name = type(module).__name__
    entered: list[Any] = []

    def note(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entered[:] = [*args, *kwargs.values()][:1]

    handles = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in _layers(module)]
    try:
        run_backbone(module, graph)
    finally:
        for handle in handles:
            handle.remove()
    if not entered:
        raise TypeError(
            f"{name} calls no layer with parameters, so its hidden features cannot be read; build it from layers "
            "(torch.nn.Linear, a PyG convolution, ...), or subclass oddnode.nn.base.Backbone with embed and head"
        )
    [hidden] = entered
    if not isinstance(hidden, Tensor) or hidden.dim() != 2 or hidden.shape[0] != graph.num_nodes:
        found = list(hidden.shape) if isinstance(hidden, Tensor) else type(hidden).__name__
        raise TypeError(
            f"the last layer of {name} takes {found}, expected hidden features [nodes, channels] with "
            f"{graph.num_nodes} rows; subclass oddnode.nn.base.Backbone and say in embed what they are"
        )
    return hidden


def _layers(module: nn.Module, is_root: bool = True) -> Iterator[nn.Module]:
    """Layers with parameters that have no such layers inside; a PyG convolution counts as one."""
    inside = [child for child in module.children() if any(True for _ in child.parameters())]
    if isinstance(module, MessagePassing):
        yield module
    elif inside:
        for child in inside:
            yield from _layers(child, is_root=False)
    elif not is_root:
        yield module
