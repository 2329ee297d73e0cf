"""Ways to alter nodes of a graph so that they no longer belong: other features, or other edges.

A detector rehearses them on known nodes of its own training graph, and benchmarks make unknown nodes by them.
`ALTERATIONS` has them by name, and `register_alteration` adds to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from oddnode._utils.registry import Registry


class Altered(NamedTuple):
    """What is new in a graph; ``None`` for what is as before."""

    rows: Tensor | None = None  #: The features of the altered nodes ``[n, F]``.
    edge_index: Tensor | None = None  #: All edges ``[2, E]``.
    edge_weight: Tensor | None = None  #: Their weights ``[E]``, if the graph has any.

    def features(self, x: Tensor, nodes: Tensor) -> Tensor:
        """Return the features of all nodes ``[N, F]``.

        Parameters
        ----------
        x : Tensor
            The features before ``[N, F]``.
        nodes : Tensor
            The altered nodes ``[n]``.
        """
        if self.rows is None:
            return x
        x = x.clone()
        x[nodes] = self.rows
        return x


@dataclass(frozen=True)
class Alteration:
    """A way to alter nodes.

    Parameters
    ----------
    alter : callable
        ``alter(data, nodes, rng) -> Altered``, where ``data`` has ``x``, ``edge_index``, ``edge_weight``, ``y``
        (classes, which may be predicted) and ``num_nodes``, and ``rng`` is a `numpy.random.Generator`.
    moves_edges : bool
        Whether it changes edges, which must then be undirected.
    needs_classes : bool
        Whether it needs nodes of more than one class.
    is_rehearsed : bool
        Whether detectors rehearse it; others serve for testing alone.
    related : tuple of str
        Other alterations that are much like it.
    summary : str
        What it does, in a few words for the report.
    """

    alter: Callable[[Any, Tensor, np.random.Generator], Altered]
    moves_edges: bool = False
    needs_classes: bool = False
    is_rehearsed: bool = True
    related: tuple[str, ...] = ()
    summary: str = ""


#: Alterations by name.
ALTERATIONS: Registry[Alteration] = Registry("alteration")


def register_alteration(name: str, alteration: Alteration) -> None:
    """Add an alteration, which detectors that are fitted later rehearse too.

    Parameters
    ----------
    name : str
        Its name.
    alteration : Alteration
        The alteration.
    """
    ALTERATIONS.register(name, alteration)


def related_to(name: str) -> tuple[str, ...]:
    """Name an alteration and those that are much like it; none for the name ``""``.

    Parameters
    ----------
    name : str
        The name of the alteration.
    """
    return (name, *ALTERATIONS[name].related) if name else ()


#: At least this many random edges are added to a node.
_FEWEST_ADDED_EDGES = 3
#: Number of features that stamped nodes share, and of nodes in a ring.
_STAMP, _RING = 5, 5


def _mixed(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Features ``w x_i + (1 - w) x_j`` of two random nodes, as in the paper's feature shift."""
    i, j = torch.from_numpy(rng.integers(data.num_nodes, size=(2, len(nodes))))
    weight = torch.from_numpy(rng.random((len(nodes), 1))).to(data.x.dtype)
    return Altered(weight * data.x[i] + (1 - weight) * data.x[j])


