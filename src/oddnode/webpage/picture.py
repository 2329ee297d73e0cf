"""Pictures of graphs: a force-directed layout, and a drawing of a sample of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

KNOWN, UNKNOWN, OTHER = 0, 1, 2

_STARTS = 12
_FANOUT = 6
_SPACING_STEPS = 60


def spring_layout(edge_index: np.ndarray, num_nodes: int, iterations: int = 100, seed: int = 0) -> np.ndarray:
    """Compute positions ``[N, 2]`` of nodes in the unit square.

    A force-directed layout (after Fruchterman and Reingold, 1991) in which edges attract, only the nearest nodes repel
    each other, and all nodes are attracted to the centre. It takes seconds for thousands of nodes and is deterministic.
    """
    rng = np.random.default_rng(seed)
    place = rng.normal(size=(num_nodes, 2))
    if num_nodes < 2:
        return np.full((num_nodes, 2), 0.5, dtype=np.float32)
    ones = np.ones(edge_index.shape[1])
    pull = sparse.csr_matrix((ones, (edge_index[1], edge_index[0])), shape=(num_nodes, num_nodes))
    pull = (pull + pull.T).tocsr()
    pull.data[:] = 1.0
    degree = np.asarray(pull.sum(axis=1)).ravel()
    # Smoothed noise puts neighbours near each other from the start, which saves most of the iterations.
    walk = sparse.diags(1.0 / np.maximum(degree, 1.0)) @ pull
    for _ in range(30):
        place = 0.5 * place + 0.5 * (walk @ place)
        place = (place - place.mean(axis=0)) / (place.std(axis=0) + 1e-12)
    place *= np.sqrt(num_nodes) / 4
    near = min(num_nodes, 24)
    for step in range(iterations):
        heat = 1.0 - step / iterations
        force = pull @ place - degree[:, None] * place
        force /= np.maximum(degree, 1.0)[:, None]
        gap, other = cKDTree(place).query(place, k=near)
        away = place[:, None, :] - place[other]
        force += (away / np.maximum(gap, 1e-3)[:, :, None] ** 2).sum(axis=1)
        force -= 0.05 * place
        length = np.linalg.norm(force, axis=1, keepdims=True)
        place += force / np.maximum(length, 1e-9) * np.minimum(length, 1.5 * heat + 0.02)
    # Pull in the few nodes that drifted far away, which would shrink the rest of the picture.
    place -= np.median(place, axis=0)
    length = np.linalg.norm(place, axis=1)
    place *= np.minimum(1.0, 1.15 * np.percentile(length, 97) / np.maximum(length, 1e-9))[:, None]
    low, high = place.min(axis=0), place.max(axis=0)
    return ((place - low) / np.maximum((high - low).max(), 1e-9)).astype(np.float32)


@dataclass(frozen=True)
class Source:
    """A graph to draw from."""

    name: str
    edges: np.ndarray
    kind: np.ndarray  # One of `KNOWN`, `UNKNOWN` and `OTHER` for each node `[N]`
    shown: np.ndarray  # The displayed class of each node `[N]`
    scores: dict[str, np.ndarray]  # The score of each node `[N]`, by method
    predicted: dict[str, np.ndarray]  # The most likely class of each node `[N]`, by method


@dataclass(frozen=True)
class Picture:
    """A part of one or more graphs, with the positions of its nodes."""

    graphs: list[str]  # Names of the graphs
    graph: np.ndarray  # For each of the `n` nodes drawn, the index of its graph in `graphs`
    ids: np.ndarray  # Its number in that graph
    kind: np.ndarray  # As in `Source`, `[n]`
    shown: np.ndarray  # As in `Source`, `[n]`
    place: np.ndarray  # Coordinates `[n, 2]`; the graphs lie side by side
    edges: np.ndarray  # Edges `[2, e]` as indices into the nodes drawn, each pair once
    scores: dict[str, np.ndarray]  # As in `Source`, `[n]` for each method
    predicted: dict[str, np.ndarray]  # As in `Source`, `[n]` for each method


def draw_picture(sources: Sequence[Source], num_nodes: int = 300, seed: int = 0) -> Picture:
    """Draw a connected sample of every graph, from left to right."""
    rng = np.random.default_rng(seed)
    share = num_nodes // len(sources)
    chosen, places, edges, offset = [], [], [], 0
    for column, source in enumerate(sources):
        nodes = _snowball(source, share, rng)
        inner = _edges_within(source.edges, nodes, len(source.kind))
        place = _spaced(spring_layout(inner, len(nodes), seed=seed))
        place[:, 0] += 1.15 * column
        chosen.append(nodes)
        places.append(place)
        edges.append(inner + offset)
        offset += len(nodes)
    parts = list(zip(sources, chosen, strict=True))
    methods = list(sources[0].scores)
    return Picture(
        graphs=[source.name for source in sources],
        graph=np.concatenate([np.full(len(nodes), i) for i, nodes in enumerate(chosen)]),
        ids=np.concatenate(chosen),
        kind=np.concatenate([source.kind[nodes] for source, nodes in parts]),
        shown=np.concatenate([source.shown[nodes] for source, nodes in parts]),
        place=np.concatenate(places),
        edges=np.concatenate(edges, axis=1),
        scores={m: np.concatenate([source.scores[m][nodes] for source, nodes in parts]) for m in methods},
        predicted={m: np.concatenate([source.predicted[m][nodes] for source, nodes in parts]) for m in methods},
    )


def _spaced(place: np.ndarray) -> np.ndarray:
    """Push nodes apart that would cover each other, and stretch the drawing over the unit square."""
    gap = 0.55 / np.sqrt(max(len(place), 1))
    for _ in range(_SPACING_STEPS):
        pairs = cKDTree(place).query_pairs(gap, output_type="ndarray")
        if len(pairs) == 0:
            break
        apart = place[pairs[:, 0]] - place[pairs[:, 1]]
        length = np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-9)
        step = 0.5 * (gap - length) * apart / length
        np.add.at(place, pairs[:, 0], step)
        np.add.at(place, pairs[:, 1], -step)
    low, high = place.min(axis=0), place.max(axis=0)
    return (place - low) / np.maximum(high - low, 1e-9)


def _snowball(source: Source, size: int, rng: np.random.Generator) -> np.ndarray:
    """Sample the neighbourhoods of a few random nodes of every kind."""
    if len(source.kind) <= size:
        return np.arange(len(source.kind))
    order = np.argsort(source.edges[0], kind="stable")
    targets = source.edges[1][order]
    first = np.searchsorted(source.edges[0][order], np.arange(len(source.kind) + 1))
    starts = _starts(source.kind, rng)
    seen: dict[int, None] = {}
    queue = [int(node) for node in starts[:_STARTS]]
    later = iter(starts[_STARTS:].tolist())
    while len(seen) < size:
        node = queue.pop(0) if queue else next(later)
        if node in seen:
            continue
        seen[node] = None
        near = targets[first[node] : first[node + 1]]
        queue += rng.permutation(near)[:_FANOUT].tolist()
    return np.sort(np.fromiter(seen, dtype=np.int64))


def _starts(kind: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Order nodes at random: known and unknown ones alternate, then all others."""
    known, unknown, other = (rng.permutation(np.flatnonzero(kind == k)) for k in (KNOWN, UNKNOWN, OTHER))
    turns = np.full((2, max(len(known), len(unknown))), -1)
    turns[0, : len(known)], turns[1, : len(unknown)] = known, unknown
    mixed = turns.T.ravel()
    return np.concatenate([mixed[mixed >= 0], other])


def _edges_within(edges: np.ndarray, nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """The edges between the sampled nodes, renumbered, without repetitions."""
    position = np.full(num_nodes, -1)
    position[nodes] = np.arange(len(nodes))
    source, target = position[edges[0]], position[edges[1]]
    low, high = np.minimum(source, target), np.maximum(source, target)
    return np.unique(np.stack([low, high])[:, (low >= 0) & (low < high)], axis=1)
