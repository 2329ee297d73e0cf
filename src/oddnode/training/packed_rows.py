r"""Full-batch training that reads only the rows around labelled and validation nodes, for graphs on disk and others.

For a network of two layers the first product, :math:`M = A X`, never changes. The last layer at some nodes needs the
rows of :math:`M` at these nodes and their neighbours, which are copied once ("packed"); batch norm over *all* nodes is
in closed form (`oddnode.large.moments`). So a step is that of full-batch training, while its memory depends neither on
the number of nodes nor on that of edges. The packed rows pass through the network a chunk at a time, forwards and once
more backwards; hidden features are kept in between if memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import Graph, TrainingSet
from oddnode.large.arrays import at_once
from oddnode.large.graph import FolderGraph
from oddnode.large.ranks import active_ranks
from oddnode.nn.base import TwoLayers
from oddnode.objectives import Objective, validation_loss
from oddnode.ops import SparseMatrix, dropout_factor
from oddnode.training.base import TrainingConfig
from oddnode.training.full_batch import train
from oddnode.training.loop import TrainsInTurn
from oddnode.training.single import NetworkTrainee

# The memory of hidden features that a GPU keeps from the forward to the backward pass.
_ROOM_ON_GPU = 2**32


class PackedNodes(NamedTuple):
    """Everything that the logits of some nodes depend on."""

    rows: Tensor  # Indices of these nodes and their neighbours `[m]`
    inputs: Tensor  # The rows of the first product there, minus the mean of all rows, `[m, F]`
    matrix: SparseMatrix | None  # The last convolution `[n, m]`; `None` for a network that sees no edges

    @classmethod
    def of(cls, nodes: Tensor, graph: Graph, layers: TwoLayers) -> PackedNodes:
        """Copy the rows that some nodes need."""
        rows, matrix = nodes, None
        if layers.uses_edges:
            rows, matrix = _rows_around(graph, nodes)
        source, mean = layers.inputs(graph), layers.moments(graph).mean.to(graph.x.dtype)
        if not isinstance(graph, FolderGraph):
            return cls(rows, source[rows] - mean, matrix)
        inputs = graph.folder.empty((len(rows), source.shape[1]), source.dtype)
        for places in torch.arange(len(rows)).split(2**18):
            inputs[places] = source[rows[places]] - mean
        return cls(rows, inputs, matrix)


def _rows_around(graph: Graph, nodes: Tensor) -> tuple[Tensor, SparseMatrix]:
    """The nodes and their neighbours ``[m]``, and the convolution of the former from the latter ``[n, m]``."""
    if not isinstance(graph, FolderGraph):
        matrix, rows = graph.gcn_matrix.rows(nodes)
        return rows, matrix
    rows, (row, column), values = graph.rows_around(nodes)
    return rows, SparseMatrix(row, column, values, (len(nodes), len(rows)))


class _Rows(NamedTuple):
    """How the hidden features of packed rows are computed."""

    scales: Callable[[slice], Tensor | float]  # Dropout factors of some rows: 0 or `factor`
    factor: float  # The factor of what is not dropped
    at_once: int  # How many rows pass through the network at a time
    room: Tensor | None

    def hidden(self, rows: slice, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        out = inputs.new_empty(len(inputs), len(weight)) if self.room is None else self.room[rows]
        return torch.addmm(bias, inputs, weight.t(), out=out).relu_().mul_(self.scales(rows))


class _HiddenProduct(torch.autograd.Function):
    """``(relu(X W^T + b) * scales) V^T`` for many rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, last: Tensor, inputs: Tensor, settings: _Rows) -> Tensor:
        ctx.settings = settings
        out = inputs.new_empty(len(inputs), len(last))
        for rows in _parts(len(inputs), settings.at_once):
            torch.mm(settings.hidden(rows, inputs[rows], weight, bias), last.t(), out=out[rows])
        ctx.save_for_backward(weight, bias, last, inputs, settings.room)  # an error if overwritten
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, bias, last, inputs, room = ctx.saved_tensors
        settings, scaled = ctx.settings, grad * ctx.settings.factor
        to_weight, to_bias, to_last = (torch.zeros_like(each) for each in (weight, bias, last))
        for rows in _parts(len(inputs), settings.at_once):
            part = inputs[rows]
            hidden = settings.hidden(rows, part, weight, bias) if room is None else room[rows]
            # Dropped and negative features are 0: neither has a gradient.
            own = torch.ops.aten.threshold_backward(torch.mm(scaled[rows], last), hidden, 0)
            to_last.addmm_(grad[rows].t(), hidden)
            to_weight.addmm_(own.t(), part)
            to_bias += own.sum(dim=0)
        return to_weight, to_bias, to_last, None, None


