"""The data of the HTML report, which `oddnode.paper.webpage` renders, from the results of a plan."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any

import numpy as np

from oddnode._utils.result_tables import Table
from oddnode.detector import MODEL_FREE, RECIPES
from oddnode.paper.experiments import Run
from oddnode.paper.plan import Plan, absent_data
from oddnode.paper.record import Graphs, Record, StoreError
from oddnode.paper.results import Results
from oddnode.paper.store import Store
from oddnode.paper.tables import SPREAD, build_table
from oddnode.paper.webpage import Cell, Method, Nodes, Page, Scores
from oddnode.paper.webpage.model import take
from oddnode.tasks import MissingDataError, Task, load_task
from oddnode.webpage import KNOWN, OTHER, UNKNOWN, Picture, Source, draw_picture

# The default method of `oddnode fit`, and the paper's.
_FEATURED = ("nodesafe-evidence", "nodesafe", "gnnsafe")

_LINKS = ("Documentation", "Repository", "Paper")
_PAPER = "https://proceedings.mlr.press/v235/yang24n.html"

# The main table of the report has the numbers of these.
_SHOWN_ANYWAY = ("table1", "table2", "table6", "table7", "table8")


def make_page(store: Store, plan: Plan) -> Page:
    """Collect the data of the report."""
    results = Results(plan, store)
    runs = _plain_runs(plan)
    rows = [result for run in runs if (result := results.result(run)).runs]
    places = dict.fromkeys((run.task, run.protocol) for run in runs)
    quick = f"A quick look with {plan.epochs} epochs of training: it shows that everything works, not how well."
    return Page(
        results=rows,
        cells=[cell for task, protocol in places if (cell := _cell(results, runs, task, protocol)) is not None],
        tables=_tables(results),
        terms={
            "Made on": "; ".join(results.made_on()),
            "Page written": datetime.now(UTC).strftime("%Y-%m-%d"),
            "Epochs": plan.epochs,
            "Data left out": ", ".join(absent_data(plan)),
            "Failed trainings": "; ".join(results.failures()),
        },
        title="oddnode: how well methods find unknown nodes",
        notice="" if plan.epochs is None else quick,
        methods={name: Method(recipe.needs_exposure, name in MODEL_FREE) for name, recipe in RECIPES.items()},
        featured=_FEATURED,
        links=_links(),
    )


def _links() -> dict[str, str]:
    """The links of the page, from the metadata of the installed package."""
    try:
        named = metadata("oddnode").get_all("Project-URL") or []
    except PackageNotFoundError:
        named = []
    links = {"Paper": _PAPER} | dict(line.split(", ", 1) for line in named)
    return {name: links[name] for name in _LINKS if name in links}


def _plain_runs(plan: Plan) -> list[Run]:
    """The runs of the main tables: methods with their default settings on the default network."""
    every = [run for item in plan.items for run in plan.runs(item)]
    plain = [run for run in dict.fromkeys(every) if run.backbone == "gcn" and not run.settings]
    order = {task: index for index, task in enumerate(plan.scope.tasks)}
    return sorted(plain, key=lambda run: order.get(run.task, len(order)))


# Tables


def _tables(results: Results) -> list[Table]:
    """The tables whose numbers are not in the main one; their captions name the lowest and highest seed."""
    chosen = [item.name for item in results.plan.items if not item.is_figure and item.name not in _SHOWN_ANYWAY]
    built = [table for name in chosen if (table := build_table(results, name)).grids]
    for table in built:
        ends = "mean, the lowest and the highest"
        table.grids = [replace(grid, caption=grid.caption.replace(SPREAD, ends)) for grid in table.grids]
        # Missing data is mentioned once, at the end of the page.
        table.notes = [note for note in table.notes if " is missing: " not in note]
    return built


# Scores of single nodes

# What the unknown nodes are, by the kind of shift.
_SHIFTS = {
    "label": "nodes of classes that it has never seen",
    "structure": "nodes with rewired edges",
    "feature": "nodes with mixed features",
}

# What the unknown nodes of the digits are, and a description of the data.
_DIGITS = {
    "digits/label": (
        "digits that it has never seen",
        "Images of handwritten digits, each linked to those most like it. The network has learnt 0 to 4; 6 to 9 are "
        "unknown to it.",
    ),
    "digits/structure": (
        "digits with rewired links",
        "Images of handwritten digits, each linked to those most like it. The unknown ones are the same images with "
        "links drawn at random.",
    ),
    "digits/feature": (
        "mixtures of two digits",
        "Images of handwritten digits, each linked to those most like it. The unknown ones are mixtures of two.",
    ),
}


def _cell(results: Results, runs: list[Run], task: str, protocol: str) -> Cell | None:
    """The scores of the first seed that has a record."""
    mine = [run for run in runs if (run.task, run.protocol) == (task, protocol)]
    for seed in range(results.plan.seeds):
        records = {run.method: record for run in mine if (record := results.record(run, seed)) is not None}
        try:
            if records:
                return _cell_of(results, records, task, protocol, seed)
        except StoreError:  # a damaged record, which the tables mention; another seed will do
            continue
    return None


def _cell_of(results: Results, records: dict[str, Record], task: str, protocol: str, seed: int) -> Cell:
    graphs = results.store.graphs(next(iter(records.values())).training)
    data = _task(results.plan, task, protocol, seed, graphs)
    masks = {"id": graphs.id_mask, **graphs.ood_mask}
    nodes = {name: _nodes(name, mask, graphs, data) for name, mask in masks.items()}
    scores = {method: _all_scores(record, method) for method, record in records.items()}
    unknown_name, about = _DIGITS.get(task, (_SHIFTS.get(task.split("/")[-1], "unknown nodes"), ""))
    return Cell(
        task=task,
        protocol=protocol,
        seed=seed,
        known=nodes.pop("id"),
        unknown=nodes,
        methods={m: {name: take(s, np.flatnonzero(masks[name])) for name, s in by.items()} for m, by in scores.items()},
        picture=None if data is None else _picture(graphs, data, scores),
        unknown_name=unknown_name,
        about=about,
    )


def _all_scores(record: Record, method: str) -> dict[str, Scores]:
    predicted, reasons = record.predicted(), record.reasons(method)
    return {
        name: Scores(values, predicted[name], _sentences(reasons[name], len(values)))
        for name, values in record.scores(method).items()
    }


def _sentences(reasons: dict[int, str], num_nodes: int) -> np.ndarray | None:
    """The reasons for all nodes, empty where there is none; ``None`` if no node has one."""
    if not reasons:
        return None
    sentences = np.full(num_nodes, "", dtype=object)
    sentences[list(reasons)] = list(reasons.values())
    return sentences


def _task(plan: Plan, task: str, protocol: str, seed: int, graphs: Graphs) -> Task | None:
    """The data behind the scores, for edges and images; ``None`` if it is missing or has changed."""
    try:
        data = load_task(task, plan.data_dir, seed, protocol)
    except MissingDataError:
        return None
    sizes = {"id": data.id_test.data.num_nodes, **{name: graph.num_nodes for name, graph in data.tests.items()}}
    return data if sizes == {name: len(degree) for name, degree in graphs.degree.items()} else None


def _graph(data: Task, name: str) -> Any:
    return data.id_test.data if name == "id" else data.tests[name]


def _nodes(name: str, mask: np.ndarray, graphs: Graphs, data: Task | None) -> Nodes:
    ids = np.flatnonzero(mask)
    shown = _shown(name, graphs, data)[ids]
    pixels = None
    if data is not None and data.name.startswith("digits/"):
        grey = _graph(data, name).x.numpy()[ids]
        pixels = np.clip(np.round(16 * grey), 0, 16).astype(np.int64)
    return Nodes(ids, graphs.degree[name][ids], graphs.y[name][ids], shown, pixels)


def _shown(name: str, graphs: Graphs, data: Task | None) -> np.ndarray:
    """Classes to display: a left-out digit is still that digit; a mixture of two images has none."""
    if data is None or not data.name.startswith("digits/"):
        return graphs.y[name]
    from sklearn.datasets import load_digits

    target = load_digits().target
    return np.full_like(target, -1) if name == "feature" else target


def _picture(graphs: Graphs, data: Task, scores: dict[str, dict[str, Scores]]) -> Picture:
    """The graph with ID and OOD nodes; if they are in different graphs, both, with the first test graph."""
    test = graphs.tests[0]
    together = data.tests[test] is data.id_test.data
    names = [test] if together else ["id", test]
    return draw_picture([_source(name, graphs, data, scores, together) for name in names])


def _source(name: str, graphs: Graphs, data: Task, scores: dict[str, dict[str, Scores]], together: bool) -> Source:
    kind = np.full(len(graphs.degree[name]), OTHER)
    if name != "id":
        kind[graphs.ood_mask[name]] = UNKNOWN
    if name == "id" or together:
        kind[graphs.id_mask] = KNOWN
    return Source(
        name=name,
        edges=_graph(data, name).edge_index.numpy(),
        kind=kind,
        shown=_shown(name, graphs, data),
        scores={method: by[name].values for method, by in scores.items()},
        predicted={method: by[name].predicted for method, by in scores.items()},
    )
