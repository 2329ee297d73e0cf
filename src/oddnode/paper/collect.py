"""Runs trainings on machines that do not have the store: this process claims them, and saves what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from oddnode.paper.store import Store
from oddnode.runner.work import Outcome

if TYPE_CHECKING:
    from oddnode.paper.run import PlanWorker
    from oddnode.runner.engine import Engine
    from oddnode.runner.groups import Group

__all__ = ["collect"]


def collect(groups: Iterable[Group], worker: PlanWorker, store: Store, engine: Engine) -> Iterator[Outcome]:
    """Run groups on a remote engine and save their outcomes in the store of this process.

    A training is claimed from when the engine takes its group until its outcome is saved; trainings that another
    process has claimed are skipped.

    Parameters
    ----------
    groups : iterable of Group
        The groups to run.
    worker : PlanWorker
        Says how trainings are executed and what is saved of them.
    store : Store
        The store.
    engine : Engine
        A remote engine.

    Yields
    ------
    Outcome
        As `PlanWorker` yields them, and those of trainings whose workers died.
    """
    from oddnode.runner.engine import WorkerDied
    from oddnode.runner.execute import execute_group
    from oddnode.runner.futures import remote_setup

    claims: dict[str, ExitStack] = {}
    try:
        setup = remote_setup(worker.setup)
        for outcome in engine.run(_claimed(groups, store, claims), partial(execute_group, setup=setup)):
            has_died = isinstance(outcome.error, WorkerDied)
            if not has_died:
                worker.save(outcome, store)
            claims.pop(outcome.training.identity).close()
            yield outcome if has_died else Outcome(outcome.training)
    finally:
        for claim in claims.values():
            claim.close()


def _claimed(groups: Iterable[Group], store: Store, claims: dict[str, ExitStack]) -> Iterator[Group]:
    """Claim the trainings of each group as it is taken; what holds the claims is added to ``claims``."""
    for group in groups:
        mine = []
        for training in group.trainings:
            with ExitStack() as claim:
                if claim.enter_context(store.claim(training)):
                    claims[training.identity] = claim.pop_all()
                    mine.append(training.identity)
        if mine:
            yield group.only(mine)
