"""Graphs in time: PubMed, checked against its years and classes, and a graph of a plugin, checked by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from oddnode import DatasetSpec, Detector, evaluate, register_dataset
from oddnode._utils import plugins
from oddnode.bench.report import compare_with_first
from oddnode.bench.tables import compare_table, markdown_table, to_csv
from oddnode.evaluation import Result
from oddnode.tasks import TASKS, MissingDataError, expand_tasks, load_task, planetoid_graph
from tests.cli.test_app import CLI
from tests.tasks.test_registry import assert_same


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


NAN = float("nan")


def ten_nodes(**others: Any) -> Data:
    """A ring of ten nodes, each with its number as its feature. Class 2 begins in 2003."""
    node = torch.arange(10)
    edges = torch.stack([torch.cat([node, (node + 1) % 10]), torch.cat([(node + 1) % 10, node])])
    time = torch.tensor([2005, 2000, 2001, 2001, NAN, 2002, 2000, 2004, 2003, 2003])
    y = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 2, -1])
    weight = 10.0 * edges.amin(dim=0) + edges.amax(dim=0)
    x = node[:, None].float()
    return Data(**{"x": x, "edge_index": edges, "edge_weight": weight, "y": y, "time": time, **others})


def register(data: Data, **others: Any) -> None:
    register_dataset(DatasetSpec.from_graph("mine", lambda data_dir, seed: data, arrival_shares=(), **others))


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize(
    ("name", "train", "arrived", "known", "unknown"),
    [
        ("until-2001-none", [1, 2, 3, 6], [0, 5, 7, 8, 9], [0, 5, 7], []),
        ("until-2001-unknown-0", [3, 6], [0, 5, 7, 8, 9], [5, 7], [0]),
        ("until-2001-unknown-1", [1, 2], [0, 5, 7, 8, 9], [0], [5, 7]),
        ("until-2001-unknown-2", [1, 2, 3, 6], [0, 5, 7, 8, 9], [0, 5, 7], [8]),
        # Of the nine nodes with a time, 67 % are seven: two each in 2000, 2001 and 2003, and one in 2002.
        ("until-67%-unknown-1", [1, 2, 8, 9], [0, 7], [0], [7]),
        # 44 % of nine are 3.96 and need four nodes; 45 % are 4.05 and need five.
        ("until-44%-none", [1, 2, 3, 6], [0, 5, 7, 8, 9], [0, 5, 7], []),
        ("until-45%-none", [1, 2, 3, 5, 6], [0, 7, 8, 9], [0, 7], []),
        ("until-2002.5-none", [1, 2, 3, 5, 6], [0, 7, 8, 9], [0, 7], []),
    ],
)
def test_nodes_are_known_until_a_time_and_arrive_after_it(
    name: str, train: list[int], arrived: list[int], known: list[int], unknown: list[int]
) -> None:
    data = ten_nodes()
    register(data, label_split=([2, 1], [], [0]), years=(2001, "67%", "44%", "45%", 2002.5))
    task = load_task(f"mine/years/{name}", seed=5)
    scored, id_mask = task.id_test
    assert scored is task.tests["arrivals"]
    assert [int(x) for x in task.train.x] == train
    assert [int(x) for x in scored.x] == train + arrived
    assert [int(x) for x in scored.x[id_mask]] == known
    assert [int(x) for x in scored.x[scored.ood_mask]] == unknown
    classes = sorted(set(data.y[train].tolist()) - {-1})
    assert task.num_classes == len(classes)
    for graph in (task.train, scored):
        numbers = graph.x[:, 0].long()
        expected = [classes.index(c) if c in classes else -1 for c in data.y[numbers].tolist()]
        assert graph.y.tolist() == expected
        assert torch.equal(graph.time, data.time[numbers])
        ends = numbers[graph.edge_index]
        assert torch.equal(graph.edge_weight, 10.0 * ends.amin(dim=0) + ends.amax(dim=0))
        inside = torch.isin(data.edge_index, numbers).all(dim=0)
        assert graph.num_edges == int(inside.sum())
    assert not bool((task.train.train_mask & (task.train.y < 0)).any())
    assert_same(task.train, load_task(f"mine/years/{name}", seed=5).train)


@pytest.mark.usefixtures("own_registries")
def test_times_may_be_integers_too_large_for_short_floats() -> None:
    """Neighbouring seconds of 2020 are one number in 32 bits."""
    start = 1_600_000_000
    time = start + torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    register(ten_nodes(time=time), years=(start + 3, "40%"))
    assert "mine/years/until-1600000003-unknown-0" in TASKS
    for until in ("1600000003", "40%"):
        task = load_task(f"mine/years/until-{until}-none")
        assert task.train.time.tolist() == time[:4].tolist()
    register_dataset(DatasetSpec.from_graph("decimal", lambda *_: ten_nodes(time=torch.arange(10) / 10), years=(0.3,)))
    assert load_task("decimal/years/until-0.3-none").train.num_nodes == 4


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"time": None}, r"mine/years/until-2001-unknown-0: the graph has no `time`, expected a tensor \[10\] of num"),
        ({"time": [2001] * 10}, r"as `time` a list \[10\], .* set `data.time` in `load`, or leave out `years`"),
        ({"time": torch.ones(10, 1)}, r"has as `time` a Tensor \[10, 1\], expected a tensor \[10\]"),
        ({"time": torch.full((10,), NAN)}, r"a Tensor \[10\], expected .* not all of them NaN"),
        ({"time": torch.arange(10)}, r"0 later ones of their .* times are 0 to 9, choose `years` among them"),
        ({"time": torch.arange(10) + 2002}, r"0 labelled nodes until 2001, 0 later ones .* times are 2002 to 2011"),
        ({"y": torch.tensor([1, 0, 0, 1, 1, 1, 1, 1, 2, 2])}, r"2001, 3 later .* and 0 of the unknown class, exp"),
    ],
)
def test_graphs_without_suitable_times_are_refused(others: dict[str, Any], message: str) -> None:
    register(ten_nodes(**others), years=(2001,))
    with pytest.raises(ValueError, match=message):
        load_task("mine/years/until-2001-unknown-0")


@pytest.mark.parametrize("until", ["0%", "100%", "1999", "2.5%", NAN, float("inf")])
def test_years_that_are_no_times_are_refused_at_once(until: Any) -> None:
    with pytest.raises(ValueError, match=r"`years` has .*, expected times such as 1999, or shares of the nodes"):
        register(ten_nodes(), years=(until,))


PLUGIN = """
import torch
from torch_geometric.data import Data
from oddnode import DatasetSpec, register_dataset

