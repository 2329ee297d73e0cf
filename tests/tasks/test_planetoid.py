from __future__ import annotations

import os
import pickle
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.datasets import Planetoid
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import coalesce

from oddnode.tasks import FOLDERS, MissingDataError, load_task, planetoid, planetoid_graph


@pytest.mark.parametrize("name", list(FOLDERS))
def test_graphs_equal_those_of_pyg(name: str, real_data: Path, tmp_path: Path) -> None:
    shutil.copytree(real_data / "planetoid" / FOLDERS[name] / "raw", tmp_path / FOLDERS[name] / "raw")
    expected = Planetoid(str(tmp_path), FOLDERS[name], transform=NormalizeFeatures())[0]
    found = planetoid_graph(name, real_data)
    torch.testing.assert_close(found.x, expected.x)
    assert torch.equal(found.edge_index, coalesce(expected.edge_index))
    assert torch.equal(found.y, expected.y)
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(found[mask], expected[mask])


def write_files(folder: Path, name: str = "cora") -> None:
    """Ten nodes in Planetoid's form: three training nodes, eight known ones, two test nodes out of order."""
    folder.mkdir(parents=True)
    x = scipy.sparse.csr_matrix(np.eye(10, 4, dtype=np.float32))
    y = np.eye(2, dtype=np.int32)[np.arange(10) % 2]
    test = [9, 8]
    graph = defaultdict(list, {0: [1, 1, 0], 1: [0, 2], 9: [8]})
    parts = {"x": x[:3], "allx": x[:8], "tx": x[test], "y": y[:3], "ally": y[:8], "ty": y[test], "graph": graph}
    for part, value in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(value, protocol=4))
    (folder / f"ind.{name}.test.index").write_text("9\n8\n")


@pytest.mark.parametrize("layout", ["planetoid/Cora/raw", "Cora/raw"])
def test_small_files_are_read(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planetoid, "_NUM_VAL", 2)
    write_files(tmp_path / layout)
    data = planetoid_graph("cora", tmp_path)
    assert data.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [8, 9], [9, 8]]
    assert data.y.tolist() == [0, 1] * 5
    assert data.test_mask.nonzero().squeeze(1).tolist() == [8, 9]
    assert data.x[1].tolist() == [0, 1, 0, 0]
    assert data.x[9].tolist() == [0, 0, 0, 0]


class Hostile:
    """A pickle that runs a command when it is read."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.marker}",)


def test_a_hostile_file_runs_nothing(tmp_path: Path) -> None:
    folder, marker = tmp_path / "planetoid/Cora/raw", tmp_path / "ran"
    write_files(folder)
    (folder / "ind.cora.graph").write_bytes(pickle.dumps(Hostile(marker)))
    with pytest.raises(
        MissingDataError, match=r"ind.cora.graph is damaged or not a Planetoid file: it refers to \w+.system"
    ):
        planetoid_graph("cora", tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("harmful", ["numpy.testing._private.utils", "builtins"])
def test_only_the_listed_names_are_found(harmful: str, tmp_path: Path) -> None:
    """Not even other functions of numpy: some of them run strings."""
    function = {"numpy.testing._private.utils": "runstring", "builtins": "eval"}[harmful]
    path = tmp_path / "file"
    path.write_bytes(f"c{harmful}\n{function}\n(S'1'\ntR.".encode())
    with pytest.raises(MissingDataError, match=f"refers to {harmful}.{function}"):
        planetoid._unpickle(path)


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_truncated_files_are_named(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / "planetoid/Cora/raw"
    write_files(folder)
    file = folder / "ind.cora.allx"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(MissingDataError, match=r"ind.cora.allx is damaged"):
        planetoid_graph("cora", tmp_path)


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "planetoid/Cora/raw"
    write_files(folder)
    (folder / "ind.cora.ally").write_bytes(pickle.dumps(np.ones((3, 2)), protocol=4))
    with pytest.raises(MissingDataError, match="are not consistent as Cora"):
        planetoid_graph("cora", tmp_path)


def test_missing_data_is_downloaded_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    write_files(source)
    asked = []

    def download(url: str, folder: str, log: bool) -> str:
        asked.append(url)
        return str(shutil.copy(source / url.rsplit("/", 1)[1], folder))

    monkeypatch.setenv("ODDNODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ODDNODE_DATA", raising=False)
    monkeypatch.setattr("torch_geometric.data.download_url", download)
    assert planetoid_graph("cora").num_nodes == 10
    assert len(asked) == 8
    assert planetoid_graph("cora").num_nodes == 10
    assert len(asked) == 8, "the second time the cache is read"


def test_a_failed_download_says_where_to_put_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(url: str, folder: str, log: bool) -> str:
        raise OSError("no network")

    monkeypatch.setenv("ODDNODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ODDNODE_DATA", raising=False)
    monkeypatch.setattr("torch_geometric.data.download_url", download)
    with pytest.raises(
        MissingDataError, match=r"could not be downloaded \(OSError: no network\).*<data dir>/planetoid/Cora/raw"
    ):
        load_task("cora/label")


def test_reading_changes_nothing_in_the_data_dir(tmp_path: Path) -> None:
    write_files(tmp_path / "planetoid/Cora/raw")
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    load_task("cora/structure", tmp_path).train.x.zero_()
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before
    assert load_task("cora/structure", tmp_path).train.x.sum() > 0, "a caller's changes must not reach the next one"
