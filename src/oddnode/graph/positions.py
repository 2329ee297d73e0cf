"""Where nodes are in a graph, by its edges alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.graph.graph import Graph, feature_checksums, fractions

# Number of directions; steps of the walk, and after how many of them the directions are made orthogonal again.
_DIRECTIONS, _STEPS, _EVERY = 32, 12, 3
# Graphs on disk with more edges, features and positions are not read into memory.
_LARGEST_COPIED = 2**26
# Rows that are converted to double precision at a time.
_ROWS = 256


def positions(graph: Graph, anchors: Tensor) -> Tensor | None:
    """Find the positions of some nodes among each other.

    A position is a node's row in an orthonormal basis of the directions in which a lazy random walk between the anchors
    forgets most slowly, found by subspace iteration: nodes that many short walks join are close. Other nodes and their
    edges take no part, and the order of nodes does not matter.

    Parameters
    ----------
    graph : Graph
        A graph of N nodes.
    anchors : Tensor
        Whether a node is an anchor ``[N]``.

    Returns
    -------
    Tensor or None
        Rows of unit length ``[N, 32]``; all zeros for nodes that are not anchors, and for anchors that no other anchor
        links to. ``None`` for a large graph on disk, which is not read into memory.
    """
    if graph.is_on_disk and graph.num_edges + graph.x.numel() + _DIRECTIONS * graph.num_nodes > _LARGEST_COPIED:
        return None
    edges, own, like = edges_of(graph), anchors.double(), graph.x[:0]
    near = _sums(edges, own) * own
    is_linked = near > 0
    # Pseudorandom numbers of a node's features and those around it.
    digest = _digest(graph)
    known = digest[anchors]
    if len(known) > 1:
        digest = (digest - known.mean()) / known.std().clamp_min(1e-12)
    digest = digest + 0.6 * _sums(edges, digest * own) / near.clamp_min(1e-9) + near.log1p()
    values = like.new_empty(graph.num_nodes, _DIRECTIONS)
    for direction, fraction in enumerate(fractions(_DIRECTIONS, digest).tolist()):
        values[:, direction] = ((50.0 + 450.0 * fraction) * digest + direction).cos() * is_linked
    scale = torch.where(is_linked, near, torch.inf).rsqrt().to(values)
    back = scale * edges.in_degree.to(values)
    for step in range(1, _STEPS + 1):
        means = edges.random_walk @ (values * scale.unsqueeze(1))
        values = (values + means * back.unsqueeze(1)) / 2
        if step % _EVERY == 0:
            values = values @ _whitening(values)
    return F.normalize(values, dim=1)


def edges_of(graph: Graph) -> Graph:
    """Return a graph in memory with the same edges: of a graph on disk, one without features.

    Parameters
    ----------
    graph : Graph
        The graph.
    """
    if not graph.is_on_disk:
        return graph

    def copied() -> Graph:
        index, weight = graph.sorted_edges()
        weight = None if weight is None else weight.to(graph.device, graph.x.dtype)
        return Graph(graph.x[:0].new_empty(graph.num_nodes, 0), index.to(graph.device), weight)

    return graph.cached("edges_of", copied, "edges")


def _sums(graph: Graph, values: Tensor) -> Tensor:
    """The weighted sums of ``[N]`` values over every node's neighbours, in double precision."""
    source, target = graph.edge_index
    found = values[source] if graph.edge_weight is None else values[source] * graph.edge_weight.double()
    return torch.zeros_like(values).index_add_(0, target, found)


def _digest(graph: Graph) -> Tensor:
    """A number for the features of every node ``[N]``, the same wherever the node is."""
    if graph.sparse_x is not None:
        factors = 1.0 + fractions(graph.x.shape[1], graph.x)
        return (graph.sparse_x.to(torch.float64) @ factors.unsqueeze(1)).squeeze(1)
    parts = [feature_checksums(part) for rows in graph.row_slices() for part in graph.x[rows].split(_ROWS)]
    return torch.cat(parts) if parts else feature_checksums(graph.x[:0])


def _whitening(values: Tensor) -> Tensor:
    """What makes columns orthonormal ``[D, D]``; directions that a small graph does not have are dropped."""
    sizes, vectors = torch.linalg.eigh((values.t() @ values).double())
    return (vectors * torch.where(sizes > 1e-9 * sizes[-1], sizes, torch.inf).rsqrt()).to(values)
