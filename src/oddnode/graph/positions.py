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
    if graph.is_on_disk:
        if graph.num_edges + graph.x.numel() > _LARGEST_COPIED:
            return None
        graph = Graph(graph.x[:, :0], *graph.sorted_edges())
    own, degree = anchors.to(graph.x), graph.in_degree.to(graph.x)
    near = graph.neighbour_sums(own) * own
    scale = torch.where(near > 0, near, torch.inf).rsqrt()
    # From a CPU generator, so that it depends neither on the global random state nor on the device.
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(graph.num_nodes, _DIRECTIONS, generator=generator, dtype=torch.float64)
    values = start.to(graph.x) * (near > 0).unsqueeze(1)
    for step in range(1, _STEPS + 1):
        means = graph.random_walk @ (values * scale.unsqueeze(1))
        values = (values + means * (scale * degree).unsqueeze(1)) / 2
        if step % _EVERY == 0:
            values = values @ _whitening(values)
    return F.normalize(values, dim=1)


def _whitening(values: Tensor) -> Tensor:
    """What makes columns orthonormal ``[D, D]``; directions that a small graph does not have are dropped."""
    sizes, vectors = torch.linalg.eigh((values.t() @ values).double())
    return (vectors * torch.where(sizes > 1e-9 * sizes[-1], sizes, torch.inf).rsqrt()).to(values)
