"""The store of runs: one SQLite file in which every finished training is one row.

A record has a checksum and is written in one transaction, so it is either complete or absent. `Store.records` lists
`oddnode.paper.record.Record`, and `Store.graphs` says which nodes are scored, with their classes and degrees.

Scores are float32, as they were computed, so recomputing a metric from them gives the same number. ``"id"`` is the
graph of the ID test nodes (``graphs.id_mask``); every other name is a test graph of the task, whose OOD nodes are in
its ``ood_mask``. In label leave-out both are the same graph, which is stored once. If a run kept the scores of only
some seeds, `StoreError` is raised for the others.

The file can be opened with any SQLite tool: the view ``results`` has one row per training and method. Arrays are in
NumPy's ``.npz`` format.

May import: paper.record and runner.work.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout

from oddnode.paper.record import DamagedRecord, Graphs, Record, StoreError, checksum_of, packed, unpacked
from oddnode.runner.work import Training

FILE = "runs.sqlite"
_FORMAT = 1
# What reading a damaged file raises: SQLite's message may quote bytes of the file that are not UTF-8.
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)

_SCHEMA = """
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


class Store:
    """A store of trainings.

    Parameters
    ----------
    folder : path
        The folder of ``runs.sqlite``, which is created if it does not exist. It can be copied to another machine.
    code : str, optional
        Use records of this version of the source only; by default the newest record of each training.

    Raises
    ------
    StoreError
        If the file is not a store, or has a newer format.
    """

    def __init__(self, folder: str | os.PathLike, code: str | None = None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / FILE
        self.code = code
        self._mark = _lock(self.folder, f"open-{uuid4().hex}")  # tells `recover` that the file is in use
        self._mark.acquire()
        try:
            self._db = _connect(self.path)
            self._set_up()
        except (StoreError, *_UNREADABLE) as error:
            _release(self._mark)
            if isinstance(error, StoreError):
                raise
            if isinstance(error, sqlite3.OperationalError):
                raise StoreError(f"{self.path} cannot be opened: {error}") from error
            raise StoreError(f"{self.path} cannot be used: {error}; move it away to start again") from error

    def _set_up(self) -> None:
        for tries_left in reversed(range(100)):
            try:  # write-ahead logging: many readers, one writer at a time, and atomic transactions
                self._db.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:  # another process is doing the same
                if "locked" not in str(error) or not tries_left:
                    raise
                time.sleep(0.1)
        self._db.execute("PRAGMA synchronous=NORMAL")
        [version] = self._db.execute("PRAGMA user_version").fetchone()
        # A newer format has other tables; with ours, the number itself is damaged.
        if version > _FORMAT and _tables_of(self._db) != _own_tables():
            raise StoreError(f"{self.path} has format {version}, made by a newer oddnode; this one reads {_FORMAT}")
        if version != _FORMAT:
            with self._transaction():
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={_FORMAT}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        _release(self._mark)

    def records(
        self,
        task: str | None = None,
        protocol: str | None = None,
        backbone: str | None = None,
        seed: int | None = None,
        method: str | None = None,
        settings: tuple[tuple[str, Any], ...] | None = None,
    ) -> list[Record]:
        """List the records that match all given values, in the order written, without damaged ones (see `damaged`).

        Parameters
        ----------
        task, protocol, backbone : str, optional
            Names.
        seed : int, optional
            Its seed.
        method : str, optional
            A method that scored it.
        settings : tuple of (str, object), optional
            Its settings; all must be equal.
        """
        wanted = {"task": task, "protocol": protocol, "backbone": backbone, "seed": seed, "settings": settings}
        given = {name: value for name, value in wanted.items() if value is not None}
        newest: dict[str, Record] = {}
        for row in _table_rows(self._db, "trainings"):
            if self.code is None or row[1] == self.code:
                with suppress(DamagedRecord):
                    record = self._checked(row)
                    newest[record.training.identity] = record
        return [
            record
            for record in newest.values()
            if (method is None or method in record.training.methods)
            and all(getattr(record.training, name) == value for name, value in given.items())
        ]

    def get(self, training: Training) -> Record | None:
        """Read the record of a training, or ``None``; raise `DamagedRecord` if its checksum is wrong.

        Parameters
        ----------
        training : Training
            The training.
        """
        try:
            rows = self._rows(training, "SELECT rowid, *")
        except _UNREADABLE as error:
            raise DamagedRecord(f"record {training.identity} in {self.path} cannot be read: {error}") from error
        return None if not rows else self._checked(max(rows)[1:])  # the newest

    def finished(self) -> set[str]:
        """List the identities of all trainings that have a record, damaged or not."""
        rows = self._db.execute("SELECT identity FROM trainings WHERE ? IS NULL OR code = ?", (self.code, self.code))
        return {identity for [identity] in rows}

    def is_finished(self, training: Training) -> bool:
        """Whether a training has a record.

        Parameters
        ----------
        training : Training
            The training.
        """
        return bool(self._rows(training, "SELECT 1"))

    def graphs(self, training: Training) -> Graphs:
        """Read the masks, classes and degrees of the graphs of a training.

        Parameters
        ----------
        training : Training
            The training.

        Raises
        ------
        StoreError
            If they are missing, or, as `DamagedRecord`, damaged.
        """
        text, blob = self._checked_graphs(training)
        facts, arrays = json.loads(text), unpacked(blob)
        names: dict[str, str] = facts["graphs"]
        return Graphs(
            facts=facts,
            id_mask=arrays["id_mask"],
            ood_mask={name: arrays[f"ood_mask/{name}"] for name in names if name != "id"},
            y={name: arrays[f"y/{stored}"] for name, stored in names.items()},
            degree={name: arrays[f"degree/{stored}"] for name, stored in names.items()},
        )

    def damaged(self, trainings: Iterable[Training]) -> list[Training]:
        """List the trainings whose record or graphs are damaged.

        Parameters
        ----------
        trainings : iterable of Training
            The trainings.
        """
        sound_graphs = set()
        damaged = []
        for training in trainings:
            key = (training.task, training.protocol, training.seed)
            try:
                record = self.get(training)
                if record is not None and record.error is None and key not in sound_graphs:
                    self._checked_graphs(training)
                    sound_graphs.add(key)
            except StoreError:
                damaged.append(training)
        return damaged

    def size(self) -> int:
        """Size of the store on disk in bytes."""
        files = (self.path, self.path.with_name(f"{FILE}-wal"))
        return sum(path.stat().st_size for path in files if path.exists())

    def save(self, training: Training, code: str, facts: dict[str, Any], arrays: dict[str, np.ndarray] | bytes) -> None:
        """Write a record atomically; an older record of the same training is replaced.

        Parameters
        ----------
        training : Training
            The training.
        code : str
            The version of the source that made the record.
        facts : dict
            The facts of the training; see `oddnode.paper.record.Record`.
        arrays : dict of str to array, or bytes
            Scores and predictions of every node, or their bytes from `oddnode.paper.record.packed`.
        """
        text = json.dumps(facts, sort_keys=True)
        blob = arrays if isinstance(arrays, bytes) else packed(arrays)
        checksum = checksum_of(training.identity, code, training.as_json(), text, blob)
        what = (training.identity, code, training.task, training.protocol, training.backbone, training.seed)
        self._insert("trainings", (*what, training.as_json(), text, blob, checksum))

    def save_graphs(self, training: Training, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write the graphs that all trainings on a task under one protocol and seed have in common.

        Parameters
        ----------
        training : Training
            Names the task, the protocol and the seed.
        facts : dict
            Names and sizes of the graphs.
        arrays : dict of str to array
            Masks, classes and degrees of their nodes.
        """
        text = json.dumps(facts, sort_keys=True)
        with suppress(StoreError):
            if self._checked_graphs(training)[0] == text:
                return  # another training on this task has written them
        key, blob = (training.task, training.protocol, training.seed), packed(arrays)
        self._insert("graphs", (*key, text, blob, checksum_of(*map(str, key), text, blob)))

    def drop(self, training: Training) -> None:
        """Remove a record, so that its training runs again.

        Parameters
        ----------
        training : Training
            The training.
        """
        with self._transaction():
            self._rows(training, "DELETE")

    def take_from(self, folder: str | os.PathLike) -> int:
        """Copy the undamaged records of another store, and return their number.

        Parameters
        ----------
        folder : path
            The other store's folder.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise StoreError(f"{path} does not exist")
        return self._copy(path)

    def _copy(self, path: Path) -> int:
        copied = set()
        with closing(_connect(path)) as other:
            for table, check in (("graphs", _check_graphs), ("trainings", _check_training)):
                for row in _table_rows(other, table):
                    with suppress(DamagedRecord):
                        check(row)
                        self._insert(table, row)
                        copied.add((table, *row[:2]))
        return sum(table == "trainings" for table, *_ in copied)

    @contextmanager
    def claim(self, training: Training) -> Iterator[bool]:
        """Claim a training for a ``with`` block, so that no other process on this machine runs it.

        The claim ends when its process ends for whatever reason, so a killed process leaves no claim behind. It yields
        whether the claim succeeded: no other process has claimed the training, and it is not finished.

        Parameters
        ----------
        training : Training
            The training.
        """
        with _try_lock(self.folder, training.identity) as mine:
            yield mine and not self.is_finished(training)

    def is_claimed(self, training: Training) -> bool:
        """Whether another process has claimed a training.

        Parameters
        ----------
        training : Training
            The training.
        """
        with _try_lock(self.folder, training.identity) as mine:
            return not mine

    def _rows(self, training: Training, what: str = "SELECT *") -> list[tuple[Any, ...]]:
        """The rows of a training, of this version of the source if there is one."""
        query = f"{what} FROM trainings WHERE identity = ? AND (? IS NULL OR code = ?)"  # constants
        return self._db.execute(query, (training.identity, self.code, self.code)).fetchall()

    def _insert(self, table: str, row: tuple[Any, ...]) -> None:
        with self._transaction():
            marks = ", ".join("?" * len(row))
            self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)

    def _checked(self, row: tuple[Any, ...]) -> Record:
        try:
            training, facts = _check_training(row)
        except DamagedRecord as error:
            raise DamagedRecord(f"record {row[0]!r} in {self.path} is damaged: {error}") from error

        def read_arrays() -> bytes:
            for now in self._rows(training):
                if now[1] == row[1]:
                    self._checked(now)
                    return now[8]
            raise DamagedRecord(f"record {training.identity} is no longer in {self.path}")

        return Record(training, row[1], facts, read_arrays)

    def _checked_graphs(self, training: Training) -> tuple[str, bytes]:
        key = (training.task, training.protocol, training.seed)
        try:
            row = self._db.execute("SELECT * FROM graphs WHERE task=? AND protocol=? AND seed=?", key).fetchone()
            if row is not None:
                _check_graphs(row)
        except (DamagedRecord, *_UNREADABLE) as error:
            which = f"the graphs of {training.task}, seed {training.seed} in {self.path}"
            raise DamagedRecord(f"{which} are damaged: {error}") from error
        if row is None:
            raise StoreError(f"{self.path} has no graphs of {training.task}, {training.protocol}, seed {training.seed}")
        return row[3], row[4]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):  # a full disk, a lock that was never released, ...
                raise StoreError(f"cannot write to {self.path}: {error}") from error
            raise


