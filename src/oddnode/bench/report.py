"""The files that a benchmark writes, and paired comparisons of its methods with a significance test."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from platform import machine, python_version, system

from oddnode._utils.atomic_files import write_text
from oddnode._utils.result_tables import csv_text, pipe_table
from oddnode._version import __version__
from oddnode.bench.tables import compare_table, latex_table, markdown_table, seeds_csv, summaries, to_csv
from oddnode.detector import MODEL_FREE
from oddnode.evaluation import METRIC_TITLES, Result
from oddnode.evaluation.statistics import Comparison, compare, holm

#: The metrics by which methods are compared.
METRICS_COMPARED = ("auroc", "fpr95")


def check_writable(folder: Path) -> None:
    """Create a folder and check that it is writable, so that mistakes show before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot create the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"no permission to write into {folder}")


def write_report(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write results as a report, tables, rows per seed and paired comparisons, each file atomically.

    Parameters
    ----------
    results : sequence of Result
        Every method on every task. Methods are compared with the first one.
    folder : Path
        Created if it does not exist; files of the same names are replaced.

    Returns
    -------
    list of Path
        The files written: ``report.md``; ``results.csv``, ``results.json`` and ``results.tex`` with means over seeds;
        ``seeds.csv`` with one row per seed; ``runs.json``, which also has the numbers of every OOD graph; and, for
        several methods, ``comparisons.csv``.
    """
    check_writable(folder)
    comparisons = compare_with_first(results)
    runs = {"made_on": _made_on(), "results": [r.summary() | {"runs": r.runs} for r in results]}
    files = {
        "report.md": _report(results, comparisons),
        "results.csv": to_csv(results),
        "results.json": json.dumps(summaries(results), indent=1) + "\n",
        "results.tex": latex_table(results),
        "seeds.csv": seeds_csv(results),
        "runs.json": json.dumps(runs, indent=1) + "\n",
    }
    if comparisons:
        files["comparisons.csv"] = csv_text([paired.row() for paired in comparisons])
    else:  # one from an earlier benchmark would not match the rest
        (folder / "comparisons.csv").unlink(missing_ok=True)
    return [write_text(folder / name, text) for name, text in files.items()]


def _made_on() -> str:
    import torch

    when = datetime.now(UTC).strftime("%Y-%m-%d")
    versions = f"oddnode {__version__}, torch {torch.__version__}, Python {python_version()}"
    return f"{versions}, {system()} {machine()}, {when}"


def _report(results: Sequence[Result], comparisons: Sequence[PairedComparison]) -> str:
    several = len({r.task for r in results}) > 1
    parts = [
        "# oddnode benchmark",
        "",
        f"{_made_on()}. Scores: higher = more in-distribution; ID is the positive class.",
        "",
        *([compare_table(results)] if several else []),
        markdown_table(results),
        *(["## Paired comparisons", "", comparison_table(comparisons)] if comparisons else []),
    ]
    return "\n".join(parts)


@dataclass(frozen=True)
class PairedComparison:
    """A method compared with the first one of a benchmark by one metric."""

    metric: str
    method: str
    reference: str  # The first method
    comparison: Comparison  # The advantage of the method over the first one
    p_holm: float  # Its p-value, adjusted for the number of methods that are compared by this metric

    def row(self) -> dict[str, str | int | float]:
        """All numbers as one flat row, for CSV; ``note`` says why a p-value says nothing."""
        c = self.comparison
        return {
            "metric": self.metric,
            "method": self.method,
            "reference": self.reference,
            "mean_advantage": c.difference,
            "tasks_won": c.cell_wins,
            "tasks_tied": c.cells - c.cell_wins - c.cell_losses,
            "tasks_lost": c.cell_losses,
            "seeds_won": c.pair_wins,
            "seeds_tied": c.pairs - c.pair_wins - c.pair_losses,
            "seeds_lost": c.pair_losses,
            "p": c.p_value,
            "p_holm": self.p_holm,
            "note": c.note,
        }


def compare_with_first(results: Sequence[Result]) -> list[PairedComparison]:
    """Compare every method with the first one by AUROC and FPR95, paired by task and seed, without model-free scores.

    Parameters
    ----------
    results : sequence of Result
        Every method on every task, with the same seeds.
    """
    by_method: dict[str, list[Result]] = {}
    for result in results:
        if result.method not in MODEL_FREE:
            by_method.setdefault(result.method, []).append(result)
    first, *others = by_method or [""]
    comparisons = []
    for metric in METRICS_COMPARED:
        numbers = {
            name: {r.task: [run[metric] for run in r.runs] for r in own if metric in r.metrics}
            for name, own in by_method.items()
        }
        if not numbers.get(first):  # no task has unknown nodes
            continue
        higher = METRIC_TITLES[metric].endswith("↑")
        compared = [compare(numbers[name], numbers[first], higher_is_better=higher) for name in others]
        adjusted = holm([comparison.p_value for comparison in compared])
        pairs = zip(others, compared, adjusted, strict=True)
        comparisons += [PairedComparison(metric, name, first, comparison, p) for name, comparison, p in pairs]
    return comparisons


def comparison_table(comparisons: Sequence[PairedComparison]) -> str:
    """Format comparisons as a Markdown table, with the terms of the test below it.

    Parameters
    ----------
    comparisons : sequence of PairedComparison
        At least one.
    """
    head = ["metric", "method", "mean advantage", "tasks won / tied / lost", "seeds won / tied / lost", "p", "p, Holm"]
    body = []
    for paired in comparisons:
        row = paired.row()
        tasks, seeds = (
            " / ".join(str(row[f"{what}_{end}"]) for end in ("won", "tied", "lost")) for what in ("tasks", "seeds")
        )
        advantage = f"{paired.comparison.difference:+.1f}"
        p_values = [f"{p:.2g}" for p in (paired.comparison.p_value, paired.p_holm)]
        body.append([METRIC_TITLES[paired.metric], paired.method, advantage, tasks, seeds, *p_values])
    notes = dict.fromkeys(c.comparison.note for c in comparisons if c.comparison.note)
    terms = (
        f"Compared with {comparisons[0].reference}, the first method; a positive advantage (percentage points, mean "
        "over tasks) is one over it. p: Wilcoxon's signed-rank test, two-sided, on the differences of the tasks' means "
        "over seeds; Holm: adjusted for the number of methods. Tasks of one data set share its graph, so p is if "
        "anything too small."
    )
    return "\n".join([pipe_table(head, body), "", terms, *(f"Note on p: {note}." for note in notes), ""])
