"""Rows of a store's tables: read one by one, also from a damaged file, and checked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from oddnode.paper.record import DamagedRecord, checksum_of
from oddnode.paper.store.schema import UNREADABLE, connect
from oddnode.runner.work import Training

__all__ = ["check_graphs", "checked_training", "readable_rows", "table_rows"]

# Behind a row that cannot be read, so many row numbers are tried one by one, before ever larger steps are taken.
_PATIENCE = 20_000


def readable_rows(path: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Read the rows of a file that may be damaged, and skip those that cannot be read.

    Parameters
    ----------
    path : Path
        The file.

    Yields
    ------
    (str, tuple)
        The name of a table, and a row of it.
    """
    with closing(connect(path)) as db:
        for table in ("graphs", "trainings"):
            for row in table_rows(db, table):
                yield table, row


def table_rows(db: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Read the rows of a table in the order in which they were written, and skip those that cannot be read.

    Parameters
    ----------
    db : sqlite3.Connection
        An open store.
    table : str
        Name of the table.

    Yields
    ------
    tuple
        A row, not checked.
    """
    try:
        db.execute(f"SELECT 1 FROM {table} LIMIT 0")  # callers name one of our two tables  # nosec B608
    except UNREADABLE:
        return  # the header or the definition of the table is damaged, so no row can be read
    number, step, failures = -(2**63), 1, 0
    # Not by an index, which may be damaged, too.
    query = f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid >= ? ORDER BY rowid LIMIT 1"  # nosec B608
    while number < 2**63:
        try:
            found = db.execute(query, (number,)).fetchone()
        except UNREADABLE:
            failures += 1
            number = max(number, 0) + step
            step = 1 if failures < _PATIENCE else 2 * step
            continue
        if found is None:
            return
        failures, step = 0, 1
        number = found[0] + 1
        yield found[1:]


def checked_training(row: tuple[Any, ...]) -> tuple[Training, dict[str, Any]]:
    """Check a row of the table of trainings: its checksum, and that its columns say the same.

    Parameters
    ----------
    row : tuple
        All columns.

    Returns
    -------
    training : Training
        The training.
    facts : dict
        Its facts.

    Raises
    ------
    DamagedRecord
        If anything is wrong.
    """
    try:
        identity, code, task, protocol, backbone, seed, text, facts, arrays, checksum = row
        if checksum != checksum_of(identity, code, text, facts, arrays):
            raise DamagedRecord("its checksum is wrong")
        training = Training.from_json(text)
        said = (training.identity, training.task, training.protocol, training.backbone, training.seed)
        if said != (identity, task, protocol, backbone, seed):
            raise DamagedRecord("its columns contradict each other")
        if not isinstance(found := json.loads(facts), dict):
            raise DamagedRecord("its facts are no JSON object")
        return training, found
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedRecord(f"it cannot be read: {error}") from error


def check_graphs(row: tuple[Any, ...]) -> None:
    """Check a row of the table of graphs.

    Parameters
    ----------
    row : tuple
        All columns.

    Raises
    ------
    DamagedRecord
        If its checksum is wrong.
    """
    try:
        *key, facts, arrays, checksum = row
        is_sound = checksum == checksum_of(*map(str, key), facts, arrays)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedRecord(f"they cannot be read: {error}") from error
    if not is_sound:
        raise DamagedRecord("their checksum is wrong")
