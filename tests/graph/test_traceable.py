"""A graph for tracing multiplies by the same matrices as the one for everything else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oddnode.functional import Isolated, propagate
from oddnode.graph import Graph
from oddnode.graph.traceable import TraceableGraph


@pytest.mark.parametrize("isolated", ["keep", "shrink"])
@given(pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_products_are_those_of_the_sparse_matrices(isolated: Isolated, pairs: list[tuple[int, int]]) -> None:
    """With self-loops, repeated and one-way edges, nodes without edges, and no edge at all."""
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    x = torch.arange(24, dtype=torch.float64).view(8, 3).sin()
    plain, traced = Graph(x, edges), TraceableGraph(x, edges)
    torch.testing.assert_close(traced.gcn_matrix @ x, plain.gcn_matrix @ x)
    torch.testing.assert_close(traced.smoothed_x, plain.smoothed_x)
    torch.testing.assert_close(traced.random_walk @ x, plain.random_walk @ x)
    spread = [propagate(x[:, 0], graph.random_walk, 3, 0.3, isolated) for graph in (traced, plain)]
    torch.testing.assert_close(*spread)
