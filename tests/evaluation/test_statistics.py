from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from oddnode.evaluation.statistics import compare, holm, signed_rank_p


def p_by_hand(differences: list[float]) -> float:
    """The share of all sign patterns whose rank sum is as far from the middle as the observed one."""
    ranks = rankdata(np.abs(differences))
    middle = ranks.sum() / 2
    observed = abs(ranks[np.array(differences) > 0].sum() - middle)
    sums = [abs(float(np.dot(signs, ranks)) - middle) for signs in product([0, 1], repeat=len(ranks))]
    return float(np.mean([s >= observed - 1e-9 for s in sums]))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=9, unique=True), st.randoms(use_true_random=False))
def test_p_values_are_those_of_all_sign_patterns(sizes: list[int], random: object) -> None:
    differences = [float(s * random.choice([-1, 1])) for s in sizes]  # type: ignore[attr-defined]
    assert signed_rank_p(differences) == pytest.approx(p_by_hand(differences))


def test_seeds_are_paired_and_cells_are_the_units() -> None:
    a = {"x": [10.0, 20.0, 30.0], "y": [50.0, 50.0, 50.0]}
    b = {"x": [11.0, 25.0, 20.0], "y": [40.0, 50.0, 45.0]}
    result = compare(a, b)
    assert (result.cells, result.cell_wins, result.cell_losses) == (2, 2, 0)
    assert (result.pairs, result.pair_wins, result.pair_losses) == (6, 3, 2)
    assert result.difference == pytest.approx((4 / 3 + 5) / 2)
    assert result.p_value == 0.5  # two cells can never show more, however many seeds


def test_lower_is_better_turns_everything_round_and_equal_cells_say_nothing() -> None:
    a, b = {"x": [1.0], "y": [5.0]}, {"x": [2.0], "y": [3.0]}
    up, down = compare(a, b), compare(a, b, higher_is_better=False)
    assert (up.difference, up.cell_wins) == (0.5, 1)
    assert (down.difference, down.cell_wins, down.cell_losses) == (-0.5, 1, 1)
    assert "with 0 that differ, p is 1 at best" in compare(a, a).note
    with pytest.raises(ValueError, match="same cells"):
        compare(a, {"y": [1.0]})


@pytest.mark.parametrize("cells", [1, 2, 5, 6, 9])
def test_a_comparison_says_when_no_p_value_could_be_small(cells: int) -> None:
    won = compare({str(i): [float(i + 2)] * 3 for i in range(cells)}, {str(i): [1.0] * 3 for i in range(cells)})
    smallest = p_by_hand([float(i + 1) for i in range(cells)])  # all won: the least likely pattern of signs
    assert won.smallest_p == won.p_value == pytest.approx(smallest)
    assert bool(won.note) == (smallest > 0.05)


def test_holm_by_hand_and_differences_of_zero() -> None:
    assert holm([0.005, 0.04, 0.02, 0.9]) == pytest.approx([0.02, 0.08, 0.06, 0.9])
    assert holm([]) == []
    assert signed_rank_p([0.0, 0.0]) == 1.0
    assert signed_rank_p([0.0, 1.0, 2.0, 3.0]) == signed_rank_p([1.0, 2.0, 3.0])
