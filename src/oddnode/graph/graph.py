"""A graph that has been checked, with everything that is computed once per graph.

`Graph` is what the rest of the library works on; `Graph.from_data` is the door where a user's
`torch_geometric.data.Data` comes in, and the only place where its tensors are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops

from oddnode.functional import support
from oddnode.graph.source import GraphSource
from oddnode.graph.validation import _checked_edges, _checked_features
from oddnode.ops import SparseMatrix, SparsePattern, neighbour_mean_matrix

__all__ = ["Graph", "shared_graphs"]

# Below this share of non-zeros features count as sparse (bags of words); a CPU multiplies them faster so.
_SPARSE_BELOW = 0.15


class _Known:
    """Checked features on their devices, and graphs of them, by the tensors that they come from."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def get(self, make: Callable[[], Any], device: torch.device, *sources: Any) -> Any:
        """What ``make`` gives, made once for the same sources."""
        key = (device, *(id(source) for source in sources))
        if key not in self._found:
            self._found[key] = make(), sources  # kept, so that their ids stay theirs
        return self._found[key][0]


_known: ContextVar[_Known | None] = ContextVar("known", default=None)


@contextmanager
def shared_graphs() -> Iterator[None]:
    """Within the block, data that is used again is not checked and prepared again; it must not change meanwhile."""
    token = _known.set(_Known())
    try:
        yield
    finally:
        _known.reset(token)


class Graph:
    """Node features and edges, with the matrices that models and scorers multiply by.

    Each matrix is built when it is first asked for and kept: a graph is multiplied hundreds of times.

    Parameters
    ----------
    x : Tensor
        Features ``[N, F]``, floating point.
    edge_index : Tensor
        Edges ``[2, E]``, from source to target.
    """

    def __init__(self, x: Tensor, edge_index: Tensor):
        self.x = x
        self.edge_index = edge_index
        self._supports: dict[tuple[int, float], Tensor] = {}
        self._around: list[tuple[Tensor, tuple[Tensor, Graph]]] = []

    @classmethod
    def from_data(cls, data: GraphSource, device: torch.device | str = "cpu") -> Graph:
        """Check a PyG ``Data`` and take its features and edges over."""
        device = torch.device(device)
        known = _known.get() or _Known()

        def make() -> Graph:
            x = known.get(lambda: _checked_features(data).to(device), device, data.x)
            return cls(x, _checked_edges(data).to(device))

        return known.get(make, device, data.x, data.edge_index)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self.x.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the graph lies."""
        return self.x.device

    def with_features(self, x: Tensor) -> Graph:
        """The same edges under other features; matrices of the edges are shared."""
        other = Graph(x, self.edge_index)
        for name in ("gcn_matrix", "random_walk", "attention"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        if x.dtype == self.x.dtype:
            other._supports = self._supports
        return other

    @cached_property
    def gcn_matrix(self) -> SparseMatrix:
        """``D^-1/2 (A + I) D^-1/2``, with self-loops added where they are missing."""
        (source, target), weight = gcn_norm(self.edge_index, None, self.num_nodes, dtype=self.x.dtype)
        return SparseMatrix(target, source, weight, (self.num_nodes, self.num_nodes))

    @cached_property
    def attention(self) -> SparsePattern:
        """Which nodes a node attends to: its neighbours, as often as there are edges, and once itself."""
        edges, _ = remove_self_loops(self.edge_index)
        (source, target), _ = add_self_loops(edges, num_nodes=self.num_nodes)
        return SparsePattern.of_unsorted(target, source, (self.num_nodes, self.num_nodes))

    @cached_property
    def random_walk(self) -> SparseMatrix:
        """``D^-1 A`` of the edges as they are: the mean over a node's neighbours."""
        return neighbour_mean_matrix(self.edge_index, self.num_nodes, self.x.dtype)

    def support(self, num_hops: int, eta: float) -> Tensor:
        """How many nodes each propagated score is an average of (see `oddnode.functional.energy.support`)."""
        if (num_hops, eta) not in self._supports:
            self._supports[num_hops, eta] = support(self.random_walk, num_hops, eta)
        return self._supports[num_hops, eta]

    @cached_property
    def sparse_x(self) -> SparseMatrix | None:
        """The features without their zeros, where that is the faster way to multiply by them."""
        return self.without_zeros if self.device.type == "cpu" and self.is_sparse else None

    @property
    def is_sparse(self) -> bool:
        """Whether few features differ from zero, and none of them is learnt."""
        return not self.x.requires_grad and self.density < _SPARSE_BELOW

    @cached_property
    def without_zeros(self) -> SparseMatrix:
        """The features as a sparse matrix."""
        return SparseMatrix.from_dense(self.x)

    @cached_property
    def feature_pattern(self) -> SparsePattern:
        """Where the features are not zero."""
        row, col = self.x.nonzero(as_tuple=True)
        return SparsePattern(row, col, (self.x.shape[0], self.x.shape[1]))

    @cached_property
    def feature_entries(self) -> Tensor:
        """The features that are not zero, in the order of `feature_pattern`."""
        return self.x[self.feature_pattern.row, self.feature_pattern.col]

    @cached_property
    def density(self) -> float:
        """The share of the features that are not zero."""
        return torch.count_nonzero(self.x).item() / max(self.x.numel(), 1)

    @cached_property
    def smoothed_x(self) -> Tensor:
        """``D^-1/2 (A + I) D^-1/2 X``: the part of a first graph convolution that training never changes."""
        return self.gcn_matrix @ self.x

    def times_features(self, weight: Tensor) -> Tensor:
        """``X W``."""
        return self.x @ weight if self.sparse_x is None else self.sparse_x @ weight

    def convolve_features(self, weight: Tensor) -> Tensor:
        """``D^-1/2 (A + I) D^-1/2 X W``, in the cheaper order."""
        if self.sparse_x is not None:
            return self.gcn_matrix @ self.sparse_x.product_once(weight)
        return self.smoothed_x @ weight

    def forget_product(self) -> None:
        """Let go of a product with the features that was kept for a second use."""
        sparse = self.__dict__.get("sparse_x")
        if sparse is not None:
            sparse.forget_product()

    def share_features(self, other: Graph) -> None:
        """Take over what another graph has prepared of the same features."""
        if self.x is other.x and self is not other:
            self.__dict__["sparse_x"] = other.sparse_x
            for name in ("density", "without_zeros"):
                if name in other.__dict__:
                    self.__dict__[name] = other.__dict__[name]

    def around(self, nodes: Tensor) -> tuple[Tensor, Graph]:
        """What a graph convolution at ``nodes`` sees: itself and its neighbours, and the graph between both.

        The second is a graph only to multiply by: its ``gcn_matrix`` leads from those neighbours to ``nodes``. Kept for
        the nodes asked for last, training and validation nodes.
        """
        for known, found in self._around:
            if known is nodes:
                return found
        matrix, columns = self.gcn_matrix.rows(nodes)
        part = Graph(self.x, self.edge_index)
        part.__dict__["gcn_matrix"] = matrix
        self._around = [*self._around, (nodes, (columns, part))][-4:]
        return columns, part

    def __repr__(self) -> str:
        return (
            f"Graph({self.num_nodes} nodes, {self.edge_index.shape[1]} edges, "
            f"{self.x.shape[1]} features, {self.device})"
        )
