"""The scale tests: stages run and are measured, failures are told, growth and verdicts are what a hand computes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import big_graph
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scale
from block_model import BlockModel
from scale import Stage, auroc, growth, one_size, verdicts

GRAPH = BlockModel(2_000, 10_000, features=4, labelled=400)
LIMIT = 256 << 20


def row(stage: str, edges: int, seconds: float, gib: float = 1.0, limit: float = 8.0, status: int = 0) -> dict:
    about: dict[str, Any] = {"edges": edges, "limit GiB": limit, "stage": stage, "status": status}
    return about | {"seconds": seconds, "seconds beyond start": seconds - 0.5, "anonymous GiB": gib}


def python(name: str, code: str, *reads: Path) -> Stage:
    return Stage(name, (sys.executable, "-c", code), reads)


def test_every_stage_is_measured_and_the_answer_is_judged(tmp_path: Path) -> None:
    tables, out = tmp_path / "tables", tmp_path / "run"
    big_graph.write(GRAPH, tables)
    # A detector that knows the truth of all nodes but a tenth, which it has the wrong way round.
    is_known = GRAPH.block_of(np.arange(2_000)) < 5
    is_wrong = np.arange(2_000) % 10 == 0
    pq.write_table(pa.table({"id": np.arange(2_000), "score": 1.0 * (is_known ^ is_wrong)}), tmp_path / "scores")
    copy = f"import shutil; shutil.copy({str(tmp_path / 'scores')!r}, {str(out / 'scores.parquet')!r})"
    stages = [python("fit", "pass", tables), python("score", copy, tables)]
    rows, scores = one_size(GRAPH, stages, out, LIMIT, {"fit": 0.001, "score": 100.0})
    assert [each["stage"] for each in rows] == ["fit", "score", "answer"]
    assert all(each["edges"] == 10_000 and each["limit GiB"] == 0.25 for each in rows)
    assert rows[0]["seconds"] > 0
    assert rows[0]["seconds beyond start"] == pytest.approx(rows[0]["seconds"], abs=0.02)
    assert rows[1]["seconds beyond start"] == 0.01
    assert rows[0]["ratio to plain read"] == pytest.approx(rows[0]["seconds"] / rows[0]["plain read seconds"], rel=0.5)
    assert rows[-1]["auroc"] == pytest.approx(0.9, abs=0.02)
    np.testing.assert_array_equal(scores, 1.0 * (is_known ^ is_wrong))


def test_a_stage_that_fails_ends_the_size_and_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = [python("prepare", "raise SystemExit('the disk is full')", tmp_path), python("fit", "pass", tmp_path)]
    rows, scores = one_size(GRAPH, stages, tmp_path / "run", LIMIT, {})
    assert [(each["stage"], each["status"]) for each in rows] == [("prepare", 1)]
    assert scores is None
    assert "the disk is full" in capsys.readouterr().err


@pytest.mark.usefixtures("cgroups")
def test_a_stage_that_needs_more_than_the_limit_is_out_of_memory(tmp_path: Path) -> None:
    rows, _ = one_size(GRAPH, [python("fit", f"b'x' * {2 * LIMIT}", tmp_path)], tmp_path / "run", LIMIT, {})
    assert (rows[0]["status"], rows[0]["out of memory"]) == (-9, True)


def test_auroc_leaves_out_labelled_nodes_and_refuses_missing_scores() -> None:
    ids = np.arange(GRAPH.nodes)
    scores = (GRAPH.block_of(ids) < 5).astype(float)
    scores[GRAPH.split_of(ids) >= 0] = np.nan
    assert auroc(scores, GRAPH) == 1.0
    scores[GRAPH.split_of(ids) < 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        auroc(scores, GRAPH)


def test_growth_and_verdicts_are_those_of_a_hand_computation() -> None:
    rows = [row("prepare", 10**n, 0.5 + 2.0 * 10 ** (n - 6)) for n in (6, 7, 8)]
    rows += [
        row("train", 10**n, seconds, gib) | {"epochs seconds": micros}
        for n, seconds, gib, micros in ((6, 10.0, 1.0, 30.0), (7, 11.0, 1.1, 33.0), (8, 13.0, 1.1, 39.0))
    ]
    rows += [row("score", 10**n, seconds) for n, seconds in ((6, 1.5), (7, 10.5), (8, 120.5))]
    rows += [row("score", 10**8, 500.0, limit=2.0), row("fit", 10**8, 500.0, limit=2.0, status=-9)]
    found = growth(rows)
    assert found["prepare: slope of log time"] == pytest.approx(1.0)
    assert found["score: time per edge, largest to next"] == pytest.approx(1.2)
    assert found["train: seconds, most to least"] == pytest.approx(1.3)
    assert found["train: epochs seconds, most to least"] == pytest.approx(1.3)
    assert found["train: anonymous GiB, most to least"] == pytest.approx(1.1)
    judged = {line.rpartition(": ")[0]: line.rpartition(": ")[2] for line in verdicts(rows, found)}
    failed = [line.split(":")[0] for line, word in judged.items() if word == "DOES NOT HOLD"]
    assert failed == ["prepare at 10^8 edges under 8 GiB", "fit at 10^8 edges under 2 GiB", "train"]
    assert judged["score at 10^8 edges under 8 GiB: seconds: 120.5 (must be 0 to 180)"] == "holds"
    ranks = {"stage": "2 ranks to 2 threads", "edges": 10**7, "ratio of seconds": 1.2}
    lines = verdicts([ranks | {"largest difference of ranks": gap} for gap in (1e-6, 1e-4)], {})
    assert [line.rpartition(": ")[2] for line in lines] == ["DOES NOT HOLD", "holds", "DOES NOT HOLD", "DOES NOT HOLD"]


@pytest.mark.slow
def test_tables_run_through_commands_and_answers_are_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = ["--edges", "2e4", "--limit", "4GiB", "--method", "nodesafe", "--in-memory", "--work", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["scale.py", *arguments, "--out", str(tmp_path / "results")])
    monkeypatch.setattr(scale, "start_seconds", lambda *_: {"fit": 1.0, "score": 1.0})
    with pytest.raises(SystemExit) as stop:
        scale.main()
    assert stop.value.code == 0
    stored = json.loads((tmp_path / "results" / "scale-in-memory-cpu.json").read_text())
    assert [each.get("stage") for each in stored["rows"]] == ["fit", "score", "answer", None]
    assert stored["rows"][2]["auroc"] > 0.85
