"""Ranks: whatever happens to one of them, the others end in time and the result is whole or not there."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import ClassVar

import pyarrow as pa

from oddnode.cli.ranks import run_together
from oddnode.large import GraphFolder, heartbeat
from oddnode.tables import TableModel, TableOptions, TrainingTables, fit_tables, score_folder
from soak.bases import small_tables
from soak.trial import Family, Trial

__all__ = ["Ranks"]

# Instead of 30 s, so that a trial takes less; a machine may be busy.
_PATIENCE = 4.0
_MOST_SECONDS = 60.0


class Ranks(Family):
    """Two or three ranks that score a folder. Only forks compute: a fork of a process that has computed is broken."""

    name = "ranks"
    quota = 200
    least = 12
    kinds: ClassVar[tuple[str, ...]] = ("undisturbed", "killed", "stopped", "stopped for a moment")
    limit = 60.0
    batch = 8

    def prepare(self, folder: Path) -> None:
        nodes, edges = (pa.table(columns) for columns in small_tables(Random("ranks"), 300))
        options = TableOptions(id_column="id", label_column="topic")
        graph = TrainingTables(nodes, edges, options).prepare(folder / "graph")
        model, _ = fit_tables(graph, method="nodesafe", epochs=3, hidden_channels=8, propagation="as-given")
        model.save(folder / "model")
        score_folder(TableModel.load(folder / "model"), GraphFolder(folder / "graph"), folder / "scores.csv")

    def start(self, folder: Path) -> None:
        logging.getLogger("oddnode").setLevel(logging.CRITICAL)
        self.base = folder

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        shutil.copytree(self.base / "graph", work / "graph")
        if rng.random() < 0.5:  # they compute sidecars together
            (work / "graph" / "sidecars.json").unlink()
        size = rng.choice([2, 3])
        ranks = _started(self.base / "model", work, size)
        lost = rng.randrange(size)
        if kind != "undisturbed":
            _wait_until_met(work / "log")
            time.sleep(rng.random())
            _send(ranks[lost], signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        if kind == "stopped for a moment":
            time.sleep(1.0)
            _send(ranks[lost], signal.SIGCONT)
        statuses = _ended(ranks, set() if kind != "stopped" else {lost})
        yield Trial(kind, self._wrong(kind, statuses, lost, work))

    def _wrong(self, kind: str, statuses: list[int | None], lost: int, work: Path) -> str | None:
        expected, out = (self.base / "scores.csv").read_bytes(), work / "scores.csv"
        others = [status for rank, status in enumerate(statuses) if rank != lost or kind != "stopped"]
        if None in others:
            return f"a rank had not ended after {_MOST_SECONDS:.0f} s: {statuses}"
        if out.exists() and out.read_bytes() != expected:
            return "the scores differ from those of one process"
        if kind in ("undisturbed", "stopped for a moment") and (any(statuses) or not out.exists()):
            return f"the ranks ended with {statuses}: {(work / 'log').read_text()[-500:]}"
        left = [path.name for path in work.iterdir() if path.name not in ("scores.csv", "graph", "log")]
        said = (work / "log").read_text()
        if any(status for rank, status in enumerate(statuses) if rank != lost) and "error: " not in said:
            return f"the ranks ended with {statuses} and without a word"
        return f"{left} is left" if left and lost != 0 else None


def _started(model: Path, work: Path, size: int) -> list[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = {"TORCHELASTIC_RUN_ID": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    pids = []
    for rank in range(size):
        pids.append(os.fork())
        if pids[-1]:
            continue
        try:
            log = os.open(work / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ |= run | {"RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
            heartbeat._LOST_AFTER_SECONDS, heartbeat._BEAT_SECONDS, heartbeat._SILENT_SECONDS = _PATIENCE, 0.5, 2.0
            run_together(lambda: score_folder(TableModel.load(model), GraphFolder(work / "graph"), work / "scores.csv"))
        except BaseException as error:
            os.write(2, f"error: {error}\n".encode())
        finally:
            os._exit(1)
    return pids


def _wait_until_met(log: Path) -> None:
    """Wait until the first rank has named the others; before, they may wait for each other for minutes."""
    end = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < end and not (log.exists() and "rank 1: process" in log.read_text()):
        time.sleep(0.01)


def _send(pid: int, number: int) -> None:
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        os.kill(pid, number)


def _ended(pids: list[int], stopped: set[int]) -> list[int | None]:
    """The exit statuses of ranks, once all but the stopped have ended; None for those that have not."""
    statuses: list[int | None] = [None] * len(pids)
    end = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < end and any(s is None for rank, s in enumerate(statuses) if rank not in stopped):
        for rank, pid in enumerate(pids):
            if statuses[rank] is None:
                found, status = os.waitpid(pid, os.WNOHANG)
                statuses[rank] = os.waitstatus_to_exitcode(status) if found else None
        time.sleep(0.05)
    for rank, pid in enumerate(pids):
        if statuses[rank] is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return statuses
