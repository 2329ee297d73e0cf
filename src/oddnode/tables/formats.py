"""File formats of tables: what reads, writes and recognises each of them. `FORMATS` lists them.

Rows are read and written in batches, so that a file need not fit into memory; it is written atomically.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar

from oddnode._utils.atomic_files import check_name, new_file
from oddnode._utils.lazy import LazyModule
from oddnode._utils.registry import Registry
from oddnode.tables.values import TableError, arrow_errors, pa, pc

arrow_csv: Any = LazyModule("pyarrow.csv")
parquet: Any = LazyModule("pyarrow.parquet")

#: Rows of a batch, where the format leaves the choice.
ROWS = 2**17

_BLOCK = 8 * 2**20
_LARGEST_BLOCK = 2**28
_HEADERS = 128
# A longer first line is not a header.
_LONGEST_LINE = 256 * 2**20
_SAMPLE_LINES = 5
_SEPARATORS = ",;\t|"
_ENCODING_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Spreadsheets evaluate such a cell as a formula; a number is harmless.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-][0-9.,]+([eE][+-]?[0-9]+)?$"
# Terminals interpret control characters; a line break in a quoted cell is harmless.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class TableFile(ABC):
    """A table file in one format. Pass a subclass to `register_format` to add a format.

    Parameters
    ----------
    path : Path
        A file that exists and is not empty.
    encoding : str or None
        The encoding of text, for formats that have one.

    Attributes
    ----------
    name : str
        The name of the format in messages.
    suffixes, written : sequence of str
        The endings of file names that are read, and those that are written.
    opens_in_spreadsheets : bool
        Whether spreadsheets open such files, so that strings they would execute are neutralised.
    first_row : tuple of int and str
        The number of the first row in messages, and what is counted: rows or lines.
    columns : list of str
        The names of the columns; ``__init__`` sets them.
    """

    name: ClassVar[str]
    suffixes: ClassVar[Sequence[str]]
    written: ClassVar[Sequence[str]] = ()
    opens_in_spreadsheets: ClassVar[bool] = False
    first_row: ClassVar[tuple[int, str]] = (1, "row")
    columns: list[str]

    def __init__(self, path: Path, encoding: str | None = None):
        self.path = path

    @abstractmethod
    def batches(self, names: list[str]) -> Iterator[Any]:
        """Read some columns as record batches of Arrow.

        Parameters
        ----------
        names : list of str
            The columns, without duplicates.
        """

    @property
    def num_rows(self) -> int | None:
        """The number of rows, if the file states it."""
        return None

    @classmethod
    def writer(cls, file: IO[bytes], schema: Any) -> Any:
        """Open a writer: a context manager with ``write_table(table, max_rows)``, like those of pyarrow.

        Parameters
        ----------
        file : file
            Where to write.
        schema : pyarrow.Schema
            The columns of the tables to write.
        """
        raise NotImplementedError(f"{cls.__name__} is listed as written, but has no writer")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Re-raise errors of reading as a `TableError` that names the file."""
        message = f"{self.path} cannot be read as {self.name}"
        try:
            with arrow_errors(message):
                yield
        except (csv.Error, EOFError, zlib.error) as error:
            raise TableError(f"{message}: {error}") from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise TableError(f"{message}: {str(error)[:300]}") from None


#: The formats by name.
FORMATS: Registry[type[TableFile]] = Registry("table format")


def register_format(kind: type[TableFile]) -> type[TableFile]:
    """Add a file format of tables; usable as a decorator.

    Parameters
    ----------
    kind : type
        A subclass of `TableFile` with a ``name`` and ``suffixes`` that no other format has.
    """
    if not getattr(kind, "name", "") or not getattr(kind, "suffixes", ()):
        raise TypeError(f"{kind.__name__} needs a name and suffixes to be a table format")
    for other in FORMATS.values():
        taken = sorted({*kind.suffixes} & {*other.suffixes})
        if taken and other is not kind:
            raise ValueError(f"files that end in {taken[0]} are read as {other.name} already; choose another suffix")
    FORMATS.register(kind.name, kind)
    return kind


def main_suffixes() -> list[str]:
    """List one file suffix per format, for messages and help."""
    return [kind.suffixes[0] for kind in FORMATS.values()]


def format_of(path: Path) -> type[TableFile]:
    """Choose the format of a file to read by its suffix."""
    for kind in FORMATS.values():
        if path.name.lower().endswith(tuple(kind.suffixes)):
            return kind
    main = main_suffixes()
    others = ", ".join(suffix for kind in FORMATS.values() for suffix in kind.suffixes if suffix not in main)
    hint = "save the sheet as CSV" if path.suffix.lower() in (".xlsx", ".xls", ".ods") else "rename it to match"
    raise TableError(f"{path} is neither {' nor '.join(main)} ({others} are read as well); {hint}")


