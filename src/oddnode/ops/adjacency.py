"""The matrices of a graph's edges, with or without weights: the random walk and GCN's normalisation.

An edge of weight w counts as w edges, one of weight 0 as none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oddnode.ops.sparse import SparseMatrix


def check_edge_weight(edge_weight: Tensor, num_edges: int, name: str = "edge_weight") -> None:
    """Raise an error for weights that are not one finite number of 0 or more per edge."""
    if edge_weight.shape != (num_edges,) or edge_weight.is_complex():
        raise ValueError(
            f"{name} is {edge_weight.dtype} of shape {list(edge_weight.shape)}, "
            f"expected one real number for each of the {num_edges} edges"
        )
    wrong = ~((edge_weight >= 0) & (edge_weight < torch.inf))  # NaN fails both comparisons
    if bool(wrong.any()):
        index = int(wrong.nonzero()[0])
        raise ValueError(
            f"{name} has {int(wrong.sum())} values that are negative, infinite or NaN, the first is "
            f"{float(edge_weight[index])} at edge {index}; expected finite weights of 0 or more"
        )


def weighted_in_degree(edge_index: Tensor, num_nodes: int, edge_weight: Tensor) -> Tensor:
    """Sum the weights of the edges that lead to each node."""
    # On a GPU, index_add_ would sum in any order, differently in every call.
    order = edge_index[1].argsort(stable=True)
    counts = torch.bincount(edge_index[1], minlength=num_nodes)
    return torch.segment_reduce(edge_weight.double()[order], "sum", lengths=counts, axis=0, initial=0.0)


def effective_degree(edge_index: Tensor, num_nodes: int, edge_weight: Tensor) -> Tensor:
    r"""Effective sample size of each node's edge weights, :math:`(\sum w)^2 / \sum w^2` (Kish, 1965).

    A weighted mean has the variance of a mean over this many values. It is the number of edges where
    their weights are equal, and does not depend on the unit of the weights.
    """
    if not edge_weight.numel():
        return torch.zeros(num_nodes, dtype=torch.float64, device=edge_index.device)
    relative = edge_weight.double() / edge_weight.max().double()  # so that no square overflows
    sums, squares = (weighted_in_degree(edge_index, num_nodes, each) for each in (relative, relative.square()))
    return torch.where(squares > 0, sums.square() / squares, (sums > 0).double())


def direction_sums(source: Tensor, target: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """Sum over edges in both directions with factors that differ by node, so that sums agree only by chance."""
    a, b, c, d = (
        ((ends.double() + 1) * factor).frac()  # node 0 counts as well
        for ends in (source, target)
        for factor in (0.6180339887498949, 0.4142135623730951)
    )
    there, back = a * d, c * b
    if edge_weight is not None:
        there, back = there * edge_weight, back * edge_weight
    return torch.stack([there.sum(), back.sum()])


def sums_agree(sums: Tensor) -> bool:
    """Whether `direction_sums` are those of a graph with every edge in both directions."""
    there, back = sums.tolist()
    return abs(there - back) <= 1e-10 * (there + 1.0)


def neighbour_mean_matrix(
    edge_index: Tensor, num_nodes: int, dtype: torch.dtype = torch.float32, edge_weight: Tensor | None = None
) -> SparseMatrix:
    """Build the random-walk matrix ``D^-1 A``, whose product with scores averages each node's in-neighbours."""
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
        raise ValueError(
            f"edge_index has nodes {int(edge_index.min())}..{int(edge_index.max())}, "
            f"but there are only {num_nodes} scores (0..{num_nodes - 1})"
        )
    source, target = edge_index
    if edge_weight is None:
        degree = torch.bincount(target, minlength=num_nodes)
        return SparseMatrix(target, source, 1.0 / degree[target].to(dtype), (num_nodes, num_nodes))
    check_edge_weight(edge_weight, edge_index.shape[1])
    share = edge_weight.double() / weighted_in_degree(edge_index, num_nodes, edge_weight)[target]
    counts = edge_weight > 0
    return SparseMatrix(target[counts], source[counts], share[counts].to(dtype), (num_nodes, num_nodes))


def gcn_matrix(walk: SparseMatrix, edge_index: Tensor, edge_weight: Tensor | None = None) -> SparseMatrix:
    """Build ``D^-1/2 (A + I) D^-1/2`` as PyG's ``gcn_norm`` does.

    A node with a self-loop gets no other; repeated self-loops of one node count as one with their mean weight.
    """
    num_nodes, dtype = walk.shape[0], walk.dtype
    if edge_weight is None:
        target, source, _ = walk.coordinates()
        if walk.nnz == edge_index.shape[1] and not bool((source == target).any()):
            # Without repeated edges and self-loops, the edges need not be sorted again.
            scale = (walk.row_counts() + 1).to(dtype).pow(-0.5)
            everywhere = torch.ones(num_nodes, dtype=torch.bool, device=walk.device)
            return walk.with_values(scale[source] * scale[target]).with_diagonal(everywhere, scale * scale)
        edge_weight = torch.ones_like(edge_index[0], dtype=dtype)
    edges, weight = with_self_loops(edge_index, num_nodes, edge_weight.to(dtype))
    scale = weighted_in_degree(edges, num_nodes, weight).to(dtype).pow(-0.5)
    return SparseMatrix(edges[1], edges[0], scale[edges[0]] * weight * scale[edges[1]], walk.shape)


def with_self_loops(edge_index: Tensor, num_nodes: int, edge_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Give every node one self-loop: of weight 1, or of the mean weight of those that it has."""
    is_loop = edge_index[0] == edge_index[1]
    loops = edge_index[:, is_loop]
    sums = weighted_in_degree(loops, num_nodes, edge_weight[is_loop])
    counts = torch.bincount(loops[1], minlength=num_nodes)
    own = torch.where(counts > 0, sums / counts.clamp_min(1), 1.0).to(edge_weight.dtype)
    nodes = torch.arange(num_nodes, device=edge_index.device)
    edges = torch.cat([edge_index[:, ~is_loop], torch.stack([nodes, nodes])], dim=1)
    return edges, torch.cat([edge_weight[~is_loop], own])
