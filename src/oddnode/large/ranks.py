"""Several processes that work on one graph on disk: which rows each of them computes, and how they share results.

All ranks run the same program on the same folder, so whatever is not divided is computed by each of them, and is right
as it is. What is divided (`Ranks.fill`, `oddnode.large.NeighbourSum.own_blocks`) ends with an exchange; after it, every
rank has all rows. Within `oddnode.large.joined` the ranks are the processes that ``torchrun`` started, otherwise there
is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, BinaryIO, TypeVar

from torch import Tensor

from oddnode.large.memory import memory_limit, memory_share

__all__ = ["Ranks", "activated", "active_ranks"]

T = TypeVar("T")


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
    def own_memory_share(self) -> int:
        """How many bytes values may take that each rank has for itself."""
        return self.memory_share

    @property
    def memory_limit(self) -> int:
        """How many bytes a process may use: the least of all ranks, which must decide in the same way by it."""
        return memory_limit()

    @property
    def share_memory(self) -> bool:
        """Whether `share` gives the same file to all ranks, if they can open it."""
        return False

    def share(self, make: Callable[[], BinaryIO]) -> tuple[BinaryIO, bool]:
        """Open a file without a name on all ranks, if they are on one machine; otherwise each has one of its own.

        Parameters
        ----------
        make : callable
            Makes the file.

        Returns
        -------
        file
            The file.
        bool
            Whether all ranks have the same one.
        """
        return make(), False

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
        if not parts:
            return out
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


_active = Ranks()


def active_ranks() -> Ranks:
    """Return the processes that work together at this time."""
    return _active


@contextmanager
def activated(ranks: Ranks) -> Iterator[None]:
    """Let processes work together until the end of the block.

    Parameters
    ----------
    ranks : Ranks
        The processes, this one among them.
    """
    global _active
    _active = ranks
    try:
        yield
    finally:
        _active = Ranks()
