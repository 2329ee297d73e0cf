"""Tables as files: sound ones in many forms, and ones with odd values, types, ids, edges, columns, rows or bytes."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["FORMS", "MUTATIONS", "Sheets", "write"]

Columns = dict[str, Any]

#: How a table is written: suffix, separator and what else matters of CSV.
FORMS: tuple[dict[str, Any], ...] = (
    {"suffix": ".parquet"},
    {"suffix": ".csv"},
    {"suffix": ".csv", "delimiter": ";"},
    {"suffix": ".tsv", "delimiter": "\t"},
    {"suffix": ".txt", "delimiter": "|"},
    {"suffix": ".csv", "lineterminator": "\r\n", "mark": b"\xef\xbb\xbf"},
    {"suffix": ".csv", "quoting": csv.QUOTE_ALL},
    {"suffix": ".csv.gz"},
)

_ODD_TEXTS = (
    "",
    " ",
    "NA",
    "nan",
    "-",
    "é\u4e2d\U0001f600",
    "=1+1",
    "a,b",
    'q"q',
    "x\ny",
    "\x1b]0;t\x07",
    "\u202e",
    "0x1",
)
_ODD_NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e300, -1e38, 5e-324, 1.7e18, 0.0, -0.0, 1e16)
_ODD_VALUES: tuple[tuple[Any, Any], ...] = (
    (datetime(2026, 1, 1), pa.timestamp("ns")),
    (date(1, 1, 1), pa.date32()),
    (time(1, 2), pa.time64("us")),
    (timedelta(days=1), pa.duration("us")),
    ([1.0, 2.0], pa.list_(pa.float64())),
    ({"x": 1}, pa.struct([("x", pa.int64())])),
    ([("k", 1)], pa.map_(pa.string(), pa.int64())),
    (b"abcd", pa.binary(4)),
    (b"\xff\x00", pa.binary()),
    (Decimal("1.5"), pa.decimal128(10, 2)),
    (2**64 - 1, pa.uint64()),
    (1.5, pa.float16()),
    (True, pa.bool_()),
    (None, pa.null()),
    ("x", pa.large_string()),
    ("x", pa.dictionary(pa.int32(), pa.string())),
    ("x", pa.string_view()),
    (-(2**63), pa.int64()),
)


@dataclass
class Sheets:
    """Two tables as columns, and the form of the files."""

    nodes: Columns
    edges: Columns
    form: dict[str, Any]
    #: Whether the ids of accepted tables are still those in ``nodes``.
    ids_known: bool = True


def write(columns: Columns, path: Path, form: dict[str, Any]) -> Path:
    """Write a table in a form; values are Arrow arrays or lists."""
    path = path.with_name(path.name + form["suffix"])
    if form["suffix"] == ".parquet":
        pq.write_table(pa.table({name: _array(values) for name, values in columns.items()}), path)
        return path
    file = io.StringIO()
    options: Any = {name: form[name] for name in ("delimiter", "lineterminator", "quoting") if name in form}
    writer = csv.writer(file, **({"lineterminator": "\n"} | options))
    writer.writerow(columns)
    writer.writerows(zip(*(_listed(values) for values in columns.values()), strict=False))
    raw = form.get("mark", b"") + file.getvalue().encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(raw, 1) if path.suffix == ".gz" else raw)
    return path


def _array(values: Any) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):  # a list of mixed types
        return pa.array([None if value is None else str(value) for value in values])


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else values.to_pylist()


def _odd_values(sheets: Sheets, rng: Random) -> None:
    values = sheets.nodes[rng.choice(["a", "b", "c", "d", "known", "topic"])]
    odd = rng.choice([_ODD_TEXTS, _ODD_NUMBERS, (None,)])
    for row in rng.sample(range(len(values)), rng.choice([1, 5, len(values)])):
        values[row] = rng.choice(odd)


def _odd_types(sheets: Sheets, rng: Random) -> None:
    sheets.form = FORMS[0]
    where, names = rng.choice([(sheets.nodes, ["a", "c", "d", "known", "topic", "id"]), (sheets.edges, ["source"])])
    name, (value, kind) = rng.choice(names), rng.choice(_ODD_VALUES)
    size = len(where[name])
    where[name] = pa.array([None if rng.random() < 0.1 else value for _ in range(size)], kind)
    sheets.ids_known = name != "id"


def _odd_ids(sheets: Sheets, rng: Random) -> None:
    ids = sheets.nodes["id"]
    if rng.random() < 0.6:  # ids that are unique and odd: the rows must come back as they are
        start, ends = rng.choice([-5, 0, 2**53, 2**62]), rng.choice(["", "=", "é", '"', ",", "\u2028", " x", "'"])
        whole = rng.random() < 0.4
        new = {old: start + row if whole else f"{row}{ends}{row}" for row, old in enumerate(ids)}
        sheets.nodes["id"] = [new[old] for old in ids]
        sheets.edges.update({name: [new.get(old, old) for old in values] for name, values in sheets.edges.items()})
        return
    ids[rng.randrange(len(ids))] = rng.choice([ids[0], None, "", "x" * 70_000, *_ODD_TEXTS])


def _odd_edges(sheets: Sheets, rng: Random) -> None:
    edges, change = sheets.edges, rng.randrange(7)
    if change == 0:
        edges["target"][rng.randrange(len(edges["target"]))] = rng.choice(["nobody", None, "", "N1", 7])
    elif change == 1:
        edges["target"] = list(edges["source"])
    elif change == 2:
        sheets.edges = {name: [values[0]] * 2000 for name, values in edges.items()}
    elif change == 3:
        oddities: list[list[Any]] = [[0.5], [0, 1], [0], [1, None], [1, -1], ["1,5"], [1e300], [math.nan], ["heavy"]]
        odd = rng.choice(oddities)
        edges[rng.choice(["weight", "kind"])] = [rng.choice(odd) for _ in edges["source"]]
    elif change == 4:
        sheets.edges = {name: values[:0] for name, values in edges.items()}
    elif change == 5:
        sheets.edges = {str(values[0]): values[1:] for values in edges.values()} | {"x": edges["source"][1:]}
    else:
        sheets.edges = {"from": edges["source"], "to": edges["target"]}


def _odd_columns(sheets: Sheets, rng: Random) -> None:
    nodes, change = sheets.nodes, rng.randrange(6)
    name = rng.choice(list(nodes))
    if change == 0:
        sheets.nodes = {key: values for key, values in nodes.items() if key != name}
    elif change == 1:
        order = rng.sample(list(nodes), len(nodes))
        sheets.nodes = {key: nodes[key] for key in order}
    elif change == 2:
        nodes[rng.choice(["score", "is_ood", "", " ", "id ", "A", "split", "é", "p_value"])] = list(nodes["a"])
    elif change == 3:
        sheets.nodes = {
            (rng.choice([f" {key}", key.upper(), ""]) if key == name else key): v for key, v in nodes.items()
        }
    elif change == 4:
        nodes.update({f"w{number}": list(nodes["b"]) for number in range(300)})
    else:
        nodes[name] = [None] * len(nodes["topic"])
    sheets.ids_known = "id" in sheets.nodes and name != "id"


def _odd_rows(sheets: Sheets, rng: Random) -> None:
    keep = rng.choice([0, 1, 2, 5, 20])
    sheets.nodes = {name: values[:keep] for name, values in sheets.nodes.items()}
    if rng.random() < 0.6:
        kept = set(sheets.nodes["id"])
        pairs = zip(sheets.edges["source"], sheets.edges["target"], strict=True)
        inside = [pair for pair in pairs if kept.issuperset(pair)]
        sheets.edges = {"source": [one for one, _ in inside], "target": [other for _, other in inside]}


def _leave(sheets: Sheets, rng: Random) -> None:
    pass


#: By class: what changes the columns. "bytes" changes the files that were written instead.
MUTATIONS: dict[str, Callable[[Sheets, Random], None]] = {
    "sound": _leave,
    "odd values": _odd_values,
    "odd types": _odd_types,
    "odd ids": _odd_ids,
    "odd edges": _odd_edges,
    "odd columns": _odd_columns,
    "few rows": _odd_rows,
    "bytes": _leave,
}
