"""Writing to the store's file, and claims on trainings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from oddnode.paper.record import StoreError, checksum_of, packed
from oddnode.paper.store.locks import lock_file
from oddnode.paper.store.reader import StoreReader
from oddnode.paper.store.schema import FILE, readable_rows
from oddnode.runner.work import Training

__all__ = ["Store"]


class Store(StoreReader):
    """The runs in a folder, to read and to write.

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

    def save(self, training: Training, code: str, facts: dict[str, Any], arrays: dict[str, np.ndarray] | bytes) -> None:
        """Write a record, whole or not at all; a record of the same training is replaced.

        Parameters
        ----------
        training : Training
            What was trained.
        code : str
            The version of the source that made the record.
        facts : dict
            Whatever JSON can hold of it.
        arrays : dict of str to array, or bytes
            Scores and predictions of every node, or what `packed` made of them.
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
        """Write what is the same for all trainings on the task of this one under its protocol and seed.

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
                return  # another training on this task was here first
        except StoreError:
            pass
        key, blob = (training.task, training.protocol, training.seed), packed(arrays)
        checksum = checksum_of(*map(str, key), text, blob)
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO graphs VALUES (?, ?, ?, ?, ?, ?)", (*key, text, blob, checksum))

    def drop(self, training: Training) -> None:
        """Remove a record, so that it is made again.

        Parameters
        ----------
        training : Training
            What was trained.
        """
        where, values = self._of_this_code("AND")
        with self._transaction():
            self._db.execute(f"DELETE FROM trainings WHERE identity = ? {where}", (training.identity, *values))

    def take_from(self, folder: str | os.PathLike) -> int:
        """Copy the sound records of another store, of a run on another machine say.

        Parameters
        ----------
        folder : path
            The other store's folder.

        Returns
        -------
        int
            How many records were copied.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise StoreError(f"{path} does not exist")
        return self.copy_rows(readable_rows(path))

    def copy_rows(self, rows: Iterable[tuple[str, tuple[Any, ...]]]) -> int:
        """Write rows of another store as they are, those whose checksums are right.

        Parameters
        ----------
        rows : iterable of (str, tuple)
            Name of a table, and a row of it.

        Returns
        -------
        int
            How many of them were records.
        """
        return sum(self._copy_row(table, row) for table, row in rows)

    def _copy_row(self, table: str, row: tuple[Any, ...]) -> bool:
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
    def claim(self, training: Training) -> Iterator[bool]:
        """Claim a training for the block: no other process on this machine may do it meanwhile.

        The claim ends with its process, however that ends, so that a process that is killed leaves none behind.

        Parameters
        ----------
        training : Training
            What is to be trained.

        Yields
        ------
        bool
            Whether this process may do it: nobody else has claimed it, and it is not finished.
        """
        with lock_file(self.folder, training.identity) as mine:
            yield mine and not self.is_finished(training)

    def is_claimed(self, training: Training) -> bool:
        """Whether some process has claimed a training at this moment.

        Parameters
        ----------
        training : Training
            What is to be trained.
        """
        with lock_file(self.folder, training.identity) as mine:
            return not mine
