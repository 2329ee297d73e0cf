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
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops

from oddnode.energy import neighbour_mean_matrix, support
from oddnode.sparse import SparseMatrix
from oddnode.sparse_pattern import SparsePattern

__all__ = ["Graph", "GraphError", "check_labels", "check_mask", "shared_graphs"]

# Below this share of non-zeros features count as sparse (bags of words); a CPU multiplies them faster so.
_SPARSE_BELOW = 0.15


class GraphError(ValueError):
    """A graph that cannot be used; the message says what was found, what was expected and what to do."""


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
    def from_data(cls, data: Data, device: torch.device | str = "cpu") -> Graph:
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
        """How many nodes each propagated score is an average of (see `oddnode.energy.support`)."""
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


def _checked_features(data: Data) -> Tensor:
    x = data.x
    if not isinstance(x, Tensor):
        raise GraphError(f"data.x is {type(x).__name__}, expected a tensor of node features [nodes, features]")
    if x.is_sparse or x.layout != torch.strided:
        x = x.to_dense()
    if x.dim() != 2 or x.shape[1] == 0:
        raise GraphError(f"data.x has shape {list(x.shape)}, expected [nodes, features] with at least one feature")
    if x.shape[0] == 0:
        raise GraphError("the graph has no nodes")
    if x.is_complex():
        raise GraphError(f"data.x is {x.dtype}, expected real numbers")
    x = x.to(x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32)
    if not bool(x.sum().isfinite()):  # a sum is quick, and finite only if everything is
        _refuse_infinite(x)
    return x


def _refuse_infinite(x: Tensor) -> None:
    """Say where values are not finite; large ones whose sum overflows are fine."""
    finite = torch.isfinite(x)
    if not bool(finite.all()):
        node, feature = (~finite).nonzero()[0].tolist()
        raise GraphError(
            f"data.x has {int((~finite).sum())} NaN or infinite values, the first at node {node}, "
            f"feature {feature}; fill or remove them before fitting or scoring"
        )


def _checked_edges(data: Data) -> Tensor:
    for name in ("edge_weight", "adj_t"):
        if data.get(name) is not None:
            raise GraphError(
                f"data.{name} is set, but edges are used unweighted, as [2, edges] in data.edge_index; "
                f"remove it (`del data.{name}`) if that is what you want"
            )
    weights = data.get("edge_attr")
    if isinstance(weights, Tensor) and (weights.dim() == 1 or weights.shape[1:].numel() == 1):
        raise GraphError(
            "data.edge_attr has one number per edge, but edges are used unweighted; "
            "remove it (`del data.edge_attr`) if that is what you want"
        )
    edges = data.edge_index
    if not isinstance(edges, Tensor):
        raise GraphError(
            f"data.edge_index is {type(edges).__name__}, expected an integer tensor [2, edges]; "
            "for a graph without edges use torch.empty(2, 0, dtype=torch.long)"
        )
    edges = edges.as_subclass(Tensor)
    if edges.dim() != 2 or edges.shape[0] != 2:
        hint = "; did you mean edge_index.t()?" if edges.dim() == 2 and edges.shape[1] == 2 else ""
        raise GraphError(f"data.edge_index has shape {list(edges.shape)}, expected [2, edges]{hint}")
    if edges.is_floating_point() or edges.is_complex() or edges.dtype == torch.bool:
        raise GraphError(f"data.edge_index is {edges.dtype}, expected whole numbers (torch.long)")
    num_nodes = data.x.shape[0]
    if edges.numel():
        lowest, highest = int(edges.min()), int(edges.max())
        if lowest < 0 or highest >= num_nodes:
            wrong = highest if highest >= num_nodes else lowest
            raise GraphError(f"edge_index has node {wrong}, but x has only {num_nodes} rows (0..{num_nodes - 1})")
    return edges.long()


def check_mask(data: Data, name: str, required: bool = True) -> Tensor | None:
    """The positions that a mask of ``data`` selects, checked; ``None`` where an optional mask is absent."""
    mask = data.get(name)
    if mask is None:
        if required:
            raise GraphError(f"data.{name} is missing, expected one boolean per node")
        return None
    if not isinstance(mask, Tensor):
        raise GraphError(f"data.{name} is {type(mask).__name__}, expected a boolean tensor")
    if mask.dtype != torch.bool or mask.dim() != 1 or mask.shape[0] != data.x.shape[0]:
        raise GraphError(
            f"data.{name} is {mask.dtype} of shape {list(mask.shape)}, "
            f"expected one boolean for each of the {data.x.shape[0]} nodes"
        )
    if not bool(mask.any()):
        raise GraphError(f"data.{name} selects no node")
    return mask.nonzero().squeeze(1)


def check_labels(data: Data, nodes: Tensor, what: str) -> Tensor:
    """The labels of ``nodes``, checked to be classes 0, 1, 2, ..."""
    y = data.y
    if not isinstance(y, Tensor):
        raise GraphError(f"data.y is {type(y).__name__}, expected one class (0, 1, 2, ...) per node")
    if y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if y.dim() != 1 or y.shape[0] != data.x.shape[0] or y.is_floating_point():
        raise GraphError(
            f"data.y is {y.dtype} of shape {list(y.shape)}, "
            f"expected one whole number for each of the {data.x.shape[0]} nodes"
        )
    labels = y[nodes.to(y.device)].long()
    if int(labels.min()) < 0:
        node = int(nodes[(labels < 0).nonzero()[0]])
        raise GraphError(
            f"the {what} nodes include node {node} with label {int(y[node])}; "
            "labelled nodes need a class of 0 or more (leave unlabelled nodes out of the masks)"
        )
    return labels
