"""A graph that grows and shrinks: a base that is never written, in memory or mapped from a folder, with an overlay.

A node that has been touched (added, or given other edges) has a *slot*. Every matrix with a row per node stores the
rows of these nodes by slot, and all other rows are those of the base. The incoming edges of a touched node are stored
as a whole. So an arrival costs as much as its neighbourhood, however large the base is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from oddnode.graph import CSR, Graph, GraphError
from oddnode.tables.edges import IdIndex
from oddnode.tables.values import pa

_NO_EDGES = np.empty(0, dtype=np.int64)
Id = int | str


class Row(NamedTuple):
    """The incoming edges of a node: their sources ``[e]`` and weights ``[e]``."""

    sources: np.ndarray
    weights: np.ndarray

    def joined(self, other: Row) -> Row:
        return Row(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


class Incoming(NamedTuple):
    """The incoming edges of some nodes, in the order of these nodes, ``[e]`` each."""

    sources: np.ndarray
    owner: np.ndarray  # The index of each edge's target among the nodes
    weights: np.ndarray
    capped: np.ndarray  # Which of the nodes have more edges than these `[n]`


class Edge(NamedTuple):
    """An edge between two nodes, by index."""

    source: int
    target: int
    weight: float = 1.0


class Ids:
    """The ids of all nodes: those of the base, and those that were added."""

    def __init__(self, base: Any, num_nodes: int):
        self._base, self._num_base = base, num_nodes
        self._added: list[Id] = []
        self._index: dict[Id, int] = {}
        self._numbers = None
        if base is not None and not isinstance(base, list) and pa.types.is_integer(base.type):
            self._numbers = IdIndex(base)
        elif base is not None:
            self._base = base if isinstance(base, list) else base.to_pylist()
            self._index = {node: index for index, node in enumerate(self._base)}
        self._removed: set[Id] = set()

    def __getitem__(self, index: int) -> Id:
        if index >= self._num_base:
            return self._added[index - self._num_base]
        if self._base is None:
            return index
        return self._base[index] if self._numbers is None else self._base[index].as_py()

    def find(self, node: Id) -> int | None:
        """The index of a node; ``None`` if there is none with this id."""
        if node in self._index:
            return self._index[node]
        if not isinstance(node, int) or node in self._removed or not -(2**63) <= node < 2**63:
            return None
        index = node if self._base is None and node < self._num_base else -1
        if self._numbers is not None:
            index = int(self._numbers.indices(pa.array([node], pa.int64()))[0])
        return index if index >= 0 else None

    def add(self, ids: Sequence[Id]) -> None:
        for node in ids:
            self._index[node] = self._num_base + len(self._added)
            self._added.append(node)

    def remove(self, index: int) -> None:
        node = self[index]
        self._index.pop(node, None)
        if index < self._num_base:
            self._removed.add(node)


class GrowingGraph:
    """The edges of a base graph with an overlay, and matrices with a row per node; removed nodes keep their index."""

    def __init__(self, base: Graph, ids: Any, directed: bool, max_neighbours: int):
        self.base, self.directed, self.max_neighbours = base, directed, max_neighbours
        self.ids = Ids(ids, base.num_nodes)
        self.is_weighted = base.edge_weight is not None
        self.is_symmetric = base.is_symmetric
        self.num_nodes = base.num_nodes
        self._csr: CSR = base.csr
        self._rows: dict[int, Row] = {}
        self._removed: set[int] = set()
        self._slots = np.full(base.num_nodes, -1, dtype=np.int32)
        self._num_slots = 0
        self._columns: dict[Hashable, tuple[Tensor, Tensor]] = {}

    # --- edges ---

    def row(self, node: int) -> Row:
        """The incoming edges of a node."""
        known = self._rows.get(node)
        if known is not None or node >= self.base.num_nodes:
            return known or Row(_NO_EDGES, np.empty(0))
        first, last = self._csr.offsets[node : node + 2].tolist()
        weights = self._csr.weights
        sources = self._csr.sources[first:last].numpy().astype(np.int64)
        return Row(sources, np.ones(len(sources)) if weights is None else weights[first:last].numpy().astype(float))

    def incoming(self, nodes: np.ndarray, added: dict[int, Row], cap: int) -> Incoming:
        """The incoming edges of some nodes, with some that are not yet in the graph; of a hub, ``cap`` of its own."""
        special = [place for place, node in enumerate(nodes.tolist()) if node in self._rows or node in added]
        owners, sources, weights = [], [], []
        plain = np.delete(np.arange(len(nodes)), special)
        plain = plain[nodes[plain] < self.base.num_nodes]  # an arrival without edges has no row
        first, last = (self._csr.offsets[torch.from_numpy(nodes[plain] + end)].numpy() for end in (0, 1))
        capped = np.zeros(len(nodes), dtype=bool)
        capped[plain] = last - first > cap
        count = np.minimum(last - first, cap)
        owner = np.repeat(np.arange(len(plain)), count)
        within = np.arange(len(owner)) - (count.cumsum() - count)[owner]
        # Of a hub, evenly spaced edges: the same ones in every call.
        edges = torch.from_numpy(first[owner] + within * (last - first)[owner] // np.maximum(count, 1)[owner])
        owners.append(plain[owner])
        sources.append(self._csr.sources[edges].numpy().astype(np.int64))
        known = self._csr.weights
        weights.append(np.ones(len(owner)) if known is None else known[edges].numpy().astype(float))
        for place in special:
            row, more = self.row(int(nodes[place])), added.get(int(nodes[place]))
            capped[place] = len(row.sources) > cap
            if capped[place]:  # without arrivals, which would count too much beside a sample of its neighbours
                chosen = np.arange(cap) * len(row.sources) // cap
                row, more = Row(row.sources[chosen], row.weights[chosen]), None
            row = row if more is None else row.joined(more)
            owners.append(np.full(len(row.sources), place))
            sources.append(row.sources)
            weights.append(row.weights)
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        return Incoming(np.concatenate(sources)[order], owner[order], np.concatenate(weights)[order], capped)

    def outgoing(self, node: int) -> list[int]:
        """The targets of the edges that lead from a node, each once."""
        if not self.directed:
            return np.unique(self.row(node).sources).tolist()
        found = [place for place, row in self._rows.items() if node in row.sources]
        first = (self._csr.sources == node).nonzero().squeeze(1)
        targets = (torch.searchsorted(self._csr.offsets, first, right=True) - 1).unique().tolist()
        return sorted({*found, *(target for target in targets if target not in self._rows)})

    def rows_with(self, edges: Iterable[Edge]) -> dict[int, Row]:
        """New edges by their targets, in both directions unless the graph is directed."""
        ends: dict[int, tuple[list[int], list[float]]] = {}
        for source, target, weight in edges:
            ways = [(source, target)] if self.directed or source == target else [(source, target), (target, source)]
            for a, b in ways:
                sources, weights = ends.setdefault(b, ([], []))
                sources.append(a)
                weights.append(weight)
        return {node: Row(np.array(s, dtype=np.int64), np.array(w)) for node, (s, w) in ends.items()}

    # --- changes ---

    def add(self, ids: Sequence[Id], added: dict[int, Row]) -> None:
        """Add nodes at the end, and edges by their targets."""
        self.ids.add(ids)
        first, self.num_nodes = self.num_nodes, self.num_nodes + len(ids)
        if self.num_nodes > len(self._slots):
            more = np.full(max(len(ids), len(self._slots) // 2, 1024), -1, dtype=np.int32)
            self._slots = np.concatenate([self._slots, more])
        for node, row in added.items():
            self._rows[node] = self.row(node).joined(row)
        self.touch(np.unique(np.array([*range(first, self.num_nodes), *added], dtype=np.int64)))

    def remove(self, node: int) -> list[int]:
        """Remove a node with its edges; returns the nodes that had an edge from it."""
        targets = [target for target in self.outgoing(node) if target != node]
        for target in targets:
            row = self.row(target)
            kept = row.sources != node
            self._rows[target] = Row(row.sources[kept], row.weights[kept])
        self._rows[node] = Row(_NO_EDGES, np.empty(0))
        self.ids.remove(node)
        self._removed.add(node)
        self.touch(np.array(targets, dtype=np.int64))
        return targets

    @property
    def present(self) -> np.ndarray:
        """The indices of all nodes that have not been removed, ascending."""
        keep = np.ones(self.num_nodes, dtype=bool)
        keep[list(self._removed)] = False
        return np.flatnonzero(keep)

    # --- rows of matrices ---

    def touch(self, nodes: np.ndarray) -> None:
        """Give nodes a slot, with the rows that they have now."""
        new = nodes[self._slots[nodes] < 0]
        slots = np.arange(self._num_slots, self._num_slots + len(new))
        is_base = new < self.base.num_nodes
        for key, (base, more) in self._columns.items():
            if len(more) < self._num_slots + len(new):
                more = torch.cat([more, base.new_zeros(max(len(new), len(more), 64), *base.shape[1:])])
            more[torch.from_numpy(slots[is_base])] = base[torch.from_numpy(new[is_base])]
            self._columns[key] = base, more
        self._slots[new] = slots
        self._num_slots += len(new)

    def is_touched(self, nodes: np.ndarray) -> np.ndarray:
        return self._slots[nodes] >= 0

    def add_column(self, key: Hashable, base: Tensor) -> None:
        """Add a matrix with a row, or a number, per node of the base."""
        assert not self._num_slots, "columns come before changes"
        self._columns[key] = base, base.new_empty(0, *base.shape[1:])

    def has_column(self, key: Hashable) -> bool:
        return key in self._columns

    def get(self, key: Hashable, nodes: np.ndarray) -> Tensor:
        """The rows of some nodes."""
        base, more = self._columns[key]
        slots = self._slots[nodes]
        touched = slots >= 0
        if not touched.any():
            return base[torch.from_numpy(nodes)]
        values = base[torch.from_numpy(np.where(touched, 0, nodes))]
        values[torch.from_numpy(touched)] = more[torch.from_numpy(slots[touched]).long()]
        return values

    def put(self, key: Hashable, nodes: np.ndarray, values: Tensor) -> None:
        """Replace the rows of nodes that have been touched."""
        slots = self._slots[nodes]
        assert (slots >= 0).all()
        more = self._columns[key][1]
        more[torch.from_numpy(slots).long()] = values.detach().to(more)

    def all_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """All edges ``[2, E]`` by index, and their weights ``[E]``, in memory."""
        nodes = np.arange(self.num_nodes)
        found = self.incoming(nodes, {}, cap=len(self._csr.sources) + self.num_nodes)
        return np.stack([found.sources, nodes[found.owner]]), found.weights


def checked_ids(ids: Iterable[Any], what: str) -> list[Id]:
    """Check ids that a user gives: strings or integers. Anything else would be converted silently."""
    found: list[Id] = []
    for node in ids:
        if isinstance(node, np.integer):
            node = int(node)
        if isinstance(node, bool) or not isinstance(node, (int, str)):
            raise GraphError(f"{what} has {node!r} of type {type(node).__name__}, expected ids as integers or strings")
        found.append(node)
    return found
