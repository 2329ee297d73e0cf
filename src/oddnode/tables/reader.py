"""Tables that are read in batches of rows: files, frames and graphs in memory, and several of these as one.

CSV values are read as text and converted later: what "001" or "NA" means depends on the column.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from oddnode.tables.formats import ROWS, format_of, parquet
from oddnode.tables.values import TableError, arrow_errors, pa, plain, pyarrow

# Names that pandas writes for an unnamed index.
_INDEX_COLUMN = re.compile(r"__index_level_\d+__")
# Messages name up to this many tables.
_FEW_NAMES = 3


@dataclass(frozen=True)
class Batch:
    """Some rows of a table."""

    arrays: list[Any]
    table: str  # The name of the table, for messages
    first: int  # The number of the first row, for messages
    unit: str  # What is counted: `"line"` of a file that an editor shows, or else `"row"`
    rows: np.ndarray | None = None  # Offsets of the rows from the first, if they are not consecutive

    @property
    def num_rows(self) -> int:
        return len(self.arrays[0]) if self.arrays else 0

    def row_name(self, row: int) -> str:
        return f"{self.unit} {self.first + (row if self.rows is None else int(self.rows[row]))}"


class TableSource(ABC):
    """Named columns that are read in batches of rows."""

    name: str  # The name of the table in messages: the path of a file
    columns: list[str]  # The names of its columns

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[Batch]: ...

    @property
    def parts(self) -> list[TableSource]:
        """The tables it consists of."""
        return [self]

    def require(self, names: Sequence[str], what: str) -> None:
        existing = set(self.columns)
        for name in names:
            if name in existing:
                continue
            near = get_close_matches(name, self.columns[:10_000], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            shown = ", ".join(map(repr, self.columns[:20])) + (", ..." if len(self.columns) > 20 else "")
            raise TableError(f"{self.name} has no {what} column {name!r}{hint} It has {shown}")

    def _check_names(self) -> None:
        for name, count in Counter(filter(None, self.columns)).items():
            if count > 1:
                raise TableError(f"{self.name} has two columns named {name!r}")


def open_table(source: Any, what: str, encoding: str | None = None) -> TableSource:
    """Open a table for reading.

    Parameters
    ----------
    source : path, table in memory, or a list of these
        The name of a file; a `Table`, for a file whose encoding must be given; a `pyarrow.Table`, a
        pandas or polars frame, any object with ``__arrow_c_stream__``, or a mapping from names to columns; or a
        NetworkX graph, whose nodes have their keys as ``id`` and whose edges have ``source`` and ``target``. Several
        in a list are read one after another, as one table.
    what : str
        What it holds, for messages about a table in memory: ``"nodes"``, ``"edges"``.
    encoding : str, optional
        The encoding of CSV files.
    """
    if isinstance(source, TableSource):
        return source
    if isinstance(source, (list, tuple)):
        parts = [open_table(part, what, encoding) for part in source]
        return parts[0] if len(parts) == 1 else JoinedTable(parts, what)
    if isinstance(source, (str, os.PathLike)):
        return Table(source, encoding)
    if callable(getattr(source, "is_directed", None)) and callable(getattr(source, "edges", None)):
        source = _columns_of(source, edges="edges" in what)
    return MemoryTable(source, f"the table of {what}")


def check_not_swapped(nodes: TableSource, edges: TableSource, wanted: Sequence[str]) -> None:
    """Raise an error if the table of edges has the columns that the table of nodes should have."""
    if not set(wanted) <= set(nodes.columns) and set(wanted) <= set(edges.columns):
        raise TableError(
            f"{edges.name} has the columns of nodes ({', '.join(map(repr, wanted[:3]))}), {nodes.name} does not; did "
            "you swap `nodes` and `edges`?"
        )


def files_matching(patterns: Sequence[str | os.PathLike]) -> list[Path]:
    """Find files by their names or by patterns such as ``edges/*.parquet``."""
    files: list[Path] = []
    for pattern in map(str, patterns):
        matches = sorted(glob.glob(pattern)) if glob.has_magic(pattern) and not Path(pattern).exists() else [pattern]
        if not matches:
            raise TableError(f"no file matches {pattern!r}")
        files += map(Path, matches)
    return files


def files_of(source: Any) -> list[Path]:
    """List the files that a table is read from."""
    if isinstance(source, (list, tuple)):
        return [path for part in source for path in files_of(part)]
    if isinstance(source, TableSource):
        return [part.path for part in source.parts if isinstance(part, Table)]
    return [Path(source)] if isinstance(source, (str, os.PathLike)) else []


def _columns_of(graph: Any, edges: bool) -> dict[str, list[Any]]:
    """The nodes or edges of a NetworkX graph as columns: their keys and their attributes."""
    if edges:
        rows = [{**facts, "source": a, "target": b} for a, b, facts in graph.edges(data=True)]
    else:
        rows = [{**facts, "id": node} for node, facts in graph.nodes(data=True)]
    names = dict.fromkeys([*(["source", "target"] if edges else ["id"]), *(name for row in rows for name in row)])
    return {str(name): [row.get(name) for row in rows] for name in names}


class MemoryTable(TableSource):
    """A table in memory."""

    def __init__(self, frame: Any, name: str):
        pyarrow()
        self.name = name
        try:
            table = frame if isinstance(frame, pa.Table) else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise TableError(f"{name} is a {type(frame).__name__} that pyarrow cannot read: {error}") from None
        # By place, since there may be several without a name.
        kept = [place for place, name in enumerate(table.column_names) if not _INDEX_COLUMN.fullmatch(name)]
        self._table = table.select(kept)
        self.columns = list(self._table.column_names)
        self._check_names()

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        table = self._table.select(list(dict.fromkeys(names)))
        errors = arrow_errors(f"{self.name} cannot be read")
        yield from _batches(table.to_batches(max_chunksize=ROWS), names, self.name, 1, "row", errors)


class QueryTable(TableSource):
    """The result of a query, which arrives once and is kept in a temporary file without a name.

    Parameters
    ----------
    stream : pyarrow.RecordBatchReader
        The rows.
    name : str
        The name of the table in messages.
    """

    def __init__(self, stream: Any, name: str):
        self.name, self.columns = name, stream.schema.names
        self._check_names()
        file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, file.close)
        schema = _without_extensions(stream.schema.empty_table()).schema
        with parquet.ParquetWriter(file, schema) as writer:
            for batch in stream:
                writer.write_table(_without_extensions(pa.Table.from_batches([batch])))
        self._file = pa.PythonFile(file, "r")

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        batches = parquet.ParquetFile(self._file).iter_batches(batch_size=ROWS, columns=list(dict.fromkeys(names)))
        yield from _batches(batches, names, self.name, 1, "row", arrow_errors(f"{self.name} cannot be read"))


def _without_extensions(table: Any) -> Any:
    """Exact numbers and the like as the text that PostgreSQL sends, UUIDs as text."""
    for number, column in enumerate(table.columns):
        if isinstance(column.type, pa.BaseExtensionType):
            is_uuid = column.type.extension_name == "arrow.uuid"
            text = [None if value is None else str(value) for value in column.to_pylist()] if is_uuid else None
            stored = (
                pa.array(text, pa.string())
                if is_uuid
                else pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
            )
            table = table.set_column(number, table.column_names[number], stored)
    return table


class Table(TableSource):
    """A file, read in batches so that it need not fit into memory.

    Parameters
    ----------
    path : path
        The file; the suffix of its name determines the format.
    encoding : str, optional
        The encoding of a CSV file, for example ``"latin-1"``; by default UTF-8.
    """

    def __init__(self, path: str | os.PathLike, encoding: str | None = None):
        self.path = Path(path)
        self.name = str(path)
        kind = format_of(self.path)
        # Checks that do not need pyarrow, which is slow to import.
        if not self.path.exists():
            raise TableError(f"{self.path} does not exist")
        if not self.path.is_file():
            raise TableError(f"{self.path} is not a regular file")
        if self.path.stat().st_size == 0:
            raise TableError(f"{self.path} is empty")
        pyarrow()
        self.file = kind(self.path, encoding)
        self.columns = self.file.columns
        self._check_names()

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        batches = self.file.batches(list(dict.fromkeys(names)))
        yield from _batches(batches, names, self.name, *self.file.first_row, self.file.errors())


class JoinedTable(TableSource):
    """Several tables that are read one after another; a column that one of them lacks is empty there."""

    def __init__(self, parts: Sequence[TableSource], what: str):
        if not parts:
            raise TableError(f"no table of {what} was given")
        self._parts = [single for part in parts for single in part.parts]
        names = [part.name for part in self._parts]
        few = len(names) <= _FEW_NAMES
        self.name = " + ".join(names) if few else f"{names[0]} and {len(names) - 1} more tables"
        self.columns = list(dict.fromkeys(name for part in self._parts for name in part.columns))

    @property
    def parts(self) -> list[TableSource]:
        return self._parts

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        for part in self._parts:
            existing = set(part.columns)
            for batch in part.batches([name for name in names if name in existing]):
                arrays = iter(batch.arrays)
                empty = pa.nulls(batch.num_rows)
                filled = [next(arrays) if name in existing else empty for name in names]
                yield Batch(filled, batch.table, batch.first, batch.unit)


class ChosenRows(TableSource):
    """Some rows of another table, in batches that do not depend on the other rows.

    Otherwise skipped rows would change the last bits of statistics that are updated batch by batch.
    """

    def __init__(self, table: TableSource, keep: np.ndarray):
        self._table, self._keep = table, keep
        self.name = table.name
        self.columns = table.columns

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        start, pending = 0, list[Batch]()
        for batch in self._table.batches(names):
            rows = np.flatnonzero(self._keep[start : start + batch.num_rows])
            start += batch.num_rows
            if pending and pending[0].table != batch.table:
                yield _joined(pending)
                pending = []
            taken = [array.take(pa.array(rows)) for array in batch.arrays]
            pending.append(Batch(taken, batch.table, 0, batch.unit, batch.first + rows))
            while sum(part.num_rows for part in pending) >= ROWS:
                whole = _joined(pending)
                yield _rows(whole, 0, ROWS)
                pending = [_rows(whole, ROWS, whole.num_rows)]
        if pending:
            yield _joined(pending)


def _joined(batches: Sequence[Batch]) -> Batch:
    arrays = [pa.concat_arrays(columns) for columns in zip(*(batch.arrays for batch in batches), strict=True)]
    rows = np.concatenate([batch.rows for batch in batches if batch.rows is not None])
    return Batch(arrays, batches[0].table, 0, batches[0].unit, rows)


def _rows(batch: Batch, start: int, end: int) -> Batch:
    assert batch.rows is not None
    arrays = [array.slice(start, end - start) for array in batch.arrays]
    return Batch(arrays, batch.table, batch.first, batch.unit, batch.rows[start:end])


def _batches(
    batches: Any, names: Sequence[str], table: str, first: int, unit: str, errors: AbstractContextManager
) -> Iterator[Batch]:
    with errors:
        for batch in batches:
            batch.validate(full=True)  # otherwise invalid UTF-8 would raise an error at its first use
            indices = [batch.schema.get_field_index(name) for name in names]
            arrays = [plain(batch.column(i), f"{table}: column {n!r}") for i, n in zip(indices, names, strict=True)]
            yield Batch(arrays, table, first, unit)
            first += batch.num_rows
