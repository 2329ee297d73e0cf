"""Graph folders: what they hold, damage, other versions, several processes, and PyG's interfaces."""

from __future__ import annotations

import errno
import json
import pickle
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch_geometric.data import EdgeAttr, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.loader import NodeLoader

from oddnode.graph import CSRSampler
from oddnode.large import FolderError, GraphFolder
from oddnode.large.arrays import ArrayWriter
from oddnode.large.manifest import folder_lock
from oddnode.large.sidecars import SidecarSpec, sidecar
from tests.large.graphs import as_folder, random_graph, signed


def sorted_edges(edge_index: torch.Tensor) -> list[tuple[int, int]]:
    return sorted((int(target), int(source)) for source, target in edge_index.t())


def test_a_folder_holds_the_graph_as_it_was(tmp_path: Path) -> None:
    data = random_graph()
    folder = as_folder(data, tmp_path / "graph")
    assert (folder.num_nodes, folder.num_edges, folder.num_features) == (60, data.edge_index.shape[1], 5)
    assert torch.equal(folder.x, data.x)
    for name in ("y", "train_mask", "val_mask", "calibration_mask"):
        assert torch.equal(getattr(folder, name), getattr(data, name))
    assert folder.reference_mask is None
    assert sorted_edges(folder.edge_index) == sorted_edges(data.edge_index)
    assert folder.sources.dtype == torch.int32
    assert folder.ids().tolist() == list(range(60))
    assert folder.verify() is folder


