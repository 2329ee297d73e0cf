"""Rendering of the page: its data as compact JSON, and the values for its template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from oddnode._utils.atomic_files import write_text
from oddnode.bench.paper_numbers import paper_number
from oddnode.evaluation import METRICS, Result
from oddnode.paper.webpage.model import Cell, Method, Nodes, Page, Scores, take
from oddnode.paper.webpage.opening import Opening, choose_opening, compare_pairs
from oddnode.webpage import ArrayPool, Picture, render_page

# The parts of the page's script, in the order in which they run.
_SCRIPTS = (
    "tools.js", "tables.js", "overview.js", "scores.js", "graph.js", "images.js", "results.js", "page.js",
)  # fmt: skip

# The maximum size of all scores on the page. Larger runs show a random sample of the nodes, and the page says so.
_SCORE_BYTES = 2_000_000
_MIN_NODES = 300
_PIXELS = "0123456789abcdefg"


def write_html(page: Page, path: Path) -> Path:
    """Write the page atomically, and return its path.

    Parameters
    ----------
    page : Page
        What to show.
    path : Path
        The file; an existing one is replaced.
    """
    return write_text(path, render(page))


def render(page: Page) -> str:
    """Render the page as HTML that works from disk, without a network.

    Parameters
    ----------
    page : Page
        What to show. Every string in it is escaped.

    Raises
    ------
    RuntimeError
        If the plotting library is not installed; the message says how to install it.
    """
    opening = choose_opening(page)
    return render_page(
        "oddnode.paper.webpage",
        encode(page),
        title=page.title,
        description=opening.sentence if opening else "Which nodes of a graph does a model not know?",
        scripts=_SCRIPTS,
        links=page.links,
        notice=page.notice,
        opening=opening,
        pairs=compare_pairs(page.results),
        protocols=_protocols(page),
        facts=_facts(page),
    )


def _protocols(page: Page) -> dict[str, str]:
    """What each protocol of the page is, in words."""
    from oddnode.protocols import PROTOCOLS  # imported here, because the page's data needs no torch

    used = dict.fromkeys([*(r.protocol for r in page.results), *(cell.protocol for cell in page.cells)])
    return {name: PROTOCOLS[name].summary for name in used if name in PROTOCOLS}


def _facts(page: Page) -> dict[str, Any]:
    """The conditions of the experiments that are not empty."""
    seeds = sorted({r.seeds for r in page.results})
    facts = {
        "Rules": " and ".join(f"{name} ({summary})" for name, summary in _protocols(page).items()),
        "Seeds": " to ".join(dict.fromkeys(str(n) for n in (seeds[:1] + seeds[-1:]))) if seeds else "none",
        "Spread": "the lowest and the highest seed, as bars in plots and as two numbers in tables",
        "Backbone": ", ".join(dict.fromkeys(r.backbone for r in page.results)),
        **page.terms,
    }
    return {name: value for name, value in facts.items() if value}


def encode(page: Page) -> dict[str, Any]:
    """Encode the data of the page for its script, as values for JSON."""
    pool = ArrayPool()
    lists = sum(len(cell.methods) * (1 + len(cell.unknown)) for cell in page.cells)
    limit = max(_MIN_NODES, _SCORE_BYTES // (4 * max(lists, 1)))  # the most nodes of a graph that are shown
    opening = choose_opening(page)
    cells = [_cell(cell, pool, limit) for cell in page.cells]
    names = dict.fromkeys([*(r.method for r in page.results), *(m for cell in page.cells for m in cell.methods)])
    methods = {name: page.methods.get(name, Method()) for name in names}
    return {
        "rows": [_row(result, methods[result.method]) for result in page.results],
        "cells": cells,
        "opening": opening and _opening(opening),
        "methods": {n: {"exposure": m.needs_exposure, "model_free": m.is_model_free} for n, m in methods.items()},
        "tables": [table.as_json() for table in page.tables],
        "arrays": pool.arrays,
    }


def _opening(opening: Opening) -> dict[str, Any]:
    pixels = opening.cell.unknown[opening.test].pixels
    image = None if pixels is None or opening.example is None else _pixels(pixels[opening.example])
    return {"cell": opening.index, "a": opening.method, "b": opening.beside, "example": image}


def _pixels(values: np.ndarray) -> str:
    return "".join(_PIXELS[value] for value in values.ravel())


def _row(result: Result, method: Method) -> dict[str, Any]:
    metrics = [metric for metric in METRICS if not (metric == "id_acc" and method.is_model_free)]
    numbers = {
        metric: {
            "seeds": [round(run[metric], 3) if np.isfinite(run[metric]) else None for run in result.runs],
            "printed": paper_number(result.task, result.method, metric),
        }
        for metric in metrics
    }
    names = ("task", "method", "protocol", "backbone", "seeds")
    return {name: getattr(result, name) for name in names} | {"numbers": numbers}


def _cell(cell: Cell, pool: ArrayPool, limit: int) -> dict[str, Any]:
    nodes = {"id": cell.known, **cell.unknown}
    rng = np.random.default_rng(0)
    chosen = {name: np.sort(rng.permutation(len(part))[:limit]) for name, part in nodes.items()}
    return {name: getattr(cell, name) for name in ("task", "about", "protocol", "seed")} | {
        "tests": list(cell.unknown),
        "nodes": {name: _nodes(part, chosen[name], pool) for name, part in nodes.items()},
        "methods": {
            method: {name: _scores(take(part, chosen[name]), pool) for name, part in scores.items()}
            for method, scores in cell.methods.items()
        },
        "picture": None if cell.picture is None else _picture(cell.picture, pool),
    }


def _nodes(nodes: Nodes, chosen: np.ndarray, pool: ArrayPool) -> dict[str, Any]:
    part = take(nodes, chosen)
    encoded: dict[str, Any] = {
        "total": len(nodes),
        "ids": pool.add(part.ids),
        "degree": pool.add(part.degree),
        "y": pool.add(part.y),
        "shown": pool.add(part.y if part.shown is None else part.shown),
    }
    if part.pixels is not None:
        encoded["pixels"] = _pixels(part.pixels)
    return encoded


def _scores(scores: Scores, pool: ArrayPool) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "values": pool.add(scores.values.astype(np.float32)),
        "predicted": pool.add(scores.predicted),
    }
    if scores.why is not None:
        encoded["why"] = {place: text for place, text in enumerate(scores.why.tolist()) if text}
    return encoded


def _picture(picture: Picture, pool: ArrayPool) -> dict[str, Any]:
    arrays = {name: pool.add(getattr(picture, name)) for name in ("graph", "ids", "kind", "shown")}
    return arrays | {
        "graphs": picture.graphs,
        "x": pool.add(np.round(1000 * picture.place[:, 0]).astype(np.int64)),
        "y": pool.add(np.round(1000 * picture.place[:, 1]).astype(np.int64)),
        "from": pool.add(picture.edges[0]),
        "to": pool.add(picture.edges[1]),
        "scores": {m: pool.add(s.astype(np.float32)) for m, s in picture.scores.items()},
        "predicted": {m: pool.add(p) for m, p in picture.predicted.items()},
    }
