r"""Full-batch training that reads only the rows around labelled and validation nodes, for graphs on disk and others.

For a network of two layers the first product, :math:`M = A X`, never changes. The last layer at some nodes needs the
rows of :math:`M` at these nodes and their neighbours, which are copied once ("packed"); batch norm over *all* nodes is
in closed form (`oddnode.large.moments`). So a step is that of full-batch training, while its memory depends neither on
the number of nodes nor on that of edges. The packed rows pass through the network a chunk at a time, forwards and once
more backwards; hidden features are kept in between if there is room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import TrainingSet
from oddnode.large.arrays import at_once
from oddnode.large.network import TwoLayers
from oddnode.large.packed import PackedNodes
from oddnode.large.ranks import active_ranks
from oddnode.objectives import Objective, Term, TrainingPass, validation_loss
from oddnode.ops import DropoutStream, dropout_factor
from oddnode.training import TrainingConfig, TrainingHandle, TrainingLoop, TrainingResult, train

__all__ = ["PackedRows", "PackedTrainee"]

# The memory of hidden features that a GPU keeps from the forward to the backward pass.
_ROOM_ON_GPU = 2**32


class _Rows(NamedTuple):
    """How the hidden features of packed rows are computed.

    Parameters
    ----------
    scales : callable
        What dropout multiplies those of some rows by: 0 or ``factor``.
    factor : float
        What is not dropped is multiplied by it.
    at_once : int
        How many rows pass through the network at a time.
    room : Tensor or None
        Room for the hidden features of all rows ``[m, H]``; without it they are computed again in the backward pass.
    """

    scales: Callable[[slice], Tensor | float]
    factor: float
    at_once: int
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
        ctx.save_for_backward(weight, bias, last, inputs, settings.room)  # an error if it is overwritten meanwhile
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
            # What was dropped is 0, as what was negative is: neither has a gradient.
            own = torch.ops.aten.threshold_backward(torch.mm(scaled[rows], last), hidden, 0)
            to_last.addmm_(grad[rows].t(), hidden)
            to_weight.addmm_(own.t(), part)
            to_bias += own.sum(dim=0)
        return to_weight, to_bias, to_last, None, None


def _room_for(inputs: Tensor, width: int) -> Tensor | None:
    """Room for hidden features of all rows, if it is there: to compute them twice takes a third longer."""
    most = active_ranks().own_memory_share if inputs.device.type == "cpu" else _ROOM_ON_GPU
    fits = len(inputs) * width * inputs.element_size() <= most
    return inputs.new_empty(len(inputs), width) if fits else None


def _parts(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


class PackedForward(NamedTuple):
    """What validation and the training pass of one step share: the first layer with batch norm, as one linear map.

    Parameters
    ----------
    weight, bias : Tensor
        Of the map from centred inputs to features before ReLU, ``[H, F]`` and ``[H]``.
    """

    weight: Tensor
    bias: Tensor


class PackedTrainee:
    """A network with its packed rows and its objective; a `oddnode.training.Trainee`.

    Parameters
    ----------
    module : torch.nn.Module
        The network, with its initial weights; it has the best ones in the end.
    objective : Objective
        What it minimises, prepared; it reads the logits of labelled nodes only.
    data : TrainingSet
        What it is trained on.
    packed : tuple of PackedNodes
        The rows of the training nodes, and of the validation nodes.
    dropout_seed : int
        The seed of its dropout.
    rows_at_once : int
        How many rows pass through the network at a time.
    """

    size = 1
    capture_blocker = "only some rows are packed"

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        data: TrainingSet,
        packed: tuple[PackedNodes, PackedNodes],
        dropout_seed: int,
        rows_at_once: int,
    ):
        self.module = module
        self.objective = objective
        self.data = data
        self.epoch_counter = torch.zeros(1, dtype=torch.long, device=data.graph.device)
        self._packed = packed
        self._layers = TwoLayers.of(module)
        self._moments = self._layers.moments(data.graph)
        self._dropout: float = module.dropout  # type: ignore[assignment]
        self._stream = DropoutStream(dropout_seed)
        self._rows_at_once = at_once(rows_at_once, data.graph.device)
        self._room = _room_for(packed[0].inputs, len(self._layers.weight))

    @property
    def starts(self) -> frozenset[int]:
        """Epochs in which a term of the objective begins to count."""
        return self.objective.starts

    def parameters(self) -> list[nn.Parameter]:
        """The parameters to train."""
        return list(self.module.parameters())

    def tensors(self) -> list[Tensor]:
        """Parameters and buffers, not copied."""
        return [tensor.detach() for tensor in self.module.state_dict(keep_vars=True).values()]

    def update_best(self, better: Tensor, best: list[Tensor]) -> None:
        """Copy the present tensors where they are better, as `oddnode.training.Trainee.update_best` says.

        Parameters
        ----------
        better : Tensor
            Whether they are, ``[1]``.
        best : list of Tensor
            Copies of `tensors`, updated in place.
        """
        for kept, now in zip(best, self.tensors(), strict=True):
            kept.copy_(torch.where(better[0], now, kept))

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of the first layer over all nodes, ``[H]`` each."""
        mean, variance = self._moments.of_product(self._layers.weight)
        return mean + self._layers.bias, variance

    def shared_forward(self, epoch: int) -> PackedForward:
        """Fold batch norm into the first layer.

        Parameters
        ----------
        epoch : int
            The number of steps taken.

        Returns
        -------
        PackedForward
            For `validation_loss` and `loss`.
        """
        weight, norm = self._layers.weight, self._layers.norm
        mean, variance = self._statistics()
        if not isinstance(norm, _BatchNorm):
            return PackedForward(weight, mean)  # what centred inputs lack
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return PackedForward(weight * scale.unsqueeze(1), norm.bias)

    @torch.no_grad()
    def validation_loss(self, shared: PackedForward) -> Tensor:
        """Evaluate the present weights on the validation nodes.

        Parameters
        ----------
        shared : PackedForward
            From `shared_forward`.

        Returns
        -------
        Tensor
            The loss, ``[1]``.
        """
        logits = self._logits(shared, self._packed[1], dropout=0.0)
        return validation_loss(self._pass(0, logits, self.data.y_val)).reshape(1)

    def loss(self, shared: PackedForward, epoch: int) -> Tensor:
        """Compute the loss of a training pass.

        Parameters
        ----------
        shared : PackedForward
            From `shared_forward`.
        epoch : int
            The number of steps taken.

        Returns
        -------
        Tensor
            The loss, ``[1]``.
        """
        self._stream.at(epoch, 0)
        logits = self._logits(shared, self._packed[0], self._dropout)
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

    def _pass(self, epoch: int, logits: Tensor, y: Tensor) -> TrainingPass:
        data = self.data
        positions = torch.arange(len(logits), device=logits.device)
        return TrainingPass(epoch, data.num_classes, data.graph, logits, positions, y, has_all_logits=False)

    @torch.no_grad()
    def load_best(self, best: list[Tensor]) -> None:
        """Take the best tensors over, with batch norm's statistics over all nodes, and be ready to score.

        Parameters
        ----------
        best : list of Tensor
            Copies of `tensors`.
        """
        for tensor, kept in zip(self.tensors(), best, strict=True):
            tensor.copy_(kept)
        norm = self._layers.norm
        if isinstance(norm, _BatchNorm) and norm.running_mean is not None and norm.running_var is not None:
            mean, variance = self._statistics()
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance * (self._moments.num_rows / max(self._moments.num_rows - 1, 1)))
        self.module.eval()


