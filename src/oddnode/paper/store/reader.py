"""Opening of the store's file, and reading of records."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from oddnode.paper.record import DamagedRecord, Graphs, Record, StoreError, unpacked
from oddnode.paper.store.locks import mark_open, unlock_file
from oddnode.paper.store.rows import check_graphs, checked_training, table_rows
from oddnode.paper.store.schema import FILE, FORMAT, SCHEMA, UNREADABLE, connect, own_tables, tables_of
from oddnode.runner.work import Training

__all__ = ["StoreReader"]


class StoreReader:
    """The runs in a folder, to read.

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
        self.path = self.folder / FILE
        self.code = code
        self._mark = mark_open(self.folder)
        try:
            self._db = connect(self.path)
            self._set_journal()
            self._set_up()
        except sqlite3.OperationalError as error:
            unlock_file(self._mark)
            raise StoreError(f"{self.path} cannot be opened: {error}") from error
        except (StoreError, *UNREADABLE) as error:
            unlock_file(self._mark)
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self.path} cannot be used: {error}; move it away to start again") from error

    def _set_journal(self) -> None:
        """Use write-ahead logging: many readers, one writer at a time, and atomic transactions."""
        for tries_left in reversed(range(100)):
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:  # another process is doing the same
                if "locked" not in str(error) or not tries_left:
                    raise
                time.sleep(0.1)
        self._db.execute("PRAGMA synchronous=NORMAL")

    def _set_up(self) -> None:
        [version] = self._db.execute("PRAGMA user_version").fetchone()
        # A newer format has other tables; with ours, the number itself is damaged.
        if version > FORMAT and tables_of(self._db) != own_tables():
            raise StoreError(f"{self.path} has format {version}, made by a newer oddnode; this one reads {FORMAT}")
        if version != FORMAT:
            with self._transaction():
                for statement in SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={FORMAT}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        unlock_file(self._mark)

    def records(
        self,
        task: str | None = None,
        protocol: str | None = None,
        backbone: str | None = None,
        seed: int | None = None,
        method: str | None = None,
        settings: tuple[tuple[str, Any], ...] | None = None,
    ) -> list[Record]:
        """List the records that match all given values; damaged ones are left out (see `damaged`).

        Parameters
        ----------
        task, protocol, backbone : str, optional
            What the training is of.
        seed : int, optional
            Its seed.
        method : str, optional
            A method that scored it.
        settings : tuple of (str, object), optional
            Exactly its settings.

        Returns
        -------
        list of Record
            In the order in which they were written.
        """
        wanted = {"task": task, "protocol": protocol, "backbone": backbone, "seed": seed, "settings": settings}
        given = {name: value for name, value in wanted.items() if value is not None}
        newest: dict[str, Record] = {}
        for row in table_rows(self._db, "trainings"):
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
        """Read the record of a training and check its checksum; ``None`` if there is none.

        Parameters
        ----------
        training : Training
            The training.

        Raises
        ------
        DamagedRecord
            It is there, but damaged.
        """
        try:
            rows = self._rows(training.identity)
        except UNREADABLE as error:
            raise DamagedRecord(f"record {training.identity} in {self.path} cannot be read: {error}") from error
        return None if not rows else self._checked(rows[-1])

    def finished(self) -> set[str]:
        """List the identities of all trainings that have a record, damaged or not."""
        where, values = self._of_this_code("WHERE")
        query = f"SELECT identity FROM trainings {where}"  # `where` is one of two constants  # nosec B608
        return {identity for [identity] in self._db.execute(query, values)}

    def is_finished(self, training: Training) -> bool:
        """Whether a training has a record.

        Parameters
        ----------
        training : Training
            The training.
        """
        where, values = self._of_this_code("AND")
        query = f"SELECT 1 FROM trainings WHERE identity = ? {where}"  # as above  # nosec B608
        return self._db.execute(query, (training.identity, *values)).fetchone() is not None

    def graphs(self, training: Training) -> Graphs:
        """Read the masks, classes and degrees of the graphs of a training.

        Parameters
        ----------
        training : Training
            The training.

        Raises
        ------
        StoreError
            They are not there.
        DamagedRecord
            They are there, but damaged.
        """
        facts, arrays = self._checked_graphs(training)
        return Graphs.of(json.loads(facts), unpacked(arrays))

    def _checked_graphs(self, training: Training) -> tuple[str, bytes]:
        key = (training.task, training.protocol, training.seed)
        try:
            row = self._db.execute("SELECT * FROM graphs WHERE task=? AND protocol=? AND seed=?", key).fetchone()
            if row is not None:
                check_graphs(row)
        except (DamagedRecord, *UNREADABLE) as error:
            which = f"the graphs of {training.task}, seed {training.seed} in {self.path}"
            raise DamagedRecord(f"{which} are damaged: {error}") from error
        if row is None:
            raise StoreError(f"{self.path} has no graphs of {training.task}, {training.protocol}, seed {training.seed}")
        return row[3], row[4]

    def damaged(self, trainings: Iterable[Training]) -> list[Training]:
        """List the trainings whose record or graphs are damaged.

        Parameters
        ----------
        trainings : iterable of Training
            The training.
        """
        sound_graphs: dict[tuple[str, str, int], bool] = {}
        found = []
        for training in trainings:
            try:
                record = self.get(training)
            except StoreError:
                found.append(training)
                continue
            if record is None or record.error is not None:
                continue
            key = (training.task, training.protocol, training.seed)
            if key not in sound_graphs:
                sound_graphs[key] = self._has_sound_graphs(training)
            if not sound_graphs[key]:
                found.append(training)
        return found

    def _has_sound_graphs(self, training: Training) -> bool:
        try:
            self._checked_graphs(training)
        except StoreError:
            return False
        return True

    def size(self) -> int:
        """Size of the store on disk in bytes."""
        files = (self.path, self.path.with_name(f"{FILE}-wal"))
        return sum(path.stat().st_size for path in files if path.exists())

    def _of_this_code(self, word: str) -> tuple[str, tuple[str, ...]]:
        """The SQL condition for records of this version of the source; empty for any version."""
        return (f"{word} code = ?", (self.code,)) if self.code else ("", ())

    def _rows(self, identity: str) -> list[tuple[Any, ...]]:
        where, values = self._of_this_code("AND")
        query = f"SELECT * FROM trainings WHERE identity = ? {where} ORDER BY rowid"  # as above  # nosec B608
        return self._db.execute(query, (identity, *values)).fetchall()

    def _checked(self, row: tuple[Any, ...]) -> Record:
        """The record of a row of the table of trainings."""
        try:
            training, facts = checked_training(row)
        except DamagedRecord as error:
            raise DamagedRecord(f"record {row[0]!r} in {self.path} is damaged: {error}") from error
        code = row[1]

        def read() -> bytes:
            for found in self._rows(training.identity):
                if found[1] == code:
                    self._checked(found)
                    return found[8]
            raise DamagedRecord(f"record {training.identity} is no longer in {self.path}")

        return Record(training, code, facts, read)

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
