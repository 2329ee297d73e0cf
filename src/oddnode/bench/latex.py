"""Results as LaTeX tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from oddnode._utils.latex import booktabs_table, escape_latex, latex_comment
from oddnode.bench.tables import caption, is_model_free, model_free_last, shown_metrics
from oddnode.evaluation import DECISION_TITLES, METRIC_TITLES, Result

__all__ = ["latex_table"]

_TITLES = METRIC_TITLES | DECISION_TITLES


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
        columns = {_TITLES[m]: (m, {name: [cells[tasks[0], name]] for name in methods}) for m in metrics}
        parts.append(_table(f"{tasks[0]}; {terms}", "tab:oddnode", columns, methods))
    else:
        for metric in metrics:
            by_task = {task: (metric, {name: [cells[task, name]] for name in methods}) for task in tasks}
            mean = {"mean": (metric, {name: [cells[task, name] for task in tasks] for name in methods})}
            parts.append(_table(f"{_TITLES[metric]}; {terms}", f"tab:oddnode-{metric}", by_task | mean, methods))
    return "\n".join(parts)


#: A metric, and for every method the results that a cell of its column is the mean of.
_Column = tuple[str, dict[str, list[Result]]]


def _table(text: str, label: str, columns: dict[str, _Column], methods: Sequence[str]) -> str:
    best = {title: _best(*column) for title, column in columns.items()}
    lines = []
    for number, method in enumerate(methods):
        if number and is_model_free(method) and not is_model_free(methods[number - 1]):
            lines.append(r"\midrule")
        shown = []
        for title, (metric, by_method) in columns.items():
            cell = escape_latex(_cell(by_method[method], metric))
            shown.append(rf"\textbf{{{cell}}}" if method in best[title] else cell)
        lines.append(" & ".join([escape_latex(method), *shown]) + r" \\")
    return booktabs_table(text, label, list(columns), lines)


def _best(metric: str, by_method: dict[str, list[Result]]) -> set[str]:
    """The methods with the best rounded mean, if there are several to choose from and the metric has a direction."""
    means = {name: round(_mean(own, metric), 1) for name, own in by_method.items() if not is_model_free(name)}
    if len(means) < 2 or not _TITLES[metric].endswith(("↑", "↓")):
        return set()
    top = (min if _TITLES[metric].endswith("↓") else max)(means.values())
    return {name for name, mean in means.items() if mean == top}


def _mean(results: Sequence[Result], metric: str) -> float:
    return fmean(result.mean(metric) for result in results)


def _cell(results: Sequence[Result], metric: str) -> str:
    if metric == "id_acc" and is_model_free(results[0].method):
        return "-"
    shown = f"{_mean(results, metric):.1f}"
    alone = len(results) == 1 and results[0].seeds > 1
    return f"{shown} ± {results[0].std(metric):.1f}" if alone else shown
