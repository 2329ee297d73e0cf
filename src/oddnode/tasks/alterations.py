"""Ways to alter nodes of a graph so that they no longer belong: other features, or other edges.

Each takes a graph and the indices of the nodes to alter, and returns new features, edges and edge weights (``None``
if the graph has none); no other node's features change. `ALTERATIONS` has them by name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

#: Features, edges and edge weights.
Altered = tuple[Tensor, Tensor, Tensor | None]

#: ``alter(data, nodes, rng) -> (x, edge_index, edge_weight)``.
Alteration = Callable[[Data, Tensor, np.random.Generator], Altered]

#: At least this many random edges are added to a node.
_FEWEST_ADDED_EDGES = 3
#: Number of features that stamped nodes share, and of nodes in a ring.
_STAMP, _RING = 5, 5


def _mixed(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Features ``w x_i + (1 - w) x_j`` of two random nodes, as in the paper's feature shift."""
    i, j = torch.from_numpy(rng.integers(data.num_nodes, size=(2, len(nodes))))
    weight = torch.from_numpy(rng.random((len(nodes), 1))).to(data.x.dtype)
    return _with_rows(data.x, nodes, weight * data.x[i] + (1 - weight) * data.x[j]), data.edge_index, data.edge_weight


def _rewired(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The far end of every edge at the nodes moves to a random node."""
    return data.x, *_moved_edges(data, nodes, lambda near: rng.integers(data.num_nodes, size=len(near)))


def _bridged(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The far end of every edge at a node moves to a random node of one other class."""
    num_classes = int(data.y.max()) + 1
    other = (data.y[nodes].numpy() + rng.integers(1, num_classes, size=len(nodes))) % num_classes
    class_of = dict(zip(nodes.tolist(), other.tolist(), strict=True))
    members = [np.flatnonzero(data.y.numpy() == c) for c in range(num_classes)]
    return data.x, *_moved_edges(data, nodes, lambda near: [rng.choice(members[class_of[int(v)]]) for v in near])


def _overlinked(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Every node gets as many random edges as it already has, at least three."""
    degree = torch.bincount(data.edge_index[0], minlength=data.num_nodes)[nodes].clamp_min(_FEWEST_ADDED_EDGES)
    near = nodes.repeat_interleave(degree)
    far = torch.from_numpy(rng.integers(data.num_nodes, size=len(near)))
    return data.x, *_with_edges(data, near, far, rng)


def _thinned(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Seven in ten features are set to zero."""
    keep = torch.from_numpy(rng.random((len(nodes), data.x.shape[1])) < 0.3)
    return _with_rows(data.x, nodes, data.x[nodes] * keep), data.edge_index, data.edge_weight


def _swapped(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The features of a random node of another class."""
    return _with_rows(data.x, nodes, data.x[_of_another_class(data, nodes, rng)]), data.edge_index, data.edge_weight


def _noisy(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Set as many random features as are non-zero to the mean of the non-zero ones."""
    rows = data.x[nodes].clone()
    for row in rows:
        present = row[row != 0]
        chosen = rng.choice(len(row), size=min(max(len(present), 1), len(row)), replace=False)
        row[torch.from_numpy(chosen)] = present.mean() if len(present) else 1.0
    return _with_rows(data.x, nodes, rows), data.edge_index, data.edge_weight


def _shuffled(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """The features of every node, shuffled independently."""
    order = torch.from_numpy(rng.permuted(np.tile(np.arange(data.x.shape[1]), (len(nodes), 1)), axis=1))
    return _with_rows(data.x, nodes, data.x[nodes].gather(1, order)), data.edge_index, data.edge_weight


def _patched(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """Every feature is that of a random neighbour; a node without neighbours keeps its own."""
    rows = data.x[nodes].clone()
    for row, far in zip(rows, _neighbours(data, nodes), strict=True):
        if len(far):
            giver = far[torch.from_numpy(rng.integers(len(far), size=len(row)))]
            row[:] = data.x[giver, torch.arange(len(row))]
    return _with_rows(data.x, nodes, rows), data.edge_index, data.edge_weight


def _stamped(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
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
    return _with_rows(data.x, nodes, rows), data.edge_index, data.edge_weight


def _ringed(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """In groups of five, all altered nodes of a group are linked to each other."""
    groups = np.array_split(rng.permutation(nodes.numpy()), max(1, len(nodes) // _RING))
    pairs = torch.cat([torch.combinations(torch.from_numpy(group)) for group in groups])
    return data.x, *_with_edges(data, pairs[:, 0], pairs[:, 1], rng)


def _merged(data: Data, nodes: Tensor, rng: np.random.Generator) -> Altered:
    """One node made of two: mean features, and the edges of both, with a random node of another class."""
    others = torch.tensor(_of_another_class(data, nodes, rng), dtype=torch.long)
    far = _neighbours(data, others)
    near = nodes.repeat_interleave(torch.tensor([len(ends) for ends in far]))
    x = _with_rows(data.x, nodes, (data.x[nodes] + data.x[others]) / 2)
    return x, *_with_edges(data, near, torch.cat(far), rng)


#: Alterations by name. ``feature`` and ``structure`` are those of the paper. Settings are chosen on ``thinned`` and
#: ``swapped`` nodes, none on the others; the last four serve for testing alone.
ALTERATIONS: dict[str, Alteration] = {
    "feature": _mixed,
    "structure": _rewired,
    "thinned": _thinned,
    "swapped": _swapped,
    "noisy": _noisy,
    "shuffled": _shuffled,
    "overlinked": _overlinked,
    "bridged": _bridged,
    "patched": _patched,
    "stamped": _stamped,
    "ringed": _ringed,
    "merged": _merged,
}


def _with_rows(x: Tensor, nodes: Tensor, rows: Tensor) -> Tensor:
    x = x.clone()
    x[nodes] = rows
    return x


def _of_another_class(data: Data, nodes: Tensor, rng: np.random.Generator) -> list[int]:
    """A random node of another class for every node."""
    y = data.y.numpy()
    return [int(rng.choice(np.flatnonzero(y != y[v]))) for v in nodes.tolist()]


def _neighbours(data: Data, nodes: Tensor) -> list[Tensor]:
    source, target = data.edge_index
    return [target[source == node] for node in nodes.tolist()]


def _with_edges(data: Data, near: Tensor, far: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor | None]:
    """Add undirected edges; in a weighted graph, each gets the weight of a random edge."""
    added = torch.stack([near, far])[:, near != far]
    edges, weight = torch.cat([data.edge_index, added, added.flip(0)], dim=1), data.edge_weight
    if weight is not None:
        drawn = weight[torch.from_numpy(rng.integers(max(len(weight), 1), size=added.shape[1]))]
        weight = torch.cat([weight, drawn, drawn])
    return _different(edges, weight, data.num_nodes)


def _moved_edges(data: Data, nodes: Tensor, new_ends: Callable[[Tensor], object]) -> tuple[Tensor, Tensor | None]:
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
    return coalesce(edge_index, edge_weight, num_nodes=num_nodes, reduce="max")
