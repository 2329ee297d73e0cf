"""Stages, the building blocks of backbones: each can run with gradients, or stream its rows without.

In memory a stage maps the values of all nodes, ``None`` for the graph's features. Streamed, a matrix with a row for
every node is a function that computes some of its rows. The output of a convolution is stored, for a graph on disk in a
temporary file; everything else works on rows and is computed when they are needed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import Graph, neighbourhood, node_blocks
from oddnode.ops import PreNormActivations

if TYPE_CHECKING:
    from oddnode.nn.base import Backbone
    from oddnode.nn.pyg_convs import PreparedGATConv

#: A matrix with a row for every node: computes the rows of some nodes, given by index or as a slice.
NodeMatrix = Callable[[Tensor | slice], Tensor]

# Number of elements that are gathered or computed at a time.
_NUMBERS_AT_ONCE = 2**23
# Up to this width a CPU multiplies by a weight faster as (W H^T)^T than as H W^T.
_NARROW = 10


class Stage(ABC):
    """One step of a backbone.

    A matrix with a row for every node is passed on from stage to stage: in memory as a tensor ``[N, C]``, streamed as a
    function of the indices or the slice of some nodes that computes their rows. ``None`` stands for the graph's
    features.

    Attributes
    ----------
    num_hops : int
        From how many hops away nodes change a node's row. A custom stage that reads neighbours must set it:
        mini-batches contain only these hops.
    has_dropout : bool
        Whether its values are random in training.
    takes_pre_norm : bool
        Whether it takes `PreNormActivations`, which a training pass and an evaluation can share.
    """

    num_hops: int = 0
    has_dropout: bool = False
    takes_pre_norm: bool = False

    @abstractmethod
    def run(self, values: Any, graph: Graph, backbone: Backbone) -> Tensor:
        """Compute the values of all nodes, with gradients, in the mode of the backbone and with its dropout.

        Parameters
        ----------
        values : Tensor or None
            The result of the stage before.
        graph : Graph
            The graph; ``graph.gcn_matrix @ values`` is a graph convolution, ``graph.random_walk @ values`` the mean
            over neighbours.
        backbone : Backbone
            The network that contains it.
        """

    @abstractmethod
    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        """Compute the values for some rows at a time, without gradients, in evaluation mode.

        Parameters
        ----------
        values : callable or None
            The result of the stage before.
        stream : Stream
            Has the graph. ``stream.stored(values)`` are the rows of all nodes, which convolutions need; for a graph on
            disk they are in a temporary file.
        """


class Stages(NamedTuple):
    """The stages of a backbone."""

    hidden: Sequence[Stage]  #: The stages up to the features before the last layer.
    head: Sequence[Stage]  #: The stages from these features to the logits.


def run_stages(
    stages: Sequence[Stage], values: Any, graph: Graph, backbone: Backbone, rows: Tensor | None = None
) -> Tensor:
    """Run stages one after another; the last one may be run for some rows only."""
    for stage in stages:
        if rows is not None and stage is stages[-1] and isinstance(stage, Activation):
            return stage.run(values, graph, backbone, rows)
        values = stage.run(values, graph, backbone)
    values = graph.x if values is None else values
    return values if rows is None else values[rows]


class Stream:
    """Streams stages over a graph; on the way, batch norm can be given the statistics of all nodes."""

    def __init__(self, graph: Graph, fit_norms: bool = False):
        self.graph, self.fit_norms = graph, fit_norms

    def through(self, stages: Sequence[Stage], values: NodeMatrix | None) -> NodeMatrix:
        for stage in stages:
            values = stage.stream(values, self)
        return (lambda rows: self.graph.x[rows]) if values is None else values

    def times(self, values: NodeMatrix | None, lin: nn.Module) -> Tensor:
        """``H W^T`` of all nodes, for a layer without a bias."""
        if values is None:
            return self.graph.times_features(lin.weight)  # type: ignore[arg-type]
        return self.stored(lambda rows: lin(values(rows)))

    def stored(self, values: NodeMatrix) -> Tensor:
        out = self.graph.empty(_width(values))
        for rows in self.chunks(values):
            out[rows] = values(rows)
        return out

    def chunks(self, values: NodeMatrix) -> list[slice]:
        """Rows that are computed together."""
        step = max(_NUMBERS_AT_ONCE // max(_width(values), self.graph.x.shape[1]), 1)
        return [slice(start, start + step) for start in range(0, self.graph.num_nodes, step)]


def _width(values: NodeMatrix) -> int:
    return values(slice(0, 1)).shape[1]


class Linear(Stage):
    """A linear layer, ``H W^T + b``."""

    def __init__(self, lin: nn.Linear):
        self.lin, self.weight, self.bias = lin, lin.weight, lin.bias

    def run(self, values: Tensor | None, graph: Graph, backbone: Backbone) -> Tensor:
        return graph.times_features(self.weight) + self.bias if values is None else self.lin(values)

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        if values is not None:
            return lambda rows: self.lin(values(rows))
        product = stream.times(None, self.lin)
        return lambda rows: product[rows] + self.bias


class PreparedGCNConv(nn.Module):
    """PyG's `GCNConv`, with the same weights and names, as one product with the graph's prepared matrix.

    Parameters
    ----------
    in_channels, out_channels : int
        Width of its input and of its output.
    """

    powers = (1,)  # as in a MixHop convolution with one hop

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()  # a second draw, as in PyG: a seed gives the same weights as there
        if out_channels > _NARROW:
            # The weight is used transposed: with this memory layout, neither it nor its gradient is ever copied.
            self.lin.weight.data = self.lin.weight.data.t().contiguous().t()

    @property
    def lins(self) -> list[nn.Module]:
        return [self.lin]

    def reset_parameters(self) -> None:
        bound = math.sqrt(6.0 / sum(self.lin.weight.shape))  # Glorot and Bengio's
        nn.init.uniform_(self.lin.weight, -bound, bound)
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor | None, graph: Graph) -> Tensor:
        if hidden is None:
            return graph.convolve_features(self.lin.weight) + self.bias
        weight = self.lin.weight
        is_narrow = len(weight) <= _NARROW and hidden.device.type == "cpu"  # faster, forward and backward
        product = (weight @ hidden.t()).t() if is_narrow else hidden @ weight.t()
        return graph.gcn_matrix @ product + self.bias


def convolved(
    product: Tensor | None, weight: Tensor, power: int, graph: Graph, convolve: Callable[[Tensor], Tensor]
) -> Tensor:
    """``A^p (H W^T)``, from ``H W^T`` or with the graph's features: the narrower factor is propagated."""
    if product is None and power == 0:
        return graph.times_features(weight)
    if product is None:
        product, power = graph.convolve_features(weight), power - 1
    for _ in range(power):
        product = convolve(product)
    return product


