"""Atomic writing of tables, in slices of rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oddnode._utils.atomic_files import new_file
from oddnode._utils.hidden_siblings import check_name
from oddnode.tables.reader import TableError, format_of

__all__ = ["check_target", "write_table"]

_ROWS = 2**17


def check_target(path: Path, inputs: list[Path]) -> None:
    """Check that a table can be written, so that a mistake shows before the work and not after it.

    Parameters
    ----------
    path : Path
        The file to write.
    inputs : list of Path
        The files that are read, which must not be overwritten.
    """
    format_of(path)
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


def write_table(table: Any, path: Path) -> None:
    """Write a table as a CSV or Parquet file; an existing file is replaced at the end.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    path : Path
        The file; its suffix determines the format.
    """
    with new_file(path) as part, part.open("wb") as file:
        _write_parquet(table, file) if format_of(path) == "parquet" else _write_csv(table, file)


def _write_csv(table: Any, file: Any) -> None:
    from pyarrow import csv

    with csv.CSVWriter(file, table.schema, write_options=csv.WriteOptions(quoting_style="needed")) as writer:
        for batch in table.to_batches(max_chunksize=_ROWS):
            writer.write_batch(batch)


def _write_parquet(table: Any, file: Any) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(file, table.schema) as writer:
        writer.write_table(table, row_group_size=_ROWS)
