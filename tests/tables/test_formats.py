"""Files as spreadsheets, databases and other people's programs write them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oddnode._utils.registry import undone_registrations
from oddnode.tables import Table, TableError, TableFile, TableModel, register_format, write_table
from tests.tables.examples import FIT, example


def values(table: Table) -> dict[str, list[str]]:
    joined: dict[str, list[str]] = {name: [] for name in table.columns}
    for batch in table.batches(table.columns):
        for name, array in zip(table.columns, batch.arrays, strict=True):
            joined[name] += array.to_pylist()
    return joined


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("n.csv", 'id,size,note\n1,"3,5",a\n2,4,"b,c"\n'),
        ("n.csv", "id;size;note\n1;3,5;a\n2;4;b,c\n"),
        ("n.csv", "id\tsize\tnote\n1\t3,5\ta\n2\t4\tb,c\n"),
        ("n.csv", "id|size|note\n1|3,5|a\n2|4|b,c\n"),
        ("n.tsv", "id\tsize\tnote\n1\t3,5\ta\n2\t4\tb,c\n"),
        ("n.txt", "id;size;note\r\n1;3,5;a\r\n2;4;b,c\r\n"),
        ("n.csv", "\ufeffid;size;note\r\n1;3,5;a\r\n2;4;b,c\r\n"),
        ("n.csv.gz", "id;size;note\n1;3,5;a\n2;4;b,c\n"),
        ("N.TSV.GZ", "id\tsize\tnote\n1\t3,5\ta\n2\t4\tb,c\n"),
    ],
)
def test_separators_marks_and_compression_make_no_difference(tmp_path: Path, name: str, text: str) -> None:
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.lower().endswith("gz") else content)
    assert values(Table(tmp_path / name)) == {"id": ["1", "2"], "size": ["3,5", "4"], "note": ["a", "b,c"]}


def test_a_comma_file_with_semicolons_in_a_name_keeps_its_commas(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("id,a;b;c;d\n1,2\n")
    assert Table(tmp_path / "n.csv").columns == ["id", "a;b;c;d"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_other_encodings_are_read_when_they_are_named(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "n.csv").write_bytes("größe;id\nsüß;José\n".encode(encoding))
    with pytest.raises(TableError, match=r"n\.csv is (not UTF-8|UTF-16) text.*`encoding`"):
        values(Table(tmp_path / "n.csv"))
    assert values(Table(tmp_path / "n.csv", encoding)) == {"größe": ["süß"], "id": ["José"]}


def test_wrong_encodings_are_errors(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_bytes("id\nJosé\n".encode("latin-1"))
    with pytest.raises(TableError, match="unknown encoding 'latin-77'"):
        Table(tmp_path / "n.csv", "latin-77")
    with pytest.raises(TableError, match=r"n\.csv is not ascii text"):
        values(Table(tmp_path / "n.csv", "ascii"))


@pytest.mark.parametrize("name", ["n.xlsx", "n.parquet.gz", "n.json", "n"])
def test_other_formats_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"?")
    with pytest.raises(TableError, match=r"neither \.csv nor \.parquet"):
        Table(tmp_path / name)


def test_a_damaged_gz_is_an_error_of_the_table(tmp_path: Path) -> None:
    content = gzip.compress(b"id,size\n" + b"1,2\n" * 100_000)
    for number, bad in enumerate((content[:40], content[: len(content) // 2], b"plain text\n1\n")):
        path = tmp_path / f"{number}.csv.gz"
        path.write_bytes(bad)
        with pytest.raises(TableError, match=path.name):
            values(Table(path))


def test_a_header_of_more_than_a_megabyte_is_read_whole(tmp_path: Path) -> None:
    names = [f"{'long' * 120}{number}" for number in range(2302)]
    assert sum(map(len, names)) > 2**20
    (tmp_path / "n.csv").write_text(",".join(names) + "\n" + ",".join("7" * 2302) + "\n")
    table = Table(tmp_path / "n.csv")
    assert table.columns == names
    assert values(table) == {name: ["7"] for name in names}


def test_opening_takes_time_in_proportion_to_the_columns(tmp_path: Path) -> None:
    """With a quadratic search, 50,000 columns took 79 s."""
    names = [f"c{number}" for number in range(50_000)]
    (tmp_path / "n.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    start = time.process_time()
    table = Table(tmp_path / "n.csv")
    table.require(names, "feature")
    assert time.process_time() - start < 5
    assert len(table.columns) == len(names)


def test_a_long_text_repeated_often_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), ["x" * 2_000_000])
    parquet.write_table(pa.table({"id": texts}), tmp_path / "n.parquet")
    code = (
        "import resource; from oddnode.tables import Table; import pyarrow.parquet\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2 * 2**30,) * 2)\n"
        f"table = Table({str(tmp_path / 'n.parquet')!r})\n"
        "list(table.batches(['id']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "TableError" in done.stderr
    assert "column 'id' has 19 GiB of text in 10000 rows" in done.stderr


def test_the_format_of_the_docs_is_read_written_and_named_in_messages(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/plugins.md").read_text(encoding="utf-8")
    code = page.split("## A table format\n", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    frames = [pa.Table.from_pylist(rows) for rows in example()]
    nodes, edges = tmp_path / "nodes.ndjson", tmp_path / "edges.ndjson"
    with undone_registrations():
        exec(code, {"__name__": "example"})
        for frame, path in zip(frames, (nodes, edges), strict=True):
            assert write_table(frame, path) == 0
        model, _ = TableModel.fit(nodes, edges, **FIT)
        model.score(nodes, edges, tmp_path / "scores.ndjson")
        scored = [json.loads(line) for line in (tmp_path / "scores.ndjson").read_text().splitlines()]
        assert scored == model.score_frame(*frames).to_pylist()
        (tmp_path / "bad.ndjson").write_bytes(b"?")
        with pytest.raises(TableError, match=r"bad\.ndjson cannot be read as ndjson"):
            Table(tmp_path / "bad.ndjson")
        with pytest.raises(TableError, match=r"neither \.csv nor \.parquet nor \.ndjson"):
            Table(tmp_path / "n.json")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "csv", "suffixes": (".new",)}, "there is a table format named 'csv' already"),
        ({"name": "new", "suffixes": (".csv",)}, r"files that end in \.csv are read as csv already"),
        ({"name": "new"}, "needs a name and suffixes"),
    ],
)
def test_a_format_that_another_one_has_is_refused(attributes: dict[str, Any], message: str) -> None:
    with undone_registrations(), pytest.raises((TypeError, ValueError), match=message):
        register_format(type("New", (TableFile,), attributes))