class Convolution(Stage):
    """A `PreparedGCNConv` or a `PreparedMixHopConv`: ``A^p H W_p^T`` side by side for its powers p, plus a bias."""

    def __init__(self, conv: Any):
        self.conv, self.bias = conv, conv.bias
        self.num_hops = max(conv.powers)

    @property
    def weight(self) -> Tensor:
        """The weight of a graph convolution, ``[C, F]``."""
        return self.conv.lin.weight

    def run(self, values: Tensor | None, graph: Graph, backbone: Backbone) -> Tensor:
        return self.conv(values, graph)

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        graph, hops = stream.graph, []
        for power, lin in zip(self.conv.powers, self.conv.lins, strict=True):
            product = None if values is None else stream.times(values, lin)
            hops.append(convolved(product, lin.weight, power, graph, graph.convolve))
        if len(hops) == 1:
            return lambda rows: hops[0][rows] + self.bias
        return lambda rows: torch.cat([hop[rows] for hop in hops], dim=1) + self.bias


def is_graph_convolution(stage: Stage) -> bool:
    """Whether a stage is ``A H W^T + b``."""
    return type(stage) is Convolution and isinstance(stage.conv, PreparedGCNConv)


class Attention(Stage):
    """A `PreparedGATConv`; in training, attention is dropped at its ``place``, and input features at place 0."""

    num_hops = 1
    has_dropout = True

    def __init__(self, conv: PreparedGATConv, place: int):
        self.conv, self.place = conv, place

    def run(self, values: Tensor | None, graph: Graph, backbone: Backbone) -> Tensor:
        weight = self.conv.lin.weight
        transformed = times_dropped(graph, weight, backbone) if values is None else values @ weight.t()
        return self.conv(transformed, graph, partial(backbone._drop, place=self.place))

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        """In blocks of nodes with the rows of their neighbours."""
        graph = stream.graph.with_features(stream.times(values, self.conv.lin))
        out = graph.empty(len(self.conv.bias))
        for block, part in blocks_with_neighbours(graph):
            out[block] = self.conv(part.x, part, drop=lambda values: values)[: block.stop - block.start]
        return lambda rows: out[rows]


