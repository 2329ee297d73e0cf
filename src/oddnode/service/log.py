"""The log of changes: append-only, on disk before a change is acknowledged, and checked when it is read again.

A folder has the SQLite file ``changes.sqlite``, whose changes are never updated or deleted, and the file ``head``: the
version of the last acknowledged change. SQLite drops the rest of a damaged write-ahead log without a word; a log that
ends before ``head`` is therefore refused. Every row has a hash of itself and of the row before it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

_log = logging.getLogger("oddnode.service")
FORMAT = "1"
_FILE, _HEAD, _LOCK = "changes.sqlite", "head", ".lock"
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE changes (
    version INTEGER PRIMARY KEY, time REAL NOT NULL, key TEXT UNIQUE, request BLOB NOT NULL, kind TEXT NOT NULL,
    body BLOB NOT NULL, answer BLOB NOT NULL, num_nodes INTEGER NOT NULL, num_flagged INTEGER NOT NULL,
    chain BLOB NOT NULL
) STRICT;
CREATE INDEX arrivals ON changes (version, num_flagged) WHERE num_nodes > 0;
CREATE INDEX times ON changes (time, num_nodes, num_flagged);
"""
_HEAD_FORM = struct.Struct("<QQ")  # twice, so that half of a write is noticed
# A change is refused while the disk has less room than this: a write that fails half-way costs a rebuild.
_LEAST_ROOM = 32 * 2**20
_RESTORE = (
    "Nothing was changed. Take the folder back from a backup, or start with a new --state folder; the changes up to "
    "there can be read with any SQLite program, for example `sqlite3 changes.sqlite .recover`"
)


class LogError(ValueError):
    """A log that is damaged, belongs to another model or graph, or is in use."""


class NoRoomError(OSError):
    """The disk has no room for a change, or cannot be written."""


class LoggedChange(NamedTuple):
    """A row of the log."""

    version: int  #: The version of the graph after it.
    time: float  #: When it was made, in seconds since 1970.
    key: str | None  #: The idempotency key, if there was one.
    request: bytes  #: SHA-256 of what was asked.
    kind: str  #: The form of the body: json or arrow.
    body: bytes  #: The change.
    answer: bytes  #: What was answered, JSON.
    num_nodes: int  #: Number of nodes that were scored.
    num_flagged: int  #: How many of them were flagged.

    def chained(self, before: bytes) -> bytes:
        """The hash of this row and of all rows before it."""
        sha = hashlib.sha256(before)
        for value in self:
            raw = value if isinstance(value, bytes) else repr(value).encode()
            sha.update(len(raw).to_bytes(8, "little") + raw)
        return sha.digest()


# Statements are put together from this constant, never from what somebody sends.
_COLUMNS = ", ".join(LoggedChange._fields)


