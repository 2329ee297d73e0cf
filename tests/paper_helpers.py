"""A plan that is small enough for tests: a few methods' trainings on digits, three epochs each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oddnode.evaluation import Result
from oddnode.paper.experiments import SCOPES, Scope, choose_items
from oddnode.paper.plan import Plan, make_plan
from oddnode.paper.results import Results
from oddnode.paper.run import Summary, run_plan
from oddnode.paper.store import Store
from oddnode.paper.tables import build_table
from oddnode.runner.execute import Setup, execute_group
from oddnode.runner.work import Group, Outcome, Training

CODE = "test"

TINY: Scope = replace(
    SCOPES["smoke"],
    citation=("digits/label",),
    others=(),
    details={"table6": ("digits/label",)},
    groups={"digits": ("digits/label",)},
    timed={"digits": "digits/label"},
    picture="digits/label",
    networks=("gcn", "mlp"),
    sweeps={"start": (0, 20), "lambda1": (0.001, 1.0), "lambda2": (0.1, 1.0)},
    epochs=3,
    seeds=1,
)


def tiny_plan(*items: str, protocols: tuple[str, ...] = ("clean",), seeds: int = 1) -> Plan:
    return make_plan(TINY, choose_items(items), protocols, seeds, device="cpu")


def result_of(task: str, method: str, *aurocs: float, backbone: str = "gcn") -> Result:
    """A result that is made up, with one AUROC per seed."""
    runs = [{"auroc": a, "aupr": 50.0, "fpr95": 100 - a, "id_acc": 80.0, "tests": {}} for a in aurocs]
    return Result(task, method, "clean", backbone, runs)


def execute(training: Training) -> Outcome:
    """Execute one training, with node scores."""
    [outcome] = execute_group(Group(((training,),)), Setup("cpu", node_scores=True))
    return outcome


def run(plan: Plan, folder: Path) -> Summary:
    """Run a plan in this process."""
    return run_plan(plan, folder, CODE)


def detection_tables(plan: Plan, folder: Path) -> dict[str, str]:
    """The tables of a store to the last digit."""
    with Store(folder, CODE) as store:
        results = Results(plan, store)
        names = [item.name for item in plan.items if not item.is_figure and item.name != "table9"]
        return {name: build_table(results, name).to_csv() for name in names}


def record_facts(
    training: Training, numbers: Mapping[tuple[str, str], Sequence[tuple[float, float]]]
) -> dict[str, Any]:
    """Facts of a record as `execute` gives them, with AUROC and FPR95 of a task, method and seed written by hand."""
    test = training.task.split("/")[1]
    facts: dict[str, Any] = {
        "methods": {},
        "graphs": {"id": "id", test: test},
        "best_epoch": training.seed + 1,
        "epochs": 4,
        "seconds": {"fit": 6.0, "forward": 0.5},
        "made_on": dict.fromkeys(("oddnode", "torch", "python", "system", "device", "cores", "date"), "x"),
    }
    for method in training.methods:
        auroc, fpr = numbers.get((training.task, method), [(60.0, 90.0)] * (training.seed + 1))[training.seed]
        detection = {"auroc": auroc, "aupr": 55.0, "fpr95": fpr}
        facts["methods"][method] = {**detection, "id_acc": 70.0, "tests": {test: detection}, "score_seconds": 0.25}
    return facts
