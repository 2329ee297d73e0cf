from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from oddnode.tables import TableModel, write_table
from tests.tables.examples import FIT, example, read_csv

HOSTILE = ["=cmd|'/C calc'!A0", "@SUM(1)", "+1+cmd", "-x", "\t=1", "\r=1", "a\x1b]0;title\x07", "\x9b2J", "'quoted"]
WRITTEN = [
    "'=cmd|'/C calc'!A0",
    "'@SUM(1)",
    "'+1+cmd",
    "'-x",
    "'\t=1",
    "'\r=1",
    "a\\x1b]0;title\\x07",
    "\\x9b2J",
    "'quoted",
]


def test_texts_that_would_be_run_are_written_as_texts(tmp_path: Path) -> None:
    table = pa.table({"=id": HOSTILE, "number": range(len(HOSTILE))})
    assert write_table(table, tmp_path / "s.csv") == len(HOSTILE) - 1 + 1  # all but 'quoted; and the name of a column
    with (tmp_path / "s.csv").open(newline="") as file:
        text = file.read()
    assert text == '"\'=id","number"\n' + "".join(f'"{w}",{i}\n' for i, w in enumerate(WRITTEN))


@pytest.mark.parametrize("ids", [["-7", "+49 30", "3", "-1.5e3"], ["plain", "a=b", "x\ny", "ü, ö"]])
def test_numbers_and_harmless_texts_are_written_as_they_are(tmp_path: Path, ids: list[str]) -> None:
    changed = write_table(pa.table({"id": ids}), tmp_path / "s.csv")
    assert changed == sum(text == "+49 30" for text in ids)
    kept = [row["id"].removeprefix("'") for row in read_csv(tmp_path / "s.csv")]
    assert kept == ids


def test_raw_texts_and_parquet_keep_every_character(tmp_path: Path) -> None:
    nodes, edges = example()
    names = {row["name"]: f"{HOSTILE[i % 5].strip()}{i}" for i, row in enumerate(nodes)}
    for row in nodes:
        row["name"] = names[row["name"]]
    for row in edges:
        row["source"], row["target"] = names[row["source"]], names[row["target"]]
    frames = pa.Table.from_pylist(nodes), pa.Table.from_pylist(edges)
    model, _ = TableModel.fit(*frames, **FIT)
    safe = model.score(*frames, tmp_path / "safe.csv")
    raw = model.score(*frames, tmp_path / "raw.csv", raw_text=True)
    model.score(*frames, tmp_path / "s.parquet")
    ids = list(names.values())
    assert [row["name"] for row in read_csv(tmp_path / "safe.csv")] == [f"'{text}" for text in ids]
    assert [row["name"] for row in read_csv(tmp_path / "raw.csv")] == ids
    assert parquet.read_table(tmp_path / "s.parquet")["name"].to_pylist() == ids
    assert raw.notes == []
    assert safe.notes[0].startswith(f"120 strings in {tmp_path / 'safe.csv'} got a leading apostrophe")
