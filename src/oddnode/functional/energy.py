"""The paper's score: the negative energy of a node's logits, and its propagation over the graph.

Pure functions. A higher score means more like the training distribution.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from oddnode.ops import DropoutStream, NeighbourMean, SparseMatrix, neighbour_mean, neighbour_mean_matrix

Isolated = Literal["keep", "shrink"]

# For at most this many nodes, computing their rows of the propagation matrix pays off.
_FEW_NODES = 256

# From this many edges on, a GPU propagates without storing a value per edge: half the memory, and faster.
_MANY_EDGES = 10_000_000

# Random vectors are drawn in groups, so that their numbers do not depend on how many are propagated together.
_PROBES, _PROBES_IN_A_GROUP = 64, 8
_DRAWN_AT_ONCE = 2**20
# Beyond this many nodes random signs are a hash of the node, which any device computes at once.
_MANY_NODES = 2**22


def negative_energy(logits: Tensor) -> Tensor:
    r"""Compute the negative energy :math:`-E(z) = \log \sum_c e^{z_c}` of every row; higher = more in-distribution.

    Parameters
    ----------
    logits : Tensor
        Shape ``[..., C]``.

    Examples
    --------
    >>> negative_energy(torch.tensor([[0.0, 0.0], [10.0, 0.0]]))
    tensor([ 0.6931, 10.0000])
    """
    return torch.logsumexp(logits, dim=-1)


def propagate(
    scores: Tensor,
    edge_index: Tensor | SparseMatrix | NeighbourMean,
    num_hops: int = 2,
    eta: float = 0.5,
    isolated: Isolated = "keep",
    edge_weight: Tensor | None = None,
) -> Tensor:
    r"""Average scores over the graph: :math:`s \leftarrow \eta s + (1-\eta) D^{-1} A s`, ``num_hops`` times.

    Node ``v`` takes the mean over the sources ``u`` of its incoming edges ``u -> v``. The edge list is not changed: a
    repeated edge counts twice, and a self-loop makes a node its own neighbour.

    Parameters
    ----------
    scores : Tensor
        One score per node ``[N]``, or several as columns ``[N, S]``.
    edge_index : Tensor, SparseMatrix or NeighbourMean
        Edges ``[2, E]``; or :math:`D^{-1} A`, if it is used more than once, from `neighbour_mean_matrix` or as an
        `oddnode.ops.neighbour_means.NeighbourMean`, which takes less memory.
    num_hops : int
        Number of hops (the paper's K).
    eta : float
        Share of its own score that a node keeps in every hop.
    isolated : {"keep", "shrink"}
        How a node without incoming edges is treated: it keeps its score; or the mean over its neighbours counts as
        zero, so that its score shrinks by the factor ``eta ** num_hops``, as in the published code.
    edge_weight : Tensor, optional
        One weight per edge ``[E]``, 0 or more, for a weighted mean; a node whose edges all have weight 0 is isolated.
        Only together with an ``edge_index`` that is a tensor: a matrix contains the weights.

    Examples
    --------
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])  # 0 - 1 - 2, and node 3 on its own
    >>> propagate(torch.tensor([4.0, 0.0, 0.0, 1.0]), path, num_hops=1)
    tensor([2., 1., 0., 1.])
    """
    if num_hops < 0:
        raise ValueError(f"num_hops is {num_hops}, expected 0 or more")
    if not 0.0 <= eta <= 1.0:
        raise ValueError(f"eta is {eta}, expected a number from 0 to 1")
    if isolated not in get_args(Isolated):
        raise ValueError(f"isolated is {isolated!r}, expected one of {', '.join(get_args(Isolated))}")
    if isinstance(edge_index, Tensor):
        matrix = _walk(scores, edge_index, edge_weight)
    elif edge_weight is None:
        matrix = edge_index
    else:
        raise ValueError("edge_weight was given with a matrix, which already has weights; give the edges as [2, E]")
    if num_hops == 0:
        return scores
    if isolated == "keep":
        matrix = matrix.with_self_loops_where_empty
    return matrix.diffuse(scores, eta, num_hops)


def _walk(scores: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> SparseMatrix | NeighbourMean:
    # A mean without values per edge cannot be weighted.
    is_large = edge_index.is_cuda and edge_index.shape[1] >= _MANY_EDGES and edge_weight is None
    if is_large and scores.dim() == 1:
        return neighbour_mean(edge_index, scores.shape[0])
    return neighbour_mean_matrix(edge_index, scores.shape[0], scores.dtype, edge_weight)


def propagate_to(
    scores: Tensor, matrix: SparseMatrix, nodes: Tensor | None, num_hops: int, eta: float, isolated: Isolated
) -> Tensor:
    """Compute the propagated scores of some nodes ``[M]``, for a matrix and nodes that are used many times.

    If there are few nodes, their rows of the matrix of the whole propagation are computed once, and each call is a
    product with these rows.

    Parameters
    ----------
    scores : Tensor
        One score per node ``[N]``.
    matrix : SparseMatrix
        :math:`D^{-1} A`, ``[N, N]``, from `oddnode.ops.neighbour_mean_matrix`.
    nodes : Tensor, optional
        Indices ``[M]`` of the nodes; ``None`` stands for all.
    num_hops, eta, isolated
        As in `propagate`.
    """
    matrix = matrix.with_self_loops_where_empty if isolated == "keep" else matrix
    if nodes is None:
        return matrix.diffuse(scores, eta, num_hops)
    # Computing the rows takes the time of a hop per node and hop, so few of them pay off within a training.
    is_few = len(nodes) <= _FEW_NODES and len(nodes) * matrix.shape[0] < 2 * num_hops * (matrix.nnz + matrix.shape[0])
    if matrix.device.type != "cpu" or not is_few or torch._C._are_functorch_transforms_active():
        return matrix.diffuse(scores, eta, num_hops)[nodes]
    return matrix.diffusion_rows(nodes, eta, num_hops) @ scores


def _draw_signs(signs: Tensor, generator: torch.Generator) -> None:
    """Fill ``signs`` with random signs, which are the same on every device."""
    seed = int(torch.randint(2**62, (), generator=generator)) if len(signs) > _MANY_NODES else 0
    for first in range(0, len(signs), _DRAWN_AT_ONCE):
        rows = signs[first : first + _DRAWN_AT_ONCE]
        if len(signs) > _MANY_NODES:  # drawing them in sequence would take longer than all hops on a GPU
            nodes = torch.arange(first, first + len(rows), device=signs.device)
            rows.copy_(DropoutStream(seed).scales(nodes, rows.shape[1], 0.5, 0, rows.dtype)).sub_(1)
        else:  # the numbers that are drawn have 64 bits
            rows.copy_(torch.randint(2, rows.shape, generator=generator)).mul_(2).sub_(1)


def support(
    matrix: SparseMatrix | NeighbourMean, num_hops: int, eta: float, probes_at_once: int = _PROBES_IN_A_GROUP
) -> Tensor:
    r"""Estimate the effective number of nodes in each propagated score: :math:`m_v = 1 / \sum_u P_{vu}^2`.

    :math:`P` is the matrix that `propagate` multiplies by: :math:`m_v` is 1 for a node without neighbours, and at most
    the size of its component. The sum is estimated as the mean of :math:`(P r)_v^2` over 64 vectors :math:`r` of random
    signs, the same in every call. It is exact for isolated nodes, and off by less than a fifth for most others.

    Parameters
    ----------
    matrix : SparseMatrix or NeighbourMean
        :math:`D^{-1} A`, ``[N, N]``, from `oddnode.ops.neighbour_mean_matrix`.
    num_hops : int
        Number of hops.
    eta : float
        Share of its own score that a node keeps in every hop.
    probes_at_once : int
        How many random vectors are propagated together, 8, 16, 32 or 64: more are faster and take more memory.

    Examples
    --------
    >>> pair_and_one = neighbour_mean_matrix(torch.tensor([[0, 1], [1, 0]]), 3)
    >>> support(pair_and_one, num_hops=1, eta=0.0)
    tensor([1., 1., 1.])
    """
    num_nodes = len(matrix.row_counts())
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(num_nodes, dtype=matrix.dtype, device=matrix.device)
    for _ in range(_PROBES // probes_at_once):  # few at a time, to limit memory on large graphs
        signs = total.new_empty(num_nodes, probes_at_once)
        for group in signs.split(_PROBES_IN_A_GROUP, dim=1):
            _draw_signs(group, generator)
        total += propagate(signs, matrix, num_hops, eta).square().sum(dim=1)
    return _PROBES / total.clamp_min(_PROBES / max(num_nodes, 1))
