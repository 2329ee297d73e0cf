"""A graph whose matrices are sums over edges, in plain torch operations that `torch.export` can trace."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from oddnode.graph.graph import Graph


class TraceableGraph(Graph):
    """A `Graph` for `torch.export`: slower, but no operation depends on its values, and it may have any size.

    Its matrices have those parts of the interface of `oddnode.ops.SparseMatrix` that networks and scorers use.
    """

    @property
    def sparse_x(self) -> None:
        """None: whether features are sparse depends on their values."""
        return

    @property
    def gcn_matrix(self) -> Any:
        """As for `Graph`: self-loops count once, whether they are there or missing."""
        source, target = self.edge_index
        joins = (source != target).to(self.x.dtype)
        scale = (_sums(joins, target, self.num_nodes) + 1).pow(-0.5)
        loops = torch.arange(self.num_nodes, device=self.device)
        values = torch.cat([joins * scale[source] * scale[target], scale * scale])
        return _EdgeMatrix(torch.cat([target, loops]), torch.cat([source, loops]), values)

    @property
    def random_walk(self) -> Any:
        source, target = self.edge_index
        degree = _sums(torch.ones_like(target, dtype=self.x.dtype), target, self.num_nodes)
        return _EdgeMatrix(target, source, 1.0 / degree[target], degree == 0)

    @property
    def attention(self) -> NoReturn:
        """Attention is computed on sorted edges, which cannot be traced."""
        raise NotImplementedError("graph attention works on sorted edges (PyG's GATConv does not)")


class _EdgeMatrix(NamedTuple):
    """A sparse matrix by its coordinates; ``is_empty`` marks the rows without an entry where that matters."""

    row: Tensor
    col: Tensor
    value: Tensor
    is_empty: Tensor | None = None

    @property
    def with_self_loops_where_empty(self) -> _EdgeMatrix:
        assert self.is_empty is not None
        # Not its len(), which would make the number of nodes a constant.
        loops = torch.arange(self.is_empty.shape[0], device=self.row.device)
        value = torch.cat([self.value, self.is_empty.to(self.value.dtype)])
        return _EdgeMatrix(torch.cat([self.row, loops]), torch.cat([self.col, loops]), value)

    def __matmul__(self, dense: Tensor) -> Tensor:
        value = self.value if dense.dim() == 1 else self.value.unsqueeze(1)
        return _sums(value * dense[self.col], self.row, dense.shape[0])

    def diffuse(self, values: Tensor, eta: float, num_hops: int) -> Tensor:
        for _ in range(num_hops):
            values = eta * values + (1.0 - eta) * (self @ values)
        return values


def _sums(values: Tensor, at: Tensor, num_nodes: int) -> Tensor:
    return values.new_zeros(num_nodes, *values.shape[1:]).index_add(0, at, values)
