"""Tables of detection: the main ones, those in detail, the ablation, and NODESAFE under other networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oddnode.evaluation import METRIC_TITLES, METRICS
from oddnode.paper.experiments import ABLATIONS, ITEMS, Run, methods_of, networks_tasks
from oddnode.paper.grid import Block, Entry, Row
from oddnode.paper.results import Results, paper_facts
from oddnode.paper.tables.entries import (
    DETECTION,
    Built,
    caption,
    mean_entry,
    method_row,
    present,
    run_entry,
    seeds_phrase,
)
from oddnode.protocols import get_protocol

__all__ = ["ablation_table", "main_table", "networks_table", "others_table", "per_cell_table", "per_graph_table"]


def main_table(results: Results, name: str) -> Built:
    """Every method on every citation task, one block per protocol and metric.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        The name of the table, as in `oddnode.paper.experiments.ITEMS`.
    """
    tasks = present(results, results.plan.scope.citation)
    blocks = []
    for protocol in results.plan.protocols:
        for metric in ("fpr95", "auroc", "aupr"):
            rows = []
            for method in methods_of(protocol):
                cells = [run_entry(results, Run(task, protocol, method), metric) for task in tasks]
                rows.append(method_row(method, [*cells, mean_entry(cells)]))
            terms = caption(results, protocol)
            blocks.append(Block(METRIC_TITLES[metric], protocol, (*tasks, "mean"), tuple(rows), terms))
    return blocks, []


def networks_table(results: Results, name: str) -> Built:
    """NODESAFE under several networks, one block per metric.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        The name of the table, as in `oddnode.paper.experiments.ITEMS`.
    """
    if "clean" not in results.plan.protocols:
        return [], ["Only under the clean protocol."]
    scope = results.plan.scope
    tasks = present(results, networks_tasks(scope))
    blocks = []
    for metric in ("fpr95", "auroc", "id_acc"):
        rows = []
        for network in scope.networks:
            cells = [run_entry(results, Run(task, "clean", "nodesafe", network), metric) for task in tasks]
            # The paper's numbers on the side are those of a GCN.
            cells = [cell if network == "gcn" else replace(cell, paper=None) for cell in cells]
            rows.append(Row(network, (*cells, mean_entry(cells)), group="networks"))
        terms = f"protocol clean, nodesafe, {seeds_phrase(results)}, percent"
        columns = (*tasks, "mean")
        blocks.append(Block(METRIC_TITLES[metric], "clean", columns, tuple(rows), terms, row_title="backbone"))
    return blocks, []


def others_table(results: Results, name: str) -> Built:
    """Every method on the tasks beyond the citation graphs, with the ID accuracy.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        The name of the table, as in `oddnode.paper.experiments.ITEMS`.
    """
    tasks = present(results, results.plan.scope.others)
    notes = ["Twitch has other features here than in the paper."] if "twitch" in tasks else []
    for protocol in results.plan.protocols:
        notes += get_protocol(protocol).notes(tasks)
    return _cell_blocks(results, tasks), notes


def per_cell_table(results: Results, name: str) -> Built:
    """Every method on the tasks of one data set, with the ID accuracy.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        The name of the table, as in `oddnode.paper.experiments.ITEMS`.
    """
    return _cell_blocks(results, present(results, results.plan.scope.details.get(name, ()))), []


def per_graph_table(results: Results, name: str) -> Built:
    """Every method on every test graph of a task.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        The name of the table, as in `oddnode.paper.experiments.ITEMS`.
    """
    return [
        _detail_block(results, task, protocol, test, DETECTION)
        for protocol in results.plan.protocols
        for task in present(results, results.plan.scope.details.get(name, ()))
        for test in results.tests(task, protocol)
    ], []


def _cell_blocks(results: Results, tasks: Sequence[str]) -> list[Block]:
    return [
        _detail_block(results, task, protocol, None, METRICS) for protocol in results.plan.protocols for task in tasks
    ]


def _detail_block(results: Results, task: str, protocol: str, test: str | None, metrics: Sequence[str]) -> Block:
    rows = [
        method_row(method, [run_entry(results, Run(task, protocol, method), metric, test) for metric in metrics])
        for method in methods_of(protocol)
    ]
    title = task if test is None or task.endswith(f"/{test}") else f"{task}/{test}"
    columns = tuple(METRIC_TITLES[m] for m in metrics)
    return Block(title, protocol, columns, tuple(rows), caption(results, protocol))


def ablation_table(results: Results, name: str) -> Built:
    """NODESAFE without one half of its term, averaged over groups of tasks.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        The name of the table, as in `oddnode.paper.experiments.ITEMS`.
    """
    blocks = [
        _ablation_block(results, protocol, group, tasks)
        for protocol in results.plan.protocols_of(ITEMS[name])
        for group, tasks in results.plan.scope.groups.items()
        if present(results, tasks)
    ]
    return blocks, [
        "Without one half of the term the other half has all of its weight (lambda1 = 0 or 1); what weight the paper "
        "left to it is not stated."
    ]


def _ablation_block(results: Results, protocol: str, group: str, tasks: Sequence[str]) -> Block:
    printed = {(row["method"], row["dataset"]): row for row in paper_facts("ablation")}
    rows = []
    for method in ("nodesafe", "nodesafe++"):
        for left_out, settings in ABLATIONS.items():
            said = printed.get((method + left_out, group))
            entries = []
            for metric in DETECTION:
                cells = [run_entry(results, Run(t, protocol, method, settings=settings), metric) for t in tasks]
                entries.append(Entry(mean_entry(cells).values, float(said[metric]) if said else None))
            rows.append(Row(method + left_out, tuple(entries), group=method))
    title = f"{group}, mean of {len(tasks)} shifts" if len(tasks) > 1 else group
    columns = tuple(METRIC_TITLES[m] for m in DETECTION)
    return Block(title, protocol, columns, tuple(rows), caption(results, protocol))
