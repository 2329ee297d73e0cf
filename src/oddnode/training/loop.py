"""The training loop (epochs, the best checkpoint, the history, losses that are not finite) and what it trains."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from oddnode.graph import TrainingSet
from oddnode.objectives import Objective
from oddnode.ops import Adam
from oddnode.training.base import Trainer, TrainingConfig, TrainingError, TrainingHandle, TrainingResult, as_sum

S = TypeVar("S")


class Trainee(Protocol[S]):
    """One or more networks with their data and objective, as `oddnode.training.TrainingLoop` drives them.

    An epoch validates the weights it starts from and takes one or more steps from them. Validation and a training pass
    share a part of the forward pass, an object of type ``S`` that the loop drops before the weights change. In epoch
    ``t`` the loop calls, in this order,

    1. ``shared = shared_forward(t)``,
    2. ``validation_loss(shared)``: the loss of the present weights on the validation nodes, one per network ``[size]``,
       without a gradient; and, where any network got better, ``update_best``; neither in epoch 0,
    3. ``loss(shared, t)``: the loss of a training pass, one per network ``[size]``, whose sum it differentiates,

    and then moves the ``parameters()`` and advances ``step_counter`` by one. Further steps of the same epoch call 1 and
    3. After the last epoch it calls 1 and 2 once more, and ``load_best``. No method may wait for the device, and none
    may keep ``shared`` or a part of it.

    ``tensors()`` are the current tensors of the networks, not copied. The loop holds copies of them, ``best``,
    in which ``update_best`` replaces those of the networks for which ``better``, ``[size]``, is true. ``load_best``
    gives the networks these copies and leaves them in evaluation mode.

    Attributes
    ----------
    size : int
        How many networks are trained.
    num_batches : int
        How many steps an epoch has.
    batch_sizes : sequence of int
        With several steps per epoch, the weight of each step's loss in the mean of its epoch.
    step_counter : Tensor
        The number of steps taken, ``[1]`` integers on the device; the loop advances it.
    starts : frozenset of int
        Epochs in which the loss changes, because a term of the objective becomes active.
    capture_blocker : str or None
        Why a step cannot be captured as a CUDA graph; ``None`` where it can.
    """

    size: int
    num_batches: int = 1
    batch_sizes: Sequence[int] = ()
    step_counter: Tensor
    starts: frozenset[int]

    @property
    def capture_blocker(self) -> str | None: ...

    def parameters(self) -> list[nn.Parameter]: ...

    def tensors(self) -> list[Tensor]: ...

    def shared_forward(self, epoch: int) -> S: ...

    def validation_loss(self, shared: S) -> Tensor: ...

    def loss(self, shared: S, epoch: int) -> Tensor: ...

    def update_best(self, better: Tensor, best: list[Tensor]) -> None: ...

    def load_best(self, best: list[Tensor]) -> None: ...


class TrainingLoop:
    """Takes the steps of a `Trainee` and keeps its best weights. No step waits for a device other than the CPU.

    Parameters
    ----------
    trainee : Trainee
        The networks to train.
    config : TrainingConfig
        The settings.
    """

    def __init__(self, trainee: Trainee[Any], config: TrainingConfig):
        self.trainee = trainee
        self.epochs = config.epochs
        parameters = trainee.parameters()
        self.device = parameters[0].device
        self._optimiser = Adam(parameters, config.lr, config.weight_decay)
        numbers: dict[str, Any] = {"dtype": parameters[0].dtype, "device": self.device}
        # Rows are steps, not epochs: they are written by the counter on the device.
        steps = self.epochs * trainee.num_batches
        self._losses = torch.full((steps, trainee.size), float("nan"), **numbers)
        self._val_losses = torch.full((steps + 1, trainee.size), float("nan"), **numbers)
        self._best_loss = torch.full((trainee.size,), float("inf"), **numbers)
        self._best_step = torch.zeros(trainee.size, dtype=torch.long, device=self.device)
        self._best = [tensor.clone() for tensor in trainee.tensors()]
        # Reading a number from any other device would wait for it.
        self._reads_every_step = self.device.type == "cpu"

    def start(self, on_epoch: Callable[[int], None] | None = None) -> TrainingHandle[list[TrainingResult]]:
        """Take all steps; ``result()`` of the handle is that of `finish`.

        Parameters
        ----------
        on_epoch : callable, optional
            Called with the number of epochs done.
        """
        for epoch in range(self.epochs):
            for batch in range(self.trainee.num_batches):
                self.step(epoch, batch)
            if on_epoch:
                on_epoch(epoch + 1)
        return TrainingHandle(self.finish)

    def step(self, epoch: int, batch: int = 0) -> None:
        """Take a step; the first one of an epoch validates the weights it starts from.

        Parameters
        ----------
        epoch : int
            The number of epochs done.
        batch : int
            The number of steps taken in this epoch.
        """
        loss, counter = self._backward(epoch, batch), self.trainee.step_counter
        self._optimiser.step()
        self._losses.index_copy_(0, counter, loss.to(self._losses).unsqueeze(0))
        counter.add_(1)
        if self._reads_every_step:
            self._check_finite(epoch * self.trainee.num_batches + batch)

    def _backward(self, epoch: int, batch: int) -> Tensor:
        """Validation, the training pass and its gradients; what these share is freed on return."""
        shared = self.trainee.shared_forward(epoch)
        if epoch > 0 and batch == 0:  # the initial weights are not candidates
            self._validate(shared)
        loss = self.trainee.loss(shared, epoch)
        self._optimiser.zero_grad()
        loss.sum().backward()
        return loss.detach()

    def _validate(self, shared: Any) -> None:
        counter = self.trainee.step_counter
        loss = self.trainee.validation_loss(shared).to(self._best_loss)
        self._val_losses.index_copy_(0, counter, loss.unsqueeze(0))
        better = loss < self._best_loss
        if self._reads_every_step and not bool(better.any()):
            return
        self._best_loss.copy_(torch.where(better, loss, self._best_loss))
        self._best_step.copy_(torch.where(better, counter, self._best_step))
        self.trainee.update_best(better, self._best)

    def finish(self) -> list[TrainingResult]:
        """Validate the last weights and load the best ones; one result for each network."""
        self._validate(self.trainee.shared_forward(self.epochs))
        self._check_finite(len(self._losses) - 1)
        self.trainee.load_best(self._best)
        steps, sizes = self.trainee.num_batches, self.trainee.batch_sizes
        columns = self._losses, self._val_losses[steps::steps], self._best_step, self._best_loss
        results = []
        for losses, val_losses, step, best in zip(*[each.t().tolist() for each in columns], strict=True):
            if steps > 1:  # the mean over the steps of every epoch
                weighted = [loss * size for loss, size in zip(losses, sizes, strict=True)]
                starts = range(0, len(losses), steps)
                losses = [sum(weighted[k : k + steps]) / sum(sizes[k : k + steps]) for k in starts]
            rows = enumerate(zip(losses, val_losses, strict=True), 1)
            history = [{"epoch": n, "loss": loss, "val_loss": val} for n, (loss, val) in rows]
            results.append(TrainingResult(step // steps, best, history))
        return results

    def _check_finite(self, step: int) -> None:
        """Raise an error if a loss is not finite: that of this step if every step is checked, else that of any."""
        first = step if self._reads_every_step else 0
        losses = self._losses[first : step + 1].cpu()
        bad = ~losses.isfinite()
        if not bool(bad.any()):
            return
        row = int(bad.any(dim=1).nonzero()[0])
        epoch = (first + row) // self.trainee.num_batches + 1
        raise TrainingError(
            f"the loss became {losses[row][bad[row]][0].item()} in epoch {epoch} of {self.epochs}; lower the "
            "learning rate or the weights of the objective, or check the scale of the features"
        )


def counted_from(before: int, on_epoch: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """Count the epochs of one network after those of the networks before it."""
    return None if on_epoch is None else lambda epochs: on_epoch(before + epochs)


class TrainsInTurn(Trainer):
    """A trainer that finishes one network before it prepares the next."""

    def _trainees(
        self, networks: Iterable[tuple[nn.Module, TrainingSet, int]], objective: Objective, config: TrainingConfig
    ) -> Generator[Trainee[Any], None, None]:
        """Prepare networks, each with its data and its seed; contexts opened for one are closed after its training."""
        raise NotImplementedError

    def start(
        self,
        modules: Sequence[nn.Module],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        config: TrainingConfig,
        on_epoch: Callable[[int], None] | None = None,
    ) -> TrainingHandle[list[TrainingResult]]:
        results: list[TrainingResult] = []
        networks = zip(modules, data, seeds, strict=True)
        with closing(self._trainees(networks, as_sum(objective), config)) as trainees:
            for trainee in trainees:
                counted = counted_from(len(results) * config.epochs, on_epoch)
                results += TrainingLoop(trainee, config).start(counted).result()
        return TrainingHandle(lambda: results)
