"""Shorthands for tests that train networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from oddnode.graph import TrainingSet
from oddnode.objectives import Objective
from oddnode.training import FullBatch, TrainingConfig, TrainingHandle, TrainingResult


def start_training(
    modules: Sequence[nn.Module],
    objective: Objective,
    data: Sequence[TrainingSet],
    seeds: Sequence[int],
    *,
    stacked: bool | None = None,
    on_epoch: Callable[[int], None] | None = None,
    **settings: Any,
) -> TrainingHandle[list[TrainingResult]]:
    return FullBatch(stacked).start(modules, objective, data, seeds, TrainingConfig(**settings), on_epoch)


def train_together(*args: Any, **settings: Any) -> list[TrainingResult]:
    return start_training(*args, **settings).result()
