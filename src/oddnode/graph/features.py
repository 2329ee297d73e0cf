"""The features of a graph's nodes, and a cache of what is computed from a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from oddnode.ops import SparseMatrix, SparsePattern

__all__ = ["NodeFeatures"]

# Features with a smaller share of non-zeros (bags of words) are multiplied as a sparse matrix on a CPU.
_SPARSE_BELOW = 0.15

T = TypeVar("T")


class NodeFeatures:
    """Base of `oddnode.graph.Graph`: features, dense and sparse, and the values that a graph has cached.

    Parameters
    ----------
    x : Tensor
        Features ``[N, F]``, floating point.
    """

    def __init__(self, x: Tensor):
        self.x = x
        self._caches: dict[str, dict[Hashable, Any]] = {"graph": {}, "edges": {}, "features": {}}

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.x.shape[0]

    @property
    def device(self) -> torch.device:
        """The device that holds the graph."""
        return self.x.device

    def cached(
        self, key: Hashable, make: Callable[[], T], derived_from: Literal["graph", "edges", "features"] = "graph"
    ) -> T:
        """Compute a value once and cache it in the graph.

        Parameters
        ----------
        key : hashable
            The key of the value.
        make : callable
            Computes the value; called without arguments if the key is new.
        derived_from : {"graph", "edges", "features"}
            What the value depends on. Graphs with the same edges and precision (`with_features`) share values that
            depend on the edges, and graphs with the same features (`share_features`) those that depend on features.

        Returns
        -------
        object
            The value.
        """
        cache = self._caches[derived_from]
        if key not in cache:
            cache[key] = make()
        return cache[key]

    def share_features(self, other: NodeFeatures) -> None:
        """Share the values derived from the features with another graph that has the same features.

        Parameters
        ----------
        other : NodeFeatures
            The other graph; the call has no effect unless its ``x`` is the same tensor.
        """
        if self.x is other.x:
            self._caches["features"] = other._caches["features"]

    @property
    def sparse_x(self) -> SparseMatrix | None:
        """The features as a sparse matrix, if it is faster to multiply by; otherwise ``None``."""
        return self.sparse_features if self.device.type == "cpu" and self.is_sparse else None

    @property
    def is_sparse(self) -> bool:
        """Whether few features are non-zero, and none of them requires a gradient."""
        return not self.x.requires_grad and self.density < _SPARSE_BELOW

    @property
    def sparse_features(self) -> SparseMatrix:
        """The features as a sparse matrix."""
        return self.cached("sparse_features", lambda: SparseMatrix.from_dense(self.x), "features")

    @property
    def feature_pattern(self) -> SparsePattern:
        """The positions of non-zero features."""
        return self.cached("feature_pattern", self._make_feature_pattern, "features")

    def _make_feature_pattern(self) -> SparsePattern:
        row, col = self.x.nonzero(as_tuple=True)
        return SparsePattern(row, col, (self.x.shape[0], self.x.shape[1]))

    @property
    def feature_entries(self) -> Tensor:
        """The non-zero features, in the order of `feature_pattern`."""
        pattern = self.feature_pattern
        return self.cached("feature_entries", lambda: self.x[pattern.row, pattern.col], "features")

    @property
    def density(self) -> float:
        """The share of non-zero features."""
        return self.cached("density", lambda: torch.count_nonzero(self.x).item() / max(self.x.numel(), 1), "features")

    @property
    def max_abs_feature(self) -> float:
        """The largest magnitude of a feature."""
        return self.cached("max_abs_feature", lambda: max(map(abs, torch.stack(self.x.aminmax()).tolist())), "features")

    def row_slices(self) -> Iterator[slice]:
        """Yield the nodes whose features are handled together: all of them; of a graph on disk, some at a time."""
        yield slice(None)

    def by_rows(
        self,
        width: int | None,
        make: Callable[[slice], Tensor],
        dtype: torch.dtype | None = None,
        is_factor: bool = False,
    ) -> Tensor:
        """Compute numbers for every node from its own; a graph on disk keeps many of them in a temporary file.

        Parameters
        ----------
        width : int or None
            How many numbers a node has, C; ``None`` for one number and no second dimension.
        make : callable
            Computes those of some nodes, ``[n, C]`` or ``[n]``.
        dtype : torch.dtype, optional
            Their type; by default that of the features.
        is_factor : bool
            Whether a product of the graph reads them next, at random: then they are in memory if there is room.

        Returns
        -------
        Tensor
            Shape ``[N, C]`` or ``[N]``.
        """
        return make(slice(None))

    def column_groups(self, width: int) -> list[slice]:
        """Divide columns of which not all copies fit into memory; there is one group but for large graphs on a GPU.

        Parameters
        ----------
        width : int
            The number of columns.
        """
        return [slice(0, width)]

    def keep(self, values: Tensor) -> Tensor:
        """Return numbers of every node that are kept for later; a graph on disk moves many of them to a temporary file.

        Parameters
        ----------
        values : Tensor
            Shape ``[N]``.
        """
        return values.contiguous()

    def times_features(self, weight: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        """Compute ``X W^T``.

        Parameters
        ----------
        weight : Tensor
            Laid out as in `torch.nn.Linear`, ``[C, F]``.
        rows : slice or Tensor
            The nodes; all by default.

        Returns
        -------
        Tensor
            Shape ``[n, C]``.
        """
        if self.sparse_x is not None:
            return (self.sparse_x @ weight.t())[rows]
        return self.x[rows] @ weight.t()
