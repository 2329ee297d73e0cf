"""The paper's tables with our numbers, built from a store.

May import: the other modules of paper.
"""

from __future__ import annotations

from collections.abc import Callable

from oddnode.paper.experiments import ITEMS
from oddnode.paper.grid import Table
from oddnode.paper.results import Results
from oddnode.paper.tables.comparisons import agreement_table, claims_table, wins_table
from oddnode.paper.tables.cost import convergence_table, seconds_table
from oddnode.paper.tables.detection import (
    ablation_table,
    main_table,
    networks_table,
    others_table,
    per_cell_table,
    per_graph_table,
)
from oddnode.paper.tables.entries import Built

__all__ = ["BUILDERS", "build_table"]

_SMOKE = "A smoke run: few epochs, and digits in place of all data. It shows that everything works, not how well."

#: The builder of each table.
BUILDERS: dict[str, Callable[[Results, str], Built]] = {
    "table1": main_table,
    "table2": others_table,
    "table3": ablation_table,
    "table4": per_graph_table,
    "table5": per_graph_table,
    "table6": per_cell_table,
    "table7": per_cell_table,
    "table8": per_cell_table,
    "table9": seconds_table,
    "table10": convergence_table,
    "claims": claims_table,
    "agreement": agreement_table,
    "networks": networks_table,
    "wins": wins_table,
}


def build_table(results: Results, name: str) -> Table:
    """Build a table from the finished trainings.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        A key of `BUILDERS`.
    """
    item, plan = ITEMS[name], results.plan
    blocks, notes = BUILDERS[name](results, name)
    if plan.scope.name == "smoke":
        notes = [*notes, _SMOKE]
    tasks = dict.fromkeys(run.task for protocol in plan.protocols for run in item.runs(plan.scope, protocol))
    # Without the reason, which names folders of this machine; tables are published.
    notes = [*notes, *(f"{task} is missing: its data was not found." for task in tasks if task in plan.absent)]
    return Table(name, item.where, item.title_on(plan.scope), blocks, notes)
