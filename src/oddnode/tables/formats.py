"""Files of tables: CSV with its separators, encodings and compression, and Parquet. Rows are read in batches."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from oddnode.tables.values import TableError, arrow_errors, pyarrow

__all__ = ["ROWS", "CsvFile", "ParquetFile", "format_of"]

#: Rows of a batch, where the format leaves the choice.
ROWS = 2**17

_BLOCK = 8 * 2**20
# A longer first line holds no names of columns.
_LONGEST_LINE = 256 * 2**20
_SAMPLE_LINES = 5
_SEPARATORS = ",;\t|"
_FORMATS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet"}
_ENCODING_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def format_of(path: Path) -> str:
    """Tell the format of a file by its name.

    Parameters
    ----------
    path : Path
        Its suffix is ``.csv``, ``.tsv``, ``.txt``, one of these followed by ``.gz``, ``.parquet`` or ``.pq``.

    Returns
    -------
    str
        ``"csv"`` or ``"parquet"``.
    """
    kind = _FORMATS.get(_suffix(path))
    if kind is None or (kind == "parquet" and _is_compressed(path)):
        hint = "save the sheet as CSV" if path.suffix.lower() in (".xlsx", ".xls", ".ods") else "rename it to match"
        raise TableError(f"{path} is neither .csv nor .parquet (.tsv, .txt and .csv.gz are read as well); {hint}")
    return kind


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if _is_compressed(path) else path).suffix.lower()


class CsvFile:
    """A text file with one row per line. All values are read as text.

    The separator is found from the first lines: comma, semicolon, tab or bar.

    Parameters
    ----------
    path : Path
        The file; ``.gz`` at the end of its name means that it is compressed.
    encoding : str or None
        The encoding of the text; ``None`` stands for UTF-8.
    """

    def __init__(self, path: Path, encoding: str | None):
        self.path = path
        self._encoding = encoding
        self._check_bytes()
        with self.errors():
            lines, self._header_size = self._first_lines()
            self._separator = "\t" if _suffix(path) == ".tsv" else _separator(lines)
            self.columns = next(csv.reader(lines, delimiter=self._separator), [])
        if not any(name.strip() for name in self.columns):
            raise TableError(f"{path} has no header; its first line must name the columns")

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Read some columns.

        Parameters
        ----------
        names : list of str
            The columns.

        Yields
        ------
        pyarrow.RecordBatch
            A batch of rows, all values as text.
        """
        pa = pyarrow()
        from pyarrow import csv as arrow_csv

        # A row must fit into a block; the rows of a table with a long header may be long, too.
        size = max(_BLOCK, 4 * self._header_size)
        with (
            self._arrow_stream() as stream,
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

    def _arrow_stream(self) -> Any:
        pa = pyarrow()
        return pa.input_stream(str(self.path), compression="gzip" if _is_compressed(self.path) else None)

    def _open(self) -> IO[bytes]:
        return gzip.open(self.path) if _is_compressed(self.path) else self.path.open("rb")  # type: ignore[return-value]

    def _check_bytes(self) -> None:
        with self.errors(), self._open() as file:
            start = file.read(4096)
        if self._encoding is not None:
            return
        for mark, encoding in _ENCODING_MARKS.items():
            if start.startswith(mark):
                raise TableError(f"{self.path} is {encoding} text; say so with `encoding` {encoding.lower()}")
        if b"\x00" in start:
            raise TableError(f"{self.path} has binary data, not CSV text")

    def _first_lines(self) -> tuple[list[str], int]:
        """The header and a few more lines, and the number of bytes of the longest of them."""
        encoding = "utf-8-sig" if self._encoding is None else self._encoding
        with self._open() as raw, io.TextIOWrapper(raw, encoding=encoding, newline="") as file:
            lines = []
            for _ in range(_SAMPLE_LINES):
                lines.append(file.readline(_LONGEST_LINE))
                if len(lines[-1]) == _LONGEST_LINE:
                    raise TableError(f"{self.path} has a line of more than {_LONGEST_LINE} characters; it is no table")
        return [line for line in lines if line], max(len(line.encode()) for line in lines)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Re-raise errors of decoding and parsing with the name of the file."""
        try:
            with _named_errors(self.path, "csv"):
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


class ParquetFile:
    """A Parquet file.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path):
        from pyarrow import parquet

        self.path = path
        with self.errors(), parquet.ParquetFile(path) as file:
            self.columns = list(file.schema_arrow.names)

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Read some columns.

        Parameters
        ----------
        names : list of str
            The columns.

        Yields
        ------
        pyarrow.RecordBatch
            A batch of rows.
        """
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=ROWS, columns=names)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Re-raise errors of pyarrow with the name of the file."""
        with _named_errors(self.path, "parquet"):
            yield


@contextmanager
def _named_errors(path: Path, kind: str) -> Iterator[None]:
    try:
        with arrow_errors(f"{path} cannot be read as {kind}"):
            yield
    except (csv.Error, EOFError, zlib.error) as error:
        raise TableError(f"{path} cannot be read as {kind}: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise TableError(f"{path} cannot be read as {kind}: {str(error)[:300]}") from None


def _separator(lines: list[str]) -> str:
    """The separator that cuts the first lines into equally many columns, as many as possible.

    Where lines differ in length, the header alone decides, and a comma in it counts most.
    """
    unquoted = re.sub(r'"[^"]*("|$)', "", "".join(lines)).splitlines()
    best, most = "", 0
    for mark in _SEPARATORS:
        counts = {line.count(mark) for line in unquoted if line}
        if len(counts) == 1 and max(counts) > most:
            best, most = mark, max(counts)
    return best or next((mark for mark in _SEPARATORS if unquoted and mark in unquoted[0]), ",")