def format_to_write(path: Path) -> type[TableFile]:
    """Choose the format of a file to write by its suffix."""
    for kind in FORMATS.values():
        if path.suffix.lower() in kind.written:
            return kind
    raise TableError(f"{path} is neither {' nor '.join(main_suffixes())}; name the file to write by its format")


@register_format
class CsvFile(TableFile):
    """A text file with one row per line. All values are read as text.

    The separator is detected from the first lines: comma, semicolon, tab or bar.
    """

    name = "csv"
    suffixes = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
    written = (".csv",)
    opens_in_spreadsheets = True
    first_row = (2, "line")  # editors count the header as line 1

    def __init__(self, path: Path, encoding: str | None = None):
        super().__init__(path)
        self._is_compressed = path.suffix.lower() == ".gz"
        self._encoding = encoding
        with self.errors(), self._open() as file:
            start = file.read(4096)
        for mark, name in _ENCODING_MARKS.items() if encoding is None else ():
            if start.startswith(mark):
                raise TableError(f"{path} is {name} text; say so with `encoding` {name.lower()}")
        if encoding is None and b"\x00" in start:
            raise TableError(f"{path} has binary data, not CSV text")
        with self.errors():
            lines, self._header_size = self._first_lines()
            self._separator = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else _separator(lines)
            self.columns = next(csv.reader(lines, delimiter=self._separator), [])
        if not any(map(str.strip, self.columns)):
            raise TableError(f"{path} has no header; its first line must name the columns")

    def batches(self, names: list[str]) -> Iterator[Any]:
        # A row must fit into a block, and a long header suggests long rows. A block of a wide table should have many
        # of them: every column of a block takes some time, however short it is.
        size = max(_BLOCK, min(_HEADERS * self._header_size, _LARGEST_BLOCK), 4 * self._header_size)
        with (
            pa.input_stream(str(self.path), compression="gzip" if self._is_compressed else None) as stream,
            arrow_csv.open_csv(
                stream,
                read_options=arrow_csv.ReadOptions(block_size=size, encoding=self._encoding or "utf8"),
                parse_options=arrow_csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False
                ),
            ) as reader,
        ):
            yield from reader

    @classmethod
    def writer(cls, file: IO[bytes], schema: Any) -> Any:
        return arrow_csv.CSVWriter(file, schema, write_options=arrow_csv.WriteOptions(quoting_style="needed"))

    def _open(self) -> IO[bytes]:
        return gzip.open(self.path) if self._is_compressed else self.path.open("rb")  # type: ignore[return-value]

    def _first_lines(self) -> tuple[list[str], int]:
        """The header and a few more lines, and the length of the longest in bytes."""
        encoding = "utf-8-sig" if self._encoding is None else self._encoding
        with self._open() as raw, io.TextIOWrapper(raw, encoding=encoding, newline="") as file:
            lines = []
            for _ in range(_SAMPLE_LINES):
                lines.append(file.readline(_LONGEST_LINE))
                if len(lines[-1]) == _LONGEST_LINE:
                    raise TableError(
                        f"{self.path} has a line of more than {_LONGEST_LINE} characters; it is not a table"
                    )
        return list(filter(None, lines)), max(map(len, map(str.encode, lines)))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Re-raise errors of decoding and parsing with the name of the file."""
        try:
            with super().errors():
                yield
        except UnicodeError:
            raise self._wrong_encoding() from None
        except LookupError:
            raise TableError(f"unknown encoding {self._encoding!r}; for example latin-1, cp1252, utf-16") from None
        except TableError as error:
            if "utf8" in str(error).lower():
                raise self._wrong_encoding() from None
            raise

    def _wrong_encoding(self) -> TableError:
        if self._encoding is not None:
            return TableError(f"{self.path} is not {self._encoding} text; give its `encoding`")
        return TableError(
            f"{self.path} is not UTF-8 text; save it as UTF-8, or give its `encoding` (latin-1 and cp1252 are common)"
        )


@register_format
class ParquetFile(TableFile):
    """A Parquet file."""

    name = "parquet"
    suffixes = written = (".parquet", ".pq")

    def __init__(self, path: Path, encoding: str | None = None):
        super().__init__(path)
        with self.errors(), parquet.ParquetFile(path) as file:
            self.columns = list(file.schema_arrow.names)
            self._num_rows = file.metadata.num_rows

    def batches(self, names: list[str]) -> Iterator[Any]:
        with parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=ROWS, columns=names)

    @property
    def num_rows(self) -> int:
        return self._num_rows

    @classmethod
    def writer(cls, file: IO[bytes], schema: Any) -> Any:
        return parquet.ParquetWriter(file, schema)


def _separator(lines: list[str]) -> str:
    """The separator that splits all of the first lines into the same number of columns, as many as possible.

    If there is none, the header alone decides, and a comma takes precedence.
    """
    unquoted = re.sub(r'"[^"]*("|$)', "", "".join(lines)).splitlines()
    best, most = "", 0
    for mark in _SEPARATORS:
        counts = {line.count(mark) for line in unquoted if line}
        if len(counts) == 1 and max(counts) > most:
            best, most = mark, max(counts)
    return best or next((mark for mark in _SEPARATORS if unquoted and mark in unquoted[0]), ",")


class TableTarget(ABC):
    """A table to write that is not a file."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the table cannot be written."""

    @abstractmethod
    def write(self, parts: Iterable[Any]) -> None:
        """Write tables of Arrow with the same columns, one after another, all of them or none."""


