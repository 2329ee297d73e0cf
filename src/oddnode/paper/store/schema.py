"""The SQLite file of a store: its name, its tables, and how it is opened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

__all__ = ["FILE", "FORMAT", "SCHEMA", "UNREADABLE", "connect", "own_tables", "tables_of"]

#: Its name in the folder.
FILE = "runs.sqlite"
#: The version of its tables.
FORMAT = 1
#: What reading a damaged file raises: SQLite's message may quote bytes of the file that are not UTF-8.
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)

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


def connect(path: Path | str) -> sqlite3.Connection:
    """Open a file of SQLite in autocommit mode; text that is not UTF-8 is read, so that it can be checked.

    Parameters
    ----------
    path : Path or str
        The file.
    """
    db = sqlite3.connect(path, timeout=120, isolation_level=None)
    db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    return db


def tables_of(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """List the names and definitions of the tables in a file.

    Parameters
    ----------
    db : sqlite3.Connection
        An open file.
    """
    return db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()


@cache
def own_tables() -> list[tuple[str, str]]:
    """List the tables of this format, as `tables_of` does."""
    with closing(connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return tables_of(db)
