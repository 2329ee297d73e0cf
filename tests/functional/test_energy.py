from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oddnode.functional import Isolated, negative_energy, propagate, propagate_to, support
from oddnode.ops import neighbour_mean_matrix

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def dense_propagate(scores: Tensor, edges: Tensor, hops: int, eta: float, isolated: Isolated) -> Tensor:
    """The equation written out with loops, in double precision."""
    n = scores.shape[0]
    incoming: list[list[int]] = [[] for _ in range(n)]
    for source, target in edges.t().tolist():
        incoming[target].append(source)
    start = s = scores.double()
    for _ in range(hops):
        means = [sum((s[u] for u in near), s.new_zeros(())) / max(len(near), 1) for near in incoming]
        s = eta * s + (1 - eta) * torch.stack(means)
        if isolated == "keep":
            s = torch.stack([s[v] if incoming[v] else start[v] for v in range(n)])
    return s


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_negative_energy_is_the_log_of_the_summed_exponentials(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [-5.0, 0.0, 5.0]], dtype=dtype)
    expected = [math.log(sum(math.exp(z) for z in row)) for row in logits.tolist()]
    result = negative_energy(logits)
    assert result.dtype == dtype
    assert result.tolist() == pytest.approx(expected, rel=1e-6)


def test_negative_energy_of_huge_logits_does_not_overflow() -> None:
    assert negative_energy(torch.tensor([[1e4, 0.0]])).item() == pytest.approx(1e4)


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=25),
    st.integers(0, 4),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.sampled_from(["keep", "shrink"]),
)
def test_propagation_equals_the_written_out_sum(
    n: int, pairs: list[tuple[int, int]], hops: int, eta: float, isolated: Isolated
) -> None:
    """Any graph: directed, with self-loops, repeated edges, isolated nodes, or no edge at all."""
    edges = torch.tensor([(a % n, b % n) for a, b in pairs], dtype=torch.long).reshape(-1, 2).t()
    scores = torch.linspace(-2, 3, n, dtype=torch.float64)
    expected = dense_propagate(scores, edges, hops, eta, isolated)
    torch.testing.assert_close(propagate(scores, edges, hops, eta, isolated), expected)
    matrix = neighbour_mean_matrix(edges, n, torch.float64)
    torch.testing.assert_close(propagate(scores, matrix, hops, eta, isolated), expected)


def test_columns_propagate_side_by_side() -> None:
    columns = torch.randn(4, 3)
    together = propagate(columns, PATH, 3, 0.4)
    for k in range(3):
        torch.testing.assert_close(together[:, k], propagate(columns[:, k], PATH, 3, 0.4))


def test_propagation_is_differentiable() -> None:
    scores = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: propagate(s, PATH, 3, 0.5), (scores,))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"num_hops": -1}, "num_hops is -1"), ({"eta": 1.5}, "eta is 1.5"), ({"isolated": "drop"}, "isolated is 'drop'")],
)
def test_settings_out_of_range_are_named(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        propagate(torch.ones(4), PATH, **change)


def test_edge_to_a_missing_node_is_named() -> None:
    with pytest.raises(ValueError, match=r"nodes 0\.\.2, but there are only 2 scores \(0\.\.1\)"):
        propagate(torch.ones(2), PATH)


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.1, 0.5]),
)
def test_support_is_the_inverse_of_the_summed_squared_weights(
    n: int, pairs: list[tuple[int, int]], hops: int, eta: float
) -> None:
    edges = torch.tensor([(a % n, b % n) for a, b in pairs], dtype=torch.long).reshape(-1, 2).t()
    weights = torch.stack([dense_propagate(unit, edges, hops, eta, "keep") for unit in torch.eye(n).double()], dim=1)
    exact = 1 / weights.square().sum(dim=1)
    estimate = support(neighbour_mean_matrix(edges, n, torch.float64), hops, eta)
    assert bool((estimate >= 1 - 1e-9).all())
    assert bool((estimate <= n + 1e-9).all())
    # 64 random signs: a relative error of 18 % at one standard deviation, never near 4 of them in practice.
    assert bool(((estimate / exact).log().abs() < 0.9).all())


@pytest.mark.parametrize("isolated", ["keep", "shrink"])
@pytest.mark.parametrize("count", [2, 30, None])
def test_propagation_to_some_nodes_is_that_to_all(isolated: Isolated, count: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(35, (2, 60), generator=generator)
    matrix = neighbour_mean_matrix(edges, 40, torch.float64)
    nodes = None if count is None else torch.randperm(40, generator=generator)[:count]
    scores = torch.randn(40, dtype=torch.float64, generator=generator, requires_grad=True)
    expected = propagate(scores, edges, 5, 0.2, isolated)
    expected = expected if nodes is None else expected[nodes]
    for _ in range(2):  # computed, and found again
        ours = propagate_to(scores, matrix, nodes, 5, 0.2, isolated)
        torch.testing.assert_close(ours, expected)
    direction = torch.randn(len(ours), dtype=torch.float64, generator=generator)
    torch.testing.assert_close(
        *(torch.autograd.grad((out * direction).sum(), scores, retain_graph=True)[0] for out in (ours, expected))
    )
