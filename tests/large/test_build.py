"""Building folders: chunks, resuming after kill -9, full disks and bad input."""

from __future__ import annotations

import errno
import math
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from oddnode.graph import GraphError
from oddnode.large import (
    EdgeChunk,
    FolderBuilder,
    FolderError,
    GraphFolder,
    NodeChunk,
    arrays,
    buckets,
    build_folder,
    builder,
    folder_from_data,
)
from oddnode.large.manifest import folder_lock
from tests.large.graphs import graphs, random_graph

EDGE = np.array([[0], [1]])
ONE = np.ones((1, 1))
MASKED = np.ma.array([1, 2], mask=[False, True])
LOOSE: Any = NodeChunk  # with what its types forbid


def chunks(count: int = 3) -> Iterator[NodeChunk]:
    for number in range(count):
        yield NodeChunk(np.full((2, 3), float(number)), y=np.array([number, -1]))


def built(
    folder: str, data: Data, parts: list[EdgeChunk], both: bool, simple: bool, sorted_at_once: int
) -> GraphFolder:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "_SORTED_AT_ONCE", 8 * sorted_at_once)
        patch.setattr(buckets, "_BUCKETS", 3)
        with FolderBuilder(folder, "a test") as new:
            new.add_nodes(lambda: [NodeChunk(data.x.numpy())])
            new.add_edges(lambda: parts, both, simple)
            return new.finish()


