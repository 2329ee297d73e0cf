"""Several processes that work on one graph on disk: which rows each of them computes, and how they share results.

All ranks run the same program on the same folder, so whatever is not divided is computed by each of them, and is right
as it is. What is divided (`Ranks.fill`, `oddnode.large.NeighbourSum.own_blocks`) ends with an exchange; after it, every
rank has all rows. Within `joined` the ranks are the processes that ``torchrun`` started, otherwise there is one.

How a lost rank is noticed: the system closes the connections of a process that dies, which ends the exchange that the
others wait in. If a machine is lost or a process hangs, its heartbeat stops (`oddnode.large.heartbeat`). So exchanges
need no time limit: the others may wait for the first rank as long as it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor

from oddnode.large.heartbeat import Heartbeat, RankLost, stopped
from oddnode.large.memory import memory_share

__all__ = ["JoinedRanks", "Ranks", "active_ranks", "joined"]

T = TypeVar("T")

# No rank needs more memory than this for rows that others have computed but that are not one piece of memory here.
_BYTES_AT_ONCE = 2**26
_START = timedelta(minutes=5)
_NO_LIMIT = timedelta(days=30)


class Ranks:
    """The processes that work together; here one, which has nothing to exchange.

    Attributes
    ----------
    rank, world_size : int
        The number of this process, and how many there are.
    """

    rank = 0
    world_size = 1

    @property
    def memory_share(self) -> int:
        """How many bytes the values may take that a product reads at random: the least of all ranks."""
        return memory_share()

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def bounds(self, cuts: Sequence[int], work_before: Callable[[int], int]) -> list[int]:
        """Divide rows so that all ranks have about the same work.

        Parameters
        ----------
        cuts : sequence of int
            The rows at which blocks begin, and the number of rows. A block is not divided, because the rounding of a
            sum may depend on the block that it is computed in.
        work_before : callable
            The work of all rows before a row.

        Returns
        -------
        list of int
            The first row of every rank, and the number of rows.
        """
        work = [work_before(cut) for cut in cuts]
        shares = [work[-1] * rank / self.world_size for rank in range(1, self.world_size)]
        nearest = [min(range(len(cuts)), key=lambda place: abs(work[place] - share)) for share in shares]
        return [cuts[0], *(cuts[place] for place in nearest), cuts[-1]]

    def fill(self, out: Tensor, parts: Sequence[slice], make: Callable[[slice], Tensor]) -> Tensor:
        """Fill a tensor, of which every rank computes some parts.

        Parameters
        ----------
        out : Tensor
            The tensor to fill, ``[N, ...]``.
        parts : sequence of slice
            The rows in parts, from the first to the last; a part is not divided, as in `bounds`.
        make : callable
            Computes the rows of a part.

        Returns
        -------
        Tensor
            The same tensor, with all rows.
        """
        # All compute the first part. What it needs from all ranks is there afterwards, and other parts need no more.
        out[parts[0]] = make(parts[0])
        rest = parts[1:]
        cuts = [len(rest) * rank // self.world_size for rank in range(self.world_size + 1)]
        with self.by_itself():
            for rows in rest[cuts[self.rank] : cuts[self.rank + 1]]:
                out[rows] = make(rows)
        starts = [*(part.start for part in rest), len(out)]
        return self.all_gather(out, [starts[cut] for cut in cuts])

    def by_itself(self) -> AbstractContextManager[None]:
        """Refuse exchanges in the block, which the other ranks do not go through."""
        return nullcontext()

    def all_gather(self, out: Tensor, bounds: Sequence[int]) -> Tensor:
        """Give every rank the rows that the others have computed.

        Parameters
        ----------
        out : Tensor
            Shape ``[N, ...]``; the rows of this rank are filled, the others will be.
        bounds : sequence of int
            The first row of every rank, and the number of rows.

        Returns
        -------
        Tensor
            The same tensor.
        """
        return out

    def from_first(self, call: Callable[[], T], kind: Any) -> T:
        """Let the first rank find something out or do something, and tell the others.

        Parameters
        ----------
        call : callable
            Only the first rank calls it. It must not need the other ranks, which wait.
        kind : type
            The type of the result, plain data.

        Returns
        -------
        object
            What the first rank found, on every rank.
        """
        return call()

    def use_those_of_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors with those of the first rank.

        Parameters
        ----------
        tensors : sequence of Tensor
            Of the same shapes on every rank.
        """

    def barrier(self) -> None:
        """Wait until every rank is here."""


