from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from oddnode.tables import Edges, TableError, TableModel, learn_features, open_table, read_nodes
from oddnode.tables.edges import check_unique
from tests.tables.examples import FIT, edges_in, example, write_csv, write_parquet

IDS = pa.array(["a", "b", "c"])


def read(path: Path, text: str, ids: pa.Array = IDS, ignore_unknown: bool = False) -> Edges:
    path.write_text(text)
    return edges_in(path, ids, ignore_unknown_edges=ignore_unknown)


def test_a_list_without_a_header_is_refused_with_the_first_edge_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="has no header: the first line holds the nodes 'a' and 'b'"):
        read(tmp_path / "e.csv", "a,b\nb,c\n")
    (tmp_path / "e.csv").write_text("a,b\nb,c\n")
    named = edges_in(tmp_path / "e.csv", IDS, source_column="a", target_column="b")
    assert named.index.tolist() == [[1, 2], [2, 1]]


def test_columns_that_do_not_count_are_named(tmp_path: Path) -> None:
    assert read(tmp_path / "e.csv", "from,to,kind\na,b,2\n").notes == [
        f"{tmp_path / 'e.csv'}: unused columns: kind; if one holds weights, name it when fitting with `weight_column`"
    ]
    assert read(tmp_path / "e.csv", "from,to\na,b\n").notes == []


def test_a_graph_without_edges_is_said(tmp_path: Path) -> None:
    [note] = read(tmp_path / "e.csv", "source,target\na,a\n").notes
    assert note == "there are no edges between different nodes, so every node is scored by its features alone"


def test_unknown_nodes_are_counted_and_both_ways_out_are_named(tmp_path: Path) -> None:
    text = "source,target\na,b\na,x\ny,z\n"
    with pytest.raises(TableError) as caught:
        read(tmp_path / "e.csv", text)
    assert str(caught.value) == (
        f"{tmp_path / 'e.csv'}: 2 of 3 edges name a node that the table of nodes does not have, first 'x' in column "
        "'target', line 3; give all nodes, old and new (`nodes` can be several tables), or leave such edges out with "
        "`ignore_unknown_edges`"
    )
    edges = read(tmp_path / "e.csv", text, ignore_unknown=True)
    assert edges.index.tolist() == [[0, 1], [1, 0]]
    assert edges.notes == ["2 of 3 edges were left out: they name unknown nodes"]


@pytest.mark.parametrize(
    ("ids", "text", "near"),
    [
        (["0.0", "1.0"], "source,target\n0,1\n", "'0.0'"),
        (["0007", "8"], "source,target\n8,7\n", "'0007'"),
        (["7", "8"], "source,target\n7.0,8.0\n", "'7'"),
        (["Anna", "bob"], "source,target\nbob,anna\n", "'Anna'"),
    ],
)
def test_ids_that_are_written_in_two_ways_are_pointed_out(tmp_path: Path, ids: list[str], text: str, near: str) -> None:
    with pytest.raises(TableError, match=f"the table of nodes has {near}: write ids the same way in both tables"):
        read(tmp_path / "e.csv", text, pa.array(ids))


def test_ids_that_a_spreadsheet_has_rounded_are_recognised(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"first '4.00638E\+12' in .*, line 2; a spreadsheet has rounded the ids"):
        read(tmp_path / "e.csv", "source,target\n4.00638E+12,b\n")
    ids = pa.table({"sku": ["4.00638E+12", "4.00638E+12", "a"]})
    with pytest.raises(TableError, match=r"an id more than once: .*; a spreadsheet has rounded the ids"):
        check_unique(ids["sku"].combine_chunks(), open_table(ids, "nodes"), "sku")


def test_ends_in_other_columns_are_pointed_out(tmp_path: Path) -> None:
    with pytest.raises(
        TableError, match=r"first '0.58' in column 'weight'.*; if 'weight' does not hold ids, name .*`source_co"
    ):
        read(tmp_path / "e.csv", "weight,from,to\n0.58,a,b\n")


def test_many_batches_give_the_edges_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(40, size=(5000, 2))
    table = pa.table({"source": pairs[:, 0], "target": pairs[:, 1]})
    expected = {(a, b) for a, b in pairs.tolist() if a != b}
    monkeypatch.setattr("oddnode.tables.reader.ROWS", 64)
    monkeypatch.setattr("oddnode.tables.edges._PENDING", 100)
    found = edges_in(table, pa.array(range(40)), directed=True).index
    assert list(map(tuple, found.T.tolist())) == sorted(expected)


