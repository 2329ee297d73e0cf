"""Work that writes files, which is killed or meets a full disk: what must be there afterwards."""

from __future__ import annotations

import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random

from safetensors.torch import load_file, save

from oddnode import Detector
from oddnode.tables import TableModel
from soak.bases import fitted, save_table_model, small_tables
from soak.stores import run_paper, shorten_paper, tables_of
from soak.table_mutations import FORMS, write
from soak.trial import described

__all__ = ["COMMAND", "OPERATIONS", "Operation"]


class Operation(ABC):
    """Work on a folder ``place``: what was there before is there afterwards, or what is new, and nothing between."""

    def __init__(self, base: Path):
        self.base = base

    @abstractmethod
    def prepare(self) -> None:
        """Write what the work needs, and what it gives when nothing disturbs it, into the base."""

    @abstractmethod
    def start(self) -> None:
        """Read what the work needs."""

    @abstractmethod
    def set_up(self, place: Path) -> None:
        """Write what is there before."""

    @abstractmethod
    def act(self, place: Path) -> None:
        """Do the work."""

    @abstractmethod
    def wrong(self, place: Path) -> str | None:
        """Say what is wrong after work that was disturbed."""

    def unfinished(self, place: Path) -> str | None:
        """Do the work again, undisturbed, and say what is wrong: nothing of the disturbed work may remain."""
        try:
            self.act(place)
        except (Exception, SystemExit) as error:
            return f"the next run raised {described(error)}"
        return self.wrong(place) or self.leftovers(place)

    def leftovers(self, place: Path) -> str | None:
        """Say which hidden files are left."""
        hidden = sorted(path.name for path in place.iterdir() if path.name.startswith("."))
        return f"{hidden[0]} was left" if hidden else None


class Save(Operation):
    """Replaces a saved detector."""

    def prepare(self) -> None:
        fitted("nodesafe", seed=1).save(self.base / "old")
        fitted("nodesafe", seed=2).save(self.base / "new")

    def start(self) -> None:
        self.detector = Detector.load(self.base / "new")

    def set_up(self, place: Path) -> None:
        shutil.copytree(self.base / "old", place / "model")

    def act(self, place: Path) -> None:
        self.detector.save(place / "model")

    def wrong(self, place: Path) -> str | None:
        try:
            Detector.load(place / "model")
        except Exception as error:
            return f"the model cannot be loaded: {described(error)}"
        known = [self.identity(self.base / name) for name in ("old", "new")]
        found = self.identity(place / "model")
        return None if found in known else "the model is neither the old one nor the new one"

    def identity(self, model: Path) -> bytes:
        """What tells the old model from the new one."""
        return (model / "manifest.json").read_bytes()


class Fit(Save):
    """Fits a model on tables and saves it over another."""

    def prepare(self) -> None:
        nodes, edges = small_tables(Random("fit"))
        write(nodes, self.base / "nodes", FORMS[0])
        write(edges, self.base / "edges", FORMS[0])
        fitted("nodesafe").save(self.base / "old")
        self.base.joinpath("place").mkdir()
        self.act(self.base / "place")
        (self.base / "place" / "model").rename(self.base / "new")

    def start(self) -> None:
        pass

    def act(self, place: Path) -> None:
        model, _ = TableModel.fit(
            self.base / "nodes.parquet",
            self.base / "edges.parquet",
            id_column="id",
            label_column="topic",
            drop_columns=["known"],
            epochs=3,
            hidden_channels=4,
        )
        model.save(place / "model")

    def identity(self, model: Path) -> bytes:
        # Ids are hashed by a random key, so that the hashes differ from fit to fit.
        tensors = load_file(model / "model.safetensors")
        tensors.pop("extra.table_rows", None)
        return save(tensors)


class Score(Operation):
    """Writes a table of scores over another file."""

    def prepare(self) -> None:
        save_table_model(self.base / "model")
        nodes, edges = small_tables(Random("score"), 3000)
        write(nodes, self.base / "nodes", FORMS[0])
        write(edges, self.base / "edges", FORMS[0])
        self.base.joinpath("new").mkdir()
        self.start()
        self.act(self.base / "new")

    def start(self) -> None:
        self.model = TableModel.load(self.base / "model")

    def set_up(self, place: Path) -> None:
        (place / "scores.csv").write_text("old")

    def act(self, place: Path) -> None:
        self.model.score(self.base / "nodes.parquet", self.base / "edges.parquet", place / "scores.csv")

    def wrong(self, place: Path) -> str | None:
        known = ["old", (self.base / "new" / "scores.csv").read_text()]
        try:
            found = (place / "scores.csv").read_text()
        except OSError as error:
            return f"the table is gone: {error}"
        return None if found in known else f"the table is neither the old one nor the new one ({len(found)} bytes)"


class Paper(Operation):
    """Trains for a store that is empty."""

    def prepare(self) -> None:
        shorten_paper()
        run_paper(self.base / "new")

    def start(self) -> None:
        shorten_paper()

    def set_up(self, place: Path) -> None:
        pass

    def act(self, place: Path) -> None:
        run_paper(place)

    def wrong(self, place: Path) -> str | None:
        return None  # any state is fine that the next run can finish

    def unfinished(self, place: Path) -> str | None:
        found = super().unfinished(place)
        if found is None and tables_of(place) != tables_of(self.base / "new"):
            return "the tables are not those of an undisturbed run"
        return found


class Command(Save):
    """Recalibrates a model in its place, by the command line in a process of its own."""

    def prepare(self) -> None:
        save_table_model(self.base / "old")
        shutil.copytree(self.base / "old", self.base / "place" / "model")
        subprocess.run(self.command(self.base / "place"), check=True, capture_output=True)
        (self.base / "place" / "model").rename(self.base / "new")

    def start(self) -> None:
        pass

    def command(self, place: Path) -> list[str]:
        """The command and its arguments."""
        model = str(place / "model")
        options = ["--false-alarm-rate", "0.2", "--out", model, "--overwrite"]
        return [sys.executable, "-m", "oddnode", "calibrate", model, *options]

    def act(self, place: Path) -> None:
        """Do what the command does, without the seconds that a new process takes to import torch."""
        model = TableModel.load(place / "model")
        model.set_false_alarm_rate(0.2)
        model.save(place / "model")


#: Work that is done in a fork of a process that has imported everything.
OPERATIONS: dict[str, type[Operation]] = {"save": Save, "fit": Fit, "score": Score, "paper": Paper}
COMMAND = Command