def _room_for(inputs: Tensor, width: int) -> Tensor | None:
    """A buffer for the hidden features of all rows, if memory allows: computing them twice takes a third longer."""
    most = active_ranks().own_memory_share if inputs.device.type == "cpu" else _ROOM_ON_GPU
    fits = len(inputs) * width * inputs.element_size() <= most
    return inputs.new_empty(len(inputs), width) if fits else None


def _parts(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


class PackedForward(NamedTuple):
    """What validation and the training pass of one step share: the first layer with batch norm, as one linear map."""

    weight: Tensor  # From centred inputs to features before ReLU, `[H, F]`
    bias: Tensor  # `[H]`


class PackedTrainee(NetworkTrainee[PackedForward]):
    """A network with its packed rows and its objective; a `oddnode.training.Trainee`."""

    capture_blocker = "only some rows are packed"

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        data: TrainingSet,
        packed: list[PackedNodes],
        dropout_seed: int,
        rows_at_once: int,
        epochs: int,
    ):
        super().__init__(module, objective, data, "id-graph", dropout_seed, epochs)
        self._packed = packed
        self._layers = TwoLayers.of(module)
        self._moments = self._layers.moments(data.graph)
        self._rows_at_once = at_once(rows_at_once, data.graph.device)
        self._room = _room_for(packed[0].inputs, len(self._layers.weight))

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of the first layer over all nodes, ``[H]`` each."""
        mean, variance = self._moments.of_product(self._layers.weight)
        return mean + self._layers.bias, variance

    def shared_forward(self, epoch: int) -> PackedForward:
        """Fold batch norm into the first layer."""
        weight, norm = self._layers.weight, self._layers.norm
        mean, variance = self._statistics()
        if not isinstance(norm, _BatchNorm):
            return PackedForward(weight, mean)  # which centred inputs lack
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return PackedForward(weight * scale.unsqueeze(1), norm.bias)

    @torch.no_grad()
    def validation_loss(self, shared: PackedForward) -> Tensor:
        logits = self._logits(shared, self._packed[1], dropout=0.0)
        return validation_loss(self._pass(0, logits, self.data.y_val)).reshape(1)

    def loss(self, shared: PackedForward, epoch: int) -> Tensor:
        self._stream.at(epoch, 0)
        logits = self._logits(shared, self._packed[0], self.module.dropout)
        return self.objective(self._pass(epoch, logits, self.data.y_train)).reshape(1)

    def _logits(self, shared: PackedForward, packed: PackedNodes, dropout: float) -> Tensor:
        layers = self._layers
        width, dtype = len(layers.weight), packed.inputs.dtype

        def scales(rows: slice) -> Tensor | float:
            return self._stream.scales(packed.rows[rows], width, dropout, 0, dtype) if dropout else 1.0

        room = self._room if torch.is_grad_enabled() else None
        settings = _Rows(scales, dropout_factor(dropout), self._rows_at_once, room)
        products = _HiddenProduct.apply(shared.weight, shared.bias, layers.last_weight, packed.inputs, settings)
        products = products if packed.matrix is None else packed.matrix @ products
        return products + layers.last_bias

    def _fit_norms(self) -> None:
        norm = self._layers.norm
        if isinstance(norm, _BatchNorm) and norm.running_mean is not None and norm.running_var is not None:
            mean, variance = self._statistics()
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance * (self._moments.num_rows / max(self._moments.num_rows - 1, 1)))


@dataclass(frozen=True)
class PackedRows(TrainsInTurn):
    """The trainer for graphs on disk; it trains what `oddnode.training.FullBatch` would, one network after another.

    It is faster than full batches for large graphs in memory, too, if few nodes are labelled.

    Parameters
    ----------
    rows_at_once : int
        How many rows pass through the network at a time, on a GPU 64 times as many; only the memory and the time
        depend on it.
    """

    rows_at_once: int = 2**14

    def _trainees(
        self, networks: Iterable[tuple[nn.Module, TrainingSet, int]], objective: Objective, config: TrainingConfig
    ) -> Generator[PackedTrainee, None, None]:
        packed: dict[int, list[PackedNodes]] = {}  # networks with the same data share its rows
        for module, data, seed in networks:
            if id(data) not in packed:
                layers = TwoLayers.of(module)
                packed[id(data)] = [PackedNodes.of(nodes, data.graph, layers) for nodes in (data.train, data.val)]
            prepared, rows = objective.prepare(data, train), packed[id(data)]
            yield PackedTrainee(module, prepared, data, rows, seed, self.rows_at_once, config.epochs)
