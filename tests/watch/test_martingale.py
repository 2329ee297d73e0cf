"""The bet: against a second implementation, hand-computed values, and Ville's bound."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from oddnode.watch.martingale import Martingale, bets, levels_of


def capital_of(levels: np.ndarray, chances: np.ndarray, num_known: int, weights: np.ndarray) -> list[float]:
    """The capital after each row, from sorted lists, one bettor and one rate of jumps at a time."""
    history, total = list(range(1, num_known + 1)), [np.full(7, 1 / 21) for _ in range(3)]
    placed, found = [float(each) for each in history], []
    for level, chance, weight in zip(levels, chances, weights, strict=True):
        ties = sum(each == level + 0.5 for each in placed)
        rank = (bisect_left(sorted(placed), level + 0.5) + chance * (ties + 1)) / (len(placed) + 1)
        placed.append(level + 0.5)
        factors = [1.0, *(k * rank ** (k - 1) for k in (0.25, 0.5, 0.75))]
        factors += [1 - 1.5 * (rank - 0.5), 1 + 1.5 * (rank - 0.5), 0.5 / math.sqrt(1 - rank)]
        for group, jump in zip(total, (0.0, 1e-3, 1e-2), strict=True):
            for bettor, factor in enumerate(factors):
                group[bettor] *= factor**weight
            group[:] = (1 - jump) * group + jump * group.sum() / 7
        found.append(float(np.sum(total)))
    return found


def test_the_capital_is_that_of_a_second_implementation() -> None:
    rng = np.random.default_rng(0)
    levels, chances, weights = rng.integers(31, size=200), rng.random(200), rng.uniform(0.2, 1, 200)
    bet = Martingale([0] * 31)
    ours = [
        bet.update(int(level), float(chance), float(weight))
        for level, chance, weight in zip(levels, chances, weights, strict=True)
    ]
    assert np.allclose(np.exp(ours), capital_of(levels, chances, 30, weights), rtol=1e-9)


def test_the_first_ranks_are_those_computed_by_hand() -> None:
    """Of three calibration scores: below all, between the first two, there again, and above all."""
    bet = Martingale([0] * 4)
    ranks = [bet.rank(level, 0.5) for level in (0, 1, 1, 3)]
    # 0 + 1/2 of 4; below it 1 calibration score and 1 row, of 5; below it the same two, of 6; below it 6, of 7.
    by_hand = [Fraction(1, 8), Fraction(5, 10), Fraction(2 + 1, 6), Fraction(13, 14)]
    assert ranks == pytest.approx([float(each) for each in by_hand])


@pytest.mark.parametrize("bettor", range(7))
def test_no_bettor_expects_to_win(bettor: int) -> None:
    """Each bet is a density: in halves, because two of them are infinite at one end."""
    parts = [quad(lambda p: bets(p)[bettor], *ends)[0] for ends in ((0, 0.5), (0.5, 1))]
    assert sum(parts) == pytest.approx(1, abs=1e-3)


def test_ranks_of_exchangeable_rows_are_uniform_whatever_the_calibration() -> None:
    rng, found = np.random.default_rng(1), []
    for _ in range(300):
        scores = np.sort(rng.normal(size=20))
        bet = Martingale([0] * 21)
        levels = levels_of(rng.normal(size=10), scores, rng)
        found.append([bet.rank(int(level), rng.random()) for level in levels])
    ranks = np.array(found)
    assert kstest(ranks.ravel(), "uniform").pvalue > 0.01
    assert abs(np.corrcoef(ranks[:, :-1].ravel(), ranks[:, 1:].ravel())[0, 1]) < 0.05


def highest(scores: np.ndarray, known: np.ndarray, rng: np.random.Generator, weight: float = 1.0) -> float:
    bet = Martingale([0] * (len(known) + 1))
    return max(bet.update(int(level), rng.random(), weight) for level in levels_of(scores, np.sort(known), rng))


def test_the_capital_is_ever_high_as_seldom_as_villes_bound_allows() -> None:
    rng, chance = np.random.default_rng(2), 0.1
    raised = [highest(rng.normal(size=120), rng.normal(size=50), rng) >= -math.log(chance) for _ in range(200)]
    assert np.mean(raised) <= chance + 2 * math.sqrt(chance * (1 - chance) / 200)


def test_rows_that_say_the_same_count_as_one_by_their_weight() -> None:
    """Groups of eight rows with one score: betting on each as on a row of its own cries wolf, with weight 1/8 not."""
    rng, chance = np.random.default_rng(3), 0.1
    apart, together = [], []
    for _ in range(60):
        known, scores = rng.normal(size=100), np.repeat(rng.normal(size=15), 8) + 1e-9 * rng.normal(size=120)
        apart.append(highest(scores, known, rng) >= -math.log(chance))
        together.append(highest(scores, known, rng, 1 / 8) >= -math.log(chance))
    assert np.mean(apart) > 0.3
    assert np.mean(together) <= chance


@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_a_shift_to_either_side_is_noticed(shift: float) -> None:
    rng = np.random.default_rng(4)
    before, after = rng.normal(size=100), rng.normal(shift, 1, size=100)
    assert highest(np.concatenate([before, after]), rng.normal(size=300), rng) > math.log(1000)


def test_chance_decides_between_equal_scores() -> None:
    levels = levels_of(np.zeros(2000), np.array([-1.0, 0.0, 0.0, 1.0]), np.random.default_rng(5))
    assert sorted(set(levels.tolist())) == [1, 2, 3]
    assert np.bincount(levels).max() < 800


def test_weights_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        Martingale([0, 0], [[1.0]])
