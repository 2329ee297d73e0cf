"""The plan of a run: the distinct trainings that the chosen tables and figures need, the longest first."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

from oddnode.paper.experiments import PLANAR, Item, Run, Scope, methods_of
from oddnode.paper.record import Record
from oddnode.paper.store import Store
from oddnode.runner.work import Training

PROTOCOLS = ("clean", "published")


@dataclass
class Plan:
    """The tables and figures to make, and the trainings they need; `training` looks one up by run and seed."""

    scope: Scope
    items: list[Item]  # The tables and figures
    protocols: tuple[str, ...]  # Names of the protocols, the most important first
    seeds: int
    epochs: int | None = None  # Epochs of every training; by default the protocol decides
    data_dir: str | None = None  # The folder of the data sets
    device: str = "auto"  # The device to train on
    absent: dict[str, str] = field(default_factory=dict)  # For each task without data, the reason
    trainings: list[Training] = field(default_factory=list)  # The distinct trainings, the longest first
    _by_run: dict[tuple[Run, int], Training] = field(default_factory=dict, init=False, repr=False)

    def runs(self, item: Item) -> list[Run]:
        """List the runs of an item whose data was found."""
        every = [run for protocol in self.protocols_of(item) for run in item.runs(self.scope, protocol)]
        return [run for run in dict.fromkeys(every) if run.task not in self.absent]

    def protocols_of(self, item: Item) -> tuple[str, ...]:
        """List the protocols under which an item is shown."""
        once = self.scope.light and (item.is_figure or item.has_own_trainings)
        return self.protocols[:1] if once else self.protocols

    def training(self, run: Run, seed: int) -> Training | None:
        """Look up the training of a run; ``None`` if the plan has none for this seed."""
        return self._by_run.get((run, seed))


def make_plan(
    scope: Scope,
    items: list[Item],
    protocols: tuple[str, ...] = PROTOCOLS,
    seeds: int | None = None,
    data_dir: str | os.PathLike | None = None,
    device: str = "auto",
    done: Collection[str] = (),
) -> Plan:
    """Plan the trainings for items on the tasks of a scope; tasks with missing data are left out."""
    folder = os.fspath(data_dir) if data_dir is not None else None
    plan = Plan(scope, items, protocols, seeds or scope.seeds, scope.epochs, folder, device)
    wanted = {run.task: None for item in items for protocol in protocols for run in item.runs(scope, protocol)}
    plan.absent = _absent([task for task in wanted if task not in done], folder)
    known: dict[str, Training] = {}
    for item in items:
        for run, seed in product(plan.runs(item), range(1 if item.shows_one_seed else plan.seeds)):
            training = replace(_training(_plain(run), plan.epochs), seed=seed)
            plan._by_run[run, seed] = known.setdefault(training.identity, training)
    plan.trainings = sorted(known.values(), key=lambda t: (-estimate_cost(t), t.seed, t.label))
    return plan


def _absent(tasks: Sequence[str], data_dir: str | None) -> dict[str, str]:
    """The tasks with missing data, with the reasons; downloads what can be downloaded."""
    from oddnode.tasks import DATASETS, MissingDataError

    reasons = {}
    for data in dict.fromkeys(task.split("/")[0] for task in tasks):
        try:
            DATASETS[data].require(data_dir)
        except MissingDataError as error:
            reasons[data] = str(error)
    return {task: reasons[data] for task in tasks if (data := task.split("/")[0]) in reasons}


def absent_data(plan: Plan) -> dict[str, str]:
    """List the missing data sets with the reasons."""
    return {task.split("/")[0]: reason for task, reason in plan.absent.items()}


def _plain(run: Run) -> Run:
    """The run without settings that equal the method's defaults."""
    from oddnode.protocols import get_protocol

    if not run.settings:
        return run
    own = get_protocol(run.protocol).hyper_parameters(run.method, run.task)
    return replace(run, settings=tuple((name, value) for name, value in run.settings if own.get(name) != value))


@cache
def _training(run: Run, epochs: int | None) -> Training:
    """The training of a run with seed 0, and all methods that share it."""
    from oddnode.runner.detectors import training_key

    alone = Training(run.task, run.protocol, run.backbone, 0, (run.method,), run.settings, epochs)
    own = training_key(alone, run.method)
    methods = [run.method]
    if not run.settings:
        # All methods that share the training score it, because other tables may need them later.
        methods = [method for method in methods_of(run.protocol) if training_key(alone, method) == own]
    return replace(alone, methods=tuple(methods), parameters=own)


# Time

# Factors for a data set's seconds, as measured in the full run, scoring included.
_BACKBONE = {"mlp": 0.8, "gat": 6.0, PLANAR: 7.0, "mixhop": 6.5, "jknet": 2.0}
_METHOD = {"gkde": 1.5, "gpn": 4.0, "gold": 1.6, "oe": 2.2, "energy-ft": 2.2, "nodesafe-ensemble": 4.5}

# The factor for one of several processes on a data-centre GPU; a guess, used until there are records of the device.
_GPU_PACE = 0.2


def estimate_cost(training: Training) -> float:
    """Estimate the seconds of a training on one core, to order trainings by their length."""
    from oddnode.protocols import get_protocol
    from oddnode.tasks import DATASETS

    data = DATASETS.get(training.task.split("/")[0])  # a store may have data sets of plugins that are not loaded
    seconds = (data.seconds if data else 10.0) * _BACKBONE.get(training.backbone, 1.0)
    seconds *= _METHOD.get(training.methods[0], 2.5 if "++" in training.methods[0] else 1.0)
    seconds *= get_protocol(training.protocol).relative_cost
    return seconds * (training.epochs or 200) / 200


def estimate_seconds(trainings: Iterable[Training], done: Iterable[Record], jobs: int, device: str = "cpu") -> float:
    """Estimate the seconds that trainings will take, from finished ones if there are any."""
    from oddnode._utils.devices import is_gpu

    known = [(r.facts["seconds"]["fit"], estimate_cost(r.training)) for r in done if r.error is None]
    pace = sum(k[0] for k in known) / sum(k[1] for k in known) if known else _GPU_PACE if is_gpu(device) else 1.0
    costs = [estimate_cost(training) for training in trainings]
    return pace * max(sum(costs) / jobs, max(costs, default=0.0))


def unfinished(plan: Plan, store: Store) -> list[Training]:
    """List the trainings of a plan that have no record yet."""
    done = store.finished()
    return [training for training in plan.trainings if training.identity not in done]
