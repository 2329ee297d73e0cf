"""A fitted model, and sources whose scores a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oddnode.tables import TableModel
from oddnode.watch import Rows, Watch

DAY = 86400.0


class Scores:
    """A source: the scores of rows, by day of 1970."""

    def __init__(self, days: dict[int, np.ndarray], **more: Any):
        self.days, self.more = days, more
        self.reads = 0

    def times(self) -> np.ndarray:
        return np.concatenate([np.full(len(scores), day * DAY) for day, scores in self.days.items()])

    def read(self, start: float, end: float) -> tuple[Rows, Rows | None]:
        self.reads += 1
        day = round(start / DAY)
        scores = self.days[day]
        ids = [f"{day}-{row}" for row in range(len(scores))]
        return Rows(ids, scores, np.full(len(scores), 0.5), ["a"] * len(scores), **self.more), None


@pytest.fixture(scope="session")
def tables() -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Rows of two kinds, joined to their own, one a quarter of an hour; from the 11th on they have other sizes."""
    rng = np.random.default_rng(0)
    kind, number = rng.integers(2, size=1200), np.arange(1200)
    hours = number / 4
    size = 3.0 * kind + rng.normal(size=1200) + np.where(hours >= 250, 4.0, 0.0)
    stamps = [f"2024-05-{1 + int(h // 24):02d}T{int(h % 24):02d}:{int(60 * (h % 1)):02d}" for h in hours]
    source = np.repeat(number, 2)
    target = np.array([rng.choice(np.flatnonzero(kind == kind[row])) for row in source])
    # Nobody links to a row that is not there yet.
    source, target = np.maximum(source, target), np.minimum(source, target)
    nodes: dict[str, list[Any]] = {
        "id": [f"n{i}" for i in number],
        "kind": ["ab"[k] if h < 168 else None for k, h in zip(kind, hours, strict=True)],
    }
    nodes |= {"size": size.tolist(), "when": stamps, "shop": ["x" if rng.random() < 0.5 else "y" for _ in number]}
    return nodes, {"source": [f"n{i}" for i in source], "target": [f"n{i}" for i in target]}


@pytest.fixture(scope="session")
def model(tables: tuple[Any, Any]) -> TableModel:
    """Fitted on the first week."""
    names: dict[str, Any] = {
        "id_column": "id",
        "label_column": "kind",
        "time_column": "when",
        "train_until": "2024-05-07",
    }
    return TableModel.fit(*tables, **names, epochs=20, device="cpu")[0]


@pytest.fixture
def known(model: TableModel) -> np.ndarray:
    """The scores of the calibration rows."""
    assert model.detector.calibration_ is not None
    return model.detector.calibration_.scores.double().numpy()


@pytest.fixture
def watch(model: TableModel, tmp_path: Path) -> Callable[..., Watch]:
    """A watch with its state in the folder of the test."""

    def make(name: str = "state.json", **settings: Any) -> Watch:
        return Watch(model, tmp_path / name, **settings)

    return make
