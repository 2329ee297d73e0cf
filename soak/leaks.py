"""Leaks: memory, open files and threads do not grow over loops."""

from __future__ import annotations

import gc
import logging
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import ClassVar

from oddnode import Detector
from oddnode.tables import TableModel
from soak.bases import METHODS, fitted, save_table_model, small_graph, small_tables
from soak.table_mutations import FORMS, write
from soak.trial import Family, Trial

__all__ = ["Leaks"]

_WARM_UP = 15
_LOOPS = 40
_MOST_GROWTH = 16 * 2**20  # bytes: what allocators keep, but not one small model for each loop


class Leaks(Family):
    """Loops over one kind of work."""

    name = "leaks"
    quota = 16
    least = 8
    kinds: ClassVar[tuple[str, ...]] = ("fit", "load and score", "save", "tables")
    limit = 180.0
    batch = 1

    def prepare(self, folder: Path) -> None:
        fitted("nodesafe").save(folder / "model")
        save_table_model(folder / "tables")

    def start(self, folder: Path) -> None:
        self.folder = folder
        logging.getLogger("oddnode").setLevel(logging.ERROR)

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        step = self._step(kind, rng, work)
        for _ in range(_WARM_UP):
            step()
        before = _used()
        for _ in range(_LOOPS):
            step()
        after = _used()
        violation = None
        if after[0] - before[0] > _MOST_GROWTH:
            violation = f"the memory grew by {(after[0] - before[0]) / 2**20:.0f} MiB in {_LOOPS} loops"
        elif after[1] > before[1]:
            violation = f"{after[1] - before[1]} files stayed open"
        elif after[2] > before[2]:
            violation = f"{after[2] - before[2]} threads stayed"
        yield Trial(kind, violation)

    def _step(self, kind: str, rng: Random, work: Path) -> Callable[[], object]:
        graph, model = small_graph(), self.folder / "model"
        if kind == "fit":
            method, settings = METHODS[rng.choice(["nodesafe", "ensemble", "gat", "knn", "grasp", "gpn"])]
            return lambda: Detector.from_recipe(method, epochs=2, hidden_channels=8, **settings).fit(graph)
        if kind == "load and score":
            return lambda: Detector.load(model).score_samples(graph)
        if kind == "save":
            detector = Detector.load(model)
            return lambda: detector.save(work / "model")
        form = rng.choice(FORMS)
        nodes, edges = (write(c, work / n, form) for c, n in zip(small_tables(rng), ("n", "e"), strict=True))
        return lambda: TableModel.load(self.folder / "tables").score(nodes, edges, work / "scores.csv")


def _used() -> tuple[int, int, int]:
    """Bytes of memory, open files and threads."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize(), len(os.listdir("/proc/self/fd")), threading.active_count()
