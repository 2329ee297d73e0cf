"""The SQLite file of a store: its name, its tables, and a reader of damaged files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["FILE", "FORMAT", "SCHEMA", "readable_rows"]

#: Its name in the folder.
FILE = "runs.sqlite"
#: The version of its tables.
FORMAT = 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS trainings (
    identity TEXT NOT NULL,   -- what was trained, as a hash
    code     TEXT NOT NULL,   -- which version of the source made it, as a hash
    task     TEXT NOT NULL,
    protocol TEXT NOT NULL,
    backbone TEXT NOT NULL,
    seed     INTEGER NOT NULL,
    training TEXT NOT NULL,   -- JSON: all that determines it
    facts    TEXT NOT NULL,   -- JSON: metrics per method, seconds, best epoch, losses; or the error
    arrays   BLOB NOT NULL,   -- npz: scores and predictions of every node
    checksum TEXT NOT NULL,
    PRIMARY KEY (identity, code)
);
CREATE TABLE IF NOT EXISTS graphs (
    task     TEXT NOT NULL,
    protocol TEXT NOT NULL,
    seed     INTEGER NOT NULL,
    facts    TEXT NOT NULL,   -- JSON: names and sizes of the graphs, number of classes, fingerprint of the data
    arrays   BLOB NOT NULL,   -- npz: masks, classes and degrees
    checksum TEXT NOT NULL,
    PRIMARY KEY (task, protocol, seed)
);
CREATE VIEW IF NOT EXISTS results AS
    SELECT t.task, t.protocol, t.backbone, m.key AS method, json_extract(t.training, '$.settings') AS settings, t.seed,
           json_extract(m.value, '$.auroc') AS auroc, json_extract(m.value, '$.aupr') AS aupr,
           json_extract(m.value, '$.fpr95') AS fpr95, json_extract(m.value, '$.id_acc') AS id_acc, t.code
    FROM trainings t, json_each(t.facts, '$.methods') m;
"""


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
    db = sqlite3.connect(path)
    try:
        for table in ("graphs", "trainings"):
            for number in _row_numbers(db, table):
                try:
                    row = db.execute(f"SELECT * FROM {table} WHERE rowid = ?", (number,)).fetchone()
                except sqlite3.DatabaseError:
                    continue
                if row is not None:
                    yield table, row
    finally:
        db.close()


def _row_numbers(db: sqlite3.Connection, table: str) -> Iterable[int]:
    try:
        [last] = db.execute(f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 1").fetchone() or [0]
    except sqlite3.DatabaseError:
        last = 20_000  # the end of the table is damaged, but its first rows may be readable
    return range(1, last + 1)
