"""Backbones turn the nodes of a graph into logits.

A backbone is an ordinary PyG-style module, ``forward(x, edge_index) -> logits``. Ours also take a prepared
`Graph`, which spares them the work that is the same in every step. Any other `torch.nn.Module` with that
``forward`` works in their place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, JumpingKnowledge, Linear, MessagePassing, MixHopConv
from torch_geometric.utils import softmax

from oddnode.dropout import DropoutStream, dropout_factor
from oddnode.graph import Graph
from oddnode.normalisation import Beginning

if TYPE_CHECKING:
    from oddnode.training_set import TrainingSet

__all__ = ["GAT", "GCN", "MLP", "Backbone", "JKNet", "MixHop", "embed_with", "run_backbone"]


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


class PreparedGCNConv(nn.Module):
    """PyG's `GCNConv` by weights and their names, with a product by the graph's prepared matrix as its only step."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()  # a second time, as PyG's layer does: a seed gives the weights that it gives there
        # The weight is used transposed: laid out in memory that way, neither it nor its gradient is ever copied.
        self.lin.weight.data = self.lin.weight.data.t().contiguous().t()

    def reset_parameters(self) -> None:
        """New weights."""
        self.lin.reset_parameters()
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor | None, graph: Graph) -> Tensor:
        """The convolution of ``hidden``, or of the graph's own features where that is ``None``."""
        if hidden is None:
            return graph.convolve_features(self.lin.weight.t()) + self.bias
        return graph.gcn_matrix @ self.lin(hidden) + self.bias


class PreparedMixHopConv(MixHopConv):
    """PyG's MixHop convolution, with products by the graph's prepared matrix in place of message passing."""

    def forward(self, hidden: Tensor | None, graph: Graph) -> Tensor:
        """The convolution of ``hidden``, or of the graph's own features where that is ``None``."""
        hops = [
            self._hop(power, lin.weight.t(), hidden, graph) for power, lin in zip(self.powers, self.lins, strict=True)
        ]
        return torch.cat(hops, dim=-1) + self.bias

    @staticmethod
    def _hop(power: int, weight: Tensor, hidden: Tensor | None, graph: Graph) -> Tensor:
        """``A^p (H W)``: the narrow factor travels over the edges, not the wide one."""
        if hidden is not None:
            out, done = hidden @ weight, 0
        elif power == 0:
            out, done = graph.times_features(weight), 0
        else:
            out, done = graph.convolve_features(weight), 1
        for _ in range(power - done):
            out = graph.gcn_matrix @ out
        return out


class PreparedGATConv(GATConv):
    """PyG's graph attention, with products by the graph's prepared pattern in place of message passing."""

    def forward(self, transformed: Tensor, graph: Graph, drop: Callable[[Tensor], Tensor]) -> Tensor:
        """The layer from ``H W`` on; ``drop`` is the dropout of attention weights."""
        edges = graph.attention
        values = transformed.view(-1, self.heads, self.out_channels)
        to_source, to_target = ((values * att).sum(dim=-1) for att in (self.att_src, self.att_dst))
        attention = F.leaky_relu(to_source[edges.col] + to_target[edges.row], self.negative_slope)
        attention = drop(softmax(attention, ptr=edges.offsets))
        heads = [edges.times(attention[:, head], values[:, head]) for head in range(self.heads)]
        out = torch.cat(heads, dim=1) if self.concat else torch.stack(heads).mean(dim=0)
        return out + self.bias


class MLP(LayeredBackbone):
    """Fully connected layers that see no edge: what a node's own features tell.

    Between layers batch norm, ReLU and dropout. Parameters as for `GCN`.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        super().__init__(hidden_channels, num_layers, num_layers - 1, dropout)
        self.first = nn.Linear(in_channels, hidden_channels)
        widths = [hidden_channels] * (num_layers - 1) + [out_channels]
        self.lins = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        if hidden is None:
            return graph.times_features(self.first.weight.t()) + self.first.bias
        return self.lins[layer - 1](hidden)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.lins[-1](hidden)


class GCN(LayeredBackbone):
    r"""Graph convolutional network (Kipf and Welling, ICLR 2017) with batch norm, as in the paper.

    Per layer :math:`H' = D^{-1/2} (A + I) D^{-1/2} H W + b`; between layers batch norm, ReLU and dropout.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the hidden layers and of the logits.
    num_layers : int
        How many convolutions.
    dropout : float
        Share of hidden features dropped in training.
    batch_norm : bool
        Whether there is batch norm between the layers.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.0,
        batch_norm: bool = True,
    ):
        super().__init__(hidden_channels, num_layers, num_layers - 1, dropout)
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(PreparedGCNConv(a, b) for a, b in pairwise(widths))
        if not batch_norm:
            self.norms = nn.ModuleList(nn.Identity() for _ in self.norms)

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        return self.convs[layer](hidden, graph)

    def _around(self, nodes: Tensor, graph: Graph) -> tuple[Tensor, Graph]:
        return graph.around(nodes)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.convs[-1](hidden, graph)