def recover(folder: Path) -> int | None:
    """Check the store's file; if SQLite finds a fault in it, set it aside and copy the records that can be read.

    Parameters
    ----------
    folder : Path
        The store's folder.

    Returns
    -------
    int or None
        Number of copied records; ``None`` if the file is not damaged. The damaged file is kept under another name.

    Raises
    ------
    StoreError
        If the file is damaged and another process has it open.
    """
    path = folder / FILE
    if not path.exists() or _is_sound(path):
        return None
    for mark in (folder / "locks").glob("open-*"):
        with _try_lock(folder, mark.name) as is_stale:
            if not is_stale:
                raise StoreError(f"{path} is damaged, and another process has it open; stop that process first")
    number = next(n for n in range(1, 10_000) if not path.with_name(f"damaged-{n}.sqlite").exists())
    aside = path.with_name(f"damaged-{number}.sqlite")
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
    with Store(folder) as store:
        store._copy(aside)
        return len(store.records())


def _is_sound(path: Path) -> bool:
    """Whether SQLite finds no fault in pages and indexes, and the tables are ours, or those of a newer format."""
    with path.open("rb") as file:
        if any(version > 2 for version in file.read(20)[18:]):
            return False  # SQLite would read the file, but not write to it
    with closing(_connect(path)) as db:
        try:
            if db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                return False
            [version] = db.execute("PRAGMA user_version").fetchone()
            return version > _FORMAT or _tables_of(db) in ([], _own_tables())
        except _UNREADABLE:
            return False