def test_masks_can_be_replaced_without_writing(tmp_path: Path) -> None:
    folder = as_folder(random_graph(num_features=200), tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    mask = torch.arange(60) < 7
    other = folder.with_masks(train_mask=mask)
    assert other.train_mask is mask
    text = pickle.dumps(other)
    assert len(text) < 2000  # it is opened again, not copied
    assert torch.equal(pickle.loads(text).train_mask, mask)
    assert torch.equal(pickle.loads(text).x, folder.x)
    assert folder.train_mask is not None
    assert int(folder.train_mask.sum()) == 15
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    with pytest.raises(FolderError, match="'test' is not a mask"):
        folder.with_masks(test=mask)


def test_weights_are_in_the_order_of_the_edges(tmp_path: Path) -> None:
    data = random_graph(weighted=True)
    folder = as_folder(data, tmp_path)
    rows = [
        (*reversed(edge), weight)
        for *edge, weight in zip(*data.edge_index.tolist(), data.edge_weight.tolist(), strict=True)
    ]
    expected = sorted(row for row in rows if row[-1] > 0)
    assert folder.num_edges == len(expected) < len(rows)
    assert folder.edge_weight is not None
    found = zip(*folder.edge_index.flip(0).tolist(), folder.edge_weight.tolist(), strict=True)
    assert list(found) == expected
    assert as_folder(random_graph(), tmp_path / "plain").edge_weight is None


@pytest.mark.parametrize("name", ["x", "sources", "offsets", "weights", "loop_nodes", "loop_weights"])
def test_a_flipped_bit_is_found_before_the_array_is_used(tmp_path: Path, name: str) -> None:
    as_folder(random_graph(weighted=True), tmp_path)
    content = bytearray((tmp_path / f"{name}.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / f"{name}.bin").write_bytes(content)
    folder = GraphFolder(tmp_path)
    with pytest.raises(FolderError, match=rf"{name}.bin has the checksum .* damaged; delete the folder"):
        folder.as_graph()
    with pytest.raises(FolderError, match=f"{name}.bin"):
        folder.verify()


@pytest.mark.parametrize("name", ["x", "weights"])
def test_truncated_and_missing_files_are_found(tmp_path: Path, name: str) -> None:
    as_folder(random_graph(weighted=True), tmp_path).as_graph()
    file = tmp_path / f"{name}.bin"
    content = file.read_bytes()
    file.write_bytes(content[:-8])
    with pytest.raises(FolderError, match=f"{name}.bin has {len(content) - 8} bytes, expected {len(content)}"):
        GraphFolder(tmp_path)
    file.unlink()
    with pytest.raises(FolderError, match=rf"{name}.bin is missing"):
        GraphFolder(tmp_path)


def rewrite(folder: Path, array: str = "", values: np.ndarray | None = None, **changes: Any) -> None:
    """Change the manifest of a folder, or an array in it with its checksum."""
    manifest = json.loads((folder / "graph.json").read_text())
    if values is not None:
        values.tofile(folder / f"{array}.bin")
        changes = {"crc32": zlib.crc32(values.tobytes())}
    manifest["arrays"].get(array, manifest).update(changes)
    (folder / "graph.json").write_text(signed(manifest))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0, -1.0])
def test_wrong_weights_are_refused(tmp_path: Path, wrong: float) -> None:
    as_folder(random_graph(weighted=True), tmp_path).as_graph()
    weights = np.fromfile(tmp_path / "weights.bin")
    weights[7] = wrong
    rewrite(tmp_path, "weights", weights)
    with pytest.raises(FolderError, match=r"weights.bin has weights that are not finite numbers above 0"):
        GraphFolder(tmp_path).as_graph()


@pytest.mark.parametrize(
    ("array", "changes", "message"),
    [
        ("weights", {"dtype": "int64"}, "weights in the dtype of the features"),
        ("weights", {"shape": [1]}, "does not list 'weights' with the shape"),
        ("", {"format": 99, "news": 1}, "has the format 99, expected 2: it was made by another version"),
        ("", {"num_nodes": 61}, "does not list .* with the shape"),
        ("", {"num_nodes": "many"}, r"graph.json is damaged"),
    ],
)
def test_other_versions_and_damaged_manifests_are_refused(
    tmp_path: Path, array: str, changes: Any, message: str
) -> None:
    as_folder(random_graph(weighted=True), tmp_path)
    rewrite(tmp_path, array, **changes)
    with pytest.raises(FolderError, match=message):
        GraphFolder(tmp_path)
    text = (tmp_path / "graph.json").read_text()
    (tmp_path / "graph.json").write_text(text[:-9])
    with pytest.raises(FolderError, match=r"graph.json is damaged"):
        GraphFolder(tmp_path)


def test_a_manifest_cannot_name_other_files_or_nodes_that_do_not_exist(tmp_path: Path) -> None:
    as_folder(random_graph(), tmp_path)
    sources = np.fromfile(tmp_path / "sources.bin", np.int32)
    sources[7] = 60
    rewrite(tmp_path, "sources", sources)
    for _ in range(2):
        with pytest.raises(FolderError, match="do not fit its 60 nodes"):
            GraphFolder(tmp_path).as_graph()
    arrays = json.loads((tmp_path / "graph.json").read_text())["arrays"]
    rewrite(tmp_path, arrays=arrays | {"../secret": arrays["x"]})
    with pytest.raises(FolderError, match=r"lists the unknown array '../secret'"):
        GraphFolder(tmp_path)


def test_what_is_no_finished_graph_says_why(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="is not a folder"):
        GraphFolder(tmp_path / "none")
    with pytest.raises(FolderError, match=r"holds no graph \(graph.json is missing\)"):
        GraphFolder(tmp_path)
    (tmp_path / ".building").mkdir()
    with pytest.raises(FolderError, match="was not finished; prepare the graph again"):
        GraphFolder(tmp_path)
    with folder_lock(tmp_path), pytest.raises(FolderError, match="is being written by another process"):
        GraphFolder(tmp_path)


def test_a_sidecar_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_folder(random_graph(), tmp_path)
    spec = SidecarSpec(tmp_path, "this graph", "ones", "float64", (3,))
    with monkeypatch.context() as patch:
        patch.setattr(ArrayWriter, "close", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            sidecar(spec, lambda: torch.ones(3))
    assert not list(tmp_path.glob("ones*"))
    (tmp_path / "ones.part").write_bytes(b"left by a process that was killed")
    assert sidecar(spec, lambda: torch.ones(3)).tolist() == [1.0, 1.0, 1.0]
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_sidecar_is_computed_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = as_folder(random_graph(), tmp_path)
    expected = folder.as_graph().smoothed_x.clone()
    content = bytearray((tmp_path / "ax.bin").read_bytes())
    content[3] ^= 1
    for damaged in (b"short", content):
        (tmp_path / "ax.bin").write_bytes(damaged)
        with caplog.at_level("WARNING", logger="oddnode"):
            assert torch.equal(GraphFolder(tmp_path).as_graph().smoothed_x, expected)
        assert "it is computed again" in caplog.text
        caplog.clear()


def test_two_processes_compute_a_sidecar_once(tmp_path: Path) -> None:
    as_folder(random_graph(), tmp_path)
    code = """
import sys, time
from pathlib import Path
import torch
from oddnode.large.sidecars import SidecarSpec, sidecar

def make():
    print("computing", flush=True)
    time.sleep(1.0)
    return torch.arange(4.0)

print(sidecar(SidecarSpec(Path(sys.argv[1]), "this graph", "slow", "float64", (4,)), make).tolist())
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    shown = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sorted(text.count("computing") for text in shown) == [0, 1]
    assert all("[0.0, 1.0, 2.0, 3.0]" in text for text in shown)


def test_pyg_reads_features_and_edges(tmp_path: Path) -> None:
    data = random_graph()
    folder = as_folder(data, tmp_path)
    assert [attr.attr_name for attr in folder.get_all_tensor_attrs()][:2] == ["x", "y"]
    index = torch.tensor([5, 1])
    assert torch.equal(folder.get_tensor(group_name=None, attr_name="x", index=index), data.x[index])
    assert folder.get_tensor_size(group_name=None, attr_name="x") == (60, 5)
    row, pointer = folder.get_edge_index(EdgeAttr(edge_type=None, layout=EdgeLayout.CSC))
    assert torch.equal(pointer.diff(), torch.bincount(data.edge_index[1], minlength=60))
    edge_index = torch.stack(folder.get_edge_index(EdgeAttr(edge_type=None, layout=EdgeLayout.COO)))
    assert sorted_edges(edge_index) == sorted_edges(data.edge_index)
    assert len(row) == folder.num_edges
    assert not folder.put_tensor(data.x, TensorAttr(group_name=None, attr_name="x", index=None))


def test_a_loader_of_pyg_reads_batches_from_a_folder(tmp_path: Path) -> None:
    data = random_graph()
    folder = as_folder(data, tmp_path)
    sampler = CSRSampler(folder.offsets, folder.sources, num_neighbours=[-1])
    loader = NodeLoader((folder, folder), sampler, input_nodes=torch.arange(60), batch_size=16)
    degree = torch.cat([torch.bincount(batch.edge_index[1], minlength=16)[: batch.batch_size] for batch in loader])
    assert torch.equal(degree, torch.bincount(data.edge_index[1], minlength=60))
    x = torch.cat([batch.x[: batch.batch_size] for batch in loader])
    assert torch.equal(x, data.x)
