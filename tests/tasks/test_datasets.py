from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from oddnode import DatasetSpec, load_task, register_dataset
from oddnode.tasks import (
    DATASETS,
    STRUCTURE,
    TASKS,
    DataFiles,
    MissingDataError,
    ScoredNodes,
    Task,
    TaskFamily,
    TaskRules,
    TaskSpec,
    dataset_states,
    expand_tasks,
    load_tasks,
    register_family,
)

pytestmark = pytest.mark.usefixtures("own_registries")

FILES = DataFiles("Shop", ("nodes.csv", "edges.csv"), "ask sales and put both into <data dir>/shop", ("shop", "."))


def without_masks(data: Data) -> Data:
    return Data(x=data.x, edge_index=data.edge_index, y=data.y)


def test_one_graph_gives_a_task_for_each_family(two_groups: Data) -> None:
    register_dataset(DatasetSpec.from_graph("mine", lambda data_dir, seed: two_groups, label_split=([2, 0], [], [1])))
    names = [name for name in TASKS if name.startswith("mine/")]
    assert names[:3] == ["mine/label", "mine/structure", "mine/feature"]
    assert [name.replace("mine", "digits") for name in names] == [name for name in TASKS if name.startswith("digits/")]
    task = load_task("mine/label")
    assert task.train.num_nodes == 40
    assert torch.equal(task.tests["label"].ood_mask, two_groups.y == 1)
    assert torch.equal(task.id_test.mask, two_groups.test_mask & (two_groups.y != 1))
    assert task.exposure is None
    assert load_task("mine/label", protocol="published").train.num_nodes == 60
    assert torch.equal(load_task("mine/structure").tests["structure"].x, two_groups.x)
    assert torch.equal(load_task("mine/feature").tests["feature"].edge_index, two_groups.edge_index)


def test_a_data_set_has_arrivals_with_its_own_shares(two_groups: Data) -> None:
    graph = Data(x=torch.rand(600, 4), edge_index=torch.randint(600, (2, 3000)), y=torch.arange(600) % 3)
    register_dataset(DatasetSpec.from_graph("mine", lambda data_dir, seed: graph, arrival_shares=(0.1, 0.25)))
    register_dataset(DatasetSpec.from_graph("still", lambda data_dir, seed: graph, arrival_shares=()))
    assert [task.name for task in DATASETS["still"].tasks] == ["still/structure", "still/feature"]
    for group, share in (("arrivals", 0.1), ("unseen", 0.1), ("arrivals-25%", 0.25)):
        names = expand_tasks([f"mine/{group}"])
        assert set(names) <= set(expand_tasks([group]))
        task = load_task(names[-1])
        assert int(task.tests["arrivals"].ood_mask.sum()) == 600 * share
    assert "mine/arrivals-20%" not in {name.rpartition("/")[0] for name in TASKS}


def test_a_graph_without_masks_is_split_one_to_one_to_eight_by_seed_and_stays_as_it_was(two_groups: Data) -> None:
    given = without_masks(two_groups)
    register_dataset(DatasetSpec.from_graph("mine", lambda data_dir, seed: given))
    first, again, other = (load_task("mine/feature", seed=seed).train for seed in (0, 0, 1))
    assert [int(first[mask].sum()) for mask in ("train_mask", "val_mask", "test_mask")] == [6, 6, 48]
    assert torch.equal(first.train_mask, again.train_mask)
    assert not torch.equal(first.train_mask, other.train_mask)
    assert sorted(given.keys()) == ["edge_index", "x", "y"]


@pytest.mark.parametrize(("fixed_split", "calls"), [(True, [0]), (False, [4, 5, 6])])
def test_a_fixed_split_makes_the_label_task_once_for_all(two_groups: Data, fixed_split: bool, calls: list[int]) -> None:
    asked: list[int] = []

    def load(data_dir: Any, seed: int) -> Data:
        asked.append(seed)
        return two_groups

    register_dataset(DatasetSpec.from_graph("mine", load, label_split=([0], [1], [2]), fixed_split=fixed_split))
    load_tasks("mine/label", None, [4, 5, 6])
    assert asked == calls
    asked.clear()
    load_tasks("mine/structure", None, [4, 5, 6])
    assert asked == [4, 5, 6]


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda data: 3, r"`load` of the data set 'mine' returned a int, expected a PyG Data"),
        (lambda data: Data(x=data.x, edge_index=data.edge_index), r"the graph of the data set 'mine' has no y"),
        (
            lambda data: Data(x=data.x, edge_index=data.edge_index, y=data.y, val_mask=data.val_mask),
            r"has no train_mask, test_mask; give all masks or none",
        ),
    ],
)
def test_a_graph_that_lacks_something_is_named(two_groups: Data, load: Any, message: str) -> None:
    register_dataset(DatasetSpec.from_graph("mine", lambda data_dir, seed: load(two_groups)))
    with pytest.raises((TypeError, ValueError), match=message):
        load_task("mine/structure")