def load(data_dir, seed):
    y, node = torch.arange(300) % 3, torch.arange(300)
    edges = torch.stack([node, (node + 3) % 300])
    return Data(x=torch.eye(3)[y], edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, time=node)

register_dataset(DatasetSpec.from_graph("papers", load, label_split=([0, 1], [], [2]), years=(199, "50%")))
"""


@pytest.mark.usefixtures("own_registries")
def test_the_command_line_lists_and_runs_years_of_a_plugin(
    tmp_path: Path, cli: CLI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_loaded", {})
    file = tmp_path / "papers_in_time.py"
    file.write_text(PLUGIN)
    options = ("--plugin", str(file), "--methods", "msp", "--seeds", "1", "--jobs", "1", "--json")
    listed = json.loads(cli("datasets", "--plugin", str(file), "--json").stdout)[-1]
    assert (listed["name"], listed["tasks"][-1]) == ("papers", "papers/years")
    rows = json.loads(cli("bench", "--task", "papers/years", *options).stdout)
    whats = ("none", "unknown-0", "unknown-1", "unknown-2")
    assert [row["task"] for row in rows] == [
        f"papers/years/until-{cut}-{what}" for cut in ("199", "50%") for what in whats
    ]
    assert set(expand_tasks(["years"])) == {*expand_tasks(["papers/years"]), *expand_tasks(["pubmed/years"])}
    assert not set(expand_tasks(["papers/years"])) & set(expand_tasks(["all"]))
    wrong = cli("bench", "--task", "papers/years/until-99-none", *options, fails=True)
    assert "unknown task 'papers/years/until-99-none'. Did you mean 'papers/years/until-199-none'" in wrong.stderr
    other = cli("bench", "--task", "digits/years", *options, fails=True)
    assert "unknown task 'digits/years'." in other.stderr
