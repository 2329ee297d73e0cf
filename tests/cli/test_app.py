"""The command line as a stranger uses it: in a process of its own where that matters, else in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from oddnode import Detector, evaluate, load_task
from oddnode.cli.shared import parse_settings
from oddnode.detector import RECIPES
from oddnode.runner.engine import WorkerDied

CLI = Callable[..., subprocess.CompletedProcess[str]]


def oddnode(*arguments: str, fails: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    command, variables = [sys.executable, "-m", "oddnode", *arguments], {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, check=False)
    assert done.returncode == int(fails), done.stderr
    return done


def test_bench_prints_one_json_array_and_nothing_else(tmp_path: Path) -> None:
    chosen = ("--methods", "nodesafe,msp", "--seeds", "1")
    done = oddnode("bench", *chosen, "--json", "--out", str(tmp_path / "out"), HOME=str(tmp_path / "home"))
    rows = json.loads(done.stdout)
    assert [row["method"] for row in rows] == ["nodesafe", "msp"]
    assert rows[0]["seeds"] == 1
    assert rows[0]["auroc"] > 95
    assert (tmp_path / "out" / "report.md").exists()


def test_methods_lists_every_recipe_and_begins_with_the_ones_to_start_with(cli: CLI) -> None:
    rows = json.loads(cli("methods", "--json").stdout)
    assert [row["name"] for row in rows] == list(RECIPES)
    facts = {"name", "summary", "objective", "scorer", "exposure", "labels", "reference", "transductive", "cost"}
    assert all(set(row) == facts | {"hyper_parameters"} for row in rows)
    listed = cli("methods").stdout
    assert all(f"│ {name} " in listed for name in RECIPES)
    assert max(len(line) for line in listed.splitlines()) <= 80
    first = next(line for line in listed.splitlines() if line.startswith("│ "))
    assert first.startswith("│ nodesafe-evidence ")
    assert "Start here" in first


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
    states = {row["name"]: row["state"] for row in rows}
    assert states.pop("digits") == "embedded"
    assert {"cora", "citeseer", "pubmed", "twitch", "arxiv", "photo", "cs"} <= set(states)
    assert set(states.values()) == {"missing"}
    shown = cli("datasets", "--data-dir", str(tmp_path)).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert any("licence: ODC-BY 1.0" in line for line in shown)


def test_an_unwritable_folder_is_found_at_once(tmp_path: Path, cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("oddnode.bench.run.benchmark", lambda *_, **__: pytest.fail("the work has begun"))
    assert "file" in cli("bench", "--out", str(tmp_path / "file" / "sub"), fails=True).stderr


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


def test_bench_runs_under_the_published_protocol(cli: CLI) -> None:
    chosen = ("--methods", "nodesafe", "--seeds", "1", "--jobs", "1", "--protocol", "published")
    done = cli("bench", *chosen, "--set", "epochs=3", "--set", "lambda2=0.5")
    assert "protocol published, backbone gcn, epochs=3, lambda2=0.5, one seed" in done.stdout
    assert "digits/label" in done.stdout
    assert "degree" in done.stdout
    assert "centred-cosine" not in done.stdout  # it has no published settings
    done = cli("bench", "--methods", "gnnsafe", "--protocol", "published", "--set", "num_hops=3", fails=True)
    assert "the protocol 'published' fixes num_hops on digits/label" in done.stderr


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


@pytest.mark.parametrize(
    ("method", "text", "name", "value"),
    [
        ("nodesafe", "num_hops=2", "num_hops", 2),
        ("nodesafe", "eta=1e-3", "eta", 0.001),
        ("nodesafe", " eta = 1 ", "eta", 1.0),
        ("nodesafe", "propagation=as-given", "propagation", "as-given"),
        ("nodesafe++", "m_in=-5", "m_in", -5.0),
        ("nodesafe++", "m_in=None", "m_in", None),
        ("gpn", "uncertainty=epistemic", "uncertainty", "epistemic"),
        ("msp", "ensemble=3", "ensemble", 3),
    ],
)
def test_a_value_has_the_type_of_its_setting(method: str, text: str, name: str, value: Any) -> None:
    read = parse_settings([text], [method])
    assert read == {name: value}
    assert type(read[name]) is type(value)


@pytest.mark.parametrize(
    ("method", "text", "message"),
    [
        ("nodesafe", "num_hops", "--set num_hops: expected a name and a value, like num_hops=2"),
        ("nodesafe", "num_hops=2.5", "--set num_hops=2.5: expected an integer"),
        ("nodesafe", "eta=", "--set eta=: expected a number"),
        ("nodesafe", "eta=nan", "--set eta=nan: expected a finite number"),
        ("nodesafe", "eta=none", "--set eta=none: expected a number"),
        ("nodesafe++", "m_in=x", "--set m_in=x: expected a number or none"),
        ("nodesafe", "epochs=0", "--set epochs=0: expected an integer, 1 or more"),
        ("nodesafe", "propagation=off", "--set propagation=off: expected auto or as-given"),
        ("nodesafe", "num_hop=2", "unknown setting of nodesafe 'num_hop'. Did you mean 'num_hops'"),
        ("msp", "num_hops=2", "unknown setting of msp 'num_hops'"),
        ("msp", "seed=1", "unknown setting of msp 'seed'"),
    ],
)
def test_what_does_not_fit_is_refused(method: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        parse_settings([text], [method])


def test_of_several_methods_one_must_have_a_setting() -> None:
    assert parse_settings(["num_hops=2", "k=4"], ["msp", "knn", "gnnsafe"]) == {"num_hops": 2, "k": 4}
    with pytest.raises(ValueError, match="eta is set twice"):
        parse_settings(["eta=0.5", "eta=0.1"], ["nodesafe"])
    with pytest.raises(ValueError, match="unknown setting 'm_in'"):
        parse_settings(["m_in=1"], ["msp", "gnnsafe"])
