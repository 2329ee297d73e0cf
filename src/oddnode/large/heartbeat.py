"""How ranks notice that one of them is lost, and agree on which one tells the user.

A process that dies on this machine is detected by its pid. For one on another machine, or one that hangs, there is a
heartbeat: a thread of every rank increments a counter in a store that all ranks can read, and watches the others.

Why a thread that ends the process: a rank that waits in an exchange cannot check, and gloo notices a machine
without power only when its own timeout ends, which would also end ranks that rightly wait for hours. With the thread,
a run ends within 35 s of the loss, with a message: 30 s of patience and two beats.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from oddnode._utils.atomic_files import is_running

if TYPE_CHECKING:
    from torch.distributed import Store


_BEAT_SECONDS = 2.0
# A rank that is silent for this long is lost. On a machine that swaps, a beat may take seconds.
_LOST_AFTER_SECONDS = 30.0
# Before its first beat a rank imports torch, perhaps from a slow shared disk.
_START_SECONDS = 300.0
# A rank that has ended is silent after this long, and a live one is not.
_SILENT_SECONDS = 3 * _BEAT_SECONDS


class RankLost(RuntimeError):
    """A rank has ended or cannot be reached, so that the others cannot go on; the message names it if it is known."""


class RankProcess(NamedTuple):
    """Where a rank runs."""

    pid: int  # Its process id
    host: str  # The name of its machine

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have ended; False for a process on another machine."""
        return self.host == socket.gethostname() and not is_running(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Heartbeat:
    """The heartbeat of this process and a watch on the others; it starts at once.

    If another rank falls silent, this process prints an error and ends, wherever it is waiting for that rank.
    """

    def __init__(self, store: Store, rank: int, world_size: int):
        self._store = store
        self._rank, self._world_size = rank, world_size
        self._counts = [0] * world_size
        self._heard = [time.monotonic()] * world_size  # of itself: when the store answered
        self._stopped = threading.Event()
        self._store_is_lost = self._is_leaving = False
        self._left: set[int] = set()  # the ranks that have nothing more to do
        self._seconds_asleep = 0.0
        self.result_is_whole = False
        self.processes: list[RankProcess] = []
        store.set(f"process/{rank}", f"{os.getpid()} {socket.gethostname()}")
        # If the machine of the store loses power, requests to it block, so a second thread watches the time.
        for work in (self._beat, self._watch):
            threading.Thread(target=work, name=f"oddnode{work.__name__}", daemon=True).start()

    def stop(self) -> None:
        """Stop the threads; from now on silence is ignored."""
        self._stopped.set()

    def leave(self) -> None:
        """Stop once all ranks can do without this one; the first one, which may host the store, is the last to leave.

        Until then the others are watched: an exchange with a rank that hangs here would last for ever.
        """
        self._is_leaving = True
        try:
            self._store.add(f"left/{self._rank}", 1)
            while self._rank == 0 and len(self._left) < self._world_size - 1:
                self._see_who_left()
                time.sleep(0.01)
        except RuntimeError:
            raise RankLost(self.told("the process that hosts the store has ended")) from None
        self.stop()

    def _see_who_left(self) -> None:
        self._left = {rank for rank in self._others() if self._store.add(f"left/{rank}", 0)}

    def meet(self) -> None:
        """Wait for all ranks, and learn where they run."""
        told = [self._store.get(f"process/{rank}").decode().partition(" ") for rank in range(self._world_size)]
        self._heard = [time.monotonic()] * self._world_size
        self.processes = [RankProcess(int(pid), host) for pid, _, host in told]

    def who_is_lost(self, seconds: float = 2 * _SILENT_SECONDS) -> str | None:
        """Find the rank that is lost, when an exchange has failed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._asleep():
                return self.told(self._asleep())
            for rank in self._others():
                if self.processes[rank].has_ended:
                    return self.told(f"{self._name(rank)} has ended")
                if self._silence(rank) > _SILENT_SECONDS:
                    return self.told(f"{self._name(rank)} does not answer")
            time.sleep(0.1)
        return None

    def is_first_to_tell(self) -> bool:
        """Whether no other rank has told the user why the run ends."""
        try:
            return self._store.add("told", 1) == 1
        except RuntimeError:  # the process that hosts the store is gone
            return True

    def told(self, reason: str) -> str:
        """Tell the user why the run ends, and what of it there is."""
        return stopped(reason, self.result_is_whole)

    def _asleep(self) -> str:
        """Why the others have given up this rank, if it was suspended for so long."""
        if self._seconds_asleep < _LOST_AFTER_SECONDS:
            return ""
        return f"{self._name(self._rank)} was suspended for {self._seconds_asleep:.0f} s, and the others gave it up"

    def _others(self) -> list[int]:
        return [rank for rank in range(self._world_size) if rank != self._rank]

    def _silence(self, rank: int) -> float:
        return time.monotonic() - self._heard[rank]

    def _name(self, rank: int) -> str:
        return f"rank {rank} ({self.processes[rank]})" if self.processes else f"rank {rank}"

    def _beat(self) -> None:
        """Increment this rank's counter, and read the others'."""
        while not self._stopped.wait(_BEAT_SECONDS):
            try:
                self._store.add(f"beat/{self._rank}", 1)
                counts = [self._store.add(f"beat/{rank}", 0) for rank in range(self._world_size)]
                self._see_who_left()
            except RuntimeError:
                self._store_is_lost = True
                return
            for rank, count in enumerate(counts):
                if count != self._counts[rank]:
                    self._counts[rank], self._heard[rank] = count, time.monotonic()

    def _watch(self) -> None:
        """Check that the store answers and that the other counters advance."""
        awake = time.monotonic()
        while not self._stopped.wait(_BEAT_SECONDS):
            asleep, awake = time.monotonic() - awake, time.monotonic()
            if asleep > _SILENT_SECONDS:  # this process was suspended, which says nothing about the others
                self._seconds_asleep, self._heard = asleep, [awake] * self._world_size
            if self._store_is_lost and self._is_leaving:
                return  # nobody needs it any more
            if self._store_is_lost or self._silence(self._rank) > _LOST_AFTER_SECONDS:
                self._end(self._asleep() or "torchrun on the first machine does not answer", without_asking=True)
            for rank in set(self._others()) - self._left:
                patience = _LOST_AFTER_SECONDS if self.processes else _START_SECONDS
                if self._silence(rank) > patience:
                    self._end(f"{self._name(rank)} has not answered for {patience:.0f} s")
                # Without torchrun, nothing else ends this process outside an exchange.
                elif self._silence(rank) > _SILENT_SECONDS and self.processes and self.processes[rank].has_ended:
                    self._end(f"{self._name(rank)} has ended")

    def _end(self, reason: str, without_asking: bool = False) -> None:
        if self._stopped.is_set():
            return
        if without_asking or self.is_first_to_tell():
            print(f"error: {self.told(reason)}", file=sys.__stderr__, flush=True)
        os._exit(1)


def stopped(reason: str, result_is_whole: bool = False) -> str:
    """Tell the user why the run ends."""
    if result_is_whole:
        return f"{reason}, but only after the result was written: it is whole"
    return f"{reason}, so the run was stopped; nothing is half-written"
