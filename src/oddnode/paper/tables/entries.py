"""What the tables are made of: numbers of runs as entries, rows of methods, captions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from oddnode.bench.paper_numbers import paper_number
from oddnode.bench.tables import is_model_free
from oddnode.detector import get_recipe
from oddnode.paper.experiments import Run
from oddnode.paper.grid import Block, Entry, Row
from oddnode.paper.results import Results

__all__ = [
    "DETECTION",
    "SPREAD",
    "Built",
    "caption",
    "mean_entry",
    "method_row",
    "present",
    "run_entry",
    "seeds_phrase",
    "timed",
]

#: The blocks of a table and the notes under them.
Built = tuple[list[Block], list[str]]

#: How the spread over seeds is written in files.
SPREAD = "mean ± standard deviation"

#: The metrics of detection, without the accuracy.
DETECTION = ("auroc", "aupr", "fpr95")


def present(results: Results, tasks: Iterable[str]) -> list[str]:
    """The tasks whose data is here.

    Parameters
    ----------
    results : Results
        The results of a plan.
    tasks : iterable of str
        Names of tasks.
    """
    return [task for task in tasks if task not in results.plan.absent]


def timed(results: Results) -> Mapping[str, str]:
    """The tasks of the tables of costs, by the label of their column, as far as their data is here.

    Parameters
    ----------
    results : Results
        The results of a plan.
    """
    return {label: task for label, task in results.plan.scope.timed.items() if task not in results.plan.absent}


def seeds_phrase(results: Results) -> str:
    """How many seeds a table is of, in words.

    Parameters
    ----------
    results : Results
        The results of a plan.
    """
    count = results.plan.seeds
    return f"{count} seeds, {SPREAD}" if count > 1 else "one seed, no spread"


def caption(results: Results, protocol: str, what: str = "percent") -> str:
    """Describe the numbers of a block: protocol, backbone, seeds and unit.

    Parameters
    ----------
    results : Results
        The results of a plan.
    protocol : str
        The block's protocol.
    what : str
        The unit.
    """
    return f"protocol {protocol}, backbone gcn, {seeds_phrase(results)}, {what}"


def method_row(method: str, entries: Sequence[Entry]) -> Row:
    """Make the row of a method; methods with and without exposure are separate groups.

    Parameters
    ----------
    method : str
        Its name.
    entries : sequence of Entry
        Its numbers, one per column.
    """
    if is_model_free(method):
        return Row(method, tuple(entries), model_free=True)
    return Row(method, tuple(entries), group="exposure" if get_recipe(method).needs_exposure else "no exposure")


def run_entry(results: Results, run: Run, metric: str, test: str | None = None) -> Entry:
    """Make the entry of a run: its numbers over the seeds, and the paper's number.

    Parameters
    ----------
    results : Results
        The results of a plan.
    run : Run
        A method on a task.
    metric : str
        One of `oddnode.evaluation.METRICS`.
    test : str, optional
        One of the task's test graphs; by default the mean over all of them.
    """
    if metric == "id_acc" and is_model_free(run.method):
        return Entry(text="-")
    place = f"{run.task}/{test}" if test else run.task
    return Entry.of(results.by_seed(run, metric, test), paper_number(place, run.method, metric))


def mean_entry(entries: Sequence[Entry]) -> Entry:
    """Average entries seed by seed; the result has no values if the entries have different seeds.

    Parameters
    ----------
    entries : sequence of Entry
        One per cell.
    """
    shared = {entry.seeds for entry in entries}
    papers = [entry.paper for entry in entries]
    known = [p for p in papers if p is not None]
    printed = fmean(known) if known and len(known) == len(papers) else None
    if len(shared) != 1:
        return Entry(paper=printed)
    means = map(fmean, zip(*(entry.values for entry in entries), strict=True))
    return Entry.of(dict(zip(shared.pop(), means, strict=True)), printed)