def _rewired(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The far end of every edge at the nodes moves to a random node."""
    return Altered(None, *_moved_edges(data, nodes, lambda near: rng.integers(data.num_nodes, size=len(near))))


def _bridged(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The far end of every edge at a node moves to a random node of one other class."""
    classes, index = np.unique(data.y.numpy(), return_inverse=True)
    other = (index[nodes.numpy()] + rng.integers(1, len(classes), size=len(nodes))) % len(classes)
    class_of = dict(zip(nodes.tolist(), other.tolist(), strict=True))
    members = [np.flatnonzero(index == c) for c in range(len(classes))]
    moved = _moved_edges(data, nodes, lambda near: [rng.choice(members[class_of[int(v)]]) for v in near])
    return Altered(None, *moved)


def _overlinked(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Every node gets as many random edges as it already has, at least three."""
    degree = torch.bincount(data.edge_index[0], minlength=data.num_nodes)[nodes].clamp_min(_FEWEST_ADDED_EDGES)
    near = nodes.repeat_interleave(degree)
    far = torch.from_numpy(rng.integers(data.num_nodes, size=len(near)))
    return Altered(None, *_with_edges(data, near, far, rng))


def _thinned(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Seven in ten features are set to zero."""
    keep = torch.from_numpy(rng.random((len(nodes), data.x.shape[1])) < 0.3)
    return Altered(data.x[nodes] * keep)


def _swapped(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The features of a random node of another class."""
    return Altered(data.x[_of_another_class(data, nodes, rng)])


def _noisy(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Set as many random features as are non-zero to the mean of the non-zero ones."""
    rows = data.x[nodes].clone()
    for row in rows:
        present = row[row != 0]
        chosen = rng.choice(len(row), size=min(max(len(present), 1), len(row)), replace=False)
        row[torch.from_numpy(chosen)] = present.mean() if len(present) else 1.0
    return Altered(rows)


def _shuffled(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The features of every node, shuffled independently."""
    order = torch.from_numpy(rng.permuted(np.tile(np.arange(data.x.shape[1]), (len(nodes), 1)), axis=1))
    return Altered(data.x[nodes].gather(1, order))


def _patched(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Every feature is that of a random neighbour; a node without neighbours keeps its own."""
    rows = data.x[nodes].clone()
    for row, far in zip(rows, _neighbours(data, nodes), strict=True):
        if len(far):
            giver = far[torch.from_numpy(rng.integers(len(far), size=len(row)))]
            row[:] = data.x[giver, torch.arange(len(row))]
    return Altered(rows)


def _stamped(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The same five rare features replace five random features of every node."""
    counts = (data.x != 0).sum(dim=0).numpy()
    by_count = np.argsort(counts, kind="stable")
    used = by_count[counts[by_count] > 0]
    stamp = rng.choice(used[: max(len(used) // 2, _STAMP)], size=min(_STAMP, len(used)), replace=False)
    rows = data.x[nodes].clone()
    for row in rows:
        present = row.nonzero().squeeze(1)
        value = row[present].mean() if len(present) else 1.0
        row[present[torch.from_numpy(rng.permutation(len(present))[:_STAMP])]] = 0.0
        row[torch.from_numpy(stamp)] = value
    return Altered(rows)


def _ringed(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """In groups of five, all altered nodes of a group are linked to each other."""
    groups = np.array_split(rng.permutation(nodes.numpy()), max(1, len(nodes) // _RING))
    pairs = torch.cat([torch.combinations(torch.from_numpy(group)) for group in groups])
    return Altered(None, *_with_edges(data, pairs[:, 0], pairs[:, 1], rng))


def _merged(data: Any, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """One node made of two: mean features, and the edges of both, with a random node of another class."""
    others = torch.tensor(_of_another_class(data, nodes, rng), dtype=torch.long)
    far = _neighbours(data, others)
    near = nodes.repeat_interleave(torch.tensor([len(ends) for ends in far]))
    return Altered((data.x[nodes] + data.x[others]) / 2, *_with_edges(data, near, torch.cat(far), rng))


def forecast_in_words(forecast: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """A forecast with a summary of each alteration, what is caught best first; those of a plugin that is not loaded
    have none.
    """
    found = sorted(forecast.items(), key=lambda item: -item[1])
    return [(name, ALTERATIONS[name].summary if name in ALTERATIONS else "", share) for name, share in found]


# Settings are chosen on ``thinned`` and ``swapped`` nodes among others; ``mixed`` and ``rewired`` are the feature and
# structure shifts of arrivals.
for _name, _alteration in {
    "mixed": Alteration(_mixed, summary="values of two nodes, mixed"),
    "rewired": Alteration(
        _rewired, moves_edges=True, related=("bridged",), summary="every link leads to a random node"
    ),
    "thinned": Alteration(_thinned, summary="seven in ten values set to zero"),
    "swapped": Alteration(_swapped, needs_classes=True, summary="values of a node with another label"),
    "noisy": Alteration(_noisy, related=("shuffled",), summary="as many random values set as it has"),
    "shuffled": Alteration(_shuffled, related=("noisy",), summary="its values, each in another column"),
    "overlinked": Alteration(_overlinked, moves_edges=True, summary="twice as many links, to random nodes"),
    "bridged": Alteration(
        _bridged,
        moves_edges=True,
        needs_classes=True,
        related=("rewired",),
        summary="every link leads to nodes of one other label",
    ),
    "patched": Alteration(_patched, is_rehearsed=False, related=("mixed",)),
    "stamped": Alteration(_stamped, is_rehearsed=False),
    "ringed": Alteration(_ringed, moves_edges=True, is_rehearsed=False, related=("overlinked",)),
    "merged": Alteration(_merged, moves_edges=True, is_rehearsed=False, related=("mixed", "overlinked")),
}.items():
    register_alteration(_name, _alteration)


def _of_another_class(data: Any, nodes: Tensor, rng: np.random.Generator) -> list[int]:
    """A random node of another class for every node."""
    y = data.y.numpy()
    return [int(rng.choice(np.flatnonzero(y != y[v]))) for v in nodes.tolist()]


def _neighbours(data: Any, nodes: Tensor) -> list[Tensor]:
    source, target = data.edge_index
    return [target[source == node] for node in nodes.tolist()]


def _with_edges(data: Any, near: Tensor, far: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor | None]:
    """Add undirected edges; in a weighted graph, each gets the weight of a random edge."""
    added = torch.stack([near, far])[:, near != far]
    edges, weight = torch.cat([data.edge_index, added, added.flip(0)], dim=1), data.edge_weight
    if weight is not None:
        # From a stream of its own, so that weights of 1 give the same edges as no weights.
        known = weight if len(weight) else weight.new_ones(1)
        drawn = known[torch.from_numpy(rng.spawn(1)[0].integers(len(known), size=added.shape[1]))]
        weight = torch.cat([weight, drawn, drawn])
    return _different(edges, weight, data.num_nodes)


def _moved_edges(data: Any, nodes: Tensor, new_ends: Callable[[Tensor], object]) -> tuple[Tensor, Tensor | None]:
    """Give every undirected edge at ``nodes`` a new far end; for an edge between two of them, the later end moves."""
    altered = torch.zeros(data.num_nodes, dtype=torch.bool)
    altered[nodes] = True
    upwards = data.edge_index[0] < data.edge_index[1]
    pairs = data.edge_index[:, upwards]
    pairs = torch.where(altered[pairs[0]], pairs, pairs.flip(0))  # the altered end first
    moved = altered[pairs[0]]
    pairs[1, moved] = torch.as_tensor(np.asarray(new_ends(pairs[0, moved])), dtype=torch.long)
    joins = pairs[0] != pairs[1]
    pairs = pairs[:, joins]
    weight = None if data.edge_weight is None else data.edge_weight[upwards][joins].repeat(2)
    return _different(torch.cat([pairs, pairs.flip(0)], dim=1), weight, data.num_nodes)


def _different(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> tuple[Tensor, Tensor | None]:
    """Every edge once, sorted; repeated edges keep their largest weight."""
    keys, place = (edge_index[0] * num_nodes + edge_index[1]).unique(return_inverse=True)
    edges = torch.stack([keys // num_nodes, keys % num_nodes])
    if edge_weight is None:
        return edges, None
    return edges, edge_weight.new_zeros(len(keys)).scatter_reduce(0, place, edge_weight, "amax", include_self=False)
