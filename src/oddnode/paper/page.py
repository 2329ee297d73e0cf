"""The page of results, ``results.md``; ``docs/results.md`` is a copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from oddnode._utils.markdown import escape_markdown, pipe_table
from oddnode.bench.tables import caption, compare_table, is_model_free, model_free_last, paper_mean_pair
from oddnode.detector import RECIPES, get_recipe
from oddnode.evaluation import Result
from oddnode.paper.experiments import ITEMS, Run, methods_of
from oddnode.paper.grid import to_markdown
from oddnode.paper.plan import absent_data
from oddnode.paper.results import Results
from oddnode.paper.tables import build_table
from oddnode.tasks import TASKS

__all__ = ["accuracy_table", "backbone_table", "grids", "main_results", "results_page", "summary_rows", "summary_table"]

_INTRO = """# Results

Made by `{command}`. Every number is a mean over seeds with its standard deviation, in
percent. A cell shows AUROC / FPR95. *paper* is what the paper prints, from one run. The scores at the end of a table
(number of non-zero features, degree, cosine to the neighbours) are model-free: a method that loses to them has learnt
nothing there. PubMed's label task has one ID class, so its ID accuracy is 100 by construction. Twitch has other
features here than in the paper ([tasks](tasks.md)). What of the paper reproduces and what does not:
[reproduction](reproduction.md).
"""


def results_page(results: Results, command: str) -> str:
    """Write the page as Markdown: the comparison on all tasks, then the paper's smaller tables.

    Parameters
    ----------
    results : Results
        The results of a plan.
    command : str
        The command that reproduces the numbers, for the first sentence.
    """
    plan = results.plan
    made_on = escape_markdown("; ".join(results.made_on() or ["nothing yet"]))
    parts = [_INTRO.format(command=command), f"Made on: {made_on}.\n"]
    if plan.absent:
        names = ", ".join(absent_data(plan))
        parts.append(f"Not in these tables, because its data was not found: {names} ([tasks](tasks.md)).\n")
    chosen = {item.name for item in plan.items}
    main = chosen & {"table1", "table2", "wins", "agreement"} or any(name in chosen for name in plan.scope.details)
    for protocol in plan.protocols if main else ():
        found = main_results(results, protocol)
        if found:
            parts += [f"## Protocol {protocol}\n", summary_table(found)]
            for grid in grids(found):
                parts += [compare_table(grid), f"ID accuracy\n\n{accuracy_table(grid)}"]
    for name in ("networks", "claims", "agreement", "wins", "table3", "table10", "table9"):
        if name in chosen:
            parts.append(to_markdown(build_table(results, name), level=2))
    if "figure6" in chosen:
        parts += _backbone_parts(results)
    failures = results.failures()
    if failures:
        lines = "\n".join(f"- {escape_markdown(failure)}" for failure in failures)
        parts.append(f"## Trainings that failed\n\n{lines}\n")
    return "\n".join(parts)


def _main_runs(results: Results, protocol: str) -> list[Run]:
    plan = results.plan
    known = {run for item in plan.items for run in plan.runs(item)}
    every = [Run(task, protocol, method) for task in plan.scope.tasks for method in methods_of(protocol)]
    return [run for run in every if run in known]


def _backbone_parts(results: Results) -> list[str]:
    item = ITEMS["figure6"]
    parts = []
    for protocol in results.plan.protocols_of(item):
        runs = [run for run in results.plan.runs(item) if run.protocol == protocol]
        for method in dict.fromkeys(run.method for run in runs):
            found = [results.result(run) for run in runs if run.method == method]
            if found and all(result.runs for result in found):
                parts.append(f"## {method} under other backbones, protocol {protocol}\n\n{backbone_table(found)}")
    return parts


def summary_table(results: Sequence[Result]) -> str:
    """Format `summary_rows` as Markdown, with model-free scores in italics.

    Parameters
    ----------
    results : sequence of Result
        As in `summary_rows`.
    """
    head, *rows = summary_rows(results)
    body = [
        [f"*{name}*" if is_model_free(name) else name, exposure, *cells, f"**{mean}**", printed]
        for name, exposure, *cells, mean, printed in rows
    ]
    return f"AUROC ↑ / FPR95 ↓ by kind of shift\n\n{pipe_table(head, body)}\n"


def summary_rows(results: Sequence[Result]) -> list[list[str]]:
    """Average AUROC / FPR95 of every method over the tasks of each kind of shift.

    Parameters
    ----------
    results : sequence of Result
        Results under one protocol; a method may lack tasks.

    Returns
    -------
    list of list of str
        The first row names the columns, and the model-free scores come last.
    """
    tasks = list(dict.fromkeys(r.task for r in results))
    kinds = {
        kind: [t for t in tasks if t.split("/")[-1] == kind] for kind in dict.fromkeys(t.split("/")[-1] for t in tasks)
    }
    by_cell = {(r.task, r.method): r for r in results}
    count = f"mean of {len(tasks)} cells" if len(tasks) > 1 else "mean"
    rows = [["method", "exposure", *kinds, count, "the paper prints"]]
    for method in model_free_last(r.method for r in results):
        cells = [_mean_of(by_cell, members, method) for members in kinds.values()]
        exposure = "yes" if get_recipe(method).needs_exposure else "no"
        rows.append([method, exposure, *cells, _mean_of(by_cell, tasks, method), paper_mean_pair(tasks, method)])
    return rows


def main_results(results: Results, protocol: str) -> list[Result]:
    """List the results of all methods on all tasks of the main tables, if there are any.

    Parameters
    ----------
    results : Results
        The results of a plan.
    protocol : str
        One of the plan's protocols.
    """
    found = [results.result(run) for run in _main_runs(results, protocol)]
    return [result for result in found if result.runs]


def _mean_of(by_cell: dict[tuple[str, str], Result], tasks: Sequence[str], method: str) -> str:
    if any((task, method) not in by_cell for task in tasks):
        return "-"
    return " / ".join(f"{fmean(by_cell[task, method].mean(m) for task in tasks):.1f}" for m in ("auroc", "fpr95"))


def grids(results: Sequence[Result]) -> list[list[Result]]:
    """Divide results into complete grids: first the methods with all tasks, then the others with their common tasks.

    Parameters
    ----------
    results : sequence of Result
        One for each pair of a task and a method that was run.
    """
    tasks = [t for t in TASKS if any(r.task == t for r in results)]
    methods = [m for m in model_free_last(RECIPES) if any(r.method == m for r in results)]
    by_cell = {(r.task, r.method): r for r in results}
    everywhere = [m for m in methods if all((t, m) in by_cell for t in tasks)]
    rest = [m for m in methods if m not in everywhere]
    shared = [t for t in tasks if all((t, m) in by_cell for m in rest)]
    return [
        [by_cell[t, m] for t in where for m in which]
        for where, which in ((tasks, everywhere), (shared, rest))
        if where and which
    ]


def accuracy_table(results: Sequence[Result]) -> str:
    """Format the ID accuracy of every method on every task as Markdown.

    Parameters
    ----------
    results : sequence of Result
        A complete grid of tasks and methods.
    """
    results = [r for r in results if not is_model_free(r.method)]
    tasks = list(dict.fromkeys(r.task for r in results))
    by_cell = {(r.task, r.method): r for r in results}
    body = []
    for method in dict.fromkeys(r.method for r in results):
        cells = [by_cell[task, method] for task in tasks]
        shown = [f"{c.mean('id_acc'):.1f}±{c.std('id_acc'):.1f}" for c in cells]
        mean = fmean(c.mean("id_acc") for c in cells)
        body.append([method, *shown, f"**{mean:.1f}**"])
    return f"{pipe_table(['method', *tasks, 'mean'], body)}\n\n{caption(results).split('; paper')[0]}\n"


def backbone_table(results: Sequence[Result]) -> str:
    """Format the results of one method with several backbones as Markdown.

    Parameters
    ----------
    results : sequence of Result
        Results of one method; tasks that a backbone lacks are left out.
    """
    backbones = list(dict.fromkeys(r.backbone for r in results))
    tasks = [t for t in TASKS if all(any(r.task == t and r.backbone == b for r in results) for b in backbones)]
    renamed = [
        Result(r.task, r.backbone, r.protocol, "the row's", r.runs)
        for t in tasks
        for b in backbones
        for r in results
        if (r.task, r.backbone) == (t, b)
    ]
    return compare_table(renamed)
