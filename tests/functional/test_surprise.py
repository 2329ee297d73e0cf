"""`surprise` against its definition, counted value by value in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oddnode.functional import surprise

# Few different values, so that most examples have ties.
VALUES = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6, allow_subnormal=False))
REFERENCES = st.lists(VALUES, min_size=2, max_size=40)


def tail_scale(reference: list[float]) -> float:
    """The mean distance of the lowest tenth, and of at least three values if there are as many, from the next one."""
    ordered = sorted(reference)
    count = min(max(3, len(ordered) // 10), len(ordered) - 1)
    distances = [ordered[count] - value for value in ordered[:count]]
    return float(np.mean(distances)) or 1.0


def by_counting(score: float, reference: list[float], scale: float) -> float:
    below = sum(value < score for value in reference)
    equal = sum(value == score for value in reference)
    share = (below + equal / 2 + 0.5) / (len(reference) + 1)
    return float(-np.log(share) + np.log1p(max(0.0, min(reference) - score) / scale))


@given(st.lists(VALUES, max_size=20), REFERENCES)
def test_it_is_the_share_of_the_reference_that_is_as_low(scores: list[float], reference: list[float]) -> None:
    found = surprise(torch.tensor(scores, dtype=torch.float64), torch.tensor(reference, dtype=torch.float64))
    scale = tail_scale(reference)
    expected = [by_counting(score, reference, scale) for score in scores]
    np.testing.assert_allclose(found.numpy(), np.array(expected), rtol=1e-9, atol=1e-12)


@given(REFERENCES)
def test_left_out_values_are_compared_with_the_others(reference: list[float]) -> None:
    values = torch.tensor(reference, dtype=torch.float64)
    found = surprise(values, values, leave_one_out=True)
    scale = tail_scale(reference)
    expected = [by_counting(v, reference[:i] + reference[i + 1 :], scale) for i, v in enumerate(reference)]
    np.testing.assert_allclose(found.numpy(), np.array(expected), rtol=1e-9, atol=1e-12)


@given(st.lists(VALUES, min_size=2, max_size=30), REFERENCES)
def test_a_lower_score_is_never_less_of_a_surprise(scores: list[float], reference: list[float]) -> None:
    ordered = torch.tensor(sorted(scores), dtype=torch.float64)
    found = surprise(ordered, torch.tensor(reference, dtype=torch.float64))
    assert bool((found[1:] <= found[:-1]).all())
    assert bool(found.isfinite().all())


def test_a_reference_of_equal_values_still_orders_what_is_below_it() -> None:
    reference = torch.full((20,), 3.0)
    found = surprise(torch.tensor([4.0, 3.0, 2.0, 1.0]), reference)
    shares = torch.tensor([20.5 / 21, 10.5 / 21, 0.5 / 21 / 2, 0.5 / 21 / 3], dtype=torch.float64)
    torch.testing.assert_close(found, -shares.log())
    left_out = surprise(reference, reference, leave_one_out=True)
    torch.testing.assert_close(left_out, torch.full((20,), -np.log(10 / 20), dtype=torch.float64))


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_values_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"there are {count} reference values, expected at least two"):
        surprise(torch.zeros(3), torch.zeros(count))
