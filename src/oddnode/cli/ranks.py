"""A command that several processes run together, started by ``torchrun``. Imports nothing slow for a single process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oddnode.cli.shared import err

if TYPE_CHECKING:
    from oddnode.large.torchrun import JoinedRanks


#: The commands whose work on a graph on disk ranks can share.
DIVIDED = ("calibrate", "fit", "score")
# The first rank reports errors that all ranks have, so the others wait for it.
_SECONDS_FOR_FIRST = 1.0


def is_one_of_several() -> bool:
    """Whether ``torchrun`` has started this process and others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def check_graph(graph: Path | None) -> None:
    """Raise an error for a command without a graph on disk, if there are several processes."""
    if is_one_of_several() and graph is None:
        raise ValueError(
            "several processes divide the work on a graph on disk: prepare one with `oddnode prepare` and give it as "
            "--graph, or start the command without torchrun"
        )


def run_together(run: Callable[[], Any]) -> None:
    """Run the command line as one of several ranks: the first one prints, and one of them reports why a run failed.

    If a rank is lost or ``torchrun`` stops them, the others exit with an error.
    """
    from oddnode.large.heartbeat import RankLost
    from oddnode.large.torchrun import joined

    try:
        with joined() as ranks:
            _run_joined(ranks, run)
    except RankLost:
        if ranks.heartbeat.result_is_whole and not ranks.heartbeat.is_first_to_tell():
            sys.exit(1)
        raise
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Not sys.exit: a gloo thread that frees its last tensor during interpreter shutdown would abort the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run_joined(ranks: JoinedRanks, run: Callable[[], Any]) -> None:
    from oddnode.large.heartbeat import RankLost

    heartbeat = ranks.heartbeat

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise RankLost(heartbeat.who_is_lost(seconds=2.0) or heartbeat.told("torchrun stopped this rank"))

    signal.signal(signal.SIGTERM, stop)
    if ranks.is_first:
        for rank, process in enumerate(heartbeat.processes):
            err.print(f"rank {rank}: {process}", highlight=False, soft_wrap=True)
    try:
        _run_as(ranks, run)
    except (ValueError, OSError, RuntimeError) as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # let the error message finish
        if not ranks.is_first:
            time.sleep(_SECONDS_FOR_FIRST)
        if not heartbeat.is_first_to_tell():
            sys.exit(1)
        if ranks.is_first or isinstance(error, RankLost):
            raise
        raise RuntimeError(f"rank {ranks.rank} ({heartbeat.processes[ranks.rank]}): {error}") from None


def _run_as(ranks: JoinedRanks, run: Callable[[], Any]) -> None:
    try:
        with Path(os.devnull).open("w") as nowhere, ExitStack() as silence:
            if not ranks.is_first:
                silence.enter_context(redirect_stdout(nowhere))
                silence.enter_context(redirect_stderr(nowhere))
            run()
    except (SystemExit, KeyboardInterrupt) as stop:  # a wrong option, or Ctrl-C; the first rank reports it
        if isinstance(stop, SystemExit) and not stop.code:
            return
        if not ranks.is_first:
            time.sleep(_SECONDS_FOR_FIRST)
            sys.exit(1)
        ranks.heartbeat.is_first_to_tell()
        raise
