"""Groups of trainings that one process runs together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oddnode.runner.detectors import may_stack
from oddnode.runner.work import Training
from oddnode.tasks import TASKS

__all__ = ["Group", "cell_groups", "one_by_one", "stacked_groups"]

# Stacks per group if several processes share a GPU: enough that one process fills it, few enough to balance the load.
_STACKS_AT_ONCE = 4


@dataclass(frozen=True)
class Group:
    """Trainings under one protocol, on one task or on tasks with the same training graph.

    Parameters
    ----------
    stacks : tuple of tuple of Training
        The trainings of a stack differ in their seed only and are fitted in one call. On a GPU the stacks of a task
        train concurrently, as far as memory allows. Trainings that differ in their task only share one fit, if the
        tasks have the same training graph.
    """

    stacks: tuple[tuple[Training, ...], ...]

    @property
    def trainings(self) -> tuple[Training, ...]:
        """All trainings, stack by stack."""
        return tuple(training for stack in self.stacks for training in stack)

    @property
    def data(self) -> tuple[str, str]:
        """The first task, and the protocol. A process prefers groups whose data it has loaded already."""
        first = self.stacks[0][0]
        return first.task, first.protocol

    def only(self, identities: Iterable[str]) -> Group:
        """Restrict the group to some of its trainings.

        Parameters
        ----------
        identities : iterable of str
            Identities of the trainings to keep.
        """
        kept = set(identities)
        stacks = (tuple(training for training in stack if training.identity in kept) for stack in self.stacks)
        return Group(tuple(stack for stack in stacks if stack))


def one_by_one(trainings: Iterable[Training]) -> list[Group]:
    """Make groups of one training each.

    Parameters
    ----------
    trainings : iterable of Training
        The trainings to run.
    """
    return [Group(((training,),)) for training in trainings]


def cell_groups(trainings: Iterable[Training]) -> list[Group]:
    """Group trainings by training graph, protocol and seed; the trainings of a group share the prepared graphs.

    Parameters
    ----------
    trainings : iterable of Training
        The trainings to run.
    """
    cells: dict[tuple[str, str, int], list[tuple[Training, ...]]] = {}
    for training in trainings:
        graph = TASKS[training.task].training_graph or training.task
        cells.setdefault((graph, training.protocol, training.seed), []).append((training,))
    return [Group(tuple(stacks)) for stacks in cells.values()]


def stacked_groups(trainings: Sequence[Training], jobs: int = 1) -> list[Group]:
    """Group trainings for a GPU: seeds are stacked if the trainer can, and stacks on the same data run together.

    Parameters
    ----------
    trainings : sequence of Training
        The trainings to run.
    jobs : int
        Number of processes that share the GPU. A single process runs all trainings of a task in one group; several
        get smaller groups.

    Returns
    -------
    list of Group
        Task by task, ordered by the first training of each task.
    """
    stacks: dict[tuple[str, int | None], list[Training]] = {}
    for training in trainings:
        together = jobs == 1 or may_stack(training)
        stacks.setdefault((training.cell, None if together else training.seed), []).append(training)
    # Stacks of the same seeds need the same data.
    by_data: dict[tuple[str, str, tuple[int, ...]], list[tuple[Training, ...]]] = {}
    for stack in map(tuple, stacks.values()):
        seeds = () if jobs == 1 else tuple(sorted(training.seed for training in stack))
        by_data.setdefault((stack[0].task, stack[0].protocol, seeds), []).append(stack)
    size = len(stacks) if jobs == 1 else _STACKS_AT_ONCE
    return [
        Group(tuple(found[begin : begin + size])) for found in by_data.values() for begin in range(0, len(found), size)
    ]
