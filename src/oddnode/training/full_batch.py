"""The trainer that takes whole graphs at once, one network after another or stacked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from oddnode._utils.random import new_dropout_seed, redirected, seeded
from oddnode.graph import TrainingSet
from oddnode.nn import Backbone
from oddnode.objectives import Objective
from oddnode.training.base import Trainer, TrainingConfig, TrainingHandle, TrainingResult, as_sum, has_foreign_parts
from oddnode.training.cuda_graphs import CapturedSteps
from oddnode.training.loop import TrainingLoop, counted_from
from oddnode.training.single import SingleTrainee, last_pass_statistics
from oddnode.training.stacked import StackedGCNs, stacking_blocker

_log = logging.getLogger("oddnode")


@dataclass(frozen=True)
class FullBatch(Trainer):
    """Trains on whole graphs at once, each step over all labelled nodes.

    On a GPU several GCNs on one graph train stacked, and steps are captured as CUDA graphs where possible.
    Stacked networks on a GPU, and a single one whose steps can be captured, train in the background, so that several
    trainings can share the GPU. All others are trained when `start` returns. Each network becomes what it would have
    become alone, up to the order of floating-point sums. The caller's random state is neither used nor changed.

    Parameters
    ----------
    stacked : bool, optional
        Whether to stack networks that can be stacked; if left out, on a GPU only: a CPU gains nothing from it.
    """

    stacked: bool | None = None

    def start(
        self,
        modules: Sequence[nn.Module],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        config: TrainingConfig,
        on_epoch: Callable[[int], None] | None = None,
    ) -> TrainingHandle[list[TrainingResult]]:
        objective = as_sum(objective)
        captures = data[0].graph.device.type == "cuda"
        if captures if self.stacked is None else self.stacked:
            blocker = stacking_blocker(modules, objective, data, config.batch_norm)
            if blocker is None:
                loop = TrainingLoop(StackedGCNs(modules, objective, data, seeds, config.epochs), config)
                return (CapturedSteps(loop) if captures else loop).start(on_epoch)
            if len(modules) > 1:
                _log.info("training %d networks one after another: %s", len(modules), blocker)
        if len(modules) == 1:
            return _start_one(modules[0], objective, data[0], seeds[0], config, captures, on_epoch)[0]
        results: list[TrainingResult] = []
        for module, own, seed in zip(modules, data, seeds, strict=True):
            counted = counted_from(len(results) * config.epochs, on_epoch)
            handle, captures = _start_one(module, objective, own, seed, config, captures, counted)
            results += handle.result()
        return TrainingHandle(lambda: results)


def _start_one(
    module: nn.Module,
    objective: Objective,
    data: TrainingSet,
    seed: int,
    config: TrainingConfig,
    captures: bool,
    on_epoch: Callable[[int], None] | None,
) -> tuple[TrainingHandle[list[TrainingResult]], bool]:
    """Start to train one network; captured steps go on in the background. Also returns whether they were captured."""
    with ExitStack() as until_finished:
        if config.batch_norm == "id-graph":
            until_finished.enter_context(last_pass_statistics(module))
        with seeded(seed):  # for randomness other than dropout
            # oddnode's parts draw from the stream; redirecting costs time, so only other parts are redirected.
            is_foreign = has_foreign_parts(module, objective)
            with redirected() if is_foreign else nullcontext():
                prepared = objective.prepare(data, train)
                if isinstance(module, Backbone):
                    module.prepare(data)
            trainee = SingleTrainee(module, prepared, data, config.batch_norm, seed, config.epochs)
            if captures and trainee.capture_blocker:
                _log.info("steps are not captured as a CUDA graph: %s", trainee.capture_blocker)
                captures = False
            loop = TrainingLoop(trainee, config)
            steps = CapturedSteps(loop) if captures else loop
            # What may be captured draws nothing.
            with redirected() if is_foreign and trainee.capture_blocker else nullcontext():
                handle = steps.start(on_epoch)
                captures = isinstance(steps, CapturedSteps) and steps.can_capture
                if not captures:
                    handle.result()
        finish = until_finished.pop_all()

    def result() -> list[TrainingResult]:
        with finish:
            return handle.result()

    return TrainingHandle(result), captures


def train(
    module: nn.Module,
    objective: Objective,
    data: TrainingSet,
    *,
    on_epoch: Callable[[int], None] | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train one module in place, full batch; it ends with the weights of its best epoch, in evaluation mode.

    Parameters
    ----------
    module : torch.nn.Module
        The network, with its initial weights.
    objective : Objective
        What to minimise.
    data : TrainingSet
        What to train on.
    on_epoch : callable, optional
        Called with the number of epochs done.
    **settings
        As for `TrainingConfig`.
    """
    handle = FullBatch().start([module], objective, [data], [new_dropout_seed()], TrainingConfig(**settings), on_epoch)
    [outcome] = handle.result()
    return outcome
