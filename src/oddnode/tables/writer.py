"""Atomic writing of tables, in slices of rows."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from oddnode._utils.atomic_files import new_file
from oddnode._utils.hidden_siblings import check_name
from oddnode.tables.values import TableError, pyarrow

__all__ = ["check_target", "format_to_write", "neutralised", "write_table"]

_ROWS = 2**17
_FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
# Spreadsheets take such a cell for a formula and run it; a number is none.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-][0-9.,]+([eE][+-]?[0-9]+)?$"
# Terminals obey control characters when a file is shown; a line break in a quoted cell is text.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def check_target(path: Path, inputs: list[Path]) -> None:
    """Check that a table can be written, so that a mistake shows before the work and not after it.

    Parameters
    ----------
    path : Path
        The file to write.
    inputs : list of Path
        The files that are read, which must not be overwritten.
    """
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


def format_to_write(path: Path) -> str:
    """Tell the format of a table that is to be written by the name of its file.

    Parameters
    ----------
    path : Path
        Its suffix is ``.csv``, ``.parquet`` or ``.pq``.
    """
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise TableError(f"{path} is neither .csv nor .parquet; name the file to write by its format")
    return kind


def write_table(table: Any, path: Path, raw_text: bool = False) -> int:
    """Write a table as a CSV or Parquet file; an existing file is replaced at the end.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    path : Path
        The file; its suffix determines the format.
    raw_text : bool
        Whether texts go into a CSV file as they are, not as `neutralised`.

    Returns
    -------
    int
        The number of cells that were written in another way.
    """
    kind, changed = format_to_write(path), 0
    if kind == "csv" and not raw_text:
        table, changed = neutralised(table)
    with new_file(path) as part, part.open("wb") as file:
        _write_parquet(table, file) if kind == "parquet" else _write_csv(table, file)
    return changed


def neutralised(table: Any) -> tuple[Any, int]:
    r"""Change texts that a spreadsheet or a terminal would run.

    A text that starts like a formula gets an apostrophe before it, and control characters are written as ``\x1b``.

    Parameters
    ----------
    table : pyarrow.Table
        The table.

    Returns
    -------
    pyarrow.Table
        The same table with other texts.
    int
        The number of texts that were changed, names of columns included.
    """
    pa = pyarrow()
    changed, columns = 0, []
    names, in_names = _harmless(pa.array(table.column_names))
    for column in table.columns:
        if pa.types.is_string(column.type):
            column, count = _harmless(column.combine_chunks())
            changed += count
        columns.append(column)
    return pa.table(columns, names=names.to_pylist()), changed + in_names


def _harmless(texts: Any) -> tuple[Any, int]:
    pa = pyarrow()
    import pyarrow.compute as pc

    controls = pc.match_substring_regex(texts, _CONTROL.pattern)
    if pc.any(controls).as_py():
        escaped = [None if text is None else _CONTROL.sub(_escape, text) for text in texts.to_pylist()]
        texts = pa.array(escaped, pa.string())
    runs = pc.and_not(pc.match_substring_regex(texts, _FORMULA), pc.match_substring_regex(texts, _NUMBER))
    safe = pc.if_else(runs, pc.binary_join_element_wise("'", texts, ""), texts)
    return safe, int(pc.sum(pc.or_(runs, controls)).as_py() or 0)


def _escape(match: re.Match[str]) -> str:
    return f"\\x{ord(match.group()):02x}"


def _write_csv(table: Any, file: Any) -> None:
    from pyarrow import csv

    with csv.CSVWriter(file, table.schema, write_options=csv.WriteOptions(quoting_style="needed")) as writer:
        for batch in table.to_batches(max_chunksize=_ROWS):
            writer.write_batch(batch)


def _write_parquet(table: Any, file: Any) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(file, table.schema) as writer:
        writer.write_table(table, row_group_size=_ROWS)