def as_target(out: str | os.PathLike | TableTarget) -> Path | TableTarget:
    """Return what a user gave as a table to write: a target, or the name of a file."""
    return out if isinstance(out, TableTarget) else Path(out)


def check_target(path: Path | TableTarget, inputs: list[Path]) -> None:
    """Check that a table can be written, so that mistakes show before the work starts."""
    if isinstance(path, TableTarget):
        path.check()
        return
    format_to_write(path)
    if path.is_dir():
        raise TableError(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise TableError(f"cannot write {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: no permission to write into {path.parent}")
    check_name(path)
    for source in inputs:
        if path.exists() and source.exists() and path.samefile(source):
            raise TableError(f"{path} is one of the input tables; write to another file")


def write_table(table: Any, path: Path | TableTarget, raw_text: bool = False) -> int:
    """Write a table; an existing file is replaced at the end.

    Parameters
    ----------
    table : pyarrow.Table or iterable of these
        The table, or parts of it with the same columns, which are written one after another.
    path : Path or TableTarget
        The file, whose suffix determines the format, or a table of a database.
    raw_text : bool
        Whether to write strings to CSV unchanged, not `neutralised`.

    Returns
    -------
    int
        The number of cells that were changed.
    """
    parts: Iterable[Any] = [table] if isinstance(table, pa.Table) else table
    if isinstance(path, TableTarget):
        path.write(parts)
        return 0
    kind, changed, writer = format_to_write(path), 0, None
    with new_file(path) as unfinished, unfinished.open("wb") as file, ExitStack() as stack:
        for part in parts:
            if kind.opens_in_spreadsheets and not raw_text:
                before, (part, count) = part.column_names, neutralised(part)
                is_first = writer is None  # the header is written once
                changed += count if is_first else count - sum(map(str.__ne__, before, part.column_names))
            writer = writer or stack.enter_context(kind.writer(file, part.schema))
            writer.write_table(part, ROWS)
    return changed


def table_bytes(table: Any, suffix: str) -> bytes:
    """A small table as the content of a file with a suffix, as `write_table` writes it."""
    kind, target = format_to_write(Path(f"table{suffix}")), io.BytesIO()
    table = neutralised(table)[0] if kind.opens_in_spreadsheets else table
    with kind.writer(target, table.schema) as writer:
        writer.write_table(table)
    return target.getvalue()


def neutralised(table: Any) -> tuple[Any, int]:
    r"""Escape strings that a spreadsheet or a terminal would execute.

    A string that starts like a formula gets a leading apostrophe, and control characters are written as ``\x1b``.

    Parameters
    ----------
    table : pyarrow.Table
        The table.

    Returns
    -------
    pyarrow.Table
        The table with escaped strings.
    int
        The number of strings that were changed, including column names.
    """
    changed, columns = 0, []
    names, in_names = _harmless(pa.array(table.column_names))
    for column in table.columns:
        if pa.types.is_string(column.type):
            column, count = _harmless(column.combine_chunks())
            changed += count
        columns.append(column)
    return pa.table(columns, names=names.to_pylist()), changed + in_names


def _harmless(strings: Any) -> tuple[Any, int]:
    controls = pc.match_substring_regex(strings, _CONTROL.pattern)
    if pc.any(controls).as_py():
        escaped = [None if text is None else _CONTROL.sub(_escape, text) for text in strings.to_pylist()]
        strings = pa.array(escaped, pa.string())
    runs = pc.and_not(pc.match_substring_regex(strings, _FORMULA), pc.match_substring_regex(strings, _NUMBER))
    safe = pc.if_else(runs, pc.binary_join_element_wise("'", strings, ""), strings)
    return safe, int(pc.sum(pc.or_(runs, controls)).as_py() or 0)


def _escape(match: re.Match[str]) -> str:
    return f"\\x{ord(match.group()):02x}"
