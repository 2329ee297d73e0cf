"""The processes that ``torchrun`` started, as ranks.

If all of them are on one machine, they share results in memory (`oddnode.large.buffers`) and only wait for each
other; otherwise they exchange rows. Scoring 10^8 edges by two ranks of one thread each takes 0.95 to 1.09 times as long
as by one process of two threads; when ranks on one machine exchanged rows, 1.49 times, and every rank had a copy.

How a lost rank is noticed: the system closes the connections of a process that dies, which ends the exchange that the
others wait in. If a machine is lost or a process hangs, its heartbeat stops (`oddnode.large.heartbeat`). So exchanges
need no time limit: the others may wait for the first rank as long as it lives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
import torch
from torch import Tensor

from oddnode._utils.memory import memory_limit
from oddnode.large.arrays import is_shared
from oddnode.large.heartbeat import Heartbeat, RankLost
from oddnode.large.ranks import Ranks, activated, local_ranks, memory_share

T = TypeVar("T")

# No rank needs more memory than this for rows that others have computed but that are not contiguous here.
_BYTES_AT_ONCE = 2**26
_START = timedelta(minutes=5)
_NO_LIMIT = timedelta(days=30)


class MemoryOfRanks(NamedTuple):
    """Limit; shared budget; per-rank budget, in bytes."""

    limit: int
    share: int
    own_share: int

    @classmethod
    def of_machine(cls) -> MemoryOfRanks:
        return cls(memory_limit(), memory_share(), memory_share() // local_ranks())


class JoinedRanks(Ranks):
    """The processes that ``torchrun`` started: gloo exchanges tensors on CPUs, NCCL those on GPUs."""

    def __init__(self, rank: int, world_size: int, heartbeat: Heartbeat, memory: MemoryOfRanks):
        self.rank, self.world_size = rank, world_size
        self.heartbeat = heartbeat
        self._memory = memory
        self._is_alone = self._is_one_machine = False

    @property
    def memory_share(self) -> int:
        return self._memory.share if self._is_one_machine else self._memory.own_share

    @property
    def own_memory_share(self) -> int:
        return self._memory.own_share

    @property
    def memory_limit(self) -> int:
        return self._memory.limit

    @property
    def share_memory(self) -> bool:
        return self._is_one_machine and not self._is_alone

    def try_to_share(self) -> None:
        """Find out whether all ranks can make files in memory, and open the ones of rank 0."""
        try:
            _file_in_memory().close()
            can_make = True
        except (AttributeError, OSError):  # not Linux, or not permitted
            can_make = False
        if self._all(can_make):
            file, self._is_one_machine = self._shared(_file_in_memory)
            file.close()

    def share(self, make: Callable[[], BinaryIO]) -> tuple[BinaryIO, bool]:
        return self._shared(make) if self.share_memory else (make(), False)

    def _shared(self, make: Callable[[], BinaryIO]) -> tuple[BinaryIO, bool]:
        file = make() if self.is_first else None
        known = self.on_rank_zero(lambda: _SharedFile.of(file), _SharedFile)
        file = known.opened() if file is None else file
        if self._all(file is not None):  # the first one closes its file after all have opened it
            assert file is not None
            return file, True
        if file is not None and not self.is_first:
            file.close()
        return (file if self.is_first and file is not None else make()), False

    def _all(self, holds: bool) -> bool:
        """Whether something holds on every rank."""
        from torch import distributed as dist

        least = torch.tensor([int(holds)])
        with self._together():
            dist.all_reduce(least, dist.ReduceOp.MIN)
        return bool(least)

    def all_gather(self, out: Tensor, bounds: Sequence[int]) -> Tensor:
        if is_shared(out):
            self.barrier()
            return out
        row_bytes = max(out[:1].numel() * out.element_size(), 1)
        step = max(_BYTES_AT_ONCE // row_bytes, 1)
        for first in range(0, max(stop - start for start, stop in pairwise(bounds)), step):
            pieces = [out[start + first : min(start + first + step, stop)] for start, stop in pairwise(bounds)]
            self._exchange(pieces)
        return out

    def _exchange(self, pieces: list[Tensor]) -> None:
        """Send this rank's piece to all others and receive theirs; gloo's gather takes pieces of one size only."""
        from torch import distributed as dist

        others = [rank for rank in range(self.world_size) if rank != self.rank]
        own = pieces[self.rank].contiguous()
        received = {rank: _contiguous(pieces[rank]) for rank in others if len(pieces[rank])}
        calls = [dist.P2POp(dist.irecv, buffer, rank) for rank, buffer in received.items()]
        calls += [dist.P2POp(dist.isend, own, rank) for rank in others if len(own)]
        with self._together():
            for work in dist.batch_isend_irecv(calls):
                work.wait()
        for rank, buffer in received.items():
            if buffer is not pieces[rank]:
                pieces[rank].copy_(buffer)

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        before, self._is_alone = self._is_alone, True
        try:
            yield
        finally:
            self._is_alone = before

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Name the lost rank in the error of an exchange."""
        if self._is_alone:  # instead of waiting forever
            raise AssertionError(f"rank {self.rank} needs the others in work that they do not take part in")
        try:
            yield
        except RuntimeError as error:
            raise RankLost(self.heartbeat.who_is_lost() or self.heartbeat.told(f"a rank is lost ({error})")) from None

    def on_rank_zero(self, call: Callable[[], T], kind: Any) -> T:
        told = b""
        if self.is_first:
            with self.by_itself():
                told = msgspec.json.encode(call())
        size = torch.tensor([len(told)])
        self.broadcast_([size])
        text = torch.tensor(list(told), dtype=torch.uint8) if self.is_first else torch.empty(int(size)).byte()
        self.broadcast_([text])
        return msgspec.json.decode(bytes(text.tolist()), type=kind)

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        from torch import distributed as dist

        with self._together():
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def barrier(self) -> None:
        from torch import distributed as dist

        with self._together():
            dist.all_reduce(torch.zeros(1))  # on the CPU, so that no GPU is needed


