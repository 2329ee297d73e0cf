"""Several processes that work on one graph on disk: which rows each of them computes, and how they share results.

All ranks run the same program on the same folder, and every rank repeats whatever is not sharded. What is sharded
(`Ranks.shards`, `oddnode.large.NeighbourSum.own_blocks`) ends with an exchange; after it, every rank has all rows.
Within `oddnode.large.joined` the ranks are the processes that ``torchrun`` started, otherwise there is one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, BinaryIO, TypeVar

from torch import Tensor

from oddnode._utils.memory import memory_limit

T = TypeVar("T")

# The memory divided by this is the budget for values that a product reads at random.
_PART = 4


class Ranks:
    """The processes that work together; here one, which has nothing to exchange."""

    rank = 0
    world_size = 1

    @property
    def memory_share(self) -> int:
        """Budget in bytes for values that a product reads at random: the minimum over all ranks."""
        return memory_share()

    @property
    def own_memory_share(self) -> int:
        """Budget in bytes for values that ranks do not share."""
        return self.memory_share

    @property
    def memory_limit(self) -> int:
        """Memory limit of a process in bytes: the minimum over all ranks, so that all decide alike."""
        return memory_limit()

    @property
    def share_memory(self) -> bool:
        """Whether `share` gives the same file to all ranks, if they can open it."""
        return False

    def share(self, make: Callable[[], BinaryIO]) -> tuple[BinaryIO, bool]:
        """Open an unnamed file that all ranks share if they are on one machine; otherwise, one for each rank."""
        return make(), False

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def bounds(self, cuts: Sequence[int], work_before: Callable[[int], int]) -> list[int]:
        """Divide rows so that all ranks have about the same work."""
        work = [work_before(cut) for cut in cuts]
        shares = [work[-1] * rank / self.world_size for rank in range(1, self.world_size)]
        nearest = [min(range(len(cuts)), key=lambda index: abs(work[index] - share)) for share in shares]
        return [cuts[0], *(cuts[index] for index in nearest), cuts[-1]]

    def shards(self, out: Tensor, parts: Sequence[slice]) -> Iterator[slice]:
        """Yield the parts of a result that this rank computes; after the last, every rank has all of them."""
        if not parts:
            return
        # All ranks compute the first part. What needs all ranks is cached then, so other parts need no exchange.
        yield parts[0]
        rest = parts[1:]
        cuts = [len(rest) * rank // self.world_size for rank in range(self.world_size + 1)]
        with self.by_itself():
            yield from rest[cuts[self.rank] : cuts[self.rank + 1]]
        starts = [*(part.start for part in rest), len(out)]
        self.all_gather(out, [starts[cut] for cut in cuts])

    def by_itself(self) -> AbstractContextManager[None]:
        """Refuse exchanges in the block, which other ranks do not run."""
        return nullcontext()

    def all_gather(self, out: Tensor, bounds: Sequence[int]) -> Tensor:
        """Give every rank the rows that the others have computed."""
        return out

    def on_rank_zero(self, call: Callable[[], T], kind: Any) -> T:
        """Call a function on rank 0 only, and return its result, which JSON can represent, on every rank."""
        return call()

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors with those of rank 0."""

    def barrier(self) -> None:
        """Wait for all ranks."""


_active = Ranks()


def active_ranks() -> Ranks:
    """Return the processes that currently work together."""
    return _active


@contextmanager
def activated(ranks: Ranks) -> Iterator[None]:
    """Let processes work together until the end of the block."""
    global _active
    _active = ranks
    try:
        yield
    finally:
        _active = Ranks()


def memory_share() -> int:
    """Budget in bytes for values that a product reads at random."""
    return memory_limit() // _PART


def local_ranks() -> int:
    """How many ranks there are on this machine."""
    return max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