@given(graphs(), st.integers(1, 9), st.integers(1, 4), st.booleans(), st.booleans())
def test_edges_are_sorted_by_target_with_any_chunks(
    data: Data, chunk: int, sorted_at_once: int, both: bool, simple: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        parts: list[EdgeChunk] = [part.numpy() for part in data.edge_index.split(chunk, dim=1)]
        found = built(folder, data, parts, both, simple, sorted_at_once)
        edges = [tuple(pair) for pair in data.edge_index.t().tolist()]
        edges += [(b, a) for a, b in edges] if both else []
        edges = sorted({(a, b) for a, b in edges if a != b} if simple else edges, key=lambda pair: pair[::-1])
        assert [tuple(pair) for pair in found.edge_index.t().tolist()] == edges
        loops = torch.zeros(data.num_nodes, dtype=torch.long)
        nodes, counts, _ = found.as_graph().folder.loops
        loops[nodes] = counts
        assert loops.tolist() == [edges.count((v, v)) for v in range(data.num_nodes)]
        assert found.edge_weight is None


def expected_weights(data: Data, both: bool, simple: bool) -> list[tuple[int, int, float]]:
    """Targets, sources and weights of the edges in order; those of weight 0 are left out."""
    assert data.edge_weight is not None
    rows = [(b, a, w) for (a, b), w in zip(data.edge_index.t().tolist(), data.edge_weight.tolist(), strict=True) if w]
    rows += [(a, b, w) for b, a, w in rows] if both else []
    if simple:
        sums = defaultdict(list)
        for b, a, w in rows:
            sums[b, a].append(w)
        rows = [(b, a, math.fsum(ws)) for (b, a), ws in sums.items() if a != b]
    return sorted(row for row in rows if np.float32(row[2]) > 0)


@given(graphs(weighted=True), st.integers(1, 9), st.integers(1, 4), st.booleans(), st.booleans(), st.randoms())
def test_weights_are_those_of_the_edges_with_any_chunks_in_any_order(
    data: Data, chunk: int, sorted_at_once: int, both: bool, simple: bool, random: Random
) -> None:
    def parts(order: list[int], chunk: int) -> list[EdgeChunk]:
        edges, weight = data.edge_index[:, order].split(chunk, dim=1), data.edge_weight[order].split(chunk)
        return [(one.numpy(), other.numpy()) for one, other in zip(edges, weight, strict=True)]

    order = list(range(data.num_edges))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        found = built(one, data, parts(order, chunk), both, simple, sorted_at_once)
        expected = expected_weights(data, both, simple)
        assert found.edge_weight is not None
        assert found.edge_weight.dtype == torch.float64
        assert found.edge_index.flip(0).t().tolist() == [[b, a] for b, a, _ in expected]
        assert found.edge_weight.tolist() == pytest.approx([w for _, _, w in expected], rel=1e-12)
        random.shuffle(order)
        again = built(other, data, parts(order, 100), both, simple, 2**20)
        for name in found.manifest.arrays:
            assert found.manifest.arrays[name] == again.manifest.arrays[name], name


def test_weights_have_the_precision_of_the_features(tmp_path: Path) -> None:
    edges = np.array([[0, 1, 1, 2], [1, 2, 2, 2]])
    chunk = edges, np.array([1, 2, 3, 0], dtype=np.int8)
    nodes = NodeChunk(np.eye(3, dtype=np.float32))
    folder = build_folder(tmp_path / "single", [nodes], [chunk, (edges[:, :0], np.empty(0))])
    assert folder.edge_weight is not None
    assert folder.edge_weight.dtype == torch.float32
    assert folder.edge_weight.tolist() == [1, 2, 3]
    assert folder.edge_index.tolist() == [[0, 1, 1], [1, 2, 2]]
    none = build_folder(tmp_path / "none", [nodes], [(edges, np.zeros(4))])
    assert none.num_edges == 0
    graph = none.as_graph()
    assert torch.equal(graph.smoothed_x, torch.eye(3))
    assert torch.equal(graph.random_walk @ torch.eye(3), torch.zeros(3, 3))
    assert graph.in_degree.tolist() == graph.effective_degree.tolist() == [0, 0, 0]


def test_nodes_come_in_chunks(tmp_path: Path) -> None:
    folder = build_folder(tmp_path / "new", chunks(), [np.array([[0, 5], [1, 2]])], classes=["a", "b", "c"])
    assert folder.x[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert folder.x.dtype == torch.float64
    assert folder.y is not None
    assert folder.y.tolist() == [0, -1, 1, -1, 2, -1]
    assert folder.manifest.classes == ["a", "b", "c"]
    assert folder.manifest.max_abs_feature == 2.0
    assert not (tmp_path / "new" / ".building").exists()


@pytest.mark.parametrize("ids", [[7, 3], ["x", "größer"]])
def test_ids_are_kept(tmp_path: Path, ids: list[object]) -> None:
    folder = build_folder(tmp_path, [NodeChunk(np.eye(2), ids=np.array(ids))] * 1, [])
    assert folder.ids().tolist() == ids
    assert folder.ids(1, 2).tolist() == ids[1:]


def test_ids_that_are_the_positions_take_no_room(tmp_path: Path) -> None:
    folder = build_folder(tmp_path, [NodeChunk(np.eye(2), ids=np.array(ids)) for ids in ([0, 1], [2, 3])], [])
    assert folder.ids().tolist() == [0, 1, 2, 3]
    assert not (tmp_path / "ids.bin").exists()


def test_more_nodes_than_int32_can_number_get_wide_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_LARGEST_INT32", 10)
    data = random_graph()
    folder = folder_from_data(data, tmp_path)
    assert folder.sources.dtype == torch.int64
    values = data.x[:, 0]
    assert folder.as_graph().neighbour_sums(values).isfinite().all()
    expected = torch.zeros(60, dtype=torch.float64).index_add_(0, data.edge_index[1], values[data.edge_index[0]])
    torch.testing.assert_close(folder.as_graph().neighbour_sums(values), expected)


NODES = list(chunks())


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ([], [], "the graph has no nodes"),
        ([NodeChunk(np.array([[1.0], [np.nan]]))], [], "1 NaN or infinite values, the first at node 1, feature 0"),
        ([NodeChunk(np.ones(3))], [], r"features of .* shape \[3\], expected real numbers \[nodes, features\]"),
        (NODES, [np.array([[0], [6]])], r"the edges have node 6, but there are only 6 nodes \(0..5\)"),
        (NODES, [np.array([[-1], [0]])], "the edges have node -1"),
        (NODES, [np.array([[0.5], [1]])], r"edges of type float64 and shape \[2, 1\], expected integers"),
        (NODES, [(np.arange(3), np.arange(3))], r"edges of type int64 and shape \[3\], expected .*\[2, edges\]"),
        (NODES, [(EDGE, np.ones(2))], r"1 edges, but weights of type float64 and shape \[2\]"),
        (NODES, [(EDGE, np.array(["1"]))], "1 edges, but weights of type <U1"),
        (NODES, [(EDGE, None)], "1 edges, but weights of type object"),
        (NODES, [(EDGE, np.ones(1)), (EDGE, np.array([-2.0]))], "the first is -2.0 at edge 1; expected finite"),
        (NODES, [(EDGE, np.array([np.nan]))], "the first is nan at edge 0; expected finite weights of 0 or"),
        (NODES, [(EDGE, np.array([np.inf]))], "the first is inf at edge 0"),
        (NODES, [(EDGE, np.array([2e38])), (EDGE, np.array([2e38]))], r"weights of the edges sum to 4e\+38"),
        (NODES, [(EDGE.repeat(2, 1), np.full(2, 1e308))], "weights of the edges sum to inf or more, but single"),
        (NODES, [(EDGE, np.ones(1)), EDGE], "some chunks of edges have weights and others have none"),
        (NODES, [EDGE, (EDGE, np.ones(1))], "some chunks of edges have weights and others have none"),
        ([NodeChunk(np.ones((1, 1))), next(chunks())], [], "chunks of nodes have different parts"),
        ([NodeChunk(np.ones((2, 3)), y=np.array([1]))], [], r"a chunk has 2 nodes, but 'y' has the shape \[1\]"),
        ([NodeChunk(np.ones((2, 3)), ids=np.array([1]))], [], r"a chunk has 2 nodes, but 'ids' has the shape \[1\]"),
        ([NodeChunk(np.ones((2, 3))), NodeChunk(np.ones((2, 4)))], [], r"rows of 'x' have \[4\] columns"),
        ([NodeChunk(np.ones((1, 1)) * 1j)], [], "features of type complex128"),
        ([NodeChunk(np.ones((1, 1), np.longdouble))], [], "features of type .*, expected real numbers"),
        ([NodeChunk(np.array([["1"]]))], [], "features of type <U1"),
        ([NodeChunk(ONE, y=np.array([1.7]))], [], "'y' of type float64, expected integers"),
        ([NodeChunk(ONE, y=np.array([2**63 + 1], np.uint64))], [], "has 9223372036854775809 in 'y', expected at most"),
        ([NodeChunk(ONE, y=np.array([[1]]))], [], r"'y' has the shape \[1, 1\]"),
        ([NodeChunk(ONE, ids=np.array([1.0]))], [], "'ids' of type float64, expected integers or strings"),
        ([NodeChunk(ONE, ids=np.array([2**63], np.uint64))], [], "has 9223372036854775808 in 'ids'"),
        ([NodeChunk(ONE, ids=np.array([None]))], [], "has None among the ids, expected integers or strings"),
        ([NodeChunk(ONE, ids=np.array(["\ud800"]))], [], "has half of a character"),
        ([NodeChunk(ONE, masks={"train_mask": np.array([1])})], [], "'train_mask' of type int64, expected booleans"),
        ([NodeChunk(ONE, masks={"../../evil_mask": np.array([True])})], [], "'../../evil_mask' is not a mask"),
        ([NodeChunk(MASKED[:, None])], [], "the features of a chunk: there are masked values"),
        ([LOOSE([MASKED, MASKED])], [], "the features of a chunk: there are masked values"),
        ([NodeChunk(np.ones((2, 1)), MASKED)], [], "'y' of a chunk: there are masked values"),
        ([NodeChunk(np.ones((2, 1)), ids=MASKED)], [], "'ids' of a chunk: there are masked values"),
        (NODES, [np.ma.array(EDGE, mask=EDGE > 0)], "a chunk of edges: there are masked values"),
        (NODES, [(EDGE.repeat(2, 1), MASKED)], "a chunk of edges: there are masked values"),
        ([LOOSE([[1.0, 2.0], [3.0]])], [], "features of a chunk: .* no array of numbers of equal shape"),
        (NODES, [[[0, 1], [1]]], "a chunk of edges: .* no array of numbers of equal shape everywhere"),
        ([NodeChunk(np.array([[2**24 + 1]]))], [], r"16777217 would be rounded to 16777216 \(float32\)"),
        ([NodeChunk(np.array([[2**64 - 1]], np.uint64))], [], "18446744073709551615 would be rounded"),
        ([LOOSE([[2**53 + 1, 0.5]])], [], "9007199254740993 is among values that make it 9007199254740992.0"),
        (NODES, [(EDGE, np.array([2**53 + 1]))], r"weights of a chunk: 9007199254740993 .* \(float64\)"),
        (NODES, [(EDGE, np.ones(1, np.longdouble))], "weights of type .*128"),
        ([NodeChunk(ONE.astype(np.float32)), NodeChunk(ONE)], [], "in double precision after others in single"),
        ([LOOSE(np.ones((2, 1)), ids=["a", 1])], [], "'ids' of a chunk: 1 is among values that make it '1'"),
        ([LOOSE(ONE, ids=["a\0"])], [], "'ids' of a chunk: 'a.x00' is among values that make it 'a'"),
        ([LOOSE(np.ones((2, 1)), ids=[True, 2])], [], "'ids' of a chunk: there are booleans among integers"),
        (NODES, [[[0, True], [1, 2]]], "a chunk of edges: there are booleans among integers"),
        ([NodeChunk(ONE, ids=np.array([7])), NodeChunk(ONE)], [], "chunks of nodes have different parts"),
        ([NodeChunk(ONE), NodeChunk(ONE, ids=np.array([7]))], [], "chunks of nodes have different parts"),
        ([ONE], [], "a chunk of nodes is ndarray, expected a NodeChunk"),
        (NodeChunk(ONE), [], "nodes is NodeChunk, expected a list or another iterable of chunks"),
    ],
)
def test_bad_chunks_are_refused(tmp_path: Path, nodes: list[NodeChunk], edges: list[EdgeChunk], message: str) -> None:
    with pytest.raises((FolderError, GraphError), match=message):
        build_folder(tmp_path, nodes, edges)
    if not isinstance(nodes, list):
        return
    with pytest.raises(FolderError, match="was not finished"):
        GraphFolder(tmp_path)


