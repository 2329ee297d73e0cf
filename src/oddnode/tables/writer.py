"""Atomic writing of tables, in slices of rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from oddnode._utils.atomic_files import check_name, new_file
from oddnode.tables.formats import ROWS, format_to_write
from oddnode.tables.values import TableError, pa, pc

# Spreadsheets take such a cell for a formula and run it; a number is none.
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-][0-9.,]+([eE][+-]?[0-9]+)?$"
# Terminals obey control characters when a file is shown; a line break in a quoted cell is text.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def check_target(path: Path, inputs: list[Path]) -> None:
    """Check that a table can be written, so that a mistake shows before the work and not after it."""
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


def write_table(table: Any, path: Path, raw_text: bool = False) -> int:
    """Write a table to a file; an existing file is replaced at the end.

    Parameters
    ----------
    table : pyarrow.Table or iterable of these
        The table, or parts of it with the same columns, which are written one after another.
    path : Path
        The file; its suffix determines the format.
    raw_text : bool
        Whether strings go into a CSV file as they are, not as `neutralised`.

    Returns
    -------
    int
        The number of cells that were written in another way.
    """
    parts: Iterable[Any] = [table] if isinstance(table, pa.Table) else table
    kind, changed, writer = format_to_write(path), 0, None
    with new_file(path) as unfinished, unfinished.open("wb") as file, ExitStack() as stack:
        for part in parts:
            if kind.is_text and not raw_text:
                before, (part, count) = part.column_names, neutralised(part)
                is_first = writer is None  # names of columns are written once
                changed += count if is_first else count - sum(map(str.__ne__, before, part.column_names))
            writer = writer or stack.enter_context(kind.writer(file, part.schema))
            writer.write_table(part, ROWS)
    return changed


def neutralised(table: Any) -> tuple[Any, int]:
    r"""Change strings that a spreadsheet or a terminal would run.

    A string that starts like a formula gets an apostrophe before it, and control characters are written as ``\x1b``.

    Parameters
    ----------
    table : pyarrow.Table
        The table.

    Returns
    -------
    pyarrow.Table
        The same table with other strings.
    int
        The number of strings that were changed, names of columns included.
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
