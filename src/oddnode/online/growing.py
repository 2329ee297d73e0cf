"""A graph that grows and shrinks: a base that is never written, in memory or mapped from a folder, with an overlay.

Matrices with a row per node are private copies of those of the base, or copy-on-write maps, changed in place, with
further rows for added nodes; a removed node's row is used again. Edges that were added or removed are stored by target,
until there are so many of them that they are merged with those of the base. So an arrival costs as much as its
neighbourhood, however large the base is, and memory does not grow with the number of changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from oddnode.graph import Graph, GraphError
from oddnode.tables.edges import IdIndex
from oddnode.tables.values import pa

_NO_EDGES = np.empty(0, dtype=np.int64)
Id = int | str
_LARGEST_INT32 = 2**31 - 1
# How the edges of a node have changed: there are more, or others; and whether they are in the overlay.
_MORE, _OTHERS, _OVERLAY = 1, 2, 4
# Nodes with added or removed edges, before these are merged with those of the base.
_MOST_CHANGED = 2**16


class Row(NamedTuple):
    """The incoming edges of a node: their sources ``[e]`` and weights ``[e]``."""

    sources: np.ndarray
    weights: np.ndarray

    def joined(self, other: Row) -> Row:
        return Row(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


_NO_ROW = Row(_NO_EDGES, np.empty(0))


class Incoming(NamedTuple):
    """The incoming edges of some nodes, in the order of these nodes, ``[e]`` each."""

    sources: np.ndarray
    owner: np.ndarray  # The index of each edge's target among the nodes; of new edges, among all nodes
    weights: np.ndarray
    capped: np.ndarray  # Which of the nodes have more edges than these `[n]`


NO_INCOMING = Incoming(_NO_EDGES, _NO_EDGES, np.empty(0), np.empty(0, dtype=bool))


class Edge(NamedTuple):
    """An edge between two nodes, by index."""

    source: int
    target: int
    weight: float = 1.0


def is_int64(number: int) -> bool:
    """Whether an integer can be an id."""
    return -(2**63) <= number < 2**63


class Ids:
    """The ids of all nodes: those of the base, and those that were added."""

    def __init__(self, base: Any, num_base: int):
        #: The ids of the nodes of the base, as they were given, and of added ones; of a removed one, its last.
        self.base, self._num_base = base, num_base
        self.added: list[Id] = []
        self._index: dict[Id, int] = {}
        self._numbers = None
        if base is not None and not isinstance(base, list) and pa.types.is_integer(base.type):
            self._numbers = IdIndex(base)
        elif base is not None:
            self.base = base if isinstance(base, list) else base.to_pylist()
            self._index = {node: index for index, node in enumerate(self.base)}
        self._removed: set[Id] = set()
        #: What the id of the next arrival is by default: no other one ever had it.
        self.next_id = num_base if self._numbers is None else max(num_base, int(base.to_numpy().max()) + 1)

    def __getitem__(self, index: int) -> Id:
        if index >= self._num_base:
            return self.added[index - self._num_base]
        if self.base is None:
            return index
        return self.base[index] if self._numbers is None else self.base[index].as_py()

    def take(self, nodes: np.ndarray) -> Any:
        """The ids of some nodes: an Arrow array, or a list if they are numbers and strings."""
        first = nodes[nodes < self._num_base]
        if self._numbers is not None:
            known = self.base.take(pa.array(first)).to_pylist()
        else:
            known = first.tolist() if self.base is None else [self.base[node] for node in first.tolist()]
        ids = [*known, *(self.added[node] for node in (nodes[len(first) :] - self._num_base).tolist())]
        return ids if len({*map(type, ids)}) > 1 else pa.array(ids)

    def find(self, node: Id) -> int | None:
        """The index of a node; ``None`` if there is none with this id."""
        if node in self._index:
            return self._index[node]
        if not isinstance(node, int) or node in self._removed or not is_int64(node):
            return None
        index = node if self.base is None and node < self._num_base else -1
        if self._numbers is not None:
            index = int(self._numbers.indices(pa.array([node], pa.int64()))[0])
        return index if index >= 0 else None

    def find_all(self, ids: Sequence[Id]) -> np.ndarray:
        """The indices of nodes ``[n]``; -1 for an id that no node has."""
        found = np.full(len(ids), -1, dtype=np.int64)
        if self.base is None or self._numbers is not None:
            # Integers only: in an array of strings, each takes as many bytes as the longest one.
            places = [place for place, node in enumerate(ids) if isinstance(node, int) and is_int64(node)]
            numbers = np.array([ids[place] for place in places], dtype=np.int64)
            if self._numbers is not None:
                known = np.array(self._numbers.indices(pa.array(numbers)), dtype=np.int64)
            else:
                known = np.where((numbers >= 0) & (numbers < self._num_base), numbers, -1)
            if self._removed:
                known[[place for place, node in enumerate(numbers.tolist()) if node in self._removed]] = -1
            found[places] = known
        for place in np.flatnonzero(found < 0).tolist():
            found[place] = self._index.get(ids[place], -1)
        return found

    def add(self, ids: Sequence[Id], indices: Sequence[int]) -> None:
        """Name nodes, some of which may have the indices of nodes that were removed."""
        for node, index in zip(ids, indices, strict=True):
            self._index[node] = index
            if index < self._num_base + len(self.added):
                self.added[index - self._num_base] = node
            else:
                self.added.append(node)
        self.next_id = max([self.next_id + len(ids), *(node + 1 for node in ids if isinstance(node, int))])

    def remove(self, index: int) -> None:
        node = self[index]
        self._index.pop(node, None)
        if index < self._num_base:
            self._removed.add(node)

    def restore(self, added: list[Id], removed: set[int], next_id: int) -> None:
        """Add nodes as in `added`, after nodes were removed."""
        for index in sorted(removed):
            if index < self._num_base:
                self.remove(index)
        self.added, self.next_id = added, next_id
        named = enumerate(added, self._num_base)
        self._index |= {node: index for index, node in named if index not in removed}

    def snapshot(self) -> Self:
        """A copy that later changes leave as it is."""
        other = copy.copy(self)
        other.added, other._index, other._removed = [*self.added], dict(self._index), set(self._removed)
        return other


class Edges:
    """The incoming edges of every node: those of a base, sorted by target, with an overlay."""

    def __init__(self, offsets: np.ndarray, sources: np.ndarray, weights: np.ndarray | None):
        self._offsets, self._sources, self._weights = offsets, sources, weights
        self._num_rows = len(offsets) - 1
        self.is_weighted = weights is not None
        self._rows: dict[int, Row] = {}  # instead of those of the base
        self._more: dict[int, Row] = {}  # besides these
        # What has changed since the beginning, also if it was merged: per node, whether it has more edges, or others.
        self._first_offsets, self._changes = offsets, np.zeros(len(offsets) - 1, dtype=np.uint8)

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The edges of a graph."""
        offsets, sources, weights = graph.csr
        small = sources if graph.num_nodes > _LARGEST_INT32 else sources.int()
        return cls(offsets.numpy(), small.numpy(), None if weights is None else weights.numpy())

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the base, by the names of the parameters."""
        arrays = {"offsets": self._offsets, "sources": self._sources}
        return arrays if self._weights is None else arrays | {"weights": self._weights}

    def row(self, node: int) -> Row:
        row, more = self._rows.get(node), self._more.get(node)
        if row is None and node < self._num_rows:
            edges = slice(int(self._offsets[node]), int(self._offsets[node + 1]))
            row = Row(self._sources[edges].astype(np.int64), self._weights_at(edges))
        if row is None or more is None:
            return row or more or _NO_ROW
        return row.joined(more)

    def _weights_at(self, edges: slice | np.ndarray) -> np.ndarray:
        if self._weights is None:
            return np.ones(edges.stop - edges.start if isinstance(edges, slice) else len(edges))
        return self._weights[edges].astype(np.float64)

    def incoming(self, nodes: np.ndarray, added: Incoming, cap: int) -> Incoming:
        """The incoming edges of some nodes, with some that are not yet in the graph; of a hub, ``cap`` of its own."""
        inside = np.minimum(nodes, len(self._changes) - 1)
        special = np.flatnonzero((self._changes[inside] >= _OVERLAY) & (inside == nodes))
        base = np.minimum(nodes, self._num_rows - 1)
        first, last = self._offsets[base], np.where(base == nodes, self._offsets[base + 1], self._offsets[base])
        last[special] = first[special]
        capped = last - first > cap
        count = np.minimum(last - first, cap)
        owner = np.repeat(np.arange(len(nodes)), count)
        within = np.arange(len(owner)) - (count.cumsum() - count)[owner]
        # Of a hub, evenly spaced edges: the same ones in every call.
        edges = first[owner] + within * (last - first)[owner] // np.maximum(count, 1)[owner]
        parts = [(owner, self._sources[edges].astype(np.int64), self._weights_at(edges))]
        for place, node in zip(special.tolist(), nodes[special].tolist(), strict=True):
            row = self.row(node)
            capped[place] = len(row.sources) > cap
            if capped[place]:
                chosen = np.arange(cap) * len(row.sources) // cap
                row = Row(row.sources[chosen], row.weights[chosen])
            parts.append((np.full(len(row.sources), place), *row))
        if len(added.owner) and len(nodes):
            order = np.argsort(nodes)
            place = order[np.searchsorted(nodes, added.owner, sorter=order).clip(max=len(nodes) - 1)]
            # Those to a hub are left out: they would count too much beside a sample of its neighbours.
            here = (nodes[place] == added.owner) & ~capped[place]
            parts.append((place[here], added.sources[here], added.weights[here]))
        if len(parts) > 1:
            owner = np.concatenate([part[0] for part in parts])
            order = np.argsort(owner, kind="stable")
            parts = [tuple(np.concatenate(each)[order] for each in zip(*parts, strict=True))]  # type: ignore[list-item]
        owner, sources, weights = parts[0]
        return Incoming(sources, owner, weights, capped)

    def add(self, added: dict[int, Row]) -> None:
        for node, row in added.items():
            self._more[node] = self._more[node].joined(row) if node in self._more else row
            self._mark(node, _MORE)

    def _mark(self, node: int, change: int) -> None:
        if node >= len(self._changes):
            self._changes = np.append(self._changes, np.zeros(max(node, 64), dtype=np.uint8))
        self._changes[node] |= change | _OVERLAY

    def changes(self) -> dict[str, np.ndarray]:
        """The edges that were added since the beginning, by target; all edges of nodes that have lost some."""
        nodes = np.flatnonzero(self._changes)
        are_others = self._changes[nodes] & _OTHERS > 0
        rows = []
        for node, is_other in zip(nodes.tolist(), are_others.tolist(), strict=True):
            is_first = node < len(self._first_offsets) - 1 and not is_other
            known = int(self._first_offsets[node + 1] - self._first_offsets[node]) if is_first else 0
            row = self.row(node)
            rows.append(Row(row.sources[known:], row.weights[known:]))
        counts = np.array([len(row.sources) for row in rows], dtype=np.int64)
        joined = Row(*map(np.concatenate, zip(*rows, strict=True))) if rows else _NO_ROW
        return {"nodes": nodes, "are_others": are_others, "counts": counts} | joined._asdict()

    def restore(self, changes: Mapping[str, np.ndarray]) -> None:
        """Change the edges of the base as in `changes`."""
        ends = changes["counts"].cumsum()[:-1]
        parts = (np.split(changes[name], ends)[: len(changes["counts"])] for name in Row._fields)  # one part of nothing
        for node, is_other, *row in zip(changes["nodes"].tolist(), changes["are_others"].tolist(), *parts, strict=True):
            (self._rows if is_other else self._more)[node] = Row(*row)
            self._mark(node, _OTHERS if is_other else _MORE)

    def snapshot(self) -> Self:
        """A copy that later changes leave as it is."""
        other = copy.copy(self)
        other._rows, other._more, other._changes = dict(self._rows), dict(self._more), self._changes.copy()
        return other

    def drop(self, node: int, sources: np.ndarray) -> None:
        """Remove the edges that lead to a node from some others."""
        row = self.row(node)
        kept = ~np.isin(row.sources, sources)
        self._more.pop(node, None)
        self._rows[node] = Row(row.sources[kept], row.weights[kept])
        self._mark(node, _OTHERS)

    def merge_if_many(self, num_nodes: int, most: int) -> None:
        """Make the overlay part of the base, in memory, if more nodes are in it."""
        if len(self._rows) + len(self._more) <= most:
            return
        counts, is_kept = np.zeros(num_nodes, dtype=np.int64), np.ones(num_nodes, dtype=bool)
        counts[: self._num_rows] = np.diff(self._offsets)
        before, rows = counts[: self._num_rows].copy(), {}
        for node in self._rows.keys() | self._more.keys():
            rows[node] = self.row(node)
            counts[node], is_kept[node] = len(rows[node].sources), False
        offsets = np.concatenate([[0], counts.cumsum()])
        old, new = np.repeat(is_kept[: self._num_rows], before), np.repeat(is_kept, counts)
        merged: list[Any] = []
        for place, values in enumerate((self._sources, self._weights)):
            if values is None:
                merged.append(None)
                continue
            merged.append(np.empty(len(new), dtype=values.dtype))
            merged[-1][new] = values[old]
            for node, row in rows.items():
                merged[-1][offsets[node] : offsets[node + 1]] = row[place]
        self._num_rows, self._offsets, self._sources, self._weights = num_nodes, offsets, *merged
        self._changes &= _MORE | _OTHERS
        self._rows, self._more = {}, {}

    def transposed(self, num_nodes: int) -> Edges:
        """The edges by their sources."""
        found = self.incoming(np.arange(num_nodes), NO_INCOMING, cap=2**62)
        order = np.argsort(found.sources, kind="stable")
        offsets = np.concatenate([[0], np.bincount(found.sources, minlength=num_nodes).cumsum()])
        weights = None if self._weights is None else found.weights[order]
        return Edges(offsets, found.owner[order].astype(self._sources.dtype), weights)


class GrowingGraph:
    """The edges of a base with an overlay, and matrices with a row per node.

    A removed node keeps its index; that of an added node is given to a later one.
    """

    def __init__(self, edges: Edges, ids: Any, directed: bool, is_symmetric: bool, max_neighbours: int):
        self.directed, self.is_symmetric, self.max_neighbours = directed, is_symmetric, max_neighbours
        self.edges = edges
        self._out: Edges | None = None  # of a directed graph, once it is needed
        self.is_weighted = edges.is_weighted
        self.num_nodes = self.num_base = len(edges.arrays["offsets"]) - 1
        self.ids = Ids(ids, self.num_base)
        self._removed: set[int] = set()
        self._free: list[int] = []  # indices of removed nodes, which later ones get
        self._columns: dict[Hashable, tuple[Tensor, Tensor]] = {}
        self._changed: dict[Hashable, np.ndarray] = {}  # whether a row of the base has changed, by column
        self.base: Graph | None = None  # while it is prepared

    # --- edges ---

    def row(self, node: int) -> Row:
        """The incoming edges of a node."""
        return self.edges.row(node)

    def incoming(self, nodes: np.ndarray, added: Incoming, cap: int) -> Incoming:
        """As `Edges.incoming`."""
        return self.edges.incoming(nodes, added, cap)

    def outgoing(self, node: int) -> list[int]:
        """The targets of the edges that lead from a node, each once."""
        if self.directed and self._out is None:
            self._out = self.edges.transposed(self.num_nodes)
        edges = self.edges if self._out is None else self._out
        return np.unique(edges.row(node).sources).tolist()

    def with_ways(self, edges: Iterable[Edge]) -> Incoming:
        """New edges, in both directions unless the graph is directed."""
        edges = list(edges)
        ends = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2)
        weights = np.array([edge.weight for edge in edges], dtype=np.float64)
        if not self.directed:
            back = np.flatnonzero(ends[:, 0] != ends[:, 1])
            # One after the other, so that each node has its edges in the order in which they were given.
            order = np.argsort(np.concatenate([np.arange(len(ends)), back]), kind="stable")
            ends = np.concatenate([ends, ends[back, ::-1]])[order]
            weights = np.concatenate([weights, weights[back]])[order]
        return Incoming(ends[:, 0], ends[:, 1], weights, np.empty(0, dtype=bool))

    def rows_with(self, edges: Iterable[Edge]) -> dict[int, Row]:
        """The same by target."""
        found = self.with_ways(edges)
        order = np.argsort(found.owner, kind="stable")
        nodes, first = np.unique(found.owner[order], return_index=True)
        parts = (np.split(each[order], first[1:]) for each in (found.sources, found.weights))
        return {node: Row(*row) for node, *row in zip(nodes.tolist(), *parts, strict=False)}

    def has_edge(self, source: int, target: int) -> bool:
        return bool((self.row(target).sources == source).any())

    def all_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """All edges ``[2, E]`` by index, and their weights ``[E]``, in memory."""
        found = self.incoming(np.arange(self.num_nodes), NO_INCOMING, cap=2**62)
        return np.stack([found.sources, found.owner]), found.weights

    # --- changes ---

    def add(self, ids: Sequence[Id], edges: Sequence[Edge]) -> tuple[np.ndarray, dict[int, Row]]:
        """Add nodes and edges, in which the indices of these nodes follow those of all others.

        Returns the indices that the nodes get, and the edges that have these, by target.
        """
        first, free = self.num_nodes, self._free[: -len(ids) - 1 : -1]
        index = np.array([*free, *range(first, first + len(ids) - len(free))], dtype=np.int64)
        if free:
            del self._free[-len(free) :]
            self._removed.difference_update(free)
            moved = dict(zip(range(first, first + len(ids)), index.tolist(), strict=True))
            edges = [Edge(moved.get(a, a), moved.get(b, b), weight) for a, b, weight in edges]
        self.ids.add(ids, index.tolist())
        self._extend(first + len(ids) - len(free))
        added = self.rows_with(edges)
        self.add_edges(added)
        return index, added

    def _extend(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        for key, (base, tail) in self._columns.items():
            missing = num_nodes - self.num_base - len(tail)
            if missing > 0:
                more = base.new_zeros(max(missing, len(tail), 64), *base.shape[1:])
                self._columns[key] = base, torch.cat([tail, more])

    def add_edges(self, added: dict[int, Row]) -> None:
        """Add edges by their targets."""
        self.edges.add(added)
        if self._out is not None:
            edges = (
                Edge(node, a, w)
                for node, row in added.items()
                for a, w in zip(*map(np.ndarray.tolist, row), strict=True)
            )
            self._out.add(self.rows_with(edges))
        self._merge_if_many()

    def remove_edges(self, removed: dict[int, Row]) -> None:
        """Remove edges by their targets; a repeated one as a whole."""
        for node, row in removed.items():
            self.edges.drop(node, row.sources)
            if self._out is not None:
                for source in row.sources.tolist():
                    self._out.drop(source, np.array([node]))
        self._merge_if_many()

    def remove(self, node: int) -> list[int]:
        """Remove a node with its edges; returns the nodes that had an edge from it."""
        targets = [target for target in self.outgoing(node) if target != node]
        for target in targets:
            self.edges.drop(target, np.array([node]))
        if self._out is not None:
            for source in np.unique(self.row(node).sources).tolist():
                self._out.drop(source, np.array([node]))
        for edges in (self.edges, self._out):
            if edges is not None:
                edges.drop(node, edges.row(node).sources)
        self.ids.remove(node)
        self._removed.add(node)
        if node >= self.num_base:
            self._free.append(node)
        self._merge_if_many()
        return targets

    def _merge_if_many(self) -> None:
        # Merging costs as much as copying all edges, an overlay about half a kilobyte a node.
        for edges in (self.edges, self._out):
            if edges is not None:
                edges.merge_if_many(self.num_nodes, max(_MOST_CHANGED, self.num_base // 16))

    @property
    def num_present(self) -> int:
        """Number of nodes that have not been removed."""
        return self.num_nodes - len(self._removed)

    @property
    def present(self) -> np.ndarray:
        """The indices of all nodes that have not been removed, ascending."""
        keep = np.ones(self.num_nodes, dtype=bool)
        keep[list(self._removed)] = False
        return np.flatnonzero(keep)

    # --- rows of matrices ---

    def add_column(self, key: Hashable, base: Tensor) -> None:
        """Add a matrix with a row, or a number, per node of the base, which is changed in place."""
        assert self.num_nodes == self.num_base, "columns come before changes"
        if base.is_inference():  # which cannot be changed in place later
            with torch.inference_mode(False):
                base = base.clone()
        self._columns[key] = base, base.new_empty(0, *base.shape[1:])
        self._changed[key] = np.zeros(self.num_base, dtype=bool)

    def ensure(self, key: Hashable, make: Callable[[Graph], Tensor]) -> None:
        """Add a column if it is not there, while the base is still what it was made from."""
        if key not in self._columns:
            assert self.base is not None, f"{key} was not needed when the base was prepared"
            self.add_column(key, make(self.base))

    def get(self, key: Hashable, nodes: np.ndarray) -> Tensor:
        """The rows of some nodes, a copy."""
        base, tail = self._columns[key]
        if self.num_nodes == self.num_base or not len(nodes) or int(nodes.max()) < self.num_base:
            return base[torch.from_numpy(nodes)]
        is_new = nodes >= self.num_base
        values = base[torch.from_numpy(np.where(is_new, 0, nodes))]
        values[torch.from_numpy(is_new)] = tail[torch.from_numpy(nodes[is_new] - self.num_base)]
        return values

    def put(self, key: Hashable, nodes: np.ndarray, values: Tensor) -> None:
        """Replace the rows of some nodes."""
        base, tail = self._columns[key]
        values, is_new = values.detach().to(base), nodes >= self.num_base
        if is_new.any():
            tail[torch.from_numpy(nodes[is_new] - self.num_base)] = values[torch.from_numpy(is_new)]
            nodes, values = nodes[~is_new], values[torch.from_numpy(~is_new)]
        if len(nodes):
            base[torch.from_numpy(nodes)] = values
            self._changed[key][nodes] = True

    # --- the base and what has changed since, as arrays ---

    @property
    def columns(self) -> dict[Hashable, Tensor]:
        """The matrices of the base."""
        return {key: base for key, (base, _) in self._columns.items()}

    def changes(self) -> dict[str, np.ndarray]:
        """Everything but ids that has changed since the base."""
        later = sorted(self._removed.difference(self._free))
        found = {f"edges-{name}": each for name, each in self.edges.changes().items()}
        found["removed"] = np.array([*later, *self._free], dtype=np.int64)
        for number, (key, (base, tail)) in enumerate(self._columns.items()):
            nodes = np.flatnonzero(self._changed[key])
            rows = torch.cat([base[torch.from_numpy(nodes)], tail[: self.num_nodes - self.num_base]])
            found |= {f"rows-{number}": nodes, f"column-{number}": rows.numpy()}
        return found

    def restore(self, changes: Mapping[str, np.ndarray], num_nodes: int, added: list[Id], next_id: int) -> None:
        """Change the base as in `changes`."""
        own = {name.removeprefix("edges-"): each for name, each in changes.items() if name.startswith("edges-")}
        self.edges.restore(own)
        removed = changes["removed"].tolist()
        self._removed, self._free = set(removed), [node for node in removed if node >= self.num_base]
        self.ids.restore(added, self._removed, next_id)
        self._extend(num_nodes)
        new = np.arange(self.num_base, num_nodes)
        for number, key in enumerate(self._columns):
            self.put(key, np.append(changes[f"rows-{number}"], new), torch.from_numpy(changes[f"column-{number}"]))
        self._merge_if_many()

    def snapshot(self, columns: Mapping[Hashable, Tensor | None]) -> Self:
        """A copy with some columns that later changes leave as it is; with a base as it was, or of one in memory."""
        other = copy.copy(self)
        other.edges, other._out, other.ids = self.edges.snapshot(), None, self.ids.snapshot()
        other._removed, other._columns = set(self._removed), {}
        for key, first in columns.items():
            base, tail = self._columns[key]
            if first is not None:
                nodes = torch.from_numpy(np.flatnonzero(self._changed[key]))
                first[nodes] = base[nodes]
            other._columns[key] = base.clone() if first is None else first, tail.clone()
        return other


def checked_ids(ids: Iterable[Any], what: str) -> list[Id]:
    """Check ids that a user gives: strings or integers. Anything else would be converted silently."""
    found = list(ids)
    if {*map(type, found)} <= {int, str}:
        return found
    given, found = found, []
    for node in given:
        if isinstance(node, np.integer):
            node = int(node)
        if isinstance(node, bool) or not isinstance(node, (int, str)):
            raise GraphError(f"{what} has {node!r} of type {type(node).__name__}, expected ids as integers or strings")
        found.append(node)
    return found