@pytest.mark.parametrize("split", [([0], [1], [7]), ([0, 1], [1], [2]), ([], [1], [2]), ([0], [1], [])])
def test_classes_that_cannot_be_split_so_are_named(two_groups: Data, split: Any) -> None:
    register_dataset(DatasetSpec.from_graph("mine", lambda data_dir, seed: two_groups, label_split=split))
    with pytest.raises(
        ValueError, match=r"the classes of mine/label are ID .* expected distinct classes of \[0, 1, 2\]"
    ):
        load_task("mine/label")


@pytest.mark.parametrize(
    ("name", "tasks"),
    [("mine", []), ("mine", ["other"]), ("mine", ["mine", "mine"]), ("all", ["all"]), ("a/b", ["a/b"])],
)
def test_names_that_could_not_be_told_apart_are_refused(name: str, tasks: list[str]) -> None:
    made = tuple(TaskSpec(task, lambda data_dir, seed, rules: load_task("digits/label")) for task in tasks)
    with pytest.raises(ValueError, match=f"the data set '{name}' has the tasks"):
        register_dataset(DatasetSpec(name, made))
    assert name not in DATASETS
    with pytest.raises(ValueError, match="there is a data set named 'cora' already"):
        register_dataset(DatasetSpec("cora", (TaskSpec("cora", lambda data_dir, seed, rules: None),)))  # type: ignore


def test_a_new_family_is_added_to_data_sets_that_exist(two_groups: Data) -> None:
    def make(name: str, data: Data, seed: int, rules: TaskRules) -> Task:
        late = Data(x=data.x, edge_index=data.edge_index, ood_mask=torch.arange(data.num_nodes) >= 1000)
        return Task(name, data, ScoredNodes(data, data.test_mask), {"late": late}, 10, protocol=rules.protocol)

    register_family("arrivals", TaskFamily(make), ["digits"])
    task = load_task("digits/arrivals", protocol="published")
    assert task.protocol == "published"
    assert int(task.tests["late"].ood_mask.sum()) == 797
    assert "digits/arrivals" in expand_tasks(["all"])
    with pytest.raises(ValueError, match="there is a task named 'digits/structure' already"):
        register_family("structure", STRUCTURE, ["digits"])
    with pytest.raises(ValueError, match="the data set 'twitch' has no single graph to make 'arrivals' from"):
        register_family("arrivals", TaskFamily(make), ["twitch"])


def test_what_is_missing_is_told_without_reading(two_groups: Data, tmp_path: Path) -> None:
    def load(data_dir: Any, seed: int) -> Data:
        raise AssertionError("nothing has to be read for this")

    register_dataset(spec := DatasetSpec.from_graph("shop", load, files=FILES, optional=True))
    (tmp_path / "nodes.csv").touch()
    message = f"Shop is missing edges.csv; looked in {tmp_path / 'shop'}, {tmp_path}. Ask sales and put both into"
    assert (spec.missing(tmp_path) or "").startswith(message)
    with pytest.raises(MissingDataError, match=r"Shop is missing edges.csv"):
        spec.require(tmp_path)
    assert "shop/feature" not in expand_tasks(["all"], tmp_path)
    assert {state.name: state.state for state in dataset_states(tmp_path)}["shop"] == "missing"
    (tmp_path / "edges.csv").touch()
    assert spec.missing(tmp_path) is None
    spec.require(tmp_path)
    assert "shop/feature" in expand_tasks(["all"], tmp_path)
    assert {state.name: state.state for state in dataset_states(tmp_path)}["shop"] == "found"


def test_files_are_found_in_the_first_folder_with_all_or_downloaded(two_groups: Data, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "nodes.csv").touch()

    def download(data_dir: Any) -> None:
        for name in FILES.names:
            (tmp_path / name).touch()

    spec = DatasetSpec.from_graph("shop", lambda data_dir, seed: two_groups, files=FILES, download=download)
    assert spec.missing(tmp_path) is not None
    assert FILES.find(tmp_path) is None
    spec.require(tmp_path)
    assert spec.missing(tmp_path) is None
    assert FILES.find(tmp_path) == tmp_path
    (tmp_path / "shop" / "edges.csv").touch()
    assert FILES.require(tmp_path) == tmp_path / "shop"
