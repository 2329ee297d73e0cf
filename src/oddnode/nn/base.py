"""Backbones turn the nodes of a graph into logits.

A backbone is an ordinary PyG-style module, ``forward(x, edge_index) -> logits``. Ours also take a prepared `Graph`,
which spares them the work that is the same in every step. Any other `torch.nn.Module` with that ``forward`` works in
their place.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import Graph
from oddnode.ops import DropoutStream, PreNormActivations

if TYPE_CHECKING:
    from oddnode.graph import TrainingSet

__all__ = ["Backbone"]


class Backbone(nn.Module):
    """Two steps: ``embed`` gives a node's hidden features, ``head`` turns them into logits."""

    dropout: float
    #: Where dropout masks come from in training; torch's own random numbers where there is none. Backbones inside
    #: another one share its stream, so their places of dropout must differ.
    stream: DropoutStream | None = None
    #: Whether a training pass may be captured as a CUDA graph and replayed: the same kernels on tensors of the same
    #: shapes in every epoch, without waiting for the device, and nothing random but what follows from `stream`. A
    #: subclass does not inherit the promise; it makes its own by stating ``supports_capture = True``.
    supports_capture: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "supports_capture" not in cls.__dict__:
            cls.supports_capture = False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Compute the logits of every node.

        Parameters
        ----------
        x : Tensor
            Features ``[N, F]``.
        edge_index : Tensor
            Edges ``[2, E]``, from source to target.

        Returns
        -------
        Tensor
            Logits ``[N, C]``.
        """
        return self.run(Graph(x, edge_index))

    def run(self, graph: Graph) -> Tensor:
        """Compute the logits of every node of a prepared graph.

        Parameters
        ----------
        graph : Graph
            The graph, with its features.

        Returns
        -------
        Tensor
            Logits ``[N, C]``.
        """
        return self.head(self.embed(graph), graph)

    @abstractmethod
    def embed(self, graph: Graph) -> Tensor:
        """Compute the features before the last layer, after activation and dropout.

        Parameters
        ----------
        graph : Graph
            The graph, with its features.

        Returns
        -------
        Tensor
            Hidden features ``[N, H]``.
        """

    @abstractmethod
    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        """Apply the last layer.

        Parameters
        ----------
        hidden : Tensor
            Hidden features ``[N, H]``.
        graph : Graph
            The graph whose edges it uses.

        Returns
        -------
        Tensor
            Logits ``[N, C]``.
        """

    def forward_shared(self, graph: Graph) -> PreNormActivations | None:
        """Compute what a training pass and an evaluation of the same weights share: all before the first dropout.

        Parameters
        ----------
        graph : Graph
            The graph, with its features.

        Returns
        -------
        PreNormActivations or None
            The first layer before batch norm; ``None`` where the backbone has no such part.
        """
        return None

    def forward_rest(
        self, shared: PreNormActivations, graph: Graph, subset: tuple[Tensor, Graph] | None = None
    ) -> Tensor:
        """Compute logits from what `forward_shared` returned.

        Parameters
        ----------
        shared : PreNormActivations
            The first layer before batch norm.
        graph : Graph
            The same graph.
        subset : tuple of Tensor and Graph, optional
            From `receptive_field`, to compute the logits of some nodes alone.

        Returns
        -------
        Tensor
            Logits ``[N, C]`` of every node, or ``[n, C]`` of those nodes.
        """
        raise NotImplementedError(f"{type(self).__name__} has a forward_shared, but no forward_rest")

    def receptive_field(self, nodes: Tensor, graph: Graph) -> tuple[Tensor, Graph]:
        """Find out what the last layer needs for some nodes; for `forward_rest`.

        Parameters
        ----------
        nodes : Tensor
            Positions ``[n]`` of the nodes.
        graph : Graph
            The graph that they belong to.

        Returns
        -------
        rows : Tensor
            Positions of the nodes whose hidden features it needs.
        part : Graph
            The graph to apply it on.
        """
        return nodes, graph

    def prepare(self, data: TrainingSet) -> None:
        """Take more than features from the data, once before training.

        Parameters
        ----------
        data : TrainingSet
            The data of the training.
        """

    def begin_epoch(self, epoch: int) -> None:
        """Change with the epoch, before every training pass; for backbones that learn in stages.

        Parameters
        ----------
        epoch : int
            The number of steps taken.
        """

    @property
    def num_dropout_places(self) -> int:
        """An upper bound on the places of dropout: `stream` is asked for places below it."""
        return 2 * sum(isinstance(layer, _BatchNorm) for layer in self.modules()) + 2

    @property
    def _drops(self) -> bool:
        return self.training and self.dropout > 0.0

    def _drop(self, values: Tensor, place: int) -> Tensor:
        """Dropout at one of the places of the network that have it."""
        if not self._drops:
            return values
        if self.stream is None:
            return F.dropout(values, self.dropout)
        return values * self.stream.scales_like(values, self.dropout, place)

    @property
    def is_deterministic(self) -> bool:
        """Whether two passes in training mode give the same logits."""
        return self.dropout == 0.0


class LayeredBackbone(Backbone):
    """The base of most backbones: between layers stand batch norm, an activation and dropout.

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
        return self._embed(PreNormActivations(self._layer(0, None, graph)), graph)

    def forward_shared(self, graph: Graph) -> PreNormActivations | None:
        # A subclass with an embed or a run of its own may do anything.
        is_layered = type(self).embed is LayeredBackbone.embed and type(self).run is Backbone.run
        return PreNormActivations(self._layer(0, None, graph)) if is_layered else None

    def forward_rest(
        self, shared: PreNormActivations, graph: Graph, subset: tuple[Tensor, Graph] | None = None
    ) -> Tensor:
        if subset is None:
            return self.head(self._embed(shared, graph), graph)
        rows, part = subset
        return self.head(self._embed(shared, graph, rows), part)

    def _embed(self, first: PreNormActivations, graph: Graph, rows: Tensor | None = None) -> Tensor:
        """Hidden features of all nodes or of some; only the last layer can be computed for some nodes alone."""
        last = len(self.norms) - 1
        before = first
        for layer in range(last):
            hidden = self._activate(before, layer)
            before = PreNormActivations(self._layer(layer + 1, hidden, graph))
        return self._activate(before, last, rows)

    def _activate(self, before: PreNormActivations, layer: int, rows: Tensor | None = None) -> Tensor:
        if not self.training or self.dropout == 0.0:
            return before.activated(self.norms[layer], rows)
        if self.stream is None:
            return F.dropout(before.activated(self.norms[layer], rows), self.dropout)
        nodes = torch.arange(len(before.values), device=before.values.device) if rows is None else rows
        scales = self.stream.scales(nodes, before.values.shape[1], self.dropout, layer, before.values.dtype)
        return before.activated(self.norms[layer], rows, scales)