def test_other_forms_of_the_same_numbers_are_read_exactly(tmp_path: Path) -> None:
    rows, ids = [[0.1, 2.0], [0.5, 3.0]], ["a", "b, c/d"]
    edges: Any = [([[0], [1]], [2**53])]
    forms: list[Any] = [rows, np.array(rows, ">f8"), np.ma.array(rows, mask=False), np.asfortranarray(rows)]
    for number, x in enumerate(forms):
        folder = build_folder(tmp_path / str(number), [LOOSE(x, [0, 1], ids)], edges)
        assert (folder.x.tolist(), folder.ids().tolist()) == (rows, ids)
        assert folder.edge_weight is not None
        assert (folder.edge_index.tolist(), folder.edge_weight.tolist()) == ([[0], [1]], [2.0**53])


def test_a_finished_graph_is_never_replaced(tmp_path: Path) -> None:
    build_folder(tmp_path, chunks(), [], made_from="one")
    assert build_folder(tmp_path, [], [], made_from="one").num_nodes == 6
    with pytest.raises(FolderError, match="made from other files or with other settings"):
        build_folder(tmp_path, chunks(), [], made_from="two")
    GraphFolder(tmp_path).verify()


def test_other_files_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FolderError, match="has other files in it"):
        build_folder(tmp_path, chunks(), [])
    with pytest.raises(FolderError, match="is a file"):
        build_folder(tmp_path / "thesis.txt", chunks(), [])
    with pytest.raises(FolderError, match="does not exist"):
        build_folder(tmp_path / "a" / "b", chunks(), [])
    (tmp_path / "own" / ".building").mkdir(parents=True)
    (tmp_path / "own" / ".building" / "plan.txt").write_text("of a house")
    with pytest.raises(FolderError, match="has other files in it"):
        build_folder(tmp_path / "own", chunks(), [])
    assert (tmp_path / "own" / ".building" / "plan.txt").read_text() == "of a house"
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_one_process_builds_at_a_time(tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(FolderError, match="is being written by another process"):
        build_folder(tmp_path, chunks(), [])


def test_a_full_disk_keeps_finished_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = arrays.ArrayWriter.append

    def full(writer: arrays.ArrayWriter, rows: np.ndarray) -> None:
        if writer.path.name == "sources.bin":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(writer, rows)

    edges = [(np.array([[0, 1, 2], [1, 2, 0]]), np.array([5.0, 6.0, 7.0]))]
    with monkeypatch.context() as patch:
        patch.setattr(arrays.ArrayWriter, "append", full)
        with pytest.raises(OSError, match=r"the disk of .* is full; what was finished is kept"):
            build_folder(tmp_path, chunks(), edges, made_from="files")
    # Neither nodes nor edges are read again.
    folder = build_folder(tmp_path, [], [], made_from="files")
    assert folder.edge_index.tolist() == [[2, 0, 1], [0, 1, 2]]
    assert folder.edge_weight is not None
    assert folder.edge_weight.tolist() == [7.0, 5.0, 6.0]


KILLED = """
import sys, time
import numpy as np
from oddnode.large import NodeChunk, build_folder

def nodes():
    print("nodes", flush=True)
    yield NodeChunk(np.arange(8.0).reshape(4, 2))

def edges():
    yield np.array([[0, 1], [1, 2]]), np.array([0.5, 2.0])
    print("edges", flush=True)
    if sys.argv[2] == "wait":
        time.sleep(600)
    yield np.array([[2], [3]]), np.array([4.0])

build_folder(sys.argv[1], nodes(), edges(), made_from="the same")
"""


def test_a_build_goes_on_after_kill_9(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path)]
    process = subprocess.Popen([*command, "wait"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["nodes\n", "edges\n"]
    with pytest.raises(FolderError, match="is being written by another process"):
        GraphFolder(tmp_path)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.stdout.close()
    with pytest.raises(FolderError, match="was not finished; prepare the graph again"):
        GraphFolder(tmp_path)
    left = tmp_path / ".building" / "left.bin"
    left.write_bytes(b"by the killed process")
    again = subprocess.run([*command, "go"], capture_output=True, text=True, timeout=120, check=True)
    assert again.stdout == "edges\n"  # the nodes were kept
    folder = GraphFolder(tmp_path).verify()
    assert folder.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert folder.edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert folder.edge_weight is not None
    assert folder.edge_weight.tolist() == [0.5, 2.0, 4.0]
    assert not (tmp_path / ".building").exists()


def test_a_build_that_was_killed_between_its_last_steps_is_finished(tmp_path: Path) -> None:
    with FolderBuilder(tmp_path, "x") as new:
        new.add_nodes(lambda: chunks())
        new.add_edges(lambda: [np.array([[0], [1]])])
    # As if it had been killed after it had moved the first file.
    (tmp_path / ".building" / "x.bin").replace(tmp_path / "x.bin")
    assert build_folder(tmp_path, [], [], made_from="x").verify().num_edges == 1


def unfinished(folder: Path) -> None:
    """A build that ended after its edges were divided among files."""
    with FolderBuilder(folder, "files") as new:
        new.add_nodes(lambda: chunks())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FolderBuilder, "_sort", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                new.add_edges(lambda: [np.array([[0, 1, 2], [1, 2, 0]])])


@pytest.mark.parametrize("name", ["x.bin", "y.bin", "buckets/0.edges", "progress.json"])
def test_a_build_whose_files_were_damaged_starts_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    unfinished(tmp_path)
    file = tmp_path / ".building" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    with caplog.at_level("WARNING", logger="oddnode"):
        folder = build_folder(tmp_path, chunks(), [np.array([[5], [4]])], made_from="files")
    assert "so the build starts anew" in caplog.text
    assert folder.x[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert folder.y is not None
    assert folder.y.tolist() == [0, -1, 1, -1, 2, -1]
    assert folder.edge_index.tolist() == [[5], [4]]


def test_a_build_whose_progress_has_become_a_folder_starts_anew(tmp_path: Path) -> None:
    unfinished(tmp_path)
    (tmp_path / ".building" / "progress.json").unlink()
    (tmp_path / ".building" / "progress.json" / "deep").mkdir(parents=True)
    folder = build_folder(tmp_path, chunks(), [np.array([[5], [4]])], made_from="files")
    assert folder.edge_index.tolist() == [[5], [4]]


def test_a_build_whose_progress_has_become_a_link_does_not_follow_it(tmp_path: Path) -> None:
    unfinished(tmp_path / "graph")
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "graph" / ".building" / "progress.json").unlink()
    (tmp_path / "graph" / ".building" / "progress.json").symlink_to(tmp_path / "thesis.txt")
    build_folder(tmp_path / "graph", chunks(), [np.array([[5], [4]])], made_from="files").verify()
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"classes": ["a", 1.5]}, r"classes has 1.5, expected strings, integers or booleans"),
        ({"classes": "abc"}, "classes is str, expected a list"),
        ({"classes": ["a", "b", "a"]}, "classes has a label twice"),
        ({"made_from": 5}, "made_from is 5, expected a string"),
    ],
)
def test_facts_that_a_manifest_cannot_hold_are_refused(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(FolderError, match=message):
        build_folder(tmp_path / "new", chunks(), [], **given)
    assert not (tmp_path / "new").exists()


def test_a_class_without_a_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="y has the class 2, but there are only 2 classes"):
        build_folder(tmp_path / "new", chunks(), [], classes=["a", "b"])


def test_a_graph_with_wrong_weights_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    data = random_graph()
    data.edge_weight = torch.full((data.num_edges,), -1.0)
    with pytest.raises(GraphError, match=r"the first is -1.0 at edge 0; expected finite weights"):
        folder_from_data(data, tmp_path / "graph")
    assert not (tmp_path / "graph").exists()
