"""Results as tables: for the terminal, as Markdown, LaTeX and CSV, with the paper's numbers next to ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from oddnode._utils.result_tables import Entry, Grid, Row, csv_text, latex_comment, pipe_table
from oddnode.bench.paper_numbers import paper_number
from oddnode.detector import MODEL_FREE
from oddnode.evaluation import DECISION_TITLES, METRIC_TITLES, METRICS, Result

_TITLES = METRIC_TITLES | DECISION_TITLES


def model_free_last(methods: Iterable[str]) -> list[str]:
    """Drop duplicate names of methods, and move model-free scores to the end."""
    return sorted(dict.fromkeys(methods), key=MODEL_FREE.__contains__)


def caption(results: Sequence[Result], with_paper: bool = True) -> str:
    """Describe a table: protocol, backbone, changed settings and seeds."""
    first = results[0]
    seeds = f"{first.seeds} seeds, mean ± standard deviation" if first.seeds > 1 else "one seed, no spread"
    printed = with_paper and any(paper_number(r.task, r.method, m) is not None for r in results for m in METRICS)
    note = "; paper's number in brackets" if printed else ""
    note += "; model-free scores last" if any(r.method in MODEL_FREE for r in results) else ""
    settings = "".join(f", {name}={value}" for name, value in first.settings.items())
    return f"protocol {first.protocol}, backbone {first.backbone}{settings}, {seeds}, percent{note}"


def shown_metrics(results: Sequence[Result]) -> list[str]:
    """List the metrics of a table; those of decisions come before the accuracy, if all results have them."""
    decisions = DECISION_TITLES if all("false_alarms" in result.metrics for result in results) else ()
    return [*METRICS[:-1], *decisions, METRICS[-1]]


def rows(results: Sequence[Result]) -> list[list[str]]:
    """Format the titles of the columns and one row of text per result, each task's model-free scores last."""
    tasks, metrics = list(dict.fromkeys(r.task for r in results)), shown_metrics(results)
    ordered = sorted(results, key=lambda r: (tasks.index(r.task), r.method in MODEL_FREE))
    body = [[r.task, r.method, *(_entry(r, m).shown(with_paper=True) for m in metrics)] for r in ordered]
    return [["task", "method", *(_TITLES[metric] for metric in metrics)], *body]


def _entry(result: Result, metric: str) -> Entry:
    if metric not in result.metrics or (metric == "id_acc" and result.method in MODEL_FREE):
        return Entry(text="-")
    return Entry(tuple(run[metric] for run in result.runs), paper_number(result.task, result.method, metric))


def markdown_table(results: Sequence[Result]) -> str:
    """Format results as a Markdown table with a caption; model-free scores come last, in italics.

    Parameters
    ----------
    results : sequence of Result
        At least one.
    """
    head, *body = rows(results)
    body = [[f"*{cell}*" for cell in row] if row[1] in MODEL_FREE else row for row in body]
    return f"{pipe_table(head, body)}\n\n{caption(results)}\n"


def latex_table(results: Sequence[Result]) -> str:
    r"""Format results as LaTeX; needs ``\usepackage{booktabs,graphicx}``.

    One task gives one table, with the metrics as columns. Several give one table per metric, with the tasks and their
    mean as columns. The best mean of a column is bold; model-free scores stand below a line and are never bold.

    Parameters
    ----------
    results : sequence of Result
        At least one; every method on every task.
    """
    tasks, metrics = list(dict.fromkeys(r.task for r in results)), shown_metrics(results)
    cells = {(r.task, r.method): r for r in results}
    methods = model_free_last(r.method for r in results)
    terms = caption(results, with_paper=False)
    parts = [latex_comment(r"Needs \usepackage{booktabs,graphicx}.") + "\n"]
    if len(tasks) == 1:
        rows = [_row(m, [_entry(cells[tasks[0], m], metric) for metric in metrics]) for m in methods]
        grid = Grid("", tuple(_TITLES[metric] for metric in metrics), tuple(rows))
        return "\n".join([*parts, grid.to_latex(f"{tasks[0]}; {terms}", "tab:oddnode")])
    for metric in metrics:
        rows = [_row(m, _with_mean([_entry(cells[task, m], metric) for task in tasks])) for m in methods]
        grid = Grid(_TITLES[metric], (*tasks, "mean"), tuple(rows))
        parts.append(grid.to_latex(f"{grid.title}; {terms}", f"tab:oddnode-{metric}"))
    return "\n".join(parts)