def blocks_with_neighbours(graph: Graph) -> Iterator[tuple[slice, Graph]]:
    """Blocks of nodes, each with the graph of these nodes, which come first, and their neighbours."""
    for block in node_blocks(graph, max(_NUMBERS_AT_ONCE // graph.x.shape[1], 1)):
        part, _ = neighbourhood(graph, torch.arange(block.start, block.stop), num_hops=1)
        yield block, part


def times_dropped(graph: Graph, weight: Tensor, backbone: Backbone) -> Tensor:
    """``drop(X) W^T``; for sparse features, only non-zero entries are dropped."""
    if not backbone._drops:
        return graph.times_features(weight)
    if not graph.is_sparse:
        return backbone._drop(graph.x, 0) @ weight.t()
    pattern, entries = graph.feature_pattern
    return pattern.times(backbone._drop(entries, 0), weight.t())


class Norm(Stage):
    """Batch norm, or any other module that works on rows in evaluation."""

    def __init__(self, norm: nn.Module, place: int = 0):
        self.norm, self.place = norm, place  # the place of its dropout, if any

    def run(self, values: Tensor, graph: Graph, backbone: Backbone) -> Tensor:
        return self.norm(values)

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        assert values is not None
        if stream.fit_norms and isinstance(self.norm, _BatchNorm):
            moments = ColumnMoments()
            for rows in stream.chunks(values):
                moments.update(values(rows))
            moments.set_to(self.norm)
        return lambda rows: self.norm(values(rows))


class Activation(Norm):
    """Batch norm, ReLU and dropout; masks depend on the node, so that some rows can be computed alone."""

    has_dropout = True
    takes_pre_norm = True

    def run(
        self, values: Tensor | PreNormActivations, graph: Graph, backbone: Backbone, rows: Tensor | None = None
    ) -> Tensor:
        before = PreNormActivations(values) if isinstance(values, Tensor) else values
        if not backbone._drops:
            return before.activated(self.norm, rows)
        if backbone.stream is None:
            return F.dropout(before.activated(self.norm, rows), backbone.dropout)
        size, width = before.values.shape
        nodes = torch.arange(size, device=before.values.device) if rows is None else rows
        scales = backbone.stream.scales(nodes, width, backbone.dropout, self.place, before.values.dtype)
        return before.activated(self.norm, rows, scales)

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        normalised = super().stream(values, stream)
        return lambda rows: F.relu(normalised(rows))


class RowWise(Stage):
    """A function of single rows, followed by dropout if it has a place."""

    def __init__(self, function: Callable[[Tensor], Tensor], place: int | None = None):
        self.function, self.place = function, place
        self.has_dropout = place is not None

    def run(self, values: Tensor, graph: Graph, backbone: Backbone) -> Tensor:
        values = self.function(values)
        return values if self.place is None else backbone._drop(values, self.place)

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        assert values is not None
        return lambda rows: self.function(values(rows))


class Jump(Stage):
    """Combines the values after every `Activation` among some stages (jumping knowledge)."""

    has_dropout = True

    def __init__(self, combine: Callable[[list[Tensor]], Tensor], stages: Sequence[Stage]):
        self.combine, self.stages = combine, stages
        self.num_hops = sum(stage.num_hops for stage in stages)
        self.takes_pre_norm = stages[0].takes_pre_norm

    def run(self, values: Any, graph: Graph, backbone: Backbone) -> Tensor:
        parts = []
        for stage in self.stages:
            values = stage.run(values, graph, backbone)
            if isinstance(stage, Activation):
                parts.append(values)
        return self.combine(parts)

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        parts: list[NodeMatrix] = []
        for stage in self.stages:
            values = stage.stream(values, stream)
            if isinstance(stage, Activation):
                parts.append(values)
        return lambda rows: self.combine([part(rows) for part in parts])


class ColumnMoments:
    """Mean and variance of every column, in double precision, merged from chunks of rows (Chan et al., 1979)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def update(self, rows: Tensor) -> None:
        variance, mean = torch.var_mean(rows.double(), dim=0, correction=0)
        total = self.count + len(rows)
        step = mean - self.mean
        self._squares = self._squares + variance * len(rows) + step.square() * (self.count * len(rows) / total)
        self.mean = self.mean + step * (len(rows) / total)
        self.count = total

    def set_to(self, norm: _BatchNorm) -> None:
        """Set the running statistics of a batch norm; the variance is the biased one."""
        if self.count and norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean.copy_(torch.as_tensor(self.mean))
            norm.running_var.copy_(torch.as_tensor(self._squares) / self.count)
