"""From the chosen tables and figures to the distinct trainings behind them, the longest first."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from oddnode.paper.experiments import PLANAR, Item, Run, Scope, methods_of
from oddnode.paper.record import Record, Training
from oddnode.paper.store import Store

__all__ = ["Plan", "absent_data", "estimate_seconds", "make_plan"]

PROTOCOLS = ("clean", "published")


@dataclass
class Plan:
    """What is to be made, and the trainings it takes.

    ``trainings`` are distinct and ordered, the longest first; ``absent`` says why a task's data is not here. A run and
    a seed lead to their training by `training`.
    """

    scope: Scope
    items: list[Item]
    protocols: tuple[str, ...]
    seeds: int
    epochs: int | None = None
    data_dir: str | None = None
    device: str = "auto"
    absent: dict[str, str] = field(default_factory=dict)
    trainings: list[Training] = field(default_factory=list)
    _by_run: dict[tuple[Run, int], Training] = field(default_factory=dict, repr=False)

    def runs(self, item: Item) -> list[Run]:
        """The runs of an item whose data is here."""
        every = [run for protocol in self.protocols_of(item) for run in item.runs(self.scope, protocol)]
        return [run for run in dict.fromkeys(every) if run.task not in self.absent]

    def protocols_of(self, item: Item) -> tuple[str, ...]:
        """The protocols that an item is shown under."""
        once = self.scope.light and (item.is_figure or item.has_own_trainings)
        return self.protocols[:1] if once else self.protocols

    def training(self, run: Run, seed: int) -> Training | None:
        """The training that serves a run; ``None`` where the plan has none for this seed."""
        return self._by_run.get((run, seed))

    def add(self, item: Item) -> None:
        """Plan the trainings that an item needs."""
        known = {training.identity: training for training in self.trainings}
        for run in self.runs(item):
            for seed in range(1 if item.shows_one_seed else self.seeds):
                training = replace(_training(_plain(run), self.epochs), seed=seed)
                self._by_run[run, seed] = known.setdefault(training.identity, training)
        self.trainings = sorted(known.values(), key=lambda t: (-_cost(t), t.seed, t.label))


def make_plan(
    scope: Scope,
    items: list[Item],
    protocols: tuple[str, ...] = PROTOCOLS,
    seeds: int | None = None,
    data_dir: str | os.PathLike | None = None,
    device: str = "auto",
    done: Collection[str] = (),
) -> Plan:
    """The plan for items on a scope's tasks; tasks whose data is not here are left out, with the reason.

    Tasks that are ``done`` need no data: what is known of them is in a store.
    """
    folder = os.fspath(data_dir) if data_dir is not None else None
    plan = Plan(scope, items, protocols, seeds or scope.seeds, scope.epochs, folder, device)
    wanted = {run.task: None for item in items for protocol in protocols for run in item.runs(scope, protocol)}
    plan.absent = _absent([task for task in wanted if task not in done], folder)
    for item in items:
        plan.add(item)
    return plan


def _absent(tasks: Sequence[str], data_dir: str | None) -> dict[str, str]:
    """Why the data of a task is not here, for those tasks; what can be downloaded is."""
    from oddnode.tasks import DATASETS, MissingDataError

    reasons: dict[str, str | None] = {}
    for task in tasks:
        data = task.split("/")[0]
        if data in reasons:
            continue
        reasons[data] = None
        try:
            DATASETS[data].require(data_dir)
        except MissingDataError as error:
            reasons[data] = str(error)
    found = {task: reasons[task.split("/")[0]] for task in tasks}
    return {task: reason for task, reason in found.items() if reason is not None}


def absent_data(plan: Plan) -> dict[str, str]:
    """The data sets that are not here, each once, with the reason."""
    return {task.split("/")[0]: reason for task, reason in plan.absent.items()}


def _plain(run: Run) -> Run:
    """The run without settings that are the method's own anyway."""
    if not run.settings:
        return run
    own = _own_settings(run.method, run.task, run.protocol)
    return replace(run, settings=tuple((name, value) for name, value in run.settings if own.get(name) != value))


@cache
def _own_settings(method: str, task: str, protocol: str) -> dict[str, Any]:
    from oddnode.protocols import get_protocol

    return get_protocol(protocol).hyper_parameters(method, task)


@cache
def _training(run: Run, epochs: int | None) -> Training:
    """The training of a run for seed 0, with every method that shares it."""
    from oddnode.detector import get_recipe

    alone = Training(run.task, run.protocol, run.backbone, 0, (run.method,), run.settings, epochs)
    mine = _parameters(alone, run.method)
    methods = [run.method]
    if not run.settings:
        # All that can score this training do, whoever asked for it: another table may ask for them later.
        candidates = [m for m in methods_of(run.protocol) if run.backbone == "gcn" or get_recipe(m).backbone is None]
        network = get_recipe(run.method).backbone
        methods = [m for m in candidates if get_recipe(m).backbone == network and _parameters(alone, m) == mine]
    return replace(alone, methods=tuple(methods), parameters=mine)


@cache
def _parameters(training: Training, method: str) -> str:
    from oddnode.paper.execute import build, outline, parameters_of

    task = outline(training.task, training.protocol)
    return parameters_of(build(replace(training, backbone=_named(training.backbone)), method, task, "cpu"))


def _named(backbone: str) -> str:
    return "gat" if backbone == PLANAR else backbone


# Time

# Factors to a data set's seconds, as the full run measured them with the scoring.
_BACKBONE = {"mlp": 0.8, "gat": 6.0, PLANAR: 7.0, "mixhop": 6.5, "jknet": 2.0}
_METHOD = {"gkde": 1.5, "gpn": 4.0, "gold": 1.6, "oe": 2.2, "energy-ft": 2.2, "nodesafe-ensemble": 4.5}


def _cost(training: Training) -> float:
    """A rough number of seconds, to put the longest first."""
    from oddnode.protocols import get_protocol
    from oddnode.tasks import DATASETS

    data = DATASETS.get(training.task.split("/")[0])  # a store may know data sets of plugins that are not loaded
    seconds = (data.seconds if data else 10.0) * _BACKBONE.get(training.backbone, 1.0)
    seconds *= _METHOD.get(training.methods[0], 2.5 if "++" in training.methods[0] else 1.0)
    seconds *= get_protocol(training.protocol).relative_cost
    return seconds * (training.epochs or 200) / 200


def estimate_seconds(trainings: Iterable[Training], done: Iterable[Record], jobs: int) -> float:
    """How long trainings will take in so many processes, judged by those that are done, where there are any."""
    known = [(record.facts["seconds"]["fit"], _cost(record.training)) for record in done if record.error is None]
    pace = sum(k[0] for k in known) / sum(k[1] for k in known) if known else 1.0
    costs = [_cost(training) for training in trainings]
    return pace * max(sum(costs) / jobs, max(costs, default=0.0))


def unfinished(plan: Plan, store: Store) -> list[Training]:
    """The trainings of a plan that have no record yet."""
    done = store.finished()
    return [training for training in plan.trainings if training.identity not in done]