@dataclass(frozen=True)
class PackedRows:
    """The trainer for graphs on disk; it trains what `oddnode.training.FullBatch` would, one network after another.

    It is faster than full batches for large graphs in memory, too, if few nodes are labelled.

    Parameters
    ----------
    rows_at_once : int
        How many rows pass through the network at a time, on a GPU 64 times as many; only the memory and the time
        depend on it.
    """

    rows_at_once: int = 2**14

    def start(
        self,
        modules: Sequence[nn.Module],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        config: TrainingConfig,
        on_epoch: Callable[[int], None] | None = None,
    ) -> TrainingHandle[list[TrainingResult]]:
        """Train all networks, as `oddnode.training.Trainer.start` says.

        Parameters
        ----------
        modules : sequence of torch.nn.Module
            The networks, with their initial weights.
        objective : Objective
            What each of them minimises.
        data : sequence of TrainingSet
            One for each network; networks with the same one share its packed rows.
        seeds : sequence of int
            One for each network.
        config : TrainingConfig
            The settings.
        on_epoch : callable, optional
            Called with the number of epochs done, counted over all networks.

        Returns
        -------
        TrainingHandle
            Its ``result()`` has one `oddnode.training.TrainingResult` for each network.
        """
        if isinstance(objective, Term):
            objective = 1.0 * objective  # only a sum honours the start of its terms
        packed: dict[int, tuple[PackedNodes, PackedNodes]] = {}
        results: list[TrainingResult] = []
        for module, own, seed in zip(modules, data, seeds, strict=True):
            if id(own) not in packed:
                packed[id(own)] = self._packed(module, own)
            prepared = objective.prepare(own, train)
            trainee = PackedTrainee(module, prepared, own, packed[id(own)], seed, self.rows_at_once)
            before = len(results) * config.epochs
            counted = None if on_epoch is None else lambda done, before=before: on_epoch(before + done)
            results += TrainingLoop(trainee, config).start(counted).result()
        return TrainingHandle(lambda: results)

    @staticmethod
    def _packed(module: nn.Module, data: TrainingSet) -> tuple[PackedNodes, PackedNodes]:
        graph, layers = data.graph, TwoLayers.of(module)
        return PackedNodes.of(data.train, graph, layers), PackedNodes.of(data.val, graph, layers)
