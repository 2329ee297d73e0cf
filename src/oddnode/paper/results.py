"""The numbers of a plan's finished trainings, and the paper's smaller tables."""

from __future__ import annotations

import csv
import io
from functools import cache
from importlib import resources

from oddnode.evaluation import Result
from oddnode.paper.experiments import Run
from oddnode.paper.plan import Plan
from oddnode.paper.record import DamagedRecord, Record
from oddnode.paper.store import Store


class Results:
    """The numbers of a plan's finished trainings."""

    def __init__(self, plan: Plan, store: Store):
        self.plan = plan
        self.store = store
        self.damaged: list[str] = []
        self._records: dict[str, Record] = {}
        for training in plan.trainings:
            try:
                record = store.get(training)
            except DamagedRecord:
                self.damaged.append(training.label)
                continue
            if record is not None:
                self._records[training.identity] = record

    def record(self, run: Run, seed: int) -> Record | None:
        """Look up the record of a run and a seed; ``None`` if there is none or the training failed."""
        training = self.plan.training(run, seed)
        record = None if training is None else self._records.get(training.identity)
        return None if record is None or record.error or run.method not in record.facts["methods"] else record

    def records(self, run: Run) -> list[Record]:
        """List the records of a run for all finished seeds."""
        return list(self._by_seed(run).values())

    def _by_seed(self, run: Run) -> dict[int, Record]:
        records = {seed: self.record(run, seed) for seed in range(self.plan.seeds)}
        return {seed: record for seed, record in records.items() if record is not None}

    def by_seed(self, run: Run, metric: str, test: str | None = None) -> dict[int, float]:
        """Look up a metric for all finished seeds, on one test graph or as the mean over all of them."""
        numbers = {seed: record.metrics(run.method) for seed, record in self._by_seed(run).items()}
        return {seed: (own["tests"][test] if test else own)[metric] for seed, own in numbers.items()}

    def values(self, run: Run, metric: str, test: str | None = None) -> list[float]:
        """List the numbers of `by_seed` in the order of the seeds."""
        return list(self.by_seed(run, metric, test).values())

    def result(self, run: Run) -> Result:
        """Make the `Result` of a run."""
        return Result(
            run.task, run.method, run.protocol, run.backbone, [r.metrics(run.method) for r in self.records(run)]
        )

    def failures(self) -> list[str]:
        """List the failed trainings, one line each with the label and the error message."""
        records = (self._records.get(training.identity) for training in self.plan.trainings)
        return [f"{r.training.label}: {r.error}" for r in records if r is not None and r.error]

    def tests(self, task: str, protocol: str) -> list[str]:
        """List the names of a task's test graphs."""
        for record in self._records.values():
            if record.training.task == task and record.training.protocol == protocol:
                return [name for name in record.facts["graphs"] if name != "id"]
        return []

    def made_on(self) -> list[str]:
        """List the versions and machines that produced the records, one line each."""
        kinds: dict[str, set[str]] = {}
        for record in self._records.values():
            on = record.facts["made_on"]
            kind = (
                f"oddnode {on['oddnode']} (source {record.code}), torch {on['torch']}, Python {on['python']}, "
                f"{on['system']}, {on['device']}, {on['cores']} cores"
            )
            kinds.setdefault(kind, set()).add(on["date"])
        return [f"{kind}, {' to '.join(sorted({min(dates), max(dates)}))}" for kind, dates in sorted(kinds.items())]


@cache
def paper_facts(name: str) -> tuple[dict[str, str], ...]:
    """Read one of the paper's smaller tables."""
    text = resources.files("oddnode.paper").joinpath(f"facts/{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(io.StringIO(text)))
