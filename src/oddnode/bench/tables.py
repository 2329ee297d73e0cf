"""Results as tables: for the terminal, as Markdown, CSV and JSON, with the paper's numbers beside ours."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import cache
from importlib import resources
from statistics import fmean

from oddnode.detector import FLOOR
from oddnode.evaluation import Result

__all__ = ["caption", "compare_table", "floor_last", "is_floor", "markdown_table", "paper_number", "to_csv"]

_SHOWN = ("auroc", "aupr", "fpr95", "id_acc")
_TITLES = {"auroc": "AUROC ↑", "aupr": "AUPR ↑", "fpr95": "FPR95 ↓", "id_acc": "ID acc ↑"}


@cache
def _paper() -> dict[tuple[str, str], dict[str, float]]:
    text = resources.files("oddnode.bench").joinpath("paper.csv").read_text(encoding="utf-8")
    return {
        (row["task"], row["method"]): {m: float(row[m]) for m in _SHOWN if row[m]}
        for row in csv.DictReader(io.StringIO(text))
    }


def paper_number(task: str, method: str, metric: str) -> float | None:
    """What the paper prints, where it does."""
    return _paper().get((task, method), {}).get(metric)


def caption(results: Sequence[Result]) -> str:
    """Protocol, backbone and seeds: what every table must say."""
    first = results[0]
    spread = "mean ± standard deviation" if first.seeds > 1 else "one seed, no spread"
    note = "; paper's number in brackets" if any(_has_paper(r) for r in results) else ""
    seeds = f"{first.seeds} seed{'s' if first.seeds > 1 else ''}"
    note += "; trivial scores last" if any(map(is_floor, results)) else ""
    return f"protocol {first.protocol}, backbone {first.backbone}, {seeds}, {spread}, percent{note}"


def _has_paper(result: Result) -> bool:
    return (result.task, result.method) in _paper()


def is_floor(result: Result) -> bool:
    """Whether the result is of a trivial score."""
    return result.method in FLOOR


def floor_last(results: Sequence[Result]) -> list[Result]:
    """Results by task, the trivial scores after the methods."""
    tasks = list(dict.fromkeys(r.task for r in results))
    return sorted(results, key=lambda r: (tasks.index(r.task), is_floor(r)))


def rows(results: Sequence[Result]) -> list[list[str]]:
    """A row of text per result."""
    return [[r.task, r.method, *(_cell(r, metric) for metric in _SHOWN)] for r in results]


def header() -> list[str]:
    """Column titles of `rows`."""
    return ["task", "method", *(_TITLES[m] for m in _SHOWN)]


def _cell(result: Result, metric: str) -> str:
    if metric == "id_acc" and is_floor(result):
        return "-"  # a trivial score classifies nothing
    ours = f"{result.mean(metric):.1f}"
    if result.seeds > 1:
        ours += f" ± {result.std(metric):.1f}"
    printed = paper_number(result.task, result.method, metric)
    return ours if printed is None else f"{ours} ({printed:.1f})"


def markdown_table(results: Sequence[Result]) -> str:
    """Results as a Markdown table with its caption; trivial scores come last and in italics."""
    results = floor_last(results)
    body = [
        [f"*{cell}*" for cell in row] if is_floor(result) else row
        for result, row in zip(results, rows(results), strict=True)
    ]
    return f"{_markdown(header(), body)}\n\n{caption(results)}\n"


def compare_table(results: Sequence[Result], metrics: tuple[str, str] = ("auroc", "fpr95")) -> str:
    """Methods as rows, tasks as columns, two metrics in a cell, and the mean over the tasks."""
    tasks = list(dict.fromkeys(r.task for r in results))
    methods = list(dict.fromkeys(r.method for r in sorted(results, key=is_floor)))
    by_cell = {(r.task, r.method): r for r in results}
    body = []
    for method in methods:
        cells = [by_cell[task, method] for task in tasks]
        name = f"*{method}*" if method in FLOOR else method
        body.append([name, *(_pair(r, metrics) for r in cells), _mean_pair(cells, metrics)])
        printed = [[paper_number(task, method, m) for m in metrics] for task in tasks]
        if any(p[0] is not None for p in printed):
            body.append(["*paper*", *(_plain_pair(p) for p in printed), _paper_mean(printed)])
    titles = " / ".join(_TITLES[m] for m in metrics)
    table = _markdown(["method", *tasks, "mean"], body)
    terms = caption(results).replace("; paper's number in brackets", "")  # it has rows of its own here
    return f"{titles}\n\n{table}\n\n{terms}\n"


def _pair(result: Result, metrics: tuple[str, str]) -> str:
    spread = result.seeds > 1
    return " / ".join(f"{result.mean(m):.1f}" + (f"±{result.std(m):.1f}" if spread else "") for m in metrics)


def _mean_pair(results: Sequence[Result], metrics: tuple[str, str]) -> str:
    return "**" + " / ".join(f"{fmean(r.mean(m) for r in results):.1f}" for m in metrics) + "**"


def _plain_pair(pair: Sequence[float | None]) -> str:
    return " / ".join("-" if number is None else f"{number:.1f}" for number in pair)


def _paper_mean(printed: Sequence[Sequence[float | None]]) -> str:
    columns = [[p[i] for p in printed] for i in range(2)]
    if any(number is None for column in columns for number in column):
        return "-"
    return " / ".join(f"{fmean(n for n in column if n is not None):.1f}" for column in columns)


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def to_csv(results: Sequence[Result]) -> str:
    """One line per result, the same columns as ``--json``."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(results[0].summary()), lineterminator="\n")
    writer.writeheader()
    writer.writerows(r.summary() for r in results)
    return text.getvalue()
