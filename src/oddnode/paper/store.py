"""The store of runs: one SQLite file in which every finished training is one row.

A record is written in one transaction, so that it is there whole or not at all, and carries a checksum. Reading a
store needs nothing but this module::

    from oddnode.paper.store import Store

    with Store(folder) as store:                      # folder/runs.sqlite
        for record in store.records(task="cora/label", protocol="clean", seed=0):
            record.training                           # task, protocol, backbone, seed, settings, epochs, methods
            record.metrics("nodesafe")                # {"auroc": 93.1, ..., "tests": {"label": {...}}}
            record.scores("nodesafe")                 # {"id": float32[N], "label": float32[N]}, every node of a graph
            record.predicted()                        # {"id": int16[N], "label": int16[N]}, the most likely ID class
            record.facts["history"]["val_loss"]       # one number per epoch
            graphs = store.graphs(record.training)    # which nodes count, their classes and degrees
            graphs.id_mask, graphs.ood_mask["label"], graphs.y["label"], graphs.degree["label"]

Scores are float32, as they were computed: a metric computed from them anew is the same number. ``"id"`` is the graph of
the ID test nodes (``graphs.id_mask``); every other name is one of the task's test graphs, whose OOD nodes are in its
``ood_mask``. In label leave-out both are one graph, which is stored once. A run may keep the scores of its first seeds
only; asking for others raises `StoreError`.

The file can be opened with any SQLite tool: the view ``results`` has one row per training and method. Arrays are in
NumPy's ``.npz`` form.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from oddnode.paper.record import DamagedRecord, Graphs, Record, StoreError, Training, checksum_of, packed, unpacked

__all__ = ["DamagedRecord", "Graphs", "Record", "Store", "StoreError", "Training", "recover"]

_FILE = "runs.sqlite"
_FORMAT = 1

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
    """The runs in a folder.

    Parameters
    ----------
    folder : path
        Holds ``runs.sqlite``; made where it is missing. It can be copied to another machine and continued there.
    code : str, optional
        Only records of this version of the source count; all of them if left out, the newest of each training.

    Raises
    ------
    StoreError
        The file is no store, or of a newer format.
    """

    def __init__(self, folder: str | os.PathLike, code: str | None = None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / _FILE
        self.code = code
        self._use = _in_use(self.folder, shared=True)
        try:
            self._db = sqlite3.connect(self.path, timeout=120, isolation_level=None)
            self._set_journal()
            self._set_up()
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path} cannot be used: {error}; move it away to start anew") from error

    def _set_journal(self) -> None:
        """Readers and one writer at a time; a process that is killed leaves nothing half-written behind."""
        for tries_left in reversed(range(100)):
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:  # another process does the same at this moment
                if "locked" not in str(error) or not tries_left:
                    raise
                time.sleep(0.1)
        self._db.execute("PRAGMA synchronous=NORMAL")

    def _set_up(self) -> None:
        [version] = self._db.execute("PRAGMA user_version").fetchone()
        if version > _FORMAT:
            raise StoreError(f"{self.path} has format {version}, made by a newer oddnode; this one reads {_FORMAT}")
        if version < _FORMAT:
            with self._transaction():
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={_FORMAT}")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        if self._use is not None:
            os.close(self._use)
            self._use = None

    # Reading

    def records(
        self,
        task: str | None = None,
        protocol: str | None = None,
        backbone: str | None = None,
        seed: int | None = None,
        method: str | None = None,
        settings: tuple[tuple[str, Any], ...] | None = None,
    ) -> list[Record]:
        """Records that match all that is given; damaged ones are left out (see `damaged`)."""
        wanted = {"task": task, "protocol": protocol, "backbone": backbone, "seed": seed, "code": self.code}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in given) or "1"
        rows = self._db.execute(
            f"SELECT identity, code, training, facts FROM trainings WHERE {where} ORDER BY rowid", tuple(given.values())
        )
        newest: dict[str, Record] = {}
        for identity, code, training, facts in rows:
            try:
                newest[identity] = self._record(identity, code, training, facts)
            except (ValueError, TypeError, KeyError):
                continue
        return [
            record
            for record in newest.values()
            if (method is None or method in record.training.methods)
            and (settings is None or settings == record.training.settings)
        ]

    def get(self, training: Training) -> Record | None:
        """The record of a training, its checksum checked; ``None`` where there is none.

        Raises
        ------
        DamagedRecord
            It is there, but damaged.
        """
        try:
            rows = self._rows(training.identity)
        except sqlite3.DatabaseError as error:
            raise DamagedRecord(f"record {training.identity} in {self.path} cannot be read: {error}") from error
        return None if not rows else self._checked(*rows[-1])

    def finished(self) -> set[str]:
        """Identities of all trainings that have a record, damaged or not."""
        where, values = ("code = ?", (self.code,)) if self.code else ("1", ())
        return {identity for [identity] in self._db.execute(f"SELECT identity FROM trainings WHERE {where}", values)}

    def is_finished(self, training: Training) -> bool:
        """Whether a training has a record."""
        where, values = ("AND code = ?", (self.code,)) if self.code else ("", ())
        row = self._db.execute(
            f"SELECT 1 FROM trainings WHERE identity = ? {where}", (training.identity, *values)
        ).fetchone()
        return row is not None

    def graphs(self, training: Training) -> Graphs:
        """Masks, classes and degrees of the graphs that a training was scored on."""
        key = (training.task, training.protocol, training.seed)
        row = self._db.execute(
            "SELECT facts, arrays, checksum FROM graphs WHERE task=? AND protocol=? AND seed=?", key
        ).fetchone()
        if row is None:
            raise StoreError(f"{self.path} has no graphs of {training.task}, {training.protocol}, seed {training.seed}")
        facts, arrays, checksum = row
        if checksum != checksum_of(*map(str, key), facts, arrays):
            raise DamagedRecord(f"the graphs of {training.task}, seed {training.seed} in {self.path} are damaged")
        return Graphs.of(json.loads(facts), unpacked(arrays))

    def damaged(self, trainings: Iterable[Training]) -> list[Training]:
        """Those of the trainings whose record is there but damaged."""
        found = []
        for training in trainings:
            try:
                record = self.get(training)
                if record is not None and record.error is None:
                    self.graphs(training)
            except StoreError:
                found.append(training)
        return found

    def size(self) -> int:
        """Bytes on disk."""
        files = (self.path, self.path.with_name(f"{_FILE}-wal"))
        return sum(path.stat().st_size for path in files if path.exists())

    def _rows(self, identity: str) -> list[tuple[Any, ...]]:
        where, values = ("AND code = ?", (self.code,)) if self.code else ("", ())
        return self._db.execute(
            f"SELECT identity, code, training, facts, arrays, checksum FROM trainings WHERE identity = ? {where} "
            "ORDER BY rowid",
            (identity, *values),
        ).fetchall()

    def _checked(self, identity: str, code: str, training: str, facts: str, arrays: bytes, checksum: str) -> Record:
        try:
            if checksum != checksum_of(identity, code, training, facts, arrays):
                raise DamagedRecord(f"record {identity} in {self.path} is damaged: its checksum is wrong")
            return self._record(identity, code, training, facts)
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedRecord(f"record {identity} in {self.path} is damaged: {error}") from error

    def _record(self, identity: str, code: str, training: str, facts: str) -> Record:
        def read() -> bytes:
            row = self._db.execute(
                "SELECT identity, code, training, facts, arrays, checksum FROM trainings WHERE identity=? AND code=?",
                (identity, code),
            ).fetchone()
            self._checked(*row)
            return row[4]

        return Record(Training.from_json(training), code, json.loads(facts), read)

    # Writing

    def save(self, training: Training, code: str, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write a record, whole or not at all; a record of the same training is replaced."""
        text, blob = json.dumps(facts, sort_keys=True), packed(arrays)
        checksum = checksum_of(training.identity, code, training.as_json(), text, blob)
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO trainings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    training.identity,
                    code,
                    training.task,
                    training.protocol,
                    training.backbone,
                    training.seed,
                    training.as_json(),
                    text,
                    blob,
                    checksum,
                ),
            )

    def save_graphs(self, training: Training, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write what is the same for all trainings on the task of this one under its protocol and seed."""
        key = (training.task, training.protocol, training.seed)
        text = json.dumps(facts, sort_keys=True)
        try:
            if self.graphs(training).facts == json.loads(text):
                return  # another training on this task was here first
        except StoreError:
            pass
        blob = packed(arrays)
        checksum = checksum_of(*map(str, key), text, blob)
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO graphs VALUES (?, ?, ?, ?, ?, ?)", (*key, text, blob, checksum))

    def drop(self, training: Training) -> None:
        """Forget a record, so that it is made again."""
        where, values = ("AND code = ?", (self.code,)) if self.code else ("", ())
        with self._transaction():
            self._db.execute(f"DELETE FROM trainings WHERE identity = ? {where}", (training.identity, *values))

    def take_from(self, folder: str | os.PathLike) -> int:
        """Copy the sound records of another store, of a run on another machine say; returns how many there were."""
        path = Path(folder) / _FILE
        if not path.is_file():
            raise StoreError(f"{path} does not exist")
        return sum(self._take_over(table, row) for table, row in _readable_rows(path))

    def _take_over(self, table: str, row: tuple[Any, ...]) -> bool:
        """Write a row of another store as it is, if its checksum is right; whether it is a record."""
        is_record = table == "trainings"
        checked = (row[0], row[1], *row[6:9]) if is_record else (*map(str, row[:3]), *row[3:5])
        try:
            if row[-1] != checksum_of(*checked):
                return False
        except (TypeError, AttributeError):
            return False
        with self._transaction():
            marks = ", ".join("?" * len(row))
            self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)
        return is_record

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):  # a full disk, a lock that was never given back, ...
                raise StoreError(f"cannot write to {self.path}: {error}") from error
            raise

    # Claims

    @contextmanager
    def claim(self, training: Training) -> Iterator[bool]:
        """Whether this process may do the training now; no other on this machine may while the block lasts.

        The claim is a lock of the operating system on a file. It ends with its process, however that ends, so that a
        process that is killed leaves no stale claim behind.
        """
        path = _locks(self.folder) / training.identity
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            mine = _lock(handle) and _is_at(handle, path)
            yield mine and not self.is_finished(training)
            if mine:
                # Removed while still locked: who opened it meanwhile sees that it is no longer the file at this path.
                path.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _locks(folder: Path) -> Path:
    (folder / "locks").mkdir(exist_ok=True)
    return folder / "locks"


def _lock(handle: int, shared: bool = False) -> bool:
    """Whether the lock was got; it is not waited for."""
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.fstat(handle).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _in_use(folder: Path, shared: bool) -> int | None:
    """A lock that says that the store is open; ``None`` where it was not got."""
    handle = os.open(_locks(folder) / "open", os.O_CREAT | os.O_RDWR, 0o644)
    if _lock(handle, shared):
        return handle
    os.close(handle)
    return None


def recover(folder: Path) -> int | None:
    """Look whether the store's file is sound; if not, save what can be read of it into a new one.

    Returns
    -------
    int or None
        How many records were saved out of a damaged file, which stays beside the new one; ``None`` where it was sound.
    """
    path = folder / _FILE
    if not path.exists() or _is_sound(path):
        return None
    handle = _in_use(folder, shared=False)
    if handle is None:
        raise StoreError(f"{path} is damaged, and another process has it open; stop that one first")
    try:
        aside = _set_aside(path)
        with Store(folder) as store:
            return sum(store._take_over(table, row) for table, row in _readable_rows(aside))
    finally:
        os.close(handle)


def _is_sound(path: Path) -> bool:
    db = sqlite3.connect(path, timeout=120)
    try:
        return db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except sqlite3.DatabaseError:
        return False
    finally:
        db.close()


def _set_aside(path: Path) -> Path:
    number = next(n for n in range(1, 10_000) if not path.with_name(f"damaged-{n}.sqlite").exists())
    aside = path.with_name(f"damaged-{number}.sqlite")
    for ending in ("-wal", "-shm", ""):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
    return aside


def _readable_rows(path: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Rows of a damaged file, from its first to its last number, without those that cannot be read."""
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
        last = 20_000  # the end of the table is lost; its beginning may not be
    return range(1, last + 1)
