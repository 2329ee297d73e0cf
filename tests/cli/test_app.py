"""The command line as a stranger uses it: in a process of its own where that matters, else in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from oddnode import Detector, __version__, evaluate, load_task
from oddnode.detector import RECIPES
from oddnode.runner.engine import WorkerDied

CLI = Callable[..., subprocess.CompletedProcess[str]]


def oddnode(*arguments: str, fails: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    command, variables = [sys.executable, "-m", "oddnode", *arguments], {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, check=False)
    assert done.returncode == int(fails), done.stderr
    return done


def test_version() -> None:
    assert oddnode("--version").stdout.strip() == f"oddnode {__version__}"


COMMANDS = ["bench", "methods", "datasets", "info", "paper", "fit", "score", "calibrate", "prepare"]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_answers_without_loading_torch(command: str) -> None:
    code = f"import sys; sys.argv = ['oddnode', *{command.split()!r}, '--help']\n"
    code += "from oddnode.cli.app import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    if command:
        assert "Examples" in done.stdout
        assert f"oddnode {command}" in done.stdout.partition("Examples")[2]


def test_bench_prints_one_json_array_and_nothing_else(tmp_path: Path) -> None:
    chosen = ("--methods", "nodesafe,msp", "--seeds", "1")
    done = oddnode("bench", *chosen, "--json", "--out", str(tmp_path / "out"), HOME=str(tmp_path / "home"))
    rows = json.loads(done.stdout)
    assert [row["method"] for row in rows] == ["nodesafe", "msp"]
    assert rows[0]["seeds"] == 1
    assert rows[0]["auroc"] > 95
    assert (tmp_path / "out" / "report.md").exists()


def test_bench_prints_a_table_that_states_its_terms(cli: CLI) -> None:
    done = cli("bench", "--methods", "msp", "--seeds", "1")
    assert "digits/label" in done.stdout
    assert "protocol clean, backbone gcn, one seed" in done.stdout


def test_methods_lists_every_recipe(cli: CLI) -> None:
    rows = json.loads(cli("methods", "--json").stdout)
    assert [row["name"] for row in rows] == list(RECIPES)
    facts = {"name", "summary", "objective", "scorer", "exposure", "reference", "transductive", "cost"}
    assert all(set(row) == facts | {"hyper_parameters"} for row in rows)
    listed = cli("methods").stdout
    assert all(f"│ {name} " in listed for name in RECIPES)
    assert max(len(line) for line in listed.splitlines()) <= 80


def test_methods_begins_with_the_ones_to_start_with(cli: CLI) -> None:
    lines = [line for line in cli("methods").stdout.splitlines() if line.startswith("│ ")]
    assert lines[0].startswith("│ nodesafe-evidence ")
    assert "Start here" in lines[0]


def test_a_method_is_shown_with_its_settings(cli: CLI) -> None:
    shown = cli("methods", "nodesafe-ensemble").stdout
    assert "Yang et al., ICML 2024; Lakshminarayanan et al., NeurIPS 2017" in shown
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    assert ["num_hops", "32", "an integer"] in cells
    assert ["ensemble", "5", "an integer, 1 or more"] in cells
    assert ["propagation", "", "auto or as-given"] in cells
    assert [cell[0] for cell in cells].count("num_hops") == 1


def test_datasets_tells_what_is_missing(tmp_path: Path, cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_CACHE", str(tmp_path))
    rows = json.loads(cli("datasets", "--data-dir", str(tmp_path), "--json").stdout)
    assert {row["name"]: row["state"] for row in rows} == {
        "digits": "embedded",
        "cora": "missing",
        "citeseer": "missing",
        "pubmed": "missing",
        "twitch": "missing",
        "arxiv": "missing",
    }
    shown = cli("datasets", "--data-dir", str(tmp_path)).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert any("licence: ODC-BY 1.0" in line for line in shown)


def test_an_unwritable_folder_is_found_before_the_work(tmp_path: Path, cli: CLI) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    start = time.monotonic()
    done = cli("bench", "--seeds", "50", "--out", str(blocked / "sub"), fails=True)
    assert "file" in done.stderr
    assert time.monotonic() - start < 60


def test_bench_with_other_settings_equals_the_detector_with_them(cli: CLI) -> None:
    chosen = ("--methods", "msp,gnnsafe", "--seeds", "1", "--jobs", "1", "--device", "cpu", "--json")
    done = cli("bench", *chosen, "--set", "num_hops=3", "--set", "epochs=7")
    assert done.stderr.strip() == "note: num_hops is not a setting of msp"
    rows = {row["method"]: row for row in json.loads(done.stdout)}
    assert rows["gnnsafe"]["settings"] == "num_hops=3, epochs=7"
    task = load_task("digits/label")
    own: dict[str, dict[str, Any]] = {"gnnsafe": {"num_hops": 3}, "msp": {}}
    for method, settings in own.items():
        detector = Detector.from_recipe(method, epochs=7, propagation="as-given", device="cpu", **settings)
        assert rows[method]["auroc"] == round(evaluate(detector.fit(task.train), task)["auroc"], 4)


def test_a_setting_that_the_protocol_fixes_is_refused(cli: CLI) -> None:
    done = cli("bench", "--methods", "gnnsafe", "--protocol", "published", "--set", "num_hops=3", fails=True)
    assert "the protocol 'published' fixes num_hops on digits/label" in done.stderr


def test_bench_runs_under_the_published_protocol(cli: CLI) -> None:
    chosen = ("--methods", "nodesafe", "--seeds", "1", "--jobs", "1", "--protocol", "published")
    done = cli("bench", *chosen, "--set", "epochs=3", "--set", "lambda2=0.5")
    assert "backbone gcn, epochs=3, lambda2=0.5, one seed" in done.stdout
    assert "degree" in done.stdout
    assert "centred-cosine" not in done.stdout  # it has no published settings


def test_without_ray_its_engine_says_what_to_install(cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # an import of it fails
    done = cli("bench", "--engine", "ray", "--methods", "msp", "--seeds", "1", fails=True)
    assert "pip install 'oddnode[ray]'" in done.stderr


class OneDeath(ThreadPoolExecutor):
    """Stands in for a Ray cluster: two threads, of which one dies at the first call."""

    def __init__(self, max_workers: int | None, threads: int, on_gpu: bool):
        assert (max_workers, threads, on_gpu) == (None, 1, False)
        self.max_workers, self.has_died = 2, False
        super().__init__(self.max_workers, initializer=torch.set_num_threads, initargs=(threads,))

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.has_died:
            return super().submit(fn, *args, **kwargs)
        print("what Ray says goes to standard error")
        self.has_died, future = True, Future[Any]()
        future.set_exception(WorkerDied("worker 17 on host-a died"))
        return future


def test_bench_on_a_cluster_prints_the_same_numbers_and_who_died(cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oddnode.runner.ray_cluster.RayExecutor", OneDeath)
    chosen = ("bench", "--methods", "msp", "--seeds", "2", "--device", "cpu", "--json")
    there = cli(*chosen, "--engine", "ray")
    assert "note: worker 17 on host-a died; running again: digits/label, msp, clean, seed 0" in there.stderr
    assert "what Ray says" in there.stderr
    here = json.loads(cli(*chosen, "--jobs", "1").stdout)
    assert [row["auroc"] for row in json.loads(there.stdout)] == [row["auroc"] for row in here]
