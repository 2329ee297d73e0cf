"""The picture of a part of a graph: a sample of its nodes and their positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from oddnode.paper.layout import spring_layout

__all__ = ["KNOWN", "OTHER", "UNKNOWN", "Picture", "Source", "draw_picture"]

KNOWN, UNKNOWN, OTHER = 0, 1, 2

_STARTS = 12
_FANOUT = 6
_SPACING_STEPS = 60


@dataclass(frozen=True)
class Source:
    """A graph to draw from.

    Parameters
    ----------
    name : str
        Its name.
    edges : array
        Edges ``[2, E]``.
    kind : array
        One of `KNOWN`, `UNKNOWN` and `OTHER` for each node ``[N]``.
    shown : array
        The class of each node as people call it ``[N]``.
    scores, predicted : dict of array
        The score and the most likely class of each node ``[N]``, by method.
    """

    name: str
    edges: np.ndarray
    kind: np.ndarray
    shown: np.ndarray
    scores: dict[str, np.ndarray]
    predicted: dict[str, np.ndarray]


@dataclass(frozen=True)
class Picture:
    """A part of one or more graphs, with the positions of its nodes.

    Parameters
    ----------
    graphs : list of str
        Names of the graphs.
    graph : array
        For each of the ``n`` nodes drawn, the position of its graph in ``graphs``.
    ids : array
        Its number in that graph.
    kind, shown : array
        As in `Source`, ``[n]``.
    place : array
        Coordinates ``[n, 2]``; the graphs lie one right of the other.
    edges : array
        Edges ``[2, e]`` as positions in the list of nodes, each pair once.
    scores, predicted : dict of array
        As in `Source`, ``[n]`` for each method.
    """

    graphs: list[str]
    graph: np.ndarray
    ids: np.ndarray
    kind: np.ndarray
    shown: np.ndarray
    place: np.ndarray
    edges: np.ndarray
    scores: dict[str, np.ndarray]
    predicted: dict[str, np.ndarray]


def draw_picture(sources: Sequence[Source], num_nodes: int = 300, seed: int = 0) -> Picture:
    """Draw a connected sample of every graph, from left to right.

    Parameters
    ----------
    sources : sequence of Source
        The graphs; all have scores of the same methods.
    num_nodes : int
        How many nodes to draw at most, in equal shares of the graphs.
    seed : int
        Of the sample and of the layout.
    """
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
