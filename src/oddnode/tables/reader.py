"""Readers of tables, batch by batch: files and frames in memory. Only this module and the writer access files.

CSV values are read as text and converted later: what "001" or "NA" means depends on the column.
"""

from __future__ import annotations

import csv
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

__all__ = [
    "MemoryTable",
    "Table",
    "TableError",
    "TableSource",
    "format_of",
    "missing_to_null",
    "open_table",
    "pyarrow",
    "quoted",
    "trimmed",
]

#: Texts that stand for a missing value, in labels and features.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")

_BLOCK = 8 * 2**20
_ROWS = 2**17
_ENCODING_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class TableError(ValueError):
    """A table that cannot be used; the message names the file, what was found and what to do."""


def pyarrow() -> Any:
    """Import pyarrow; the error says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise TableError("tables need pyarrow; install it with: pip install 'oddnode[tables]'") from None
    return pyarrow


def format_of(path: Path) -> str:
    """Tell the format of a file by its name.

    Parameters
    ----------
    path : Path
        Its suffix is ``.csv``, ``.parquet`` or ``.pq``.

    Returns
    -------
    str
        ``"csv"`` or ``"parquet"``.
    """
    kind = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}.get(path.suffix.lower())
    if kind is None:
        raise TableError(f"{path} is neither .csv nor .parquet; rename it to match its format")
    return kind


class TableSource(ABC):
    """Named columns that are read in batches of rows.

    Attributes
    ----------
    name : str
        The name of the table in messages: the path of a file.
    columns : list of str
        The names of its columns.
    """

    name: str
    columns: list[str]

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[list[Any]]:
        """Read some columns.

        Parameters
        ----------
        names : sequence of str
            The columns.

        Yields
        ------
        list of pyarrow.Array
            The columns of a batch of rows.
        """

    def require(self, names: Sequence[str], what: str) -> None:
        """Check that the table has certain columns.

        Parameters
        ----------
        names : sequence of str
            The columns.
        what : str
            What they hold, for the message.
        """
        for name in names:
            if name in self.columns:
                continue
            near = get_close_matches(name, self.columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            listed = ", ".join(map(repr, self.columns[:20])) + (", ..." if len(self.columns) > 20 else "")
            raise TableError(f"{self.name} has no {what} column {name!r}{hint} It has {listed}{self._separator_hint()}")

    def _separator_hint(self) -> str:
        return ""

    def _check_names(self) -> None:
        doubled = next((name for name in self.columns if name and self.columns.count(name) > 1), None)
        if doubled is not None:
            raise TableError(f"{self.name} has two columns named {doubled!r}")


def open_table(source: Any, what: str) -> TableSource:
    """Open a table for reading.

    Parameters
    ----------
    source : path, or table in memory
        The name of a CSV or Parquet file; or a `pyarrow.Table`, a pandas or polars frame, or a mapping from names to
        columns.
    what : str
        What it holds, for messages about a table in memory: ``"nodes"``, ``"edges"``.
    """
    return Table(source) if isinstance(source, (str, os.PathLike)) else MemoryTable(source, f"the table of {what}")


class MemoryTable(TableSource):
    """A table in memory.

    Parameters
    ----------
    frame : pyarrow.Table, frame or mapping
        Anything that `pyarrow.table` accepts.
    name : str
        Its name in messages.
    """

    def __init__(self, frame: Any, name: str):
        pa = pyarrow()
        self.name = name
        try:
            self._table = frame if isinstance(frame, pa.Table) else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TableError(f"{name} is a {type(frame).__name__} that pyarrow cannot read: {error}") from None
        self.columns = list(self._table.column_names)
        self._check_names()

    def batches(self, names: Sequence[str]) -> Iterator[list[Any]]:
        table = self._table.select(list(dict.fromkeys(names)))
        for batch in table.to_batches(max_chunksize=_ROWS):
            yield [_plain(batch.column(batch.schema.get_field_index(name))) for name in names]


class Table(TableSource):
    """A CSV or Parquet file, read in batches so that it need not fit into memory.

    Parameters
    ----------
    path : path
        The file; the suffix of its name determines the format.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.name = str(path)
        self._kind = format_of(self.path)
        pyarrow()
        _check_file(self.path)
        with self._errors():
            self.columns = self._csv_header() if self._kind == "csv" else self._parquet_header()
        self._check_names()

    def batches(self, names: Sequence[str]) -> Iterator[list[Any]]:
        with self._errors():
            read = self._csv_batches if self._kind == "csv" else self._parquet_batches
            for batch in read(list(dict.fromkeys(names))):
                yield [_plain(batch.column(batch.schema.get_field_index(name))) for name in names]

    def _csv_header(self) -> list[str]:
        with self.path.open("rb") as file:
            start = file.read(4096)
        for mark, encoding in _ENCODING_MARKS.items():
            if start.startswith(mark):
                raise TableError(f"{self.path} is {encoding} text; save it as UTF-8")
        if b"\x00" in start:
            raise TableError(f"{self.path} has binary data, not CSV text")
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(io.StringIO(file.readline(2**20))), [])
        if not any(name.strip() for name in header):
            raise TableError(f"{self.path} has no header; its first line must name the columns")
        return header

    def _csv_batches(self, names: list[str]) -> Iterator[Any]:
        pa = pyarrow()
        from pyarrow import csv as arrow_csv

        reader = arrow_csv.open_csv(
            self.path,
            read_options=arrow_csv.ReadOptions(block_size=_BLOCK),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False
            ),
        )
        with reader:
            yield from reader

    def _parquet_header(self) -> list[str]:
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            return list(file.schema_arrow.names)

    def _parquet_batches(self, names: list[str]) -> Iterator[Any]:
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=_ROWS, columns=names)

    def _separator_hint(self) -> str:
        [only, *more] = self.columns
        for mark, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if self._kind == "csv" and not more and mark in only:
                return f". The file seems to be separated by {name}; save it with commas"
        return ""

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Re-raise pyarrow's errors with the name of the file."""
        pa = pyarrow()
        try:
            yield
        except TableError:
            raise
        except UnicodeDecodeError:
            raise TableError(f"{self.path} is not UTF-8 text; save it as UTF-8") from None
        except (pa.ArrowException, csv.Error, OverflowError) as error:
            text = (str(error).splitlines() or [type(error).__name__])[0][:300]
            if "utf8" in text.lower():
                raise TableError(f"{self.path} is not UTF-8 text ({text}); save it as UTF-8") from None
            raise TableError(f"{self.path} cannot be read as {self._kind}: {text}") from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise TableError(f"{self.path} cannot be read as {self._kind}: {str(error)[:300]}") from None


