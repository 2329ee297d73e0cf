"""The paper's propositions, its inequality for extreme neighbours, and its gradient formulas."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oddnode.functional import bound_loss, cross_entropy, negative_energy, propagate, uniform_loss

vectors = st.lists(st.floats(-20, 20), min_size=2, max_size=8).map(lambda v: torch.tensor(v, dtype=torch.float64))


@given(vectors, st.floats(-50, 50), st.integers(0, 7))
def test_a_shift_of_all_logits_does_not_change_the_classification_loss(z: Tensor, s: float, label: int) -> None:
    """Which is why the energy is free to drift, and what the uniform term holds back."""
    y = torch.tensor([label % z.numel()])
    largest = z.max().item()
    expected = math.log(sum(math.exp(value - largest) for value in z.tolist())) - (z[y].item() - largest)
    assert cross_entropy(z.unsqueeze(0), y).item() == pytest.approx(expected, abs=1e-9)
    assert cross_entropy(z.unsqueeze(0) + s, y).item() == pytest.approx(expected, abs=1e-9)


@given(vectors, st.floats(-50, 50))
def test_a_shift_of_all_logits_moves_the_negative_energy_by_as_much(z: Tensor, s: float) -> None:
    assert negative_energy(z + s).item() == pytest.approx(negative_energy(z).item() + s, abs=1e-9)


@given(vectors, st.floats(0.1, 30))
def test_equal_norms_bound_the_negative_energy(direction: Tensor, norm: float) -> None:
    """Below by log C - M / sqrt(C), as printed; above by log C + M."""
    if direction.norm() < 1e-3:
        return
    z = norm * direction / direction.norm()
    classes = z.numel()
    score = negative_energy(z).item()
    assert math.log(classes) - norm / math.sqrt(classes) - 1e-9 <= score <= math.log(classes) + norm + 1e-9


def test_the_lower_bound_is_attained_where_all_logits_are_equal_and_negative() -> None:
    z = torch.full((7,), -10 / math.sqrt(7), dtype=torch.float64)
    assert negative_energy(z).item() == pytest.approx(math.log(7) - 10 / math.sqrt(7))


def test_the_printed_upper_bound_does_not_hold() -> None:
    """The paper prints log C + M / sqrt(C) = 5.73 for C = 7, M = 10; one large logit of norm 10 has 10.0."""
    z = torch.zeros(7, dtype=torch.float64)
    z[0] = 10.0
    assert negative_energy(z).item() > math.log(7) + 10 / math.sqrt(7)


@given(st.floats(-5, 5), st.lists(st.floats(-5, 5), min_size=1, max_size=5), st.floats(0, 0.95))
def test_neighbours_with_a_higher_mean_raise_a_score(own: float, others: list[float], eta: float) -> None:
    mean = sum(others) / len(others)
    if mean <= own + 1e-6:
        return
    star = torch.stack([torch.arange(1, len(others) + 1), torch.zeros(len(others), dtype=torch.long)])
    scores = torch.tensor([own, *others], dtype=torch.float64)
    assert propagate(scores, star, 1, eta)[0] > own


def printed_gradient(values: Tensor, scale: float) -> Tensor:
    """d/dv of the mean squared deviation over a fixed scale, as printed: a node's own part plus the others'."""
    n = values.numel()
    deviation = values - values.mean()
    own = 2 * deviation * (1 - 1 / n)
    others = (2 * deviation.sum() - 2 * deviation) * (-1 / n)
    return (own + others) / (scale * n)


def unbiased(n: int) -> float:
    """The paper writes a mean over n nodes; the code and this library divide by n - 1."""
    return n / (n - 1)


def test_gradient_of_the_bound_is_the_printed_one() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    bound_loss(z).backward()
    norms = z.detach().norm(dim=1)
    outer = printed_gradient(norms, norms.mean().item()) * unbiased(6)
    torch.testing.assert_close(z.grad, outer.unsqueeze(1) * z.detach() / norms.unsqueeze(1))


def test_gradient_of_the_uniform_term_is_the_printed_one() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    uniform_loss(z).backward()
    sums = z.detach().sum(dim=1)
    outer = printed_gradient(sums, abs(sums.mean().item())) * unbiased(6)
    torch.testing.assert_close(z.grad, outer.unsqueeze(1).expand(6, 4))
