"""The contract of a trainer: what it takes, what it returns, and the handle of a training in progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from torch import nn

from oddnode.graph import TrainingSet
from oddnode.objectives import Objective, Sum, Term

#: Where batch norm takes its statistics from, except in a training pass over the ID graph: that graph in
#: one pass, or a running average over all passes, which lags behind and mixes in whatever went through the network.
BatchNormStatistics = Literal["id-graph", "running"]

T = TypeVar("T")


class TrainingError(RuntimeError):
    """Training failed in a way that more epochs cannot fix."""


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of a training that every trainer understands.

    Parameters
    ----------
    epochs : int
        How many epochs to train; the one with the lowest validation loss is kept.
    lr, weight_decay : float
        Adam's learning rate and weight decay.
    batch_norm : {"id-graph", "running"}
        Where batch norm takes its evaluation statistics from.
    """

    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 0.01
    batch_norm: BatchNormStatistics = "id-graph"


@dataclass
class TrainingResult:
    """The outcome of one training: which epoch was kept, and the losses of all epochs."""

    best_epoch: int  #: The epoch whose weights were kept, counted from 1.
    best_val_loss: float  #: Its validation loss.
    #: ``epoch``, ``loss`` and ``val_loss`` of every epoch.
    history: list[dict[str, float]] = field(default_factory=list)


class TrainingHandle(Generic[T]):
    """A training that has been started; `result` blocks until it has finished.

    Parameters
    ----------
    finish : callable
        Waits for the end and returns the outcome; it is called once.
    """

    def __init__(self, finish: Callable[[], T]):
        self._finish: Callable[[], T] | None = finish
        self._error: BaseException | None = None

    def result(self) -> T:
        """Wait for the end; every call returns the same outcome, or raises the same error."""
        if self._finish is not None:
            finish, self._finish = self._finish, None  # frees all that it refers to
            try:
                self._outcome = finish()
            except BaseException as error:
                self._error = error
                raise
        if self._error is not None:
            raise self._error
        return self._outcome


class Trainer(Protocol):
    """Turns networks, an objective and data into trained networks.

    Detectors whose trainers have equal reprs may share a training, so a trainer with settings shows them in its repr,
    as a dataclass does.
    """

    def start(
        self,
        modules: Sequence[nn.Module],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        config: TrainingConfig,
        on_epoch: Callable[[int], None] | None = None,
    ) -> TrainingHandle[list[TrainingResult]]:
        """Start to train several networks in place, each on its own data.

        A trainer may do all the work here, or leave some of it to a device that works in the background. When
        ``result()`` of the handle returns, with a `TrainingResult` for each network, every module has the weights of
        its best epoch and is in evaluation mode.

        Parameters
        ----------
        modules : sequence of torch.nn.Module
            The networks, with their initial weights.
        objective : Objective
            What each of them minimises.
        data : sequence of TrainingSet
            One for each network.
        seeds : sequence of int
            One for each network; everything random in its training follows from it.
        config : TrainingConfig
            The settings.
        on_epoch : callable, optional
            Called with the number of epochs done, counted over all networks.
        """
        ...


def as_sum(objective: Objective) -> Objective:
    """Make a sum of a single term: only a sum honours the start of its terms."""
    return 1.0 * objective if isinstance(objective, Term) else objective


def terms_of(objective: Objective) -> list[Objective]:
    """List the terms of an objective."""
    return [term for _, term in objective.parts] if isinstance(objective, Sum) else [objective]


def is_ours(part: object) -> bool:
    """Whether the class of a network or term is one of this library."""
    return type(part).__module__.startswith("oddnode.")


def has_foreign_parts(module: nn.Module, objective: Objective) -> bool:
    """Whether any part may draw random numbers from outside the stream of the training."""
    return not all(map(is_ours, (module, *terms_of(objective))))