def _check_file(path: Path) -> None:
    if not path.exists():
        raise TableError(f"{path} does not exist")
    if not path.is_file():
        raise TableError(f"{path} is not a regular file")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")


def _plain(array: Any) -> Any:
    """Decode dictionaries, and turn variants of text into plain strings."""
    pa = pyarrow()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def trimmed(array: Any) -> Any:
    """Trim spaces around texts.

    Parameters
    ----------
    array : pyarrow.Array
        An array of any type; only text is changed.
    """
    pa = pyarrow()
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(array) if pa.types.is_string(array.type) else array


def missing_to_null(array: Any) -> Any:
    """Trim texts, and replace NaN and texts that stand for a missing value by null.

    Parameters
    ----------
    array : pyarrow.Array
        An array of any type.
    """
    pa = pyarrow()
    import pyarrow.compute as pc

    array = trimmed(array)
    if pa.types.is_string(array.type):
        gone = pc.is_in(array, value_set=pa.array(MISSING))
        return pc.if_else(gone, pa.scalar(None, pa.string()), array)
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    return array


def quoted(value: Any) -> str:
    """Quote a value of a table in a message.

    Parameters
    ----------
    value : object
        Anything.

    Returns
    -------
    str
        Its repr, cut to 60 characters.
    """
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