class _SharedFile(msgspec.Struct):
    """Where other processes on the same machine open an unnamed file: in /proc, by its descriptor in one process.

    A file with a name, as `multiprocessing.shared_memory` has, would outlive a process that is killed and fill the
    memory; passing descriptors through a socket would need a connection between every two ranks. Device and inode tell
    the file from another one that has the same descriptor on another machine.
    """

    process: int
    descriptor: int
    device: int
    inode: int

    @classmethod
    def of(cls, file: BinaryIO | None) -> _SharedFile:
        assert file is not None
        stat = os.fstat(file.fileno())
        return cls(os.getpid(), file.fileno(), stat.st_dev, stat.st_ino)

    def opened(self) -> BinaryIO | None:
        """Open it; None if it is not there, because the process is on another machine."""
        path = f"/proc/{self.process}/fd/{self.descriptor}"
        try:
            if not self._is(os.stat(path)):
                return None
            file = open(path, "r+b")  # noqa: SIM115
        except OSError:
            return None
        if self._is(os.fstat(file.fileno())):
            return file
        file.close()
        return None

    def _is(self, stat: os.stat_result) -> bool:
        return (stat.st_dev, stat.st_ino) == (self.device, self.inode)


def _file_in_memory() -> BinaryIO:
    return os.fdopen(os.memfd_create("oddnode"), "r+b")


def _contiguous(rows: Tensor) -> Tensor:
    """The rows themselves, or a buffer for them if they are columns of a larger matrix."""
    return rows if rows.is_contiguous() else torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)


def _allow_many_files() -> None:
    """Raise the limit of open files as far as allowed: every result that ranks share is a file."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems have a lower, unreported limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def joined() -> Iterator[JoinedRanks]:
    """Work together with the other processes that ``torchrun`` started, until the end of the block.

    All of them must do the same in the block: open the same folders, fit and score with the same settings.

    Yields
    ------
    JoinedRanks
        All ranks.
    """
    from torch import distributed as dist

    store, rank, world_size = next(dist.rendezvous("env://", timeout=_START))
    # A separate connection, because the other one blocks while waiting.
    pulse = dist.TCPStore(store.host, store.port, is_master=False, timeout=_START)
    heartbeat = Heartbeat(dist.PrefixStore("oddnode/heartbeat", pulse), rank, world_size)
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if has_nccl else "gloo"
    own_store = dist.PrefixStore("oddnode/exchange", store)
    dist.init_process_group(backend, timeout=_NO_LIMIT, store=own_store, rank=rank, world_size=world_size)
    heartbeat.meet()
    least = torch.tensor(MemoryOfRanks.of_machine())
    dist.all_reduce(least, dist.ReduceOp.MIN)
    ranks = JoinedRanks(rank, world_size, heartbeat, MemoryOfRanks(*least.tolist()))
    _allow_many_files()
    try:
        ranks.try_to_share()
        with activated(ranks):
            yield ranks
        heartbeat.result_is_whole = True
        ranks.barrier()  # no heartbeat stops before all ranks have finished
        heartbeat.leave()
        dist.destroy_process_group()
    finally:
        heartbeat.stop()