def test_repeated_edges_take_no_memory(tmp_path: Path) -> None:
    """Twenty million copies of one edge: 160 MB, and as much again when they are joined, if all keys were kept."""
    schema = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    batch = pa.record_batch([pa.array(np.zeros(10**6, int)), pa.array(np.ones(10**6, int))], schema=schema)
    with parquet.ParquetWriter(tmp_path / "e.parquet", schema) as writer:
        for _ in range(20):
            writer.write_batch(batch)
    code = (
        "import resource, pyarrow as pa, pyarrow.parquet, pyarrow.compute\n"
        "from oddnode.tables import Table, TableOptions, read_edges\n"
        "pa.set_cpu_count(1); pa.set_io_thread_count(1)\n"
        f"table, ids = Table({str(tmp_path / 'e.parquet')!r}), pa.array([0, 1])\n"
        "next(table.batches(['source'])); pa.compute.index_in(ids, value_set=ids)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)\n"
        "print(read_edges(table, ids, TableOptions(id_column='', label_column='')).index.tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[[0, 1], [1, 0]]\n", done.stderr


def test_files_that_name_their_columns_differently_are_never_turned_round(tmp_path: Path) -> None:
    """Directions come from the names of the columns, or there is an error."""
    ids = pa.array(["a", "b", "c"])
    first, turned, other = tmp_path / "1.csv", tmp_path / "2.csv", tmp_path / "3.csv"
    first.write_text("src,dst\na,b\n")
    turned.write_text("dst,src\nc,b\n")
    other.write_text("from,to\nb,c\n")
    assert edges_in([first, turned], ids, directed=True).index.T.tolist() == [[0, 1], [1, 2]]
    both = edges_in([first, other], ids)
    assert both.index.T.tolist() == [[0, 1], [1, 2], [1, 0], [2, 1]]
    assert both.notes == [f"{other} has edges in 'from' and 'to', {first} in 'src' and 'dst'; both are read"]
    with pytest.raises(TableError, match="so directions could differ; give the columns the same names"):
        edges_in([first, other], ids, directed=True)


def test_a_directed_model_reads_later_edges_by_the_names_of_the_first(tmp_path: Path) -> None:
    nodes, edges = example()
    rows = [{"src": row["source"], "dst": row["target"]} for row in edges]
    model, _ = TableModel.fit(pa.Table.from_pylist(nodes), pa.Table.from_pylist(rows), directed=True, **FIT)
    turned = pa.Table.from_pylist(rows).select(["dst", "src"])
    table = pa.Table.from_pylist(nodes)
    same = [model.read(table, each).source.edge_index.tolist() for each in (pa.Table.from_pylist(rows), turned)]
    assert same[0] == same[1]
    with pytest.raises(TableError, match="has no edge column 'src'"):
        model.read(table, pa.Table.from_pylist(edges))


def test_blanks_around_ids_are_ignored_and_said_in_every_format(tmp_path: Path) -> None:
    nodes = [{"name": f" n{i} " if i < 2 else f"n{i}", "size": i / 7} for i in range(4)]
    edges = [{"source": "n0", "target": "n1  "}, {"source": "n2", "target": "n3"}]
    for write, suffix in ((write_csv, "csv"), (write_parquet, "parquet")):
        table = open_table(write(tmp_path / f"nodes.{suffix}", nodes), "nodes")
        recipe, _ = learn_features(table, ["size"])
        read = read_nodes(table, "name", recipe)
        assert read.ids.to_pylist() == ["n0", "n1", "n2", "n3"]
        assert read.notes == [f"{table.name}: blanks around 2 ids are ignored"]
        found = edges_in(write(tmp_path / f"edges.{suffix}", edges), read.ids)
        assert found.index.shape == (2, 4)
        assert found.notes == [f"{tmp_path / 'edges'}.{suffix}: blanks around 1 id are ignored"]
    again = write_csv(tmp_path / "again.csv", [*nodes, {"name": "n0", "size": 1}, {"name": "n3 ", "size": 1}])
    expected = r"has 2 ids more than once: 'n0' \(line 2, line 6\), 'n3' \(line 5, line 7\); ids must be unique"
    with pytest.raises(TableError, match=expected):
        read_nodes(open_table(again, "nodes"), "name", recipe)


def test_one_column_is_too_few(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("pair\na-b\n")
    with pytest.raises(TableError, match="has one column, 'pair', but a table of edges needs two columns"):
        edges_in(path, pa.array(["a", "b"]))