class JoinedRanks(Ranks):
    """The processes that ``torchrun`` started: gloo exchanges tensors on CPUs, NCCL those on GPUs.

    Parameters
    ----------
    rank, world_size : int
        The number of this process, and how many there are.
    heartbeat : Heartbeat
        Of this process.
    memory_share : int
        The least that any rank has. All of them must divide the columns of a product in the same way.
    """

    def __init__(self, rank: int, world_size: int, heartbeat: Heartbeat, memory_share: int):
        self.rank, self.world_size = rank, world_size
        self.heartbeat = heartbeat
        self._memory_share = memory_share
        self._is_alone = False

    @property
    def memory_share(self) -> int:
        return self._memory_share

    def all_gather(self, out: Tensor, bounds: Sequence[int]) -> Tensor:
        row_bytes = max(out[:1].numel() * out.element_size(), 1)
        step = max(_BYTES_AT_ONCE // row_bytes, 1)
        for first in range(0, max(stop - start for start, stop in pairwise(bounds)), step):
            pieces = [out[start + first : min(start + first + step, stop)] for start, stop in pairwise(bounds)]
            self._exchange(pieces)
        return out

    def _exchange(self, pieces: list[Tensor]) -> None:
        """Send the own piece to all others and receive theirs; gloo's own gather takes pieces of one size only."""
        from torch import distributed as dist

        others = [rank for rank in range(self.world_size) if rank != self.rank]
        own = pieces[self.rank].contiguous()
        received = {rank: _in_one_piece(pieces[rank]) for rank in others if len(pieces[rank])}
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
        """Refuse exchanges in the block, which the other ranks do not go through."""
        self._is_alone = True
        try:
            yield
        finally:
            self._is_alone = False

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Say in the error of an exchange which rank is lost."""
        if self._is_alone:  # an error, where there would be a wait without end
            raise AssertionError(f"rank {self.rank} needs the others in a part of the work that is its own")
        try:
            yield
        except RuntimeError as error:
            raise RankLost(self.heartbeat.who_is_lost() or stopped(f"a rank is lost ({error})")) from None

    def from_first(self, call: Callable[[], T], kind: Any) -> T:
        told = b""
        if self.is_first:
            with self.by_itself():
                told = msgspec.json.encode(call())
        size = torch.tensor([len(told)])
        self.use_those_of_first([size])
        text = torch.tensor(list(told), dtype=torch.uint8) if self.is_first else torch.empty(int(size)).byte()
        self.use_those_of_first([text])
        return msgspec.json.decode(bytes(text.tolist()), type=kind)

    def use_those_of_first(self, tensors: Sequence[Tensor]) -> None:
        from torch import distributed as dist

        with self._together():
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def barrier(self) -> None:
        from torch import distributed as dist

        with self._together():
            dist.all_reduce(torch.zeros(1))  # on the CPU, so that no GPU is needed


def _in_one_piece(rows: Tensor) -> Tensor:
    """The rows themselves, or room for them if they are columns of a larger matrix."""
    return rows if rows.is_contiguous() else torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)


_active = Ranks()


def active_ranks() -> Ranks:
    """Return the processes that work together at this time."""
    return _active


@contextmanager
def joined() -> Iterator[JoinedRanks]:
    """Work together with the other processes that ``torchrun`` started, until the end of the block.

    All of them must do the same in the block: open the same folders, fit and score with the same settings.

    Yields
    ------
    JoinedRanks
        All ranks.
    """
    global _active
    from torch import distributed as dist

    store, rank, world_size = next(dist.rendezvous("env://", timeout=_START))
    # A connection of its own, because others wait for answers.
    pulse = dist.TCPStore(store.host, store.port, is_master=False, timeout=_START)
    heartbeat = Heartbeat(dist.PrefixStore("oddnode/heartbeat", pulse), rank, world_size)
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if has_nccl else "gloo"
    own_store = dist.PrefixStore("oddnode/exchange", store)
    dist.init_process_group(backend, timeout=_NO_LIMIT, store=own_store, rank=rank, world_size=world_size)
    heartbeat.meet()
    least = torch.tensor([memory_share()])
    dist.all_reduce(least, dist.ReduceOp.MIN)
    _active = ranks = JoinedRanks(rank, world_size, heartbeat, int(least))
    try:
        yield ranks
        ranks.barrier()  # nobody falls silent before all have finished,
        heartbeat.stop()
        ranks.barrier()  # and nobody leaves with the store before all hearts have stopped
        dist.destroy_process_group()
    finally:
        heartbeat.stop()
        _active = Ranks()
