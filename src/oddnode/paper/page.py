"""The page of results: ``results.md``, from which the project's own ``docs/results.md`` is made."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from oddnode.bench.tables import caption, compare_table, paper_number
from oddnode.detector import FLOOR, RECIPES, get_recipe
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
percent. A cell shows AUROC / FPR95. *paper* is what the paper prints, from one run. The trivial scores at the end of a
table (number of non-zero features, degree, cosine to the neighbours) use no model: a method that loses to them has
learnt nothing there. PubMed's label task has one ID class, so its ID accuracy is 100 by construction. Twitch has other
features here than in the paper ([tasks](tasks.md)). What of the paper reproduces and what does not:
[reproduction](reproduction.md).
"""


def results_page(results: Results, command: str) -> str:
    """The page as Markdown: the comparison on all cells, then the paper's smaller tables."""
    plan = results.plan
    parts = [_INTRO.format(command=command), "Made on: " + "; ".join(results.made_on() or ["nothing yet"]) + ".\n"]
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
        parts.append("## Trainings that failed\n\n" + "\n".join(f"- {failure}" for failure in failures) + "\n")
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
    """`summary_rows` as Markdown, trivial scores in italics."""
    head, *body = summary_rows(results)
    lines = [head, ["---"] * len(head)]
    for name, exposure, *cells, mean, printed in body:
        lines.append([f"*{name}*" if name in FLOOR else name, exposure, *cells, f"**{mean}**", printed])
    return "AUROC ↑ / FPR95 ↓ by kind of shift\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def summary_rows(results: Sequence[Result]) -> list[list[str]]:
    """AUROC / FPR95 of every method, averaged by the kind of shift; no spread, the other tables have it.

    The first row names the columns, and the trivial scores come last.
    """
    tasks = list(dict.fromkeys(r.task for r in results))
    kinds = {
        kind: [t for t in tasks if t.split("/")[-1] == kind] for kind in dict.fromkeys(t.split("/")[-1] for t in tasks)
    }
    by_cell = {(r.task, r.method): r for r in results}
    methods = list(dict.fromkeys(r.method for r in results))
    count = f"mean of {len(tasks)} cells" if len(tasks) > 1 else "mean"
    rows = [["method", "exposure", *kinds, count, "the paper prints"]]
    for method in [m for m in methods if m not in FLOOR] + [m for m in methods if m in FLOOR]:
        cells = [_mean_of(by_cell, members, method) for members in kinds.values()]
        exposure = "yes" if get_recipe(method).needs_exposure else "no"
        rows.append([method, exposure, *cells, _mean_of(by_cell, tasks, method), _printed(tasks, method)])
    return rows


def main_results(results: Results, protocol: str) -> list[Result]:
    """Every method on every task that the plan compares them on, where there are numbers."""
    found = [results.result(run) for run in _main_runs(results, protocol)]
    return [result for result in found if result.runs]


def _mean_of(by_cell: dict[tuple[str, str], Result], tasks: Sequence[str], method: str) -> str:
    if any((task, method) not in by_cell for task in tasks):
        return "-"
    return " / ".join(f"{fmean(by_cell[task, method].mean(m) for task in tasks):.1f}" for m in ("auroc", "fpr95"))


def _printed(tasks: Sequence[str], method: str) -> str:
    numbers = [[paper_number(task, method, metric) for task in tasks] for metric in ("auroc", "fpr95")]
    if any(n is None for row in numbers for n in row):
        return "-"
    return " / ".join(f"{fmean(n for n in row if n is not None):.1f}" for row in numbers)


def grids(results: Sequence[Result]) -> list[list[Result]]:
    """Complete grids of tasks and methods: first the methods that were run on every task, then the rest on theirs."""
    tasks = [t for t in TASKS if any(r.task == t for r in results)]
    methods = [m for m in [*(m for m in RECIPES if m not in FLOOR), *FLOOR] if any(r.method == m for r in results)]
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
    """ID accuracy of every method on every task."""
    tasks = list(dict.fromkeys(r.task for r in results))
    methods = [m for m in dict.fromkeys(r.method for r in results) if m not in FLOOR]
    by_cell = {(r.task, r.method): r for r in results}
    lines = ["| method | " + " | ".join(tasks) + " | mean |", "| --- " * (len(tasks) + 2) + "|"]
    for method in methods:
        cells = [by_cell[task, method] for task in tasks]
        shown = [f"{c.mean('id_acc'):.1f}±{c.std('id_acc'):.1f}" for c in cells]
        mean = fmean(c.mean("id_acc") for c in cells)
        lines.append(f"| {method} | " + " | ".join(shown) + f" | **{mean:.1f}** |")
    return "\n".join(lines) + f"\n\n{caption(results).split('; paper')[0]}\n"


def backbone_table(results: Sequence[Result]) -> str:
    """One method under several backbones."""
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