def _connect(path: Path | str) -> sqlite3.Connection:
    """Open a file in autocommit mode; text that is not UTF-8 is read, so that its checksum can be compared."""
    db = sqlite3.connect(path, timeout=120, isolation_level=None)
    db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    return db


def _tables_of(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()


@cache
def _own_tables() -> list[tuple[str, str]]:
    with closing(_connect(":memory:")) as db:
        db.executescript(_SCHEMA)
        return _tables_of(db)


def _table_rows(db: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Read the rows of a table as they were written, without those that cannot be read.

    Indexes are not used, because they may be damaged too. Rows after the first fault are read backwards from the end.
    """
    query = f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid"  # callers name one of our two tables  # nosec B608
    try:
        yield from db.execute(query)
        return
    except _UNREADABLE:
        pass
    last = []
    with suppress(*_UNREADABLE):
        for row in db.execute(f"{query} DESC"):
            last.append(row)
    yield from reversed(last)


def _check_training(row: tuple[Any, ...]) -> tuple[Training, dict[str, Any]]:
    """Check a row of the table of trainings: its checksum, and that its columns agree."""
    try:
        identity, code, task, protocol, backbone, seed, text, facts, arrays, checksum = row
        if checksum != checksum_of(identity, code, text, facts, arrays):
            raise DamagedRecord("its checksum is wrong")
        training = Training.from_json(text)
        said = (training.identity, training.task, training.protocol, training.backbone, training.seed)
        if said != (identity, task, protocol, backbone, seed):
            raise DamagedRecord("its columns contradict each other")
        if not isinstance(values := json.loads(facts), dict):
            raise DamagedRecord("its facts are not a JSON object")
        return training, values
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedRecord(f"it cannot be read: {error}") from error


def _check_graphs(row: tuple[Any, ...]) -> None:
    try:
        *key, facts, arrays, checksum = row
        is_sound = checksum == checksum_of(*map(str, key), facts, arrays)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedRecord(f"they cannot be read: {error}") from error
    if not is_sound:
        raise DamagedRecord("their checksum is wrong")


# File locks, which the operating system releases when their process ends for whatever reason.


def _lock(folder: Path, name: str) -> BaseFileLock:
    (folder / "locks").mkdir(exist_ok=True)
    return FileLock(folder / "locks" / name)


@contextmanager
def _try_lock(folder: Path, name: str) -> Iterator[bool]:
    lock = _lock(folder, name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        _release(lock)


def _release(lock: BaseFileLock) -> None:
    # Removed before the release, so that no new lock of another process is removed; on Windows the release removes it.
    with suppress(OSError):
        os.unlink(lock.lock_file)
    lock.release()
