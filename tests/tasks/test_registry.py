from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch_geometric.data import Data

from oddnode.tasks import PAPER_TASKS, TASKS, Task, dataset_states, expand_tasks, load_task, load_tasks

OPTIONAL = ("arxiv", "photo", "cs")
FOR_CHOOSING = ("citations-wide", "campus", "films")


def assert_same(a: Data, b: Data) -> None:
    assert sorted(a.keys()) == sorted(b.keys())
    assert all(torch.equal(a[key], b[key]) for key in a.to_dict())


def assert_task_is_sound(task: Task) -> None:
    for name in ("train_mask", "val_mask"):
        y = task.train.y[task.train[name]]
        assert set(y.tolist()) == set(range(task.num_classes))
    masks = torch.stack([task.train.train_mask, task.train.val_mask, task.train.test_mask]).int()
    assert int(masks.sum(dim=0).max()) == 1
    data, mask = task.id_test
    assert set(data.y[mask].tolist()) <= set(range(task.num_classes))
    for graph in task.tests.values():
        assert bool(graph.ood_mask.any())
        assert graph.x.shape[1] == task.train.x.shape[1]
        if graph is data:
            assert not bool((graph.ood_mask & mask).any())
    if task.exposure is not None:
        assert bool(task.exposure.ood_mask.any())


@pytest.mark.parametrize("name", ["digits/label", "digits/structure", "digits/feature"])
def test_embedded_tasks_are_sound_and_the_same_for_the_same_seed(name: str) -> None:
    task, again, other = load_task(name, seed=1), load_task(name, seed=1), load_task(name, seed=2)
    assert_task_is_sound(task)
    assert_same(task.train, again.train)
    for graph, twin in zip(task.tests.values(), again.tests.values(), strict=True):
        assert_same(graph, twin)
    assert not torch.equal(task.train.train_mask, other.train.train_mask)


@pytest.mark.parametrize("name", ["cora/structure", "cora/feature", "cora/label", "twitch", "digits/structure"])
@pytest.mark.parametrize("protocol", ["clean", "published"])
def test_seeds_together_are_the_seeds_alone(real_data: Path, name: str, protocol: str) -> None:
    together = load_tasks(name, real_data, [0, 3], protocol)
    for task, seed in zip(together, (0, 3), strict=True):
        alone = load_task(name, real_data, seed, protocol)
        assert task.exposure is not None
        assert alone.exposure is not None
        pairs = [(task.train, alone.train), (task.exposure, alone.exposure), (task.id_test.data, alone.id_test.data)]
        for a, b in [*pairs, *zip(task.tests.values(), alone.tests.values(), strict=True)]:
            assert_same(a, b)
    if not name.startswith("digits"):
        assert together[0].train.x is together[1].train.x


def test_a_task_that_is_changed_does_not_change_the_next(real_data: Path) -> None:
    task = load_task("cora/label", real_data, protocol="published")
    before = [task.train.x.clone(), task.train.y.clone(), task.train.edge_index.clone()]
    for tensor in (task.train.x, task.train.y, task.train.edge_index, task.train.train_mask):
        tensor.zero_()
    again = load_task("cora/label", real_data, protocol="published").train
    for tensor, expected in zip((again.x, again.y, again.edge_index), before, strict=True):
        assert torch.equal(tensor, expected)


def test_digits_are_all_pixels_of_all_images_with_their_nearest_and_split_by_class() -> None:
    data = load_task("digits/structure").train
    digits = load_digits()
    torch.testing.assert_close(data.x, torch.from_numpy(digits.data / 16).float())
    distances = torch.cdist(data.x[:50].double(), data.x.double())
    for node in range(50):
        nearest = set(distances[node].argsort()[1:4].tolist())
        assert nearest <= set(data.edge_index[1][data.edge_index[0] == node].tolist())
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * 10
    assert torch.bincount(data.y[data.val_mask]).tolist() == [30] * 10
    assert int(data.test_mask.sum()) == 1797 - 500


def test_names_stand_for_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_CACHE", str(tmp_path / "cache"))
    assert expand_tasks(["paper"]) == PAPER_TASKS
    assert len(PAPER_TASKS) == 10
    assert expand_tasks(["twitch", "all"])[0] == "twitch"
    grouped = {name for name in TASKS if name.count("/") == 2 and name.split("/")[1] != "arrivals"}
    optional = {name for name in TASKS if name.split("/")[0] in (*OPTIONAL, *FOR_CHOOSING)}
    assert set(expand_tasks(["all"], tmp_path)) == set(TASKS) - grouped - optional


def test_unknown_tasks_protocols_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown task 'cora/lable'. Did you mean 'cora/label'"):
        load_task("cora/lable")
    with pytest.raises(ValueError, match=r"unknown protocol 'publishd'. Did you mean 'published'"):
        load_task("digits/label", protocol="publishd")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        load_task("cora/label", data_dir=tmp_path / "nowhere")


def test_states_say_what_is_missing_and_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_CACHE", str(tmp_path / "cache"))
    states = {state.name: state for state in dataset_states(tmp_path)}
    assert states["digits"].state == "embedded"
    assert states["cora"].state == "missing"
    assert f"looked in {tmp_path}" in states["cora"].where
    assert "on first use" in states["cora"].where
    assert states["twitch"].state == "missing"
    assert "get the raw files from https://" in states["twitch"].where
    assert states["arxiv"].state == "missing"
    assert "get https://" in states["arxiv"].where
    assert all(state.licence for state in states.values())


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_paper_tasks_are_sound(name: str, real_data: Path) -> None:
    assert_task_is_sound(load_task(name, data_dir=real_data))


def test_label_splits_are_the_published_ones(real_data: Path) -> None:
    for name, classes, left_out in (("cora", 3, 4), ("citeseer", 2, 4), ("pubmed", 1, 2)):
        clean = load_task(f"{name}/label", data_dir=real_data)
        published = load_task(f"{name}/label", data_dir=real_data, protocol="published")
        assert clean.num_classes == published.num_classes == classes
        assert published.num_left_out == left_out
        assert int(clean.train.train_mask.sum()) == int(published.train.train_mask.sum()) == 20 * classes