def _row(method: str, entries: Sequence[Entry]) -> Row:
    own = tuple(replace(entry, paper=None) for entry in entries)
    return Row(method, own, group=None if method in MODEL_FREE else "methods")


def _with_mean(entries: Sequence[Entry]) -> list[Entry]:
    means = [entry.mean for entry in entries if entry.mean is not None]
    return [*entries, Entry((fmean(means),)) if means else Entry(text="-")]


def compare_table(results: Sequence[Result], metrics: tuple[str, str] = ("auroc", "fpr95")) -> str:
    """Compare methods (rows) on tasks (columns) in a Markdown table, two metrics per cell and their means at the end.

    Parameters
    ----------
    results : sequence of Result
        One for every pair of a task and a method.
    metrics : pair of str
        Which of `oddnode.evaluation.METRICS` to show.
    """
    tasks = list(dict.fromkeys(r.task for r in results))
    by_cell = {(r.task, r.method): r for r in results}
    body = []
    for method in model_free_last(r.method for r in results):
        cells = [by_cell[task, method] for task in tasks]
        name = f"*{method}*" if method in MODEL_FREE else method
        body.append([name, *(_pair(r, metrics) for r in cells), f"**{mean_pair(cells, metrics)}**"])
        printed = [[paper_number(task, method, m) for m in metrics] for task in tasks]
        if any(p[0] is not None for p in printed):
            body.append(["*paper*", *(shown_pair(p) for p in printed), paper_mean_pair(tasks, method, metrics)])
    titles = " / ".join(METRIC_TITLES[m] for m in metrics)
    table = pipe_table(["method", *tasks, "mean"], body)
    return f"{titles}\n\n{table}\n\n{caption(results, with_paper=False)}\n"  # the paper's are separate rows


def _pair(result: Result, metrics: tuple[str, str]) -> str:
    spread = result.seeds > 1
    shown = [
        f"{result.mean(m):.1f}" + (f"±{result.std(m):.1f}" if spread else "") for m in metrics if m in result.metrics
    ]
    return " / ".join(shown) or "-"


def mean_pair(results: Sequence[Result], metrics: tuple[str, str] = ("auroc", "fpr95")) -> str:
    """Average two metrics over the results that have them."""
    found = [[r.mean(metric) for r in results if metric in r.metrics] for metric in metrics]
    return shown_pair([fmean(means) if means else None for means in found])


def shown_pair(pair: Sequence[float | None]) -> str:
    """Format two numbers in one cell."""
    return " / ".join("-" if number is None else f"{number:.1f}" for number in pair)


def paper_mean_pair(tasks: Sequence[str], method: str, metrics: tuple[str, str] = ("auroc", "fpr95")) -> str:
    """Average the paper's numbers of a method over tasks; ``"-"`` if the paper lacks one of them."""
    columns = [[number for task in tasks if (number := paper_number(task, method, m)) is not None] for m in metrics]
    return shown_pair([fmean(column) for column in columns]) if all(len(c) == len(tasks) for c in columns) else "-"


def summaries(results: Sequence[Result]) -> list[dict[str, Any]]:
    """List the rows of `Result.summary`; those of model-free scores, which classify nothing, have no accuracy."""
    return _without_accuracy([result.summary() for result in results])


def per_seed_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """List the rows of `Result.per_seed`; those of model-free scores have no accuracy."""
    return _without_accuracy([row for result in results for row in result.per_seed()])


def _without_accuracy(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop the accuracy of model-free scores, which is that of the network they were computed along with."""
    return [
        {k: v for k, v in row.items() if not (k.startswith("id_acc") and row["method"] in MODEL_FREE)} for row in rows
    ]


def to_csv(results: Sequence[Result]) -> str:
    """Format one CSV line per result, with the columns of `summaries`.

    Parameters
    ----------
    results : sequence of Result
        At least one.
    """
    return csv_text(summaries(results))


def seeds_csv(results: Sequence[Result]) -> str:
    """Format one CSV line per result and seed, with the columns of `per_seed_rows`.

    Parameters
    ----------
    results : sequence of Result
        At least one.
    """
    return csv_text(per_seed_rows(results))
