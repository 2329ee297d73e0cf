"""Shorthands for tests that train networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from oddnode.graph import Graph, TrainingSet
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


@torch.no_grad()
def check_batch_norm(module: Any, graph: Graph) -> None:
    """A trained network has the statistics of the first layer on the whole graph."""
    assert not module.training
    before_norm = module.convs[0](None, graph)
    torch.testing.assert_close(module.norms[0].running_mean, before_norm.mean(dim=0))
    torch.testing.assert_close(module.norms[0].running_var, before_norm.var(dim=0))
