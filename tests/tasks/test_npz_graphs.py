from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from oddnode.tasks import DATASETS, MissingDataError, expand_tasks, load_task, npz_graph

CHOOSING = ("citations-wide", "campus", "films")


def write_raw(path: Path, num_nodes: int = 200, num_classes: int = 8, **others: Any) -> dict[str, Any]:
    """An archive as PyG's Amazon and Coauthor read it."""
    rng = np.random.default_rng(0)
    attr = scipy.sparse.random_array((num_nodes, 12), density=0.4, format="csr", rng=rng)
    adj = scipy.sparse.random_array((num_nodes, num_nodes), density=0.05, format="csr", rng=rng)
    parts = {"labels": np.arange(num_nodes) % num_classes}
    for name, matrix in (("attr", attr), ("adj", adj)):
        parts |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{**parts, **others})
    return {"attr": attr.toarray(), "adj": adj.toarray(), **parts}


def test_raw_archives_are_binary_row_normalised_and_undirected(tmp_path: Path) -> None:
    raw = write_raw(tmp_path / "amazon" / "raw" / "amazon_electronics_photo.npz")
    data = npz_graph("photo", tmp_path)
    present = (raw["attr"] > 0).astype(float)
    expected = present / np.maximum(present.sum(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(data.x.numpy(), expected, rtol=1e-6)
    joined = (raw["adj"] + raw["adj"].T) > 0
    np.fill_diagonal(joined, False)
    assert {*zip(*data.edge_index.tolist(), strict=True)} == {*zip(*joined.nonzero(), strict=True)}
    assert data.y.tolist() == raw["labels"].tolist()


def test_gnnsafes_tasks_split_at_random_and_leave_the_low_classes_out(tmp_path: Path) -> None:
    write_raw(tmp_path / "coauthor" / "raw" / "ms_academic_cs.npz", 300, 15)
    task = load_task("cs/label", tmp_path, seed=1)
    y = npz_graph("cs", tmp_path).y
    assert (task.num_classes, task.train.num_nodes) == (10, 200)
    assert torch.equal(task.tests["label"].ood_mask, y < 4)
    assert task.exposure is not None
    assert int(task.exposure.ood_mask.sum()) == int((y == 4).sum())
    train = load_task("cs/structure", tmp_path, seed=1).train
    assert [int(train[mask].sum()) for mask in ("train_mask", "val_mask", "test_mask")] == [30, 30, 240]
    assert not torch.equal(train.train_mask, load_task("cs/structure", tmp_path, seed=2).train.train_mask)
    assert "cs/arrivals/label-grouped" in expand_tasks(["arrivals"], tmp_path)


@pytest.mark.parametrize("name", CHOOSING)
def test_graphs_for_choosing_are_named_one_by_one_only(name: str, tmp_path: Path) -> None:
    x = scipy.sparse.csr_array(np.array([[3.0, 1.0], [0.0, 0.0], [0.5, 0.0]]))
    parts = {f"x_{part}": getattr(x, part) for part in ("data", "indices", "indptr", "shape")}
    (tmp_path / "graphs").mkdir()
    np.savez(tmp_path / "graphs" / f"{name}.npz", edge_index=[[0, 0, 1], [1, 2, 0]], y=[0, 1, 1], **parts)
    data = npz_graph(name, tmp_path)
    assert data.x.tolist() == [[0.75, 0.25], [0.0, 0.0], [0.5, 0.0]]
    assert data.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert data.y.tolist() == [0, 1, 1]
    assert DATASETS[name].missing(tmp_path) is None
    assert f"{name}/arrivals/feature-grouped" in expand_tasks([f"{name}/arrivals"], tmp_path)
    for group in ("paper", "all", "arrivals", "arrivals-20%", "unseen"):
        assert not any(task.startswith(f"{name}/") for task in expand_tasks([group], tmp_path))


def test_damaged_archives_are_refused_and_objects_are_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "amazon" / "raw" / "amazon_electronics_photo.npz"
    with pytest.raises(MissingDataError, match=r"photo is missing amazon_electronics_photo.npz; .* Get it from https"):
        npz_graph("photo", tmp_path)
    write_raw(path, labels=np.array([{"a": 1}] * 200, dtype=object))
    with pytest.raises(MissingDataError, match=r"photo.npz is damaged or not a graph: .*allow_pickle=False"):
        npz_graph("photo", tmp_path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(MissingDataError, match=r"photo.npz is damaged or not a graph"):
        npz_graph("photo", tmp_path)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes"),
    [("photo", 7650, 238162, 745, 8), ("cs", 18333, 163788, 6805, 15)],
)
def test_public_graphs_have_the_sizes_that_pyg_states(
    name: str, nodes: int, edges: int, features: int, classes: int, real_data: Path
) -> None:
    data = npz_graph(name, real_data)
    assert (data.num_nodes, data.num_edges, data.num_features) == (nodes, edges, features)
    assert data.y.unique().tolist() == list(range(classes))
