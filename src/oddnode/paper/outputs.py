"""The outputs of a plan: tables, figures, the report, and the page ``results.md``, which the docs have a copy of."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from oddnode._utils.atomic_files import write_text
from oddnode._utils.result_tables import escape_markdown, pipe_table
from oddnode.bench.tables import caption, compare_table, mean_pair, model_free_last, paper_mean_pair
from oddnode.detector import MODEL_FREE, RECIPES, get_recipe
from oddnode.evaluation import Result
from oddnode.paper.experiments import ITEMS, Run, methods_of
from oddnode.paper.plan import Plan, absent_data
from oddnode.paper.record import StoreError
from oddnode.paper.results import Results
from oddnode.paper.store import Store
from oddnode.paper.tables import BUILDERS, build_table
from oddnode.tasks import TASKS

_INTRO = """# Results

Made by `{command}`. Every number is a mean over seeds with its standard deviation, in
percent. A cell shows AUROC / FPR95. *paper* is what the paper prints, from one run. The scores at the end of a table
(number of non-zero features, degree, cosine to the neighbours) are model-free: a method that loses to them has learnt
nothing there. PubMed's label task has one ID class, so its ID accuracy is 100 by construction. Twitch has other
features here than in the paper ([tasks](tasks.md)). What of the paper reproduces and what does not:
[reproduction](reproduction.md).
"""


def make_all(plan: Plan, store: Store, out: Path, command: str) -> tuple[list[Path], list[str]]:
    """Write all outputs of a plan."""
    results, written = Results(plan, store), []
    notes = [f"left out because its record is damaged: {label}" for label in results.damaged]
    for folder in ("tables", "figures"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for item in plan.items:
        if item.name in BUILDERS and item.runs(plan.scope, plan.protocols[0]):
            table = build_table(results, item.name)
            for ending, text in (("md", table.to_markdown()), ("tex", table.to_latex()), ("csv", table.to_csv())):
                written.append(write_text(out / "tables" / f"{item.name}.{ending}", text))
    written.append(write_text(out / "results.md", results_page(results, command)))
    drawn, missing = _draw(plan, results, out / "figures")
    written += drawn
    notes += missing
    if find_spec("plotly") is None:
        notes.append("the report needs plotly: pip install 'oddnode[report]', then run the same command again")
    else:
        from oddnode.paper.report import make_page
        from oddnode.paper.webpage import write_html

        written.append(write_html(make_page(store, plan), out / "report.html"))
    return written, notes


def _draw(plan: Plan, results: Results, folder: Path) -> tuple[list[Path], list[str]]:
    names = [item.name for item in plan.items if item.is_figure]
    if names and find_spec("matplotlib") is None:
        return [], ["figures need matplotlib: pip install 'oddnode[plot]', then run the same command again"]
    from oddnode.paper.figures import NothingToDraw, draw_figure

    written, notes = [], []
    for name in names:
        try:
            written += draw_figure(results, name, folder)
        except (NothingToDraw, StoreError) as reason:  # no finished trainings, or none with node scores
            notes.append(f"{name} could not be drawn: {reason}")
    return written, notes


def results_page(results: Results, command: str) -> str:
    """Write the page as Markdown: the comparison on all tasks, then the paper's smaller tables."""
    plan = results.plan
    made_on = escape_markdown("; ".join(results.made_on() or ["nothing yet"]))
    parts = [_INTRO.format(command=command), f"Made on: {made_on}.\n"]
    if plan.absent:
        names = ", ".join(absent_data(plan))
        parts.append(f"Not in these tables, because its data was not found: {names} ([tasks](tasks.md)).\n")
    chosen = {item.name for item in plan.items}
    main = chosen & {"table1", "table2", "wins", "agreement"} or any(name in chosen for name in plan.scope.details)
    for protocol in plan.protocols if main else ():
        rows = main_results(results, protocol)
        if rows:
            parts += [f"## Protocol {protocol}\n", summary_table(rows)]
            for grid in grids(rows):
                parts += [compare_table(grid), f"ID accuracy\n\n{accuracy_table(grid)}"]
    for name in ("networks", "claims", "agreement", "wins", "table3", "table10", "table9"):
        if name in chosen:
            parts.append(build_table(results, name).to_markdown(level=2))
    if "figure6" in chosen:
        parts += _backbone_parts(results)
    failures = results.failures()
    if failures:
        lines = "\n".join(f"- {escape_markdown(failure)}" for failure in failures)
        parts.append(f"## Trainings that failed\n\n{lines}\n")
    return "\n".join(parts)


def _backbone_parts(results: Results) -> list[str]:
    item = ITEMS["figure6"]
    parts = []
    for protocol in results.plan.protocols_of(item):
        runs = [run for run in results.plan.runs(item) if run.protocol == protocol]
        for method in dict.fromkeys(run.method for run in runs):
            own = [results.result(run) for run in runs if run.method == method]
            if own and all(result.runs for result in own):
                parts.append(f"## {method} under other backbones, protocol {protocol}\n\n{backbone_table(own)}")
    return parts


def summary_table(results: Sequence[Result]) -> str:
    """Format `summary_rows` as Markdown, with model-free scores in italics."""
    head, *rows = summary_rows(results)
    body = [
        [f"*{name}*" if name in MODEL_FREE else name, exposure, *cells, f"**{mean}**", printed]
        for name, exposure, *cells, mean, printed in rows
    ]
    return f"AUROC ↑ / FPR95 ↓ by kind of shift\n\n{pipe_table(head, body)}\n"


def summary_rows(results: Sequence[Result]) -> list[list[str]]:
    """Average AUROC / FPR95 of every method over the tasks of each kind of shift."""
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
    """List the results of all methods on all tasks of the main tables, if there are any."""
    plan = results.plan
    known = {run for item in plan.items for run in plan.runs(item)}
    every = [Run(task, protocol, method) for task in plan.scope.tasks for method in methods_of(protocol)]
    return [result for run in every if run in known and (result := results.result(run)).runs]


def _mean_of(by_cell: dict[tuple[str, str], Result], tasks: Sequence[str], method: str) -> str:
    if any((task, method) not in by_cell for task in tasks):
        return "-"
    return mean_pair([by_cell[task, method] for task in tasks])


def grids(results: Sequence[Result]) -> list[list[Result]]:
    """Divide results into complete grids: first the methods with all tasks, then the others with their common tasks."""
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
    """Format the ID accuracy of every method on every task as Markdown."""
    results = [r for r in results if r.method not in MODEL_FREE]
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
    """Format the results of one method with several backbones as Markdown."""
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