class GAT(LayeredBackbone):
    r"""Graph attention network (Velickovic et al., ICLR 2018) with batch norm: two heads, and one in the last layer.

    Per head :math:`h'_v = \sum_{u \in N(v) \cup v} \alpha_{vu} W h_u`; between layers batch norm, ELU and dropout.
    In training, features that come in and attention weights are dropped too.

    Parameters as for `GCN`; ``hidden_channels`` is the width of every head.
    """

    _HEADS = 2

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        wide = self._HEADS * hidden_channels
        super().__init__(wide, num_layers, num_layers - 1, dropout)
        widths = [in_channels] + [wide] * (num_layers - 2)
        self.convs = nn.ModuleList(PreparedGATConv(w, hidden_channels, self._HEADS) for w in widths)
        self.convs.append(PreparedGATConv(wide, out_channels, heads=1, concat=False))

    def embed(self, graph: Graph) -> Tensor:
        hidden = None
        for layer, norm in enumerate(self.norms):
            hidden = self._drop(F.elu(norm(self._layer(layer, hidden, graph))), layer + 1)
        assert hidden is not None
        return hidden

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self._layer(len(self.norms), hidden, graph)

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        conv, drop_attention = self.convs[layer], partial(self._drop, place=len(self.convs) + layer)
        assert isinstance(conv, PreparedGATConv)
        weight = conv.lin.weight.t()
        transformed = self._times_features(weight, graph) if hidden is None else hidden @ weight
        return conv(transformed, graph, drop_attention)

    def _times_features(self, weight: Tensor, graph: Graph) -> Tensor:
        """``drop(X) W``; of sparse features only those that are there are dropped."""
        if not self._drops:
            return graph.times_features(weight)
        if not graph.is_sparse:
            return self._drop(graph.x, 0) @ weight
        return graph.feature_pattern.times(self._drop(graph.feature_entries, 0), weight)

    @property
    def _drops(self) -> bool:
        return self.training and self.dropout > 0.0

    def _drop(self, values: Tensor, place: int) -> Tensor:
        """Dropout at one of the places of the network where there is some."""
        if not self._drops:
            return values
        if self.stream is None:
            return F.dropout(values, self.dropout)
        return values * self.stream.scales_like(values, self.dropout, place)


class JKNet(LayeredBackbone):
    r"""Jumping knowledge network (Xu et al., ICML 2018) on graph convolutions with batch norm.

    The hidden features are the channel-wise maximum over all layers, :math:`\max(H^{(1)}, ..., H^{(L)})`; a linear
    layer gives the logits. Parameters as for `GCN`.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        super().__init__(hidden_channels, num_layers, num_layers, dropout)
        widths = [in_channels] + [hidden_channels] * num_layers
        self.convs = nn.ModuleList(PreparedGCNConv(a, b) for a, b in pairwise(widths))
        self.jump = JumpingKnowledge("max")
        self.lin = nn.Linear(hidden_channels, out_channels)

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        return self.convs[layer](hidden, graph)

    def _embed(self, beginning: Beginning, graph: Graph, rows: Tensor | None = None) -> Tensor:
        layers = [self._activate(beginning, 0)]
        for layer in range(1, len(self.convs)):
            layers.append(self._activate(Beginning(self._layer(layer, layers[-1], graph)), layer))
        hidden = self.jump(layers)
        return hidden if rows is None else hidden[rows]

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.lin(hidden)


class MixHop(LayeredBackbone):
    r"""MixHop (Abu-El-Haija et al., ICML 2019) with batch norm, hops 0, 1 and 2.

    Per layer :math:`H' = [H W_0 \,|\, \hat A H W_1 \,|\, \hat A^2 H W_2] + b` with
    :math:`\hat A = D^{-1/2} (A + I) D^{-1/2}`; then batch norm, ReLU and dropout; a linear layer gives the logits.

    Parameters as for `GCN`; ``hidden_channels`` is the width of every hop.
    """

    _HOPS = (0, 1, 2)

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        wide = len(self._HOPS) * hidden_channels
        super().__init__(wide, num_layers, num_layers, dropout)
        widths = [in_channels] + [wide] * (num_layers - 1)
        self.convs = nn.ModuleList(PreparedMixHopConv(w, hidden_channels, list(self._HOPS)) for w in widths)
        self.lin = nn.Linear(wide, out_channels)

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        return self.convs[layer](hidden, graph)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.lin(hidden)


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
            "(torch.nn.Linear, a PyG convolution, ...), or subclass oddnode.backbones.Backbone with embed and head"
        )
    [hidden] = entered
    if not isinstance(hidden, Tensor) or hidden.dim() != 2 or hidden.shape[0] != graph.num_nodes:
        found = list(hidden.shape) if isinstance(hidden, Tensor) else type(hidden).__name__
        raise TypeError(
            f"the last layer of {name} takes {found}, expected hidden features [nodes, channels] with "
            f"{graph.num_nodes} rows; subclass oddnode.backbones.Backbone and say in embed what they are"
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