class ChangeLog:
    """A log in a folder: one process writes, others may follow.

    Parameters
    ----------
    folder : Path
        Created by the process that writes, if it does not exist.
    facts : dict of str
        What changes are relative to, by name: the hashes of the model and of the base. A log with others is refused.
    read_only : bool
        Follow a log that another process writes.
    """

    def __init__(self, folder: Path, facts: dict[str, str], read_only: bool = False):
        self.folder, self.facts, self.read_only = folder, facts, read_only
        self._lock: FileLock | None = None
        self._head: int | None = None
        self._has_failed = False
        path = folder / _FILE
        if read_only and not path.is_file():
            raise LogError(f"{folder} has no log of changes; --follow takes the --state folder of a service")
        if not read_only:
            folder.mkdir(exist_ok=True)
            self._lock = FileLock(folder / _LOCK, thread_local=False)
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                raise LogError(
                    f"another process writes to {folder}; stop it first, or start a read replica with --follow {folder}"
                ) from None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        path = self.folder / _FILE
        mode = "ro" if self.read_only else "rwc"
        try:
            uri = f"{path.absolute().as_uri()}?mode={mode}"
            self.connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            self.connection.execute("PRAGMA busy_timeout = 10000")
            self.connection.execute("PRAGMA trusted_schema = OFF")
            self.connection.execute("PRAGMA cell_size_check = ON")
            if not self.read_only:
                self.connection.execute("PRAGMA journal_mode = WAL")
                self.connection.execute("PRAGMA synchronous = FULL")
                self._create()
            self.meta = dict(self.connection.execute("SELECT name, value FROM meta"))
            self._check_facts(self.meta)
            if not self.read_only:
                [problem] = self.connection.execute("PRAGMA quick_check(1)").fetchone()
                if problem != "ok":
                    raise LogError(f"{path} is damaged: {problem}. {_RESTORE}")
            head = self.head()  # first: the writer may commit while another process reads
            self.version, self._chain, self.last_time = self._last()
        except sqlite3.DatabaseError as error:
            raise LogError(f"{path} is damaged or cannot be read: {error}. {_RESTORE}") from None
        if head > self.version:
            raise LogError(
                f"{path} ends with change {self.version}, but {head} were acknowledged: its end is damaged, or a file "
                f"beside it ({_FILE}-wal) was deleted. {_RESTORE}"
            )
        if not self.read_only and self._head is None:
            self._head = os.open(self.folder / _HEAD, os.O_RDWR | os.O_CREAT, 0o644)
            self._write_head()

    def _create(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        facts = self.facts
        if not self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            for statement in _TABLES.split(";"):
                self.connection.execute(statement)
            facts = {"format": FORMAT, **facts}
        # A log without changes belongs to no model yet: the first start may have named a wrong one.
        if not self.head() and not self.connection.execute("SELECT 1 FROM changes LIMIT 1").fetchone():
            self.connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())
        self.connection.execute("COMMIT")

    def _check_facts(self, found: dict[str, str]) -> None:
        if found.get("format") != FORMAT:
            raise LogError(
                f"{self.folder / _FILE} has the format {found.get('format')!r}, expected {FORMAT!r}: another version "
                "of oddnode wrote it; use that version"
            )
        for name, value in self.facts.items():
            if found.get(name) != value:
                raise LogError(
                    f"the changes in {self.folder} were made with another {name}: {str(found.get(name))[:12]}, now "
                    f"{value[:12]}. Start with the {name} that they were made with, or with a new --state folder"
                )

    def _last(self) -> tuple[int, bytes, float]:
        query = "SELECT version, chain, time FROM changes ORDER BY version DESC LIMIT 1"
        return self.connection.execute(query).fetchone() or (0, b"", 0.0)

    def head(self) -> int:
        """The version of the last acknowledged change, which may be one that this reader has not read yet."""
        path = self.folder / _HEAD
        for _ in range(100):
            raw = path.read_bytes() if path.exists() else b""
            if not raw:  # there was no change yet, or a power cut has left a new file
                return 0
            if len(raw) == _HEAD_FORM.size and len(set(_HEAD_FORM.unpack(raw))) == 1:
                return _HEAD_FORM.unpack(raw)[0]
            time.sleep(0.001)
        raise LogError(f"{self.folder / _HEAD} is damaged. {_RESTORE}")

    # --- writing, by one thread ---

    def begin(self) -> None:
        """Start a transaction, unless there is no room."""
        try:
            free = shutil.disk_usage(self.folder).free
            if free < _LEAST_ROOM:
                raise NoRoomError(f"the disk has {free >> 20} MB left, expected at least {_LEAST_ROOM >> 20}")
            if self._has_failed:  # try first, because another failure would cost another rebuild
                self.connection.execute("INSERT OR REPLACE INTO meta VALUES ('tried', ?)", (str(time.time()),))
            self.connection.execute("BEGIN IMMEDIATE")
        except (sqlite3.Error, OSError) as error:  # such as a folder that was deleted, whose path nobody is told
            reason = getattr(error, "strerror", None) or error
            raise NoRoomError(f"the log cannot be written: {reason}") from None
        self._has_failed = False

    def append(self, entry: LoggedChange) -> None:
        """Add a change to the transaction."""
        assert entry.version == self.version + 1
        chain = entry.chained(self._chain)
        marks = ", ".join("?" * (len(entry) + 1))
        self.connection.execute(f"INSERT INTO changes ({_COLUMNS}, chain) VALUES ({marks})", (*entry, chain))  # nosec B608
        self.version, self._chain, self.last_time = entry.version, chain, entry.time

    def commit(self) -> None:
        """Put the transaction on disk; only then may its changes be acknowledged."""
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise NoRoomError(f"the log cannot be written: {error}") from None
        try:
            self._write_head()
        except OSError as error:  # the changes are on disk: only a log that later loses its end is not noticed
            _log.error("%s cannot be written: %s", self.folder / _HEAD, error)

    def _write_head(self) -> None:
        # Without fsync: it survives the process; after a power cut an older one does no harm.
        assert self._head is not None
        os.pwrite(self._head, _HEAD_FORM.pack(self.version, self.version), 0)

    def rollback(self) -> None:
        """Undo the transaction; the file is opened anew, because a commit that failed may still be there."""
        self._has_failed = True
        self.connection.close()
        self._open()

    # --- reading ---

    def after(self, version: int, chain: bytes) -> Iterator[LoggedChange]:
        """Read the changes after a version, whose hash is given, and check that none is missing or was altered."""
        query = f"SELECT {_COLUMNS}, chain FROM changes WHERE version > ? ORDER BY version"  # nosec B608
        try:
            for *row, own in self.connection.execute(query, (version,)):
                entry = LoggedChange(*row)
                if entry.version != version + 1 or entry.chained(chain) != own:
                    raise LogError(f"change {version + 1} of {self.folder / _FILE} is damaged or missing. {_RESTORE}")
                version, chain = entry.version, own
                yield entry
        except sqlite3.DatabaseError as error:
            raise LogError(f"{self.folder / _FILE} is damaged after change {version}: {error}. {_RESTORE}") from None

    def verify(self) -> None:
        """Check all changes, also those that are not made again."""
        for _ in self.after(0, b""):
            pass

    def chain_of(self, version: int) -> bytes:
        """The hash of a change and of all changes before it; empty if there is no such change."""
        row = self.connection.execute("SELECT chain FROM changes WHERE version = ?", (version,)).fetchone()
        return b"" if row is None else row[0]

    def of_key(self, key: str) -> LoggedChange | None:
        """Find the change that was made with an idempotency key."""
        row = self.connection.execute(f"SELECT {_COLUMNS} FROM changes WHERE key = ?", (key,)).fetchone()  # nosec B608
        return None if row is None else LoggedChange(*row)

    def of_version(self, version: int) -> LoggedChange | None:
        """Find the change that led to a version of the graph."""
        row = self.connection.execute(f"SELECT {_COLUMNS} FROM changes WHERE version = ?", (version,)).fetchone()  # nosec B608
        return None if row is None else LoggedChange(*row)

    def arrivals(self, before: int | None, limit: int, flagged: bool | None) -> Iterator[LoggedChange]:
        """Read changes that added or changed nodes, the newest first, one by one: each may have many megabytes."""
        which = {None: "", True: "AND num_flagged > 0", False: "AND num_flagged < num_nodes"}[flagged]
        query = (
            f"SELECT {_COLUMNS} FROM changes WHERE num_nodes > 0 AND version < ? {which} ORDER BY version DESC LIMIT ?"  # nosec B608
        )
        last = 2**62 if before is None else before
        return (LoggedChange(*row) for row in self.connection.execute(query, (last, limit)))

    def recent(self, limit: int) -> list[tuple[float, int, int]]:
        """Read of the last changes that added or changed nodes, the oldest first, when they were made, how many nodes
        they had, and how many of these were flagged.
        """
        query = "SELECT time, num_nodes, num_flagged FROM changes WHERE num_nodes > 0 ORDER BY time DESC LIMIT ?"
        return list(self.connection.execute(query, (limit,)))[::-1]

    def totals(self, after: int = 0, until: int = 2**62) -> tuple[int, int]:
        """Count the nodes added or changed between two versions, and how many of them were flagged."""
        # Few rows are looked up; of all rows an index is read, since their bodies may have many megabytes.
        version = "version" if after else "+version"
        query = "SELECT COALESCE(SUM(num_nodes), 0), COALESCE(SUM(num_flagged), 0) FROM changes"
        query += f" WHERE {version} > ? AND {version} <= ?"  # nosec B608
        return self.connection.execute(query, (after, until)).fetchone()

    def close(self) -> None:
        """Close the file, and let another process write."""
        try:
            if hasattr(self, "connection"):
                self.connection.close()
            if self._head is not None:
                os.close(self._head)
                self._head = None
        finally:
            if self._lock is not None:
                self._lock.release()


def folder_hash(path: Path) -> str:
    """SHA-256 of a file, or of a folder's manifest, which has the checksums of its files."""
    for name in ("manifest.json", "graph.json"):
        if (path / name).is_file():
            path = path / name
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
