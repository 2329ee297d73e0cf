"""Encoding of the page's data as compact JSON: arrays are base64, and equal arrays are stored once."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from oddnode.bench.paper_numbers import paper_number
from oddnode.evaluation import METRICS, Result
from oddnode.paper.webpage.model import Cell, Method, Nodes, Number, Page, Scores, Table
from oddnode.paper.webpage.opening import Opening, choose_opening
from oddnode.paper.webpage.picture import Picture

__all__ = ["Pool", "encode"]

# The maximum size of all scores on the page. Larger runs show a random sample of the nodes, and the page says so.
_SCORE_BYTES = 2_000_000
_MIN_NODES = 300
_PIXELS = "0123456789abcdefg"


class Pool:
    """Numbered arrays without duplicates. Floats become 32-bit, integers the smallest type that fits."""

    def __init__(self) -> None:
        self.arrays: list[list[str]] = []
        self._known: dict[tuple[str, bytes], int] = {}

    def add(self, array: np.ndarray) -> int:
        """Store an array and return its number.

        Parameters
        ----------
        array : ndarray
            Of any shape; it is stored flat.
        """
        array = np.ascontiguousarray(array)
        kind = "f4" if array.dtype.kind == "f" else _smallest(array)
        raw = array.astype(f"<{kind}").tobytes()
        if (kind, raw) not in self._known:
            self._known[kind, raw] = len(self.arrays)
            self.arrays.append([kind, base64.b64encode(raw).decode("ascii")])
        return self._known[kind, raw]


def _smallest(array: np.ndarray) -> str:
    for kind in ("i1", "i2"):
        limits = np.iinfo(kind)
        if array.size == 0 or (array.min() >= limits.min and array.max() <= limits.max):
            return kind
    return "i4"


def encode(page: Page) -> dict[str, Any]:
    """Encode the data of the page for its script, as values for JSON.

    Parameters
    ----------
    page : Page
        What to show.
    """
    pool = Pool()
    limit = _node_limit(page.cells)
    opening = choose_opening(page)
    cells = [_cell(cell, pool, limit) for cell in page.cells]
    names = dict.fromkeys([*(r.method for r in page.results), *(m for cell in page.cells for m in cell.methods)])
    methods = {name: page.methods.get(name, Method()) for name in names}
    return {
        "rows": [_row(result, methods[result.method]) for result in page.results],
        "cells": cells,
        "opening": None if opening is None else _opening(opening),
        "methods": {n: {"exposure": m.needs_exposure, "model_free": m.is_model_free} for n, m in methods.items()},
        "tables": [_table(table) for table in page.tables],
        "arrays": pool.arrays,
    }


def _opening(opening: Opening) -> dict[str, Any]:
    pixels = opening.cell.unknown[opening.test].pixels
    image = None if pixels is None or opening.example is None else _pixels(pixels[opening.example])
    return {"cell": opening.place, "a": opening.method, "b": opening.beside, "example": image}


def _pixels(values: np.ndarray) -> str:
    return "".join(_PIXELS[value] for value in values.ravel())


def _node_limit(cells: Any) -> int:
    """The maximum number of nodes of a graph that are shown."""
    lists = sum(len(cell.methods) * (1 + len(cell.unknown)) for cell in cells)
    return max(_MIN_NODES, _SCORE_BYTES // (4 * max(lists, 1)))


def _row(result: Result, method: Method) -> dict[str, Any]:
    metrics = [metric for metric in METRICS if not (metric == "id_acc" and method.is_model_free)]
    numbers = {
        metric: {
            "seeds": [_short(run[metric]) for run in result.runs],
            "printed": paper_number(result.task, result.method, metric),
        }
        for metric in metrics
    }
    return {
        "task": result.task,
        "method": result.method,
        "protocol": result.protocol,
        "backbone": result.backbone,
        "seeds": result.seeds,
        "numbers": numbers,
    }


def _short(number: float) -> float | None:
    return round(number, 3) if np.isfinite(number) else None


def _table(table: Table) -> dict[str, Any]:
    grids = [
        {
            "title": grid.title,
            "caption": grid.caption,
            "columns": list(grid.columns),
            "rows": [[_entry(value) for value in row] for row in grid.rows],
        }
        for grid in table.grids
    ]
    return {"title": table.title, "notes": list(table.notes), "grids": grids}


def _entry(value: str | Number | None) -> str | list[float | None] | None:
    if not isinstance(value, Number):
        return value
    if not np.isfinite(value.value):
        return None
    return [round(value.value, 6), value.low, value.high, value.printed, value.digits]


def _cell(cell: Cell, pool: Pool, limit: int) -> dict[str, Any]:
    nodes = {"id": cell.known, **cell.unknown}
    rng = np.random.default_rng(0)
    chosen = {name: np.sort(rng.permutation(len(part))[:limit]) for name, part in nodes.items()}
    return {
        "task": cell.task,
        "about": cell.about,
        "protocol": cell.protocol,
        "seed": cell.seed,
        "tests": list(cell.unknown),
        "nodes": {name: _nodes(part, chosen[name], pool) for name, part in nodes.items()},
        "methods": {
            method: {name: _scores(part.take(chosen[name]), pool) for name, part in scores.items()}
            for method, scores in cell.methods.items()
        },
        "picture": None if cell.picture is None else _picture(cell.picture, pool),
    }


def _nodes(nodes: Nodes, chosen: np.ndarray, pool: Pool) -> dict[str, Any]:
    part = nodes.take(chosen)
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


def _scores(scores: Scores, pool: Pool) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "values": pool.add(scores.values.astype(np.float32)),
        "predicted": pool.add(scores.predicted),
    }
    if scores.why is not None:
        encoded["why"] = {place: text for place, text in enumerate(scores.why.tolist()) if text}
    return encoded


def _picture(picture: Picture, pool: Pool) -> dict[str, Any]:
    return {
        "graphs": picture.graphs,
        "graph": pool.add(picture.graph),
        "ids": pool.add(picture.ids),
        "kind": pool.add(picture.kind),
        "shown": pool.add(picture.shown),
        "x": pool.add(np.round(1000 * picture.place[:, 0]).astype(np.int64)),
        "y": pool.add(np.round(1000 * picture.place[:, 1]).astype(np.int64)),
        "from": pool.add(picture.edges[0]),
        "to": pool.add(picture.edges[1]),
        "scores": {m: pool.add(s.astype(np.float32)) for m, s in picture.scores.items()},
        "predicted": {m: pool.add(p) for m, p in picture.predicted.items()},
    }
