from __future__ import annotations

import os
import pickle
import random
import shutil
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.datasets import Planetoid
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import coalesce

from oddnode.tasks import FOLDERS, MissingDataError, load_task, planetoid, planetoid_graph
from oddnode.tasks.array_pickle import read_arrays
from oddnode.tasks.planetoid import CONSENT


@pytest.fixture(autouse=True)
def consent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of these tests write small files of their own."""
    monkeypatch.setenv(CONSENT, "1")


@pytest.mark.parametrize("name", list(FOLDERS))
def test_graphs_equal_those_of_pyg_and_the_public_files_need_no_consent(
    name: str, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CONSENT)
    shutil.copytree(real_data / "planetoid" / FOLDERS[name] / "raw", tmp_path / FOLDERS[name] / "raw")
    expected = Planetoid(str(tmp_path), FOLDERS[name], transform=NormalizeFeatures())[0]
    found = planetoid_graph(name, real_data)
    assert found.num_nodes == {"cora": 2708, "citeseer": 3327, "pubmed": 19717}[name]
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
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(value, protocol=3))
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


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """The folder of small files."""
    write_files(tmp_path / "planetoid/Cora/raw")
    return tmp_path / "planetoid/Cora/raw"


@dataclass
class Call:
    """A pickle that calls a function when it is read."""

    function: Callable[..., Any]
    arguments: tuple
    state: Any = None

    def __reduce__(self) -> tuple:
        return self.function, self.arguments, self.state


def sound() -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix(np.eye(8, 4, dtype=np.float32))


def changed(**parts: Any) -> scipy.sparse.csr_matrix:
    """The features of the known nodes, with other arrays than SciPy would have allowed."""
    matrix = sound()
    vars(matrix).update(parts)
    return matrix


def array(shape: tuple, dtype: Any, raw: bytes) -> Call:
    """An array as NumPy pickles it, from parts that need not fit together."""
    make: Any = np.ndarray.__reduce__(np.empty(0))[0]
    return Call(make, (np.ndarray, (0,), b"b"), (1, shape, dtype, False, raw))


ints = partial(np.array, dtype=np.int32)
POINTERS = b"A" * 8 * 16
OBJECTS = Call(np.dtype, ("O8", False, True))
FIELD = Call(np.dtype, ("V8", False, True), (3, "|", None, ("f",), {"f": ("O", 0)}, 8, 1, 27))
NOTHING = {"indices": ints([]), "data": np.empty(0, dtype=np.float32)}
ATTACKS: dict[str, tuple[str, Any, str]] = {
    "a command": ("graph", Call(os.system, ("touch ran",)), r"it refers to \w+.system"),
    "an array of pointers": ("ally", Call(np.ndarray, ((8, 2), "O", POINTERS)), "a call that data does not need"),
    "a dtype of pointers": ("ally", array((8, 2), OBJECTS, POINTERS), "an array of type b'O8'"),
    "a field of pointers": ("ally", array((8,), FIELD, b""), "an array of type b'V8'|dictionary|tuple of lists"),
    "another byte order": ("ally", np.ones((8, 2), dtype=">i4"), "unknown form"),
    "too few bytes": ("ally", array((10**9, 7), np.dtype("i4"), b"1234"), "4 bytes do not fit its shape"),
    "a pointer beyond the end": ("allx", changed(indptr=ints([0, 10**9] + [4] * 7)), "rows overlap"),
    "pointers of an empty matrix": ("allx", changed(indptr=ints([0, 10**8] + [0] * 7), **NOTHING), "rows overlap"),
    "overflowing differences": ("allx", changed(indptr=ints([0, 2**31 - 1, -(2**31), *[4] * 6])), "rows overlap"),
    "a column that is not there": ("allx", changed(indices=ints([0, 1, 2, 10**9])), "indices must be"),
    "a negative column": ("allx", changed(indices=ints([0, 1, 2, -1])), "indices must be"),
    "pointers of floats": ("allx", changed(indptr=np.zeros(9)), "do not fit its 8 rows"),
    "data without columns": ("allx", changed(data=np.ones(9, dtype=np.float32)), "do not fit its 8 rows"),
    "many rows": ("allx", changed(_shape=(10**9, 4)), "do not fit its 1000000000 rows"),
    "many columns": ("allx", changed(_shape=(8, 2**31 - 1)), "8 x 2147483647 features, expected at most"),
    "endless columns": ("allx", changed(_shape=(8, 10**12)), "not two valid sizes"),
    "a negative size": ("allx", changed(_shape=(-8, 4)), "not two valid sizes"),
    "features that are not finite": ("allx", sound() * np.float32("inf"), "not finite"),
    "an array of features": ("allx", np.eye(8, 4), "expected a sparse matrix"),
    "other features": ("tx", sound()[:2, :3], "it has 3 features, but allx has 4"),
    "more training nodes than nodes": ("x", scipy.sparse.vstack([sound(), sound()]).tocsr(), "it has 16 nodes"),
    "labels of other nodes": ("ally", np.ones((3, 2), dtype=np.int32), "3 nodes and 2 classes, expected 8 nodes"),
    "labels of other classes": ("ty", np.ones((2, 3), dtype=np.int32), "expected 2 nodes and 2 classes"),
    "labels of floats": ("ally", np.ones((8, 2)), "expected integers"),
    "a matrix of labels": ("ally", sound(), "expected integers"),
    "a node number beyond all": ("graph", {0: [10**12]}, "the node number 1000000000000, expected 0 to 9"),
    "a negative node": ("graph", {0: [-1]}, "the node number -1, expected 0 to 9"),
    "a source beyond all": ("graph", {10: [1]}, "the node number 10, expected 0 to 9"),
    "a named node": ("graph", {0: ["a"]}, "a bytes as a node"),
    "neighbours of lists": ("graph", {0: [[1]]}, "a list as a node"),
    "neighbours that are a number": ("graph", {0: 1}, "expected a list of neighbours"),
    "neighbours by pairs": ("graph", {(0, 1): [1]}, "keys that are neither"),
    "one list repeated": ("graph", dict.fromkeys(range(10), [1] * 1000), "it repeats a list"),
    "a set": ("graph", {1}, "refers to builtins.set"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_and_damaged_files_are_refused_by_name(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    monkeypatch.chdir(tmp_path)
    part, value, message = ATTACKS[attack]
    (raw / f"ind.cora.{part}").write_bytes(pickle.dumps(value, protocol=3))
    with pytest.raises(MissingDataError, match=f"ind.cora.{part} is damaged or not a Planetoid file: .*{message}"):
        planetoid_graph("cora", tmp_path)
    assert not Path("ran").exists()


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_truncated_files_are_named(tmp_path: Path, raw: Path, cut: int) -> None:
    file = raw / "ind.cora.allx"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(MissingDataError, match=r"ind.cora.allx is damaged"):
        planetoid_graph("cora", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9\n10000000000", "node number 10000000000, expected 8 to "),
        ("9\n-5", "node number -5, expected 8 to "),
        ("9\n7", "node number 7, expected 8 to "),
        ("9\n9", "expected 2 different ones"),
        ("9", "it has 1 node numbers"),
        ("", "it has 0 node numbers"),
        ("9\nx", "invalid literal"),
        ("9\n" + "1" * 10_000, "limit"),
        ("9\n\xff", "ascii"),
    ],
)
def test_test_nodes_are_checked(tmp_path: Path, raw: Path, text: str, message: str) -> None:
    (raw / "ind.cora.test.index").write_text(text)
    with pytest.raises(MissingDataError, match=f"ind.cora.test.index is damaged or not a Planetoid file: .*{message}"):
        planetoid_graph("cora", tmp_path)


def test_a_thousand_damaged_files_break_nothing(tmp_path: Path, raw: Path) -> None:
    rng = random.Random(0)
    sound = {path: path.read_bytes() for path in sorted(raw.iterdir())}
    refused = 0
    for _ in range(1000):
        path = rng.choice(list(sound))
        content = bytearray(sound[path])
        for _ in range(rng.randrange(1, 4)):
            content[rng.randrange(len(content))] = rng.choice([0, 255, 46, 104, 133, rng.randrange(256)])
        path.write_bytes(content)
        planetoid._read.cache_clear()
        try:
            data = planetoid_graph("cora", tmp_path)
        except MissingDataError as error:
            assert str(raw) in str(error)  # noqa: PT017, some damages only change a number
            refused += 1
        else:
            assert bool(data.x.isfinite().all())
        path.write_bytes(sound[path])
    assert refused > 500


@pytest.mark.usefixtures("raw")
def test_reading_needs_consent_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert planetoid_graph("cora", tmp_path).num_nodes == 10
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    load_task("cora/structure", tmp_path).train.x.zero_()
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before
    assert load_task("cora/structure", tmp_path).train.x.sum() > 0, "a caller's changes must not reach the next one"
    monkeypatch.delenv(CONSENT)
    with pytest.raises(MissingDataError, match=rf"ind.cora.x .* not that of the public file.* set .* {CONSENT}=1"):
        planetoid_graph("cora", tmp_path)


@pytest.mark.parametrize("part", ["x", "tx", "allx", "y", "ty", "ally", "graph"])
def test_the_public_files_are_read_as_pickle_reads_them(part: str, real_data: Path) -> None:
    raw = (real_data / f"planetoid/CiteSeer/raw/ind.citeseer.{part}").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the old names of SciPy's modules
        expected = pickle.loads(raw, encoding="latin1")
    found = read_arrays(raw)
    if isinstance(expected, dict):
        assert list(found.items()) == list(expected.items())
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)
    else:
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        for array in ("data", "indices", "indptr"):
            assert np.array_equal(getattr(found, array), getattr(expected, array))


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str, str], object]], None]:
    """Replaces downloads by a function of the name of a file and a folder; there is no other data."""
    monkeypatch.setenv("ODDNODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ODDNODE_DATA", raising=False)
    place = "torch_geometric.data.download_url"
    return lambda get: monkeypatch.setattr(place, lambda url, folder, log: get(url.rsplit("/", 1)[1], folder))


def test_another_file_that_came_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, downloads: Any) -> None:
    monkeypatch.delenv(CONSENT)
    downloads(lambda name, folder: (Path(folder) / name).write_text("<html>please log in</html>"))
    with pytest.raises(MissingDataError, match=r"could not be downloaded .*checksum is not that of the public file"):
        planetoid_graph("cora")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_missing_data_is_downloaded_into_the_cache_or_the_error_says_where_to_put_it(raw: Path, downloads: Any) -> None:
    downloads(lambda name, folder: os.rename("/nowhere", folder))
    with pytest.raises(
        MissingDataError, match=r"could not be downloaded \(FileNotFoundError: .*<data dir>/planetoid/Cora/raw"
    ):
        load_task("cora/label")
    asked: list[str] = []
    downloads(lambda name, folder: asked.append(shutil.copy(raw / name, folder)))
    assert planetoid_graph("cora").num_nodes == 10
    assert len(asked) == 8
    assert planetoid_graph("cora").num_nodes == 10
    assert len(asked) == 8, "the second time the cache is read"
