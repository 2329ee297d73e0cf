"""Many rows in one request: NDJSON, CSV or Parquet in and out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from oddnode.online import Judgement, surprise_columns
from oddnode.online.growing import is_int64
from oddnode.service.exports import columns_of
from oddnode.service.requests import Change, Problem, decoded, decoded_lines
from oddnode.tables import TableError, TableSchema, open_table
from oddnode.tables.formats import table_bytes
from oddnode.tables.values import pa

NDJSON, CSV, PARQUET = "application/x-ndjson", "text/csv", "application/vnd.apache.parquet"
_SUFFIXES = {CSV: ".csv", PARQUET: ".parquet"}
# What JSON, and so the log, has as it is.
_PLAIN = ("is_integer", "is_floating", "is_boolean", "is_string", "is_large_string", "is_null", "is_dictionary")
_COLUMNS = (
    *("id", "score", "p_value", "is_ood", "predicted", "confidence", "reason", "exact", "num_neighbours", "is_far"),
    *("version", "why"),
)


class Batch(NamedTuple):
    """Rows with the edges between them and others."""

    rows: Any  #: A list of mappings, or a table of Arrow.
    edges: list[list[Any]]
    ids: list[int | str]

    def as_rows(self) -> list[dict[str, Any]]:
        """The rows as mappings with values that JSON has."""
        if isinstance(self.rows, list):
            return self.rows
        for field in self.rows.schema:
            if not any(getattr(pa.types, name)(field.type) for name in _PLAIN):
                raise Problem(422, f"column {field.name[:60]!r} holds {field.type}, expected numbers, text or booleans")
        return self.rows.to_pylist()

    def as_change(self, explain: bool) -> Change:
        """The change that adds the rows, exactly as it is read from the log again: what JSON has not is refused."""
        return decoded(msgspec.json.encode(Change(self.as_rows(), self.edges, explain=explain)), Change)


def read_batch(
    raw: bytearray, kind: str, schema: TableSchema | None, neighbours: str, integers: bool, most: int
) -> Batch:
    """Read the rows of a body.

    Parameters
    ----------
    raw : bytearray
        The body.
    kind : str
        Its content type.
    schema : TableSchema, optional
        That of a model of tables.
    neighbours : str
        The column with the ids of neighbours; in CSV separated by semicolons.
    integers : bool
        Whether ids are integers, which in CSV are text.
    most : int
        The number of rows that are accepted.
    """
    if kind == NDJSON:
        rows, edges = decoded_lines(raw, neighbours), list[list[Any]]()
        _check_count(len(rows), most)
        id_column = "id" if schema is None else schema.id_column
        for row in rows:
            node = row.get(id_column)
            edges += [[node, other] for other in row.pop(neighbours, None) or ()]
        return Batch(rows, edges, [row.get(id_column) for row in rows])  # type: ignore[misc]
    if schema is None:
        raise Problem(415, f"the model was not fitted on tables; send {NDJSON} with id and x", "content-type")
    try:
        table = _read_table(raw, kind, most)
    except TableError as error:
        raise Problem(422, str(error)) from None
    for name in (schema.id_column, neighbours):
        if table.column_names.count(name) > 1:
            raise Problem(422, f"there are several columns {name!r}")
    if schema.id_column not in table.column_names:
        raise Problem(422, f"the column {schema.id_column!r} with the ids is missing")
    if pa.types.is_nested(table.schema.field(schema.id_column).type):
        raise Problem(422, f"the column {schema.id_column!r} holds lists, expected ids as text or integers")
    ids = table[schema.id_column].to_pylist()
    ends: list[Any] = [()] * len(ids)
    if neighbours in table.column_names and neighbours not in (schema.id_column, *schema.features.names):
        ends = [_listed(each) for each in table[neighbours].to_pylist()]
        table = table.drop_columns([neighbours])
    if kind == CSV:
        ids = [_id_of(node, integers) for node in ids]
        if len(set(map(type, ids))) > 1:
            raise Problem(422, f"the column {schema.id_column!r} has integers and other ids; send them one by one")
        table = table.set_column(table.column_names.index(schema.id_column), schema.id_column, pa.array(ids))
        ends = [[_id_of(node, integers) for node in each] for each in ends]
    return Batch(table, [[node, end] for node, some in zip(ids, ends, strict=True) for end in some], ids)


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise Problem(413, f"there are more than {most} rows; send them in parts", "too-large")


def _read_table(raw: bytearray, kind: str, most: int) -> Any:
    """A table as `oddnode score` reads it from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"body{_SUFFIXES[kind]}"
        path.write_bytes(raw)
        try:
            table = open_table(path, "nodes")
            parts: list[Any] = []
            for each in table.batches(table.columns):  # a small body may have billions of rows
                parts.append(pa.record_batch(each.arrays, table.columns))
                _check_count(sum(map(len, parts)), most)
            if not parts:
                raise TableError("the body has a header, but no rows")
            return pa.Table.from_batches(parts)
        except (TableError, pa.ArrowException) as error:
            raise TableError(str(error).replace(str(path), "the body").replace(path.name, "the body")) from None


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(";") if part.strip()]
    if value is None:
        return []
    if not isinstance(value, list) or any(type(each) not in (int, str) for each in value):
        raise Problem(422, f"the column of neighbours has {str(value)[:60]!r}, expected a list of ids")
    return value


def _id_of(text: str, integers: bool) -> int | str:
    text = (text or "").strip()
    digits = text.removeprefix("-")
    is_short = digits.isascii() and digits.isdigit() and len(digits) < 20
    return int(text) if integers and is_short and str(int(text)) == text and is_int64(int(text)) else text


def write_answers(found: list[Any], kind: str) -> bytes:
    """Write answers, one row each; every kind of evidence is a column of surprises in tables."""
    if kind == NDJSON:
        return msgspec.json.Encoder().encode_lines(found)
    return table_bytes(as_table(found), _SUFFIXES[kind])


def as_table(found: list[Judgement]) -> Any:
    """Answers as a table of Arrow."""
    columns = columns_of(found, *_COLUMNS)
    for name in ("unseen", "unknown_neighbours"):
        if name == "unseen" or (found and hasattr(found[0], name)):
            values = [getattr(each, name) for each in found]
            columns[name] = pa.array([json.dumps(each) if each else None for each in values], pa.string())
    return pa.table(columns | surprise_columns(found))
