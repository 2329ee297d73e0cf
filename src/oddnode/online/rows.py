"""What a user gives as arrivals: rows with ids and features, and edges by the ids of their ends, all checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oddnode.graph import GraphError, check_exact, exact_array
from oddnode.online.growing import Edge, GrowingGraph, Id, checked_ids, is_int64
from oddnode.tables import TableSchema, read_nodes
from oddnode.tables.columns import ColumnCounts, Number
from oddnode.tables.edges import ends_of_parts, read_ids
from oddnode.tables.graphs import nodes_of
from oddnode.tables.known_values import Cells
from oddnode.tables.reader import open_table
from oddnode.tables.values import pa, quoted


@dataclass(frozen=True)
class Arrivals:
    """Checked arrivals."""

    ids: list[Id]
    x: Tensor  # Features `[k, F]`, a copy
    edges: list[Edge]  # By index; an arrival has the index that it would have in the graph
    unseen: list[dict[str, str]]  # By arrival, the categories that the model was not fitted on, by column


def read_arrivals(
    rows: Any,
    edges: Any,
    ids: Sequence[Any] | None,
    whole: GrowingGraph,
    schema: TableSchema | None,
    like: Tensor,
    joins_known: bool = False,
) -> Arrivals:
    """Check rows and edges that a user gives; ``like`` ``[0, F]`` has the number and dtype of features."""
    first = whole.num_nodes
    if schema is None and ids is None:
        ids = range(whole.ids.next_id, whole.ids.next_id + len(rows))
    own, x, unseen = read_rows(rows, ids, schema, like)
    index = {node: first + place for place, node in enumerate(own)}
    if wide := [node for node in own if isinstance(node, int) and not is_int64(node)]:
        raise GraphError(f"the id {wide[0]} has more than 64 bits; give it as a string")
    taken = [node for node in own if whole.ids.find(node) is not None]
    if taken:
        raise GraphError(f"there is already a node with the id {quoted(taken[0])}; remove it first, or use another id")
    return Arrivals(own, x, read_edges(edges, index, whole, schema, joins_known), unseen)


def read_rows(
    rows: Any, ids: Sequence[Any] | None, schema: TableSchema | None, like: Tensor
) -> tuple[list[Id], Tensor, list[dict[str, str]]]:
    """Check rows that a user gives: their ids, features, and categories that the model was not fitted on."""
    if schema is None:
        x = _features(rows, like)
        if ids is None:
            raise GraphError("the rows have no ids; give the ids of the nodes that they are of")
        own = checked_ids(ids, "ids")
        unseen: list[dict[str, str]] = [{} for _ in own]
    elif ids is not None:
        raise GraphError(f"ids are in the column {schema.id_column!r} of the rows; leave ids out")
    else:
        own, x, unseen = _table_rows(rows, schema)
        x = x.to(like)
    if len(own) != len(x):
        raise GraphError(f"there are {len(own)} ids for {len(x)} rows, expected one for each")
    if len(set(own)) < len(own):
        raise GraphError(f"the id {quoted(next(node for node in own if own.count(node) > 1))} is given twice")
    return own, x, unseen


def _features(rows: Any, like: Tensor) -> Tensor:
    try:
        given = torch.as_tensor(rows if isinstance(rows, Tensor) else exact_array(rows, "the rows"))
    except (TypeError, RuntimeError) as error:
        raise GraphError(f"the rows cannot be read as features: {error}") from None
    if given.dim() != 2 or given.shape[1] != like.shape[1] or given.is_complex() or given.dtype == torch.bool:
        raise GraphError(
            f"the rows are {given.dtype} of shape {list(given.shape)}, expected real numbers [arrivals, "
            f"{like.shape[1]}]; a single arrival is a matrix with one row"
        )
    x = given.detach().to(like, copy=True)
    if not given.is_floating_point():
        check_exact(x.cpu(), given.cpu(), "the rows")
    if not bool(x.isfinite().all()):
        row, column = (~x.isfinite()).nonzero()[0].tolist()
        value = float(given[row, column])
        raise GraphError(f"feature {column} of arrival {row} is {value}, expected a finite number ({x.dtype})")
    return x


def _table_rows(rows: Any, schema: TableSchema) -> tuple[list[Id], Tensor, list[dict[str, str]]]:
    if isinstance(rows, Mapping) and not any(isinstance(value, (list, tuple, np.ndarray)) for value in rows.values()):
        rows = [rows]
    if isinstance(rows, (list, tuple)) and rows and all(isinstance(row, Mapping) for row in rows):
        try:
            rows = pa.Table.from_pylist(list(rows))
        except (pa.ArrowException, OverflowError) as error:  # such as numbers and text in one column
            raise GraphError(f"the rows are no table: {error}") from None
    table = nodes_of(rows, schema)
    schema.check_columns(table)
    found = read_nodes(table, schema.id_column, schema.features)
    unseen: list[dict[str, str]] = [{} for _ in found.x]
    for column, counts in zip(schema.features.columns, found.counts, strict=True):
        for row, value in counts.unseen_rows.items():
            unseen[row][column.name] = value
    return found.ids.to_pylist(), torch.from_numpy(found.x), unseen


def read_edges(
    edges: Any, new: dict[Id, int], whole: GrowingGraph, schema: TableSchema | None, joins_known: bool
) -> list[Edge]:
    """Look up the ends of new edges, each of which has an arrival at one end at least, unless it ``joins_known``."""
    found: dict[tuple[int, int], Edge] = {}
    triples = list(_triples(edges, schema))
    ends = checked_ids((end for triple in triples for end in triple[:2]), "an edge")
    others = list(dict.fromkeys(node for node in ends if node not in new))
    indices = new | dict(zip(others, whole.ids.find_all(others).tolist(), strict=True))
    unknown = [node for node in ends if indices[node] < 0]
    for (source, target, weight), node, other in zip(triples, ends[::2], ends[1::2], strict=True):
        a, b = indices[node], indices[other]
        if a < 0 or b < 0:
            continue
        if max(a, b) < whole.num_nodes and not joins_known:
            raise GraphError(f"the edge {quoted((source, target))} joins two nodes of the graph, none of the arrivals")
        if schema is not None and a == b:
            continue  # as tables are read
        if max(a, b) < whole.num_nodes and whole.has_edge(a, b):
            raise GraphError(f"there is already an edge {quoted((source, target))}; remove it first")
        weight = _checked_weight(weight, (source, target), whole)
        key = (a, b) if whole.directed else (min(a, b), max(a, b))
        if key in found and schema is None:
            ways = "" if whole.directed else "; one pair stands for both directions"
            raise GraphError(f"the edge {quoted((source, target))} is given twice{ways}")
        weight = found[key].weight + weight if key in found and whole.is_weighted else weight
        found[key] = Edge(a, b, weight)
    if unknown:
        names = ", ".join(map(quoted, unknown[:3]))
        raise GraphError(
            f"{len(unknown)} ends of edges are neither nodes of the graph nor arrivals, first {names}; add them first, "
            "or leave these edges out"
        )
    return [edge for edge in found.values() if edge.weight > 0]


def read_known_edges(edges: Any, whole: GrowingGraph, schema: TableSchema | None) -> list[Edge]:
    """Look up edges of the graph by their ends."""
    found = []
    for source, target, _ in _triples(edges, schema):
        a, b = (whole.ids.find(node) for node in checked_ids((source, target), "an edge"))
        if a is None or b is None or not whole.has_edge(a, b):
            raise GraphError(f"there is no edge {quoted((source, target))} in the graph")
        found.append(Edge(a, b))
    return found


def decoded(x: np.ndarray, schema: TableSchema) -> dict[str, Any]:
    """The values of the columns of a row ``[F]``, as far as its features tell them; ``None`` if missing or unseen."""
    counts = [ColumnCounts() for _ in schema.features.columns]
    cells = Cells(schema.features, x[None], counts)
    values: dict[str, Any] = {}
    for column, features, own in cells.columns:
        if isinstance(column, Number):
            number = float(cells.numbers(column, features, own, np.zeros(1, dtype=np.int64))[0])
            # Features have 24 bits: a 0 would come back as 2e-7 of a column with values around 10.
            places = 5 - math.floor(math.log10(max(abs(column.mean), column.scale)))
            values[column.name] = None if math.isnan(number) else round(number, places) + 0.0
        else:
            values[column.name] = column.categories[int(x[features].argmax())] if x[features].any() else None
    return values


def _checked_weight(weight: Any, ends: tuple[Any, Any], whole: GrowingGraph) -> float:
    if (weight is not None) != whole.is_weighted:
        expected = "weights: (source, target, weight)" if whole.is_weighted else "no weights"
        raise GraphError(
            f"the edge {quoted(ends)} has the weight {quoted(weight)}, but edges of the graph have {expected}"
        )
    if weight is None:
        return 1.0
    is_number = isinstance(weight, (int, float, np.integer, np.floating)) and not isinstance(weight, bool)
    if not is_number or not 0 <= float(weight) <= 1e30:  # sums over all edges have to be finite
        raise GraphError(f"the edge {quoted(ends)} has the weight {quoted(weight)}, expected a number from 0 to 1e30")
    return float(whole.edges.arrays["weights"].dtype.type(weight))  # as precise as those of the base


def _triples(edges: Any, schema: TableSchema | None) -> Iterable[tuple[Any, Any, Any]]:
    """Sources, targets and weights, ``None`` for an edge without one."""
    if isinstance(edges, (list, tuple)) and all(isinstance(edge, (list, tuple)) for edge in edges):
        for edge in edges:
            if len(edge) not in (2, 3):
                raise GraphError(f"an edge is {quoted(edge)}, expected (source, target) or (source, target, weight)")
            yield edge[0], edge[1], edge[2] if len(edge) == 3 else None
        return
    if schema is None:
        raise GraphError(
            f"the edges are {type(edges).__name__}, expected a list of (source, target) or (source, target, weight); "
            "of a tensor [2, E]: edge_index.t().tolist()"
        )
    table = open_table(edges, "edges", schema.encoding)
    for part, ends in zip(table.parts, ends_of_parts(table, schema)[0], strict=True):
        names = ends if schema.weights is None else (*ends, schema.weights.name)
        part.require(names[2:], "weight")
        for batch in part.batches(names):
            sources, targets = (read_ids(batch.arrays[side], batch, ends[side]).to_pylist() for side in (0, 1))
            weights = [None] * len(sources) if schema.weights is None else schema.weights.read(batch.arrays[2], batch)
            yield from zip(sources, targets, weights, strict=True)
