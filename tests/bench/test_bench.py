from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from oddnode import Detector, benchmark, evaluate, load_task
from oddnode.bench import run
from oddnode.bench.choices import expand_methods
from oddnode.bench.paper_numbers import paper_number
from oddnode.bench.report import write_report
from oddnode.detector import MODEL_FREE, RECIPES, start_fitting
from oddnode.evaluation import Result
from oddnode.runner import fitting
from oddnode.runner.engine import can_fork
from oddnode.training import TrainingError, TrainingHandle

PROGRESS: list[tuple[int, int, str]] = []


@pytest.fixture(scope="module")
def results() -> list[Result]:
    PROGRESS.clear()  # another module uses this fixture, too
    return benchmark("digits/label", ["gnnsafe", "msp"], 2, jobs=1, on_progress=lambda *said: PROGRESS.append(said))


def test_results_come_in_order_and_a_shared_training_gives_what_one_of_its_own_gives(results: list[Result]) -> None:
    assert [(r.task, r.method, r.seeds) for r in results] == [
        ("digits/label", "gnnsafe", 2),
        ("digits/label", "msp", 2),
    ]
    assert PROGRESS == [(1, 2, "digits/label, seed 0"), (2, 2, "digits/label, seed 1")]
    task = load_task("digits/label", seed=1)
    alone = evaluate(Detector.from_recipe("msp", seed=1).fit(task.train), task)
    assert alone == results[1].runs[1]


def test_methods_that_share_a_training_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []

    def counted(detectors: list[Detector], *args: Any) -> TrainingHandle[None]:
        fits.append(repr(detectors[0].objective))
        return start_fitting(detectors, *args)

    monkeypatch.setattr(fitting, "start_fitting", counted)
    benchmark("digits/label", ["msp", "energy", "gnnsafe", "nodesafe"], seeds=1)
    assert len(fits) == 2


def test_a_device_by_another_name(results: list[Result]) -> None:
    [found] = benchmark("digits/label", ["gnnsafe"], seeds=1, device="cpu:0", jobs=1)
    assert found.runs == results[0].runs[:1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_training_that_fails_is_the_callers_error(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    if jobs > 1 and not can_fork():
        pytest.skip("other processes would not have what this test puts in place")

    def exploding(*_: Any) -> None:
        raise TrainingError("the loss became inf")

    monkeypatch.setattr(run, "num_cores", lambda: 2)
    monkeypatch.setattr(fitting, "start_fitting", exploding)
    with pytest.raises(TrainingError, match="loss became inf"):
        benchmark("digits/label", "msp", seeds=2, jobs=jobs, device="cpu")


def test_processes_give_the_numbers_of_one_by_default(results: list[Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "num_cores", lambda: 2)
    torch.ones(300, 300) @ torch.ones(300, 300)  # a parent whose threads have worked can still be forked
    [two] = benchmark("digits/label", "msp", seeds=2, jobs=2, device="cpu")
    for a, b in zip(results[1].runs, two.runs, strict=True):
        assert a["auroc"] == pytest.approx(b["auroc"], abs=0.2)
    [by_itself] = benchmark("digits/label", "msp", seeds=2, device="cpu")
    assert by_itself.runs == two.runs


@pytest.mark.parametrize(("device", "forks", "jobs"), [("cpu", True, 5), ("cpu", False, 1), ("cuda", True, 1)])
def test_processes_by_default(monkeypatch: pytest.MonkeyPatch, device: str, forks: bool, jobs: int) -> None:
    monkeypatch.setattr(run, "num_cores", lambda: 5)
    monkeypatch.setattr(run, "can_fork", lambda: forks)
    assert run._default_jobs(device) == jobs


def test_seeds_in_one_go_give_what_they_give_one_by_one(results: list[Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "is_gpu", lambda device: True)
    assert [r.runs for r in benchmark("digits/label", ["gnnsafe", "msp"], seeds=2)] == [r.runs for r in results]


def test_groups_of_methods_and_the_papers_numbers() -> None:
    assert expand_methods(["all"]) == list(RECIPES)
    assert expand_methods(["nodesafe", "all"])[0] == "nodesafe"
    assert paper_number("twitch", "nodesafe++", "fpr95") == 3.43
    assert paper_number("twitch/es", "nodesafe", "auroc") == 94.44
    assert paper_number("digits/label", "nodesafe", "auroc") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": "digit/label"}, "Did you mean 'digits/label'"),
        ({"methods": "gnsafe"}, "Did you mean 'gnnsafe'"),
        ({"seeds": 0}, "seeds is 0, expected 1 or more"),
        ({"jobs": 0}, "jobs is 0"),
        ({"protocol": "paper"}, "unknown protocol 'paper'"),
        ({"backbone": "gcnn"}, "Did you mean 'gcn'"),
    ],
)
def test_mistakes_are_found_before_the_work(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        benchmark(**arguments)


def test_report_files_hold_the_results(results: list[Result], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    free = benchmark("digits/label", "msp", seeds=2, jobs=1, model_free=True)[1:]
    paths = write_report([*results, *free], folder)
    names = "report.md results.csv results.json results.tex seeds.csv runs.json comparisons.csv"
    assert [p.name for p in paths] == names.split()
    assert {p.name for p in folder.iterdir()} == set(names.split())
    assert json.loads((folder / "results.json").read_text())[:2] == [r.summary() for r in results]
    means = list(csv.DictReader(io.StringIO((folder / "results.csv").read_text())))
    assert [row["method"] for row in means] == ["gnnsafe", "msp", *MODEL_FREE]
    assert float(means[1]["auroc"]) == results[1].summary()["auroc"]
    assert {row["id_acc"] for row in means[2:]} == {""}  # they classify nothing
    seeds = list(csv.DictReader(io.StringIO((folder / "seeds.csv").read_text())))
    assert [(row["method"], row["seed"]) for row in seeds[:4]] == [
        *[("gnnsafe", "0"), ("gnnsafe", "1"), ("msp", "0"), ("msp", "1")]
    ]
    assert [float(row["fpr95"]) for row in seeds[:2]] == [run["fpr95"] for run in results[0].runs]
    assert {row["id_acc"] for row in seeds[4:]} == {""}
    report = (folder / "report.md").read_text()
    assert "digits/label" in report
    assert "counts tasks, not seeds: with 1 that differs, p is 1 at best" in report
    write_report(results[:1], folder)  # a single method is compared with nothing
    assert not (folder / "comparisons.csv").exists()
    assert "Paired comparisons" not in (folder / "report.md").read_text()
