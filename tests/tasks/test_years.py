"""PubMed in time, checked against its years and the classes of its papers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from oddnode import Detector, evaluate
from oddnode.bench.report import compare_with_first
from oddnode.bench.tables import compare_table, markdown_table, to_csv
from oddnode.evaluation import Result
from oddnode.tasks import TASKS, MissingDataError, expand_tasks, load_task, planetoid_graph


def years_of(folder: Path) -> np.ndarray:
    return np.load(folder / "planetoid" / "PubMed" / "years" / "year.npy")


def test_papers_of_one_class_arrive_as_unknown(real_data: Path) -> None:
    years, y = years_of(real_data), planetoid_graph("pubmed", real_data).y.numpy()
    task = load_task("pubmed/years/until-1999-after-5-unknown-1", real_data, seed=3)
    old = (years <= 1999) & (y != 1)
    assert task.train.num_nodes == old.sum()
    assert task.num_classes == 2
    assert int(task.train.time.max()) == 1999
    assert torch.bincount(task.train.y[task.train.train_mask]).tolist() == [20, 20]
    scored = task.tests["arrivals"]
    assert torch.equal(scored.x[: task.train.num_nodes], task.train.x)
    assert scored.num_nodes == old.sum() + ((years > 1999) & (years <= 2004)).sum()
    arrive = (years >= 2000) & (years <= 2004)
    assert int(scored.ood_mask.sum()) == (arrive & (y == 1)).sum()
    assert int(task.id_test.mask.sum()) == (arrive & (y != 1)).sum()
    assert not bool((task.id_test.mask & scored.ood_mask).any())
    for mask in (task.id_test.mask, scored.ood_mask):
        assert scored.time[mask].unique().tolist() == list(range(2000, 2005))


def test_spans_follow_each_other_and_papers_in_between_are_there_without_being_scored(real_data: Path) -> None:
    years = years_of(real_data)
    for after, first, last in ((1, 1995, 1995), (5, 1995, 1999), (10, 2000, 2004), (15, 2005, 2009)):
        task = load_task(f"pubmed/years/until-1994-after-{after}-none", real_data)
        data, mask = task.id_test
        assert data.num_nodes == (years <= last).sum()
        assert int(mask.sum()) == ((years >= first) & (years <= last)).sum()
        assert not bool(task.tests["arrivals"].ood_mask.any())
        assert task.num_classes == 3


def test_the_group_has_a_task_for_every_span_and_class() -> None:
    names = expand_tasks(["pubmed/years"])
    assert len(names) == (4 + 3 + 2) * 4
    assert names == expand_tasks(["years"])
    assert len({TASKS[name].training_graph for name in names}) == 3 * 4
    assert not set(names) & set(expand_tasks(["all"]))


def test_a_task_without_unknown_nodes_has_a_false_alarm_rate_and_no_more(real_data: Path) -> None:
    names = ["pubmed/years/until-2004-after-1-none", "pubmed/years/until-2004-after-1-unknown-0"]
    results = []
    for name in names:
        task = load_task(name, real_data)
        detector = Detector.from_recipe("msp", epochs=10, device="cpu").fit(task.train)
        results += [Result(name, method, "clean", "gcn", [evaluate(detector, task)]) for method in ("msp", "energy")]
    alone = results[:2]
    assert alone[0].metrics == ["id_acc", "false_alarms"]
    assert alone[0].runs[0]["tests"] == {}
    assert 0 < alone[0].mean("false_alarms") < 50
    row = next(line for line in markdown_table(alone).splitlines() if "| msp |" in line)
    assert [cell.strip() for cell in row.split("|")][3:7] == ["-"] * 4
    assert compare_with_first(alone) == []
    assert "| - |" in compare_table(results)
    assert f"**{results[2].mean('auroc'):.1f} / {results[2].mean('fpr95'):.1f}**" in compare_table(results)
    assert all(paired.comparison.cells == 1 for paired in compare_with_first(results))
    assert to_csv(results).count("\n") == 5


def test_years_that_are_missing_or_wrong_are_named(real_data: Path, tmp_path: Path) -> None:
    (tmp_path / "planetoid" / "PubMed").mkdir(parents=True)
    shutil.copytree(real_data / "planetoid" / "PubMed" / "raw", tmp_path / "planetoid" / "PubMed" / "raw")
    with pytest.raises(MissingDataError, match=r"PubMed with years is missing year.npy; .* Take the years from"):
        load_task("pubmed/years/until-1994-after-1-none", tmp_path)
    folder = tmp_path / "planetoid" / "PubMed" / "years"
    folder.mkdir()
    np.save(folder / "year.npy", np.arange(5))
    with pytest.raises(MissingDataError, match=r"damaged or not the years of PubMed: .* expected 19717 integers"):
        load_task("pubmed/years/until-1994-after-1-none", tmp_path)
    with pytest.raises(ValueError, match="the protocol 'published' keeps unknown nodes"):
        load_task("pubmed/years/until-1994-after-1-none", real_data, protocol="published")
