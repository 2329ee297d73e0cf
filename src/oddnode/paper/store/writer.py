"""Writing of records, and claims on trainings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from oddnode.paper.record import DamagedRecord, StoreError, checksum_of, packed
from oddnode.paper.store.locks import lock_file
from oddnode.paper.store.reader import StoreReader
from oddnode.paper.store.rows import check_graphs, checked_training, readable_rows
from oddnode.paper.store.schema import FILE
from oddnode.runner.work import Training

__all__ = ["Store"]


class Store(StoreReader):
    """A store of trainings for reading and writing.

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
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO trainings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*what, training.as_json(), text, blob, checksum),
            )

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
        try:
            if self._checked_graphs(training)[0] == text:
                return  # another training on this task has written them
        except StoreError:
            pass
        key, blob = (training.task, training.protocol, training.seed), packed(arrays)
        checksum = checksum_of(*map(str, key), text, blob)
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO graphs VALUES (?, ?, ?, ?, ?, ?)", (*key, text, blob, checksum))

    def drop(self, training: Training) -> None:
        """Remove a record, so that its training runs again.

        Parameters
        ----------
        training : Training
            The training.
        """
        where, values = self._of_this_code("AND")
        with self._transaction():
            query = f"DELETE FROM trainings WHERE identity = ? {where}"  # `where` is one of two constants  # nosec B608
            self._db.execute(query, (training.identity, *values))

    def take_from(self, folder: str | os.PathLike) -> int:
        """Copy the undamaged records of another store, for example from another machine.

        Parameters
        ----------
        folder : path
            The other store's folder.

        Returns
        -------
        int
            Number of copied records.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise StoreError(f"{path} does not exist")
        return self.copy_rows(readable_rows(path))

    def copy_rows(self, rows: Iterable[tuple[str, tuple[Any, ...]]]) -> int:
        """Copy rows of another store whose checksums are right.

        Parameters
        ----------
        rows : iterable of (str, tuple)
            Name of a table, and a row of it.

        Returns
        -------
        int
            Number of copied records.
        """
        return len({row[:2] for table, row in rows if self._copy_row(table, row)})

    def _copy_row(self, table: str, row: tuple[Any, ...]) -> bool:
        is_record = table == "trainings"
        try:
            (checked_training if is_record else check_graphs)(row)
        except DamagedRecord:
            return False
        with self._transaction():
            marks = ", ".join("?" * len(row))
            self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)
        return is_record

    @contextmanager
    def claim(self, training: Training) -> Iterator[bool]:
        """Claim a training during a block, so that no other process on this machine runs it.

        The claim ends when its process ends for whatever reason, so a killed process leaves no claim behind.

        Parameters
        ----------
        training : Training
            The training.

        Yields
        ------
        bool
            Whether the claim succeeded: no other process has claimed the training, and it is not finished.
        """
        with lock_file(self.folder, training.identity) as mine:
            yield mine and not self.is_finished(training)

    def is_claimed(self, training: Training) -> bool:
        """Whether a process has claimed a training.

        Parameters
        ----------
        training : Training
            The training.
        """
        with lock_file(self.folder, training.identity) as mine:
            return not mine
