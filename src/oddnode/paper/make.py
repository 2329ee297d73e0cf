"""Writes the outputs of a plan: tables, figures, the page of results and the report."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from oddnode._utils.atomic_files import new_file
from oddnode.paper.plan import Plan
from oddnode.paper.record import StoreError
from oddnode.paper.results import Results
from oddnode.paper.store import Store

__all__ = ["make_all"]


def make_all(
    plan: Plan, store: Store, out: Path, command: str, on_step: Callable[[str], None] | None = None
) -> tuple[list[Path], list[str]]:
    """Write all outputs of a plan.

    Parameters
    ----------
    plan : Plan
        The plan.
    store : Store
        The store with the plan's finished trainings.
    out : Path
        The folder, which is created if it does not exist.
    command : str
        The command that reproduces the numbers, for the page of results.
    on_step : callable, optional
        Called with the name of the next output.

    Returns
    -------
    list of Path
        The files written.
    list of str
        Notes on outputs that could not be written, with the reasons.
    """
    from oddnode.paper.grid import to_csv, to_latex, to_markdown
    from oddnode.paper.page import results_page
    from oddnode.paper.tables import BUILDERS, build_table

    results, written = Results(plan, store), []
    notes = [f"left out because its record is damaged: {label}" for label in results.damaged]
    step = on_step or (lambda what: None)
    for folder in ("tables", "figures"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for item in plan.items:
        if item.name in BUILDERS and item.runs(plan.scope, plan.protocols[0]):
            step(item.name)
            table = build_table(results, item.name)
            for ending, text in (("md", to_markdown(table)), ("tex", to_latex(table)), ("csv", to_csv(table))):
                written.append(_write(out / "tables" / f"{item.name}.{ending}", text))
    written.append(_write(out / "results.md", results_page(results, command)))
    drawn, missing = _draw(plan, results, out / "figures", step)
    written += drawn
    notes += missing
    if find_spec("plotly") is None:
        notes.append("the report needs plotly: pip install 'oddnode[report]', then run the same command again")
    else:
        from oddnode.paper.report import write_page

        step("report")
        written.append(write_page(store, plan, out / "report.html"))
    return written, notes


def _draw(plan: Plan, results: Results, folder: Path, step: Callable[[str], None]) -> tuple[list[Path], list[str]]:
    names = [item.name for item in plan.items if item.is_figure]
    if names and find_spec("matplotlib") is None:
        return [], ["figures need matplotlib: pip install 'oddnode[plot]', then run the same command again"]
    from oddnode.paper.figures import NothingToDraw, draw_figure

    written, notes = [], []
    for name in names:
        step(name)
        try:
            written += draw_figure(results, name, folder)
        except (NothingToDraw, StoreError) as reason:  # no finished trainings, or none with node scores
            notes.append(f"{name} could not be drawn: {reason}")
    return written, notes


def _write(path: Path, text: str) -> Path:
    with new_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
