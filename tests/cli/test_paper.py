"""``oddnode paper`` as a stranger uses it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oddnode.paper.experiments import SCOPES, choose_items
from oddnode.paper.plan import make_plan
from oddnode.paper.store import Store
from oddnode.runner.source_key import source_key
from tests.cli.test_app import CLI, OneDeath, oddnode

TABLE10 = ("--smoke", "--protocol", "clean", "--seeds", "1", "--device", "cpu", "--only", "table10")


@pytest.fixture(scope="module")
def table10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command leaves, run by a process of its own."""
    folder = tmp_path_factory.mktemp("table10")
    done = oddnode("paper", *TABLE10, "--jobs", "1", "--out", str(folder))
    assert "4 trainings for 1 tables and figures, 0 of them done" in done.stderr
    assert (folder / "tables" / "table10.tex").exists()
    return folder


def test_a_later_run_goes_on(table10: Path, tmp_path: Path, cli: CLI) -> None:
    folder = shutil.copytree(table10, tmp_path / "copy")
    more = (*TABLE10[:-1], "table10,claims", "--out", str(folder), "--json")
    facts = json.loads(cli("paper", *more, "--dry-run").stdout)
    assert (facts["trainings"], facts["done_before"]) == (12, 4)
    facts = json.loads(cli("paper", *more, "--no-train").stdout)
    assert (folder / "tables" / "claims.md").exists()
    assert facts["store_bytes"] == sum(f.stat().st_size for f in folder.glob("runs.sqlite*"))


@pytest.mark.slow
def test_part_of_the_smoke_run_on_a_cluster(tmp_path: Path, cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oddnode.runner.ray_cluster.RayExecutor", OneDeath)
    done = cli("paper", *TABLE10, "--out", str(tmp_path), "--engine", "ray")
    assert "4 trainings for 1 tables and figures, 0 of them done" in done.stderr
    assert "in 2 processes" in done.stderr
    assert "note: worker 17 on host-a died; running again: digits/" in done.stderr
    with Store(tmp_path) as store:
        assert len(store.finished()) == 4


def test_no_data_and_a_store_that_is_none_are_told(tmp_path: Path, cli: CLI) -> None:
    done = cli("paper", "--out", str(tmp_path), "--only", "table4", "--data-dir", str(tmp_path), fails=True)
    assert "no data set was found (twitch)" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    (tmp_path / "runs.sqlite").write_bytes(os.urandom(5000))
    done = cli("paper", *TABLE10, "--out", str(tmp_path), "--no-train")
    assert "was damaged; 0 records were recovered" in done.stderr


@pytest.mark.parametrize("name", ["c[/b]x", "c[red]x"])
def test_the_name_of_a_folder_is_no_markup(tmp_path: Path, cli: CLI, name: str) -> None:
    # "/" makes two folders of the first name, which rich would still take for the end of a style.
    done = cli("paper", "--smoke", "--out", str(tmp_path / name), "--only", "table10", "--no-train")
    assert f"files in {tmp_path / name};" in done.stderr
    assert str(tmp_path / name / "report.html") in done.stderr


def test_a_flipped_bit_in_a_record_is_made_good(table10: Path, tmp_path: Path, cli: CLI) -> None:
    folder = shutil.copytree(table10, tmp_path / "copy")
    flips = ((b'"best_epoch"', 3, 0x80), (b'"seconds": {"fit"', 1, 1), (b'{"fit": ', 2, 1))
    with closing(sqlite3.connect(folder / "runs.sqlite", isolation_level=None)) as db:
        rows = db.execute("SELECT rowid, CAST(facts AS BLOB) FROM trainings").fetchmany(3)
        for (number, facts), (text, place, mask) in zip(rows, flips, strict=True):
            damaged = bytearray(facts)
            damaged[facts.index(text) + place] ^= mask
            db.execute("UPDATE trainings SET facts = CAST(? AS TEXT) WHERE rowid = ?", (bytes(damaged), number))
    done = cli("paper", *TABLE10, "--jobs", "1", "--out", str(folder))
    assert done.stderr.count("a damaged record was replaced by a new training: digits/") == 3


def test_a_store_can_be_written_out_where_its_data_is_not(tmp_path: Path, cli: CLI) -> None:
    """A run that was copied to another machine: its tables need nothing but the store."""
    plan = make_plan(SCOPES["paper"], choose_items(["table4"]), ("clean",), seeds=1, done={"twitch"})
    training = next(t for t in plan.trainings if "nodesafe" in t.methods)
    numbers = {"auroc": 91.25, "aupr": 80.0, "fpr95": 12.5, "id_acc": 70.0}
    facts = {
        "graphs": {"id": "id", "es": "es"},
        "seconds": {"fit": 1.0, "forward": 1.0},
        "methods": {m: numbers | {"tests": {"es": numbers}} for m in training.methods},
        "made_on": dict.fromkeys(("oddnode", "torch", "python", "system", "device", "cores", "date"), "x"),
    }
    with Store(tmp_path) as store:
        store.save(training, source_key(), facts, {})
    where = ["--out", str(tmp_path), "--only", "table4", "--protocol", "clean", "--seeds", "1"]
    without_data = [*where, "--data-dir", str(tmp_path / "none"), "--device", "cpu"]
    assert "none does not exist" in cli("paper", *without_data, fails=True).stderr
    cli("paper", *without_data, "--no-train")
    assert "91.2" in (tmp_path / "tables" / "table4.md").read_text()
