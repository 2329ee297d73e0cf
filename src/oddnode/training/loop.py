"""The training loop: epochs, the best checkpoint, the history, and losses that are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from oddnode.ops import Adam
from oddnode.training.base import TrainingConfig, TrainingError, TrainingHandle, TrainingResult
from oddnode.training.trainee import Trainee

__all__ = ["TrainingLoop"]


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
        self._losses = torch.full((self.epochs, trainee.size), float("nan"), **numbers)
        self._val_losses = torch.full((self.epochs + 1, trainee.size), float("nan"), **numbers)
        self._best_loss = torch.full((trainee.size,), float("inf"), **numbers)
        self._best_epoch = torch.zeros(trainee.size, dtype=torch.long, device=self.device)
        self._best = [tensor.clone() for tensor in trainee.tensors()]
        # Reading a number from any other device would wait for it.
        self._reads_every_step = self.device.type == "cpu"

    def start(self, on_epoch: Callable[[int], None] | None = None) -> TrainingHandle[list[TrainingResult]]:
        """Take all steps.

        Parameters
        ----------
        on_epoch : callable, optional
            Called with the number of epochs done.

        Returns
        -------
        TrainingHandle
            Its ``result()`` is that of `finish`.
        """
        for epoch in range(self.epochs):
            self.step(epoch)
            if on_epoch:
                on_epoch(epoch + 1)
        return TrainingHandle(self.finish)

    def step(self, epoch: int) -> None:
        """Validate the present weights, then take a step from them.

        Parameters
        ----------
        epoch : int
            The number of steps taken.
        """
        loss, counter = self._backward(epoch), self.trainee.epoch_counter
        self._optimiser.step()
        self._losses.index_copy_(0, counter, loss.to(self._losses).unsqueeze(0))
        counter.add_(1)
        if self._reads_every_step:
            self._check_finite(epoch)

    def _backward(self, epoch: int) -> Tensor:
        """Validation, the training pass and its gradients; what these share is freed on return."""
        shared = self.trainee.shared_forward(epoch)
        if epoch > 0:  # the initial weights are no candidates
            self._validate(shared)
        loss = self.trainee.loss(shared, epoch)
        self._optimiser.zero_grad()
        loss.sum().backward()
        return loss.detach()

    def _validate(self, shared: Any) -> None:
        counter = self.trainee.epoch_counter
        loss = self.trainee.validation_loss(shared).to(self._best_loss)
        self._val_losses.index_copy_(0, counter, loss.unsqueeze(0))
        better = loss < self._best_loss
        if self._reads_every_step and not bool(better.any()):
            return
        self._best_loss.copy_(torch.where(better, loss, self._best_loss))
        self._best_epoch.copy_(torch.where(better, counter, self._best_epoch))
        self.trainee.update_best(better, self._best)

    def finish(self) -> list[TrainingResult]:
        """Validate the last weights and load the best ones.

        Returns
        -------
        list of TrainingResult
            One for each network.
        """
        self._validate(self.trainee.shared_forward(self.epochs))
        self._check_finite(self.epochs - 1)
        self.trainee.load_best(self._best)
        losses, val_losses = self._losses.t().tolist(), self._val_losses[1:].t().tolist()
        results = []
        for place, (epoch, best) in enumerate(zip(self._best_epoch.tolist(), self._best_loss.tolist(), strict=True)):
            rows = zip(losses[place], val_losses[place], strict=True)
            history = [{"epoch": n, "loss": loss, "val_loss": val} for n, (loss, val) in enumerate(rows, 1)]
            results.append(TrainingResult(epoch, best, history))
        return results

    def _check_finite(self, epoch: int) -> None:
        """Raise where a loss is not finite: in this epoch where every step is checked, else in any."""
        first = epoch if self._reads_every_step else 0
        losses = self._losses[first : epoch + 1].cpu()
        bad = ~losses.isfinite()
        if not bool(bad.any()):
            return
        row = int(bad.any(dim=1).nonzero()[0])
        raise TrainingError(
            f"the loss became {losses[row][bad[row]][0].item()} in epoch {first + row + 1} of {self.epochs}; lower the "
            "learning rate or the weights of the objective, or check the scale of the features"
        )
