r"""Where nodes are in a graph, by its edges alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.graph.graph import Graph

# Number of directions; steps of the walk, and after how many of them the directions are made orthogonal again.
_DIRECTIONS, _STEPS, _EVERY = 32, 12, 3
# Graphs on disk with more edges and features are not read into memory.
_LARGEST_COPIED = 2**26


def positions(graph: Graph, anchors: Tensor) -> Tensor | None:
    """Find the positions of some nodes among each other.

    A position is a node's row in an orthonormal basis of the directions in which a lazy random walk between the anchors
    forgets most slowly, found by subspace iteration: nodes that many short walks join are close. Other nodes and their
    edges take no part.

    Parameters
    ----------
    graph : Graph
        A graph of N nodes.
    anchors : Tensor
        Whether a node is an anchor ``[N]``.

    Returns
    -------
    Tensor or None
        Rows of unit length ``[N, 32]``, of zeros for nodes that are no anchors or not linked to any. ``None`` for a
        large graph on disk, which is not read into memory.
    """
    if graph.is_on_disk and graph.num_edges + graph.x.numel() > _LARGEST_COPIED:
        return None
    own, digest = anchors.to(torch.float64), graph.x.new_empty(graph.num_nodes, dtype=torch.float64)
    factors = _fractions(graph.x.shape[1], graph.x) + 1.0
    for rows in graph.row_slices():
        digest[rows] = graph.times_features(factors.to(graph.x).unsqueeze(0), rows).squeeze(1).double()
    if graph.is_on_disk:
        graph = Graph(graph.x[:, :0], *graph.sorted_edges())
    near = graph.neighbour_sums(own) * own
    scale = torch.where(near > 0, near, torch.inf).rsqrt()
    # Pseudorandom numbers of a node's features and those around it, so that the order of nodes does not matter.
    digest = digest + 0.6 * graph.neighbour_sums(digest * own) / near.clamp_min(1e-9) + near.log1p()
    number = torch.arange(1, _DIRECTIONS + 1, device=digest.device)
    waves = digest.unsqueeze(1) * (50.0 + 450.0 * _fractions(_DIRECTIONS, digest)) + number
    values = (waves.cos() * (near > 0).unsqueeze(1)).to(graph.x)
    scale, degree = scale.to(values), graph.in_degree.to(values)
    for step in range(1, _STEPS + 1):
        means = graph.random_walk @ (values * scale.unsqueeze(1))
        values = (values + means * (scale * degree).unsqueeze(1)) / 2
        if step % _EVERY == 0:
            values = values @ _whitening(values)
    return F.normalize(values, dim=1)


def _fractions(count: int, like: Tensor) -> Tensor:
    """Numbers between 0 and 1 without a pattern ``[count]``."""
    return (torch.arange(1, count + 1, device=like.device, dtype=torch.float64) * 0.6180339887498949).frac()


def _whitening(values: Tensor) -> Tensor:
    """What makes columns orthonormal ``[D, D]``; directions that a small graph does not have are dropped."""
    sizes, vectors = torch.linalg.eigh((values.t() @ values).double())
    return (vectors * torch.where(sizes > 1e-9 * sizes[-1], sizes, torch.inf).rsqrt()).to(values)
