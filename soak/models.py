"""Saved models that were changed: `load` refuses them with a `ModelFileError`, or they score."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import torch

from oddnode import Detector, ModelFileError
from oddnode.tables import TableModel
from soak.bases import METHODS, save_models, small_graph, small_tables
from soak.model_mutations import MUTATIONS, parses
from soak.trial import Family, Trial, described, is_ours

__all__ = ["Models"]

_FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "pickle.")


class Models(Family):
    """Mutations of saved models."""

    name = "models"
    quota = 5000
    kinds = tuple(MUTATIONS)
    limit = 30.0
    batch = 44

    def prepare(self, folder: Path) -> None:
        save_models(folder / "models")

    def start(self, folder: Path) -> None:
        self.models = folder / "models"
        self.graph = small_graph(1)
        self.tables = tuple(pa.table(columns) for columns in small_tables(Random("new")))
        self.scores = {name: self._scores(self.models / name) for name in (*METHODS, "tables")}
        self.events: list[str] = []
        self.watching = False
        sys.addaudithook(self._audit)

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        name = rng.choice(sorted(self.scores))
        folder = work / name
        shutil.copytree(self.models / name, folder)
        MUTATIONS[kind](folder, rng, self.models)
        parsed = parses(folder)
        self.events, self.watching = [], True
        try:
            violation, accepted = self._judge(kind, folder)
        finally:
            self.watching = False
        if self.events:
            violation = f"loading and scoring made the system do {self.events[0]}"
        yield Trial(kind, violation, parsed, accepted)

    def _judge(self, kind: str, folder: Path) -> tuple[str | None, bool]:
        try:
            model = self._load(folder)
        except ModelFileError as error:
            return (f"the same model is refused: {error}" if kind == "same in other bytes" else None), False
        except Exception as error:
            return f"load raised {described(error)}", False
        if kind in ("flipped bit", "harmed file"):
            return "a changed file was loaded", True
        try:
            scores = self._score(model)
        except Exception as error:
            # Outputs that overflow are a ValueError of score_samples.
            return (None if is_ours(error) or type(error) is ValueError else f"score raised {described(error)}"), True
        if not bool(torch.isfinite(scores).all()):
            return "scores are not finite", True
        if kind == "same in other bytes" and not torch.equal(scores, self.scores[folder.name]):
            return "the same model scores otherwise", True
        return None, True

    def _scores(self, folder: Path) -> torch.Tensor:
        return self._score(self._load(folder))

    def _load(self, folder: Path) -> Any:
        return (TableModel if folder.name == "tables" else Detector).load(folder, device="cpu")

    def _score(self, model: Any) -> torch.Tensor:
        if isinstance(model, TableModel):
            return torch.from_numpy(model.score_frame(*self.tables)["score"].to_numpy().copy())
        if model.calibration_ is not None:
            model.detect(self.graph)
        return model.score_samples(self.graph)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and event.startswith(_FORBIDDEN):
            self.events.append(event)
