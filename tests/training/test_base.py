"""The contract of trainers, met by one from outside the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.graph import TrainingSet
from oddnode.nn import run_backbone
from oddnode.objectives import Objective
from oddnode.training import TrainingConfig, TrainingError, TrainingHandle, TrainingResult


class PlainTrainer:
    """Cross-entropy by torch's own SGD, the last epoch kept; all work is done when the result is asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[int], TrainingConfig]] = []

    def start(
        self,
        modules: Sequence[nn.Module],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        config: TrainingConfig,
        on_epoch: Callable[[int], None] | None = None,
    ) -> TrainingHandle[list[TrainingResult]]:
        self.seen.append((len(modules), list(seeds), config))

        def finish() -> list[TrainingResult]:
            return [self._train(module, own, config) for module, own in zip(modules, data, strict=True)]

        return TrainingHandle(finish)

    def _train(self, module: nn.Module, data: TrainingSet, config: TrainingConfig) -> TrainingResult:
        optimiser = torch.optim.SGD(module.parameters(), lr=config.lr)
        history = []
        for epoch in range(1, config.epochs + 1):
            module.train()
            optimiser.zero_grad()
            loss = F.cross_entropy(run_backbone(module, data.graph)[data.train], data.y_train)
            loss.backward()
            optimiser.step()
            history.append({"epoch": epoch, "loss": loss.item(), "val_loss": loss.item()})
        module.eval()
        return TrainingResult(config.epochs, history[-1]["val_loss"], history)


def test_a_trainer_from_outside_trains_the_detectors_networks(two_groups: Data) -> None:
    trainer = PlainTrainer()
    detector = Detector(trainer=trainer, epochs=30, lr=0.5, ensemble=2, seed=7, device="cpu").fit(two_groups)
    [(count, seeds, config)] = trainer.seen
    assert count == 2
    assert len(set(seeds)) == 2
    assert config == TrainingConfig(epochs=30, lr=0.5)
    assert detector.best_epoch_ == 30
    assert [row["epoch"] for row in detector.history_] == [*range(1, 31)] * 2
    assert (detector.predict(two_groups) == two_groups.y).float().mean() > 0.9
    assert detector.score_samples(two_groups).isfinite().all()


def test_a_handle_finishes_once_and_returns_the_same_object() -> None:
    calls = list[int]()

    def finish() -> list[int]:
        calls.append(1)
        return calls

    handle = TrainingHandle(finish)
    assert calls == []
    assert handle.result() is handle.result()
    assert calls == [1]


def test_a_handle_raises_the_same_error_again() -> None:
    calls = list[int]()

    def finish() -> Any:
        calls.append(1)
        raise TrainingError("failed")

    handle = TrainingHandle(finish)
    errors = []
    for _ in range(2):
        with pytest.raises(TrainingError, match="failed") as caught:
            handle.result()
        errors.append(caught.value)
    assert errors[0] is errors[1]
    assert calls == [1]
