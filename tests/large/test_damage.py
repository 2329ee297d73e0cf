"""Damaged, foreign and special files in a graph folder: an error or the same result, never another one."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from oddnode import Detector
from oddnode.large import FolderError, GraphFolder, NodeChunk, build_folder
from oddnode.tables import TableModel, TableOptions, TrainingTables, fit_tables, score_folder
from tests.large.graphs import as_folder, random_graph, signed

NUM_NODES = 24


def small_folder(path: Path, ids: list[Any] | None = None) -> Path:
    """A folder with every array that there is, and all sidecars."""
    data = random_graph(num_nodes=NUM_NODES, num_edges=60, num_features=2, dtype=torch.float32, weighted=True)
    names = np.array(ids or [f"n{number}ö" for number in range(NUM_NODES)])
    masks = {name: data[name].numpy() for name in ("train_mask", "val_mask", "calibration_mask")}
    nodes = NodeChunk(data.x.numpy(), data.y.numpy(), names, masks)
    build_folder(path, [nodes], [(data.edge_index.numpy(), data.edge_weight.numpy())], classes=["a", "b", "c"])
    graph = GraphFolder(path).as_graph()
    assert len(graph.moments(smoothed=True).mean) == 2
    assert len(graph.support(2, 0.5)) == NUM_NODES
    assert not graph.is_symmetric
    return path


def everything_in(path: Path) -> list[Any]:
    """All that a detector or a table of scores takes from a folder."""
    folder = GraphFolder(path)
    graph, manifest = folder.as_graph(), folder.manifest
    masks = [getattr(folder, name) for name in ("y", "train_mask", "val_mask", "calibration_mask")]
    return [
        folder.ids().tolist(),
        *(None if mask is None else mask.tolist() for mask in masks),
        *(each.tolist() for each in (graph.x, *graph.csr, *graph.folder.loops)),
        *(graph.smoothed_x.tolist(), graph.moments(smoothed=True).covariance.tolist()),
        *(graph.support(2, 0.5).tolist(), graph.is_symmetric),
        *(manifest.classes, manifest.max_abs_feature, manifest.made_from, manifest.notes),
    ]


def flipped(file: Path, bit: int, check: Callable[[], None]) -> None:
    """Do a check while one bit of a file is wrong."""
    content = file.read_bytes()
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    file.write_bytes(changed)
    check()
    file.write_bytes(content)


@pytest.mark.parametrize("ids", [None, list(range(100, 100 + NUM_NODES))], ids=["strings", "integers"])
def test_one_bit_anywhere_is_an_error_or_heals_itself(tmp_path: Path, ids: list[Any] | None) -> None:
    path = small_folder(tmp_path / "graph", ids)
    expected, rng = everything_in(path), Random(0)
    outcomes = dict[str, set[bool]]()

    def check() -> None:
        try:
            found = everything_in(path)
        except FolderError:
            outcomes.setdefault(file.name, set()).add(False)
            return
        assert found == expected, file
        outcomes.setdefault(file.name, set()).add(True)

    for file in sorted(path.iterdir()):
        if file.name != ".lock":  # it is empty
            bits = 8 * file.stat().st_size
            for bit in rng.sample(range(bits), min(8, bits)):
                flipped(file, bit, check)
    sidecars = {"sidecars.json", "ax.bin", "ax-moments.bin", "symmetry.bin"} | {
        file.name for file in path.glob("support*")
    }
    assert {name for name, healed in outcomes.items() if healed == {True}} == sidecars
    assert all(healed == {False} for name, healed in outcomes.items() if name not in sidecars)
    assert {"graph.json", "x.bin", "y.bin", "weights.bin", "train_mask.bin"} < outcomes.keys()
    assert ("ids.bin" if ids else "id_bytes.bin") in outcomes


def test_no_byte_of_the_manifest_can_change(tmp_path: Path) -> None:
    path = as_folder(random_graph(num_nodes=6, num_edges=9), tmp_path / "graph").path
    file = path / "graph.json"
    content = file.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        with pytest.raises(FolderError):
            GraphFolder(path)


def forge(path: Path, name: str, values: np.ndarray | None = None, **entry: Any) -> None:
    """Change an array or its entry, with checksums that fit."""
    manifest = json.loads((path / "graph.json").read_text())
    if values is not None:
        values.tofile(path / f"{name}.bin")
        entry = {"crc32": zlib.crc32(values.tobytes())}
    manifest["arrays"][name].update(entry)
    (path / "graph.json").write_text(signed(manifest))


@pytest.mark.parametrize("wrong", [10**9, -1, 3, 2**62], ids=["beyond", "negative", "back", "huge"])
def test_offsets_of_ids_are_checked_before_they_are_used(tmp_path: Path, wrong: int) -> None:
    path = small_folder(tmp_path / "graph")
    offsets = np.fromfile(path / "id_offsets.bin", np.int64)
    offsets[20] = wrong
    forge(path, "id_offsets", offsets)
    with pytest.raises(FolderError, match=r"the ids of .* do not fit its \d+ bytes of text; delete the folder"):
        GraphFolder(path).id_arrays()


@pytest.mark.parametrize(("byte", "value"), [(0, 0xFF), (2, 0x41)])
def test_ids_that_are_not_utf_8_are_refused(tmp_path: Path, byte: int, value: int) -> None:
    path = small_folder(tmp_path / "graph")
    text = np.fromfile(path / "id_bytes.bin", np.uint8)
    text[byte] = value
    forge(path, "id_bytes", text)
    with pytest.raises(FolderError, match=r"the ids of .* are not UTF-8 \(invalid"):
        GraphFolder(path).ids()


def test_an_offset_within_a_character_is_refused(tmp_path: Path) -> None:
    path = small_folder(tmp_path / "graph")
    offsets = np.fromfile(path / "id_offsets.bin", np.int64)
    offsets[1] -= 1  # the first id ends with ö
    forge(path, "id_offsets", offsets)
    with pytest.raises(FolderError, match=r"a character is divided"):
        GraphFolder(path).ids()


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("offsets", {"dtype": "float64"}),
        ("y", {"dtype": "float64"}),
        ("train_mask", {"dtype": "uint8"}),
        ("id_bytes", {"dtype": "bool"}),
        ("id_offsets", {"shape": [5]}),
        ("id_bytes", {"shape": [5, 5]}),
    ],
)
def test_arrays_of_other_types_and_shapes_are_refused(tmp_path: Path, name: str, entry: dict[str, Any]) -> None:
    path = small_folder(tmp_path / "graph")
    forge(path, name, **entry)
    with pytest.raises(FolderError, match=r"(lists 'y'|lists '\w+' as|does not list) .*; delete the folder"):
        GraphFolder(path)


def test_a_magnitude_that_no_feature_has_is_no_error_of_an_index(tmp_path: Path) -> None:
    path = small_folder(tmp_path / "graph")
    detector = Detector.from_recipe("msp", epochs=2).fit(GraphFolder(path))
    expected = detector.score_samples(GraphFolder(path))
    manifest = json.loads((path / "graph.json").read_text())
    (path / "graph.json").write_text(signed(manifest | {"max_abs_feature": 1e30}))
    assert torch.equal(detector.score_samples(GraphFolder(path)), expected)


def test_sidecars_of_another_graph_are_computed_again(tmp_path: Path) -> None:
    one, other = (random_graph(seed=seed) for seed in (0, 1))
    old = as_folder(one, tmp_path / "old")
    before = old.as_graph().smoothed_x.clone()
    for file in as_folder(other, tmp_path / "new").path.iterdir():
        shutil.copy(file, tmp_path / "old")
    found = GraphFolder(tmp_path / "old").as_graph().smoothed_x
    assert torch.equal(found, GraphFolder(tmp_path / "new").as_graph().smoothed_x)
    assert not torch.equal(found, before)


@pytest.mark.parametrize("kind", ["pipe", "endless", "link", "folder"])
@pytest.mark.parametrize("name", ["graph.json", "y.bin", "id_bytes.bin", "x.bin"])
def test_special_files_are_refused_before_they_are_opened(tmp_path: Path, name: str, kind: str) -> None:
    path = small_folder(tmp_path / "graph")
    replace_file(path / name, kind)
    with pytest.raises(FolderError, match=rf"{name} is a link, a folder or a special file, expected a regular file"):
        everything_in(path)


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_special_files_among_sidecars_and_empty_arrays_do_not_hang(tmp_path: Path, kind: str) -> None:
    path = as_folder(random_graph(), tmp_path / "graph").path
    expected = GraphFolder(path).as_graph().smoothed_x.clone()
    replace_file(path / "ax.bin", kind)
    assert torch.equal(GraphFolder(path).as_graph().smoothed_x, expected)
    replace_file(path / "sidecars.json", kind)
    assert torch.equal(GraphFolder(path).as_graph().smoothed_x, expected)
    build_folder(tmp_path / "none", [NodeChunk(np.eye(3))], [])
    replace_file(tmp_path / "none" / "loop_nodes.bin", kind)
    with pytest.raises(FolderError, match=r"loop_nodes.bin is a link, a folder or a special file"):
        GraphFolder(tmp_path / "none")


@pytest.mark.parametrize("name", ["ax.bin", "sidecars.json", "ax.part"])
def test_a_folder_in_place_of_a_sidecar_is_named_or_replaced(tmp_path: Path, name: str) -> None:
    path = as_folder(random_graph(), tmp_path / "graph").path
    expected = GraphFolder(path).as_graph().smoothed_x.clone()
    (path / "ax.bin").unlink()
    (path / name).unlink(missing_ok=True)
    (path / name / "more").mkdir(parents=True)
    if name == "ax.part":  # only a process that was killed leaves such a name
        assert torch.equal(GraphFolder(path).as_graph().smoothed_x, expected)
        return
    with pytest.raises(FolderError, match=rf"{name} is a folder, expected a regular file"):
        _ = GraphFolder(path).as_graph().smoothed_x


def test_the_lock_is_never_a_link_to_another_file(tmp_path: Path) -> None:
    path = as_folder(random_graph(), tmp_path / "graph").path
    (tmp_path / "thesis.txt").write_text("years of work")
    (path / ".lock").unlink(missing_ok=True)
    (path / ".lock").symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(FolderError, match=r".lock is a link"):
        _ = GraphFolder(path).as_graph().smoothed_x
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("target", ["thesis.txt", "graph/sidecars.json"])
def test_a_list_of_sidecars_that_is_a_link_is_replaced_and_not_followed(tmp_path: Path, target: str) -> None:
    path = as_folder(random_graph(), tmp_path / "graph").path
    expected = GraphFolder(path).as_graph().smoothed_x.clone()
    (tmp_path / "thesis.txt").write_text("years of work")
    (path / "sidecars.json").unlink()
    (path / "sidecars.json").symlink_to(tmp_path / target)  # the second is a loop
    assert torch.equal(GraphFolder(path).as_graph().smoothed_x, expected)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert not (path / "sidecars.json").is_symlink()


def replace_file(file: Path, kind: str) -> None:
    moved = file.with_suffix(".old")
    file.rename(moved)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("/proc/self/pagemap" if kind == "endless" else moved)  # a device could be replaced by mistake


def test_a_manifest_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    path = as_folder(random_graph(), tmp_path / "graph").path
    with (path / "graph.json").open("r+b") as file:
        file.truncate(2**40)  # without blocks on disk
    with pytest.raises(FolderError, match=r"graph.json has 1099511627776 bytes, expected at most"):
        GraphFolder(path)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pyarrow import parquet

    place, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    topic = rng.integers(3, size=90)
    nodes = {"id": [f"n{n:03}" for n in range(90)], "topic": [f"t{t}" for t in topic], "a": topic + rng.random(90)}
    parquet.write_table(pa.table(nodes), place / "nodes.parquet")
    ends = rng.integers(90, size=(2, 300))
    edges = {"source": [f"n{n:03}" for n in ends[0]], "target": [f"n{n:03}" for n in ends[1]]}
    parquet.write_table(pa.table(edges), place / "edges.parquet")
    return place


def tables_in(place: Path) -> TrainingTables:
    options = TableOptions(id_column="id", label_column="topic")
    return TrainingTables(place / "nodes.parquet", place / "edges.parquet", options)


def test_a_flipped_id_label_or_scale_never_reaches_the_scores(tables: Path, tmp_path: Path) -> None:
    path = tables_in(tables).prepare(tmp_path / "graph").path
    model = fit_tables(GraphFolder(path), method="msp", epochs=2)[0]
    model.save(tmp_path / "model")

    def fit_and_score() -> None:
        with pytest.raises(FolderError, match="damaged"):
            fit_tables(GraphFolder(path), method="msp", epochs=2)
        with pytest.raises(FolderError, match="damaged"):
            score_folder(TableModel.load(tmp_path / "model"), GraphFolder(path), tmp_path / "scores.parquet")

    flipped(path / "id_bytes.bin", 8 * 80 + 1, fit_and_score)
    flipped(path / "y.bin", 3, fit_and_score)
    flipped(path / "graph.json", 8 * (path / "graph.json").read_bytes().index(b'"scale": ') + 8 * 9 + 2, fit_and_score)


def test_a_table_that_changes_while_it_is_read_is_refused(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import parquet

    place = shutil.copytree(tables, tmp_path / "tables")
    file, real = place / "nodes.parquet", TrainingTables._labels_on_disk

    def reversed_rows(self: TrainingTables, columns: dict[str, Any]) -> Any:
        table, before = parquet.read_table(file), file.stat()
        parquet.write_table(table.take(list(range(len(table)))[::-1]), tmp_path / "new")
        (tmp_path / "new").replace(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        return real(self, columns)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingTables, "_labels_on_disk", reversed_rows)
        with pytest.raises(ValueError, match=r"a file of nodes or edges changed while .* was prepared; prepare it"):
            tables_in(place).prepare(tmp_path / "graph")
    with pytest.raises(FolderError, match="was not finished"):
        GraphFolder(tmp_path / "graph")
    assert tables_in(place).prepare(tmp_path / "graph").ids(0, 1).tolist() == ["n089"]
