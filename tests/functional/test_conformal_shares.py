"""Weighted p-values, intervals and expected precision, against scipy and simulations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from oddnode.functional import (
    CalibrationError,
    conformal_p_values,
    expected_precision,
    known_share,
    rate_interval,
    share_interval,
    threshold_at,
)

_scores = st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=40)
_weighted = st.lists(st.tuples(st.integers(-20, 20).map(float), st.integers(1, 9)), min_size=1, max_size=40)


@settings(deadline=None)
@given(_scores, _weighted, st.sampled_from([0.05, 0.1, 0.3, 0.5]))
def test_weighted_p_values_are_the_definition_and_fit_the_threshold(
    scores: list[float], calibration: list[tuple[float, int]], rate: float
) -> None:
    known = sorted(calibration, key=lambda pair: pair[0])
    values, weights = [c for c, _ in known], [w for _, w in known]

    def by_hand(score: float) -> float:
        above = [w for c, w in known if c > score]
        if not above:
            return 1.0
        return (sum(w for c, w in known if c <= score) + above[0]) / (sum(weights) + above[0])

    p_values = conformal_p_values(scores, values, weights)
    assert p_values == pytest.approx([by_hand(score) for score in scores])
    try:
        threshold = threshold_at(values, rate, weights)
    except CalibrationError:
        assert not (p_values <= rate).any()
    else:
        assert ((np.array(scores) < threshold) == (p_values <= rate * (1 + 1e-12))).all()


def test_equal_weights_change_nothing_and_wrong_ones_are_refused() -> None:
    known, scores = np.arange(50.0), np.arange(-3.0, 60.0, 0.5)
    assert conformal_p_values(scores, known, np.full(50, 4.0)) == pytest.approx(conformal_p_values(scores, known))
    for weights in (np.ones(49), np.zeros(50)):
        with pytest.raises(ValueError, match="50 calibration scores have"):
            threshold_at(known, 0.1, weights)
    with pytest.raises(CalibrationError, match=r"the lowest of 50 stands for 39\.3 %"):
        threshold_at(known, 0.1, np.r_[90.0, np.ones(49)])


@pytest.mark.parametrize(("n", "rate"), [(19, 0.05), (100, 0.05), (589, 0.05), (400, 0.29)])
def test_the_true_rate_of_a_threshold_is_beta_distributed(n: int, rate: float) -> None:
    k = int(rate * (n + 1) + 1e-9)
    assert rate_interval(n, rate, 0.9) == pytest.approx(stats.beta(k, n + 1 - k).ppf([0.05, 0.95]))
    rng = np.random.default_rng(n)
    true = stats.norm.cdf([threshold_at(rng.normal(size=n), rate) for _ in range(400)])
    assert stats.kstest(true, stats.beta(k, n + 1 - k).cdf).pvalue > 0.001


def test_too_few_calibration_nodes_have_no_interval() -> None:
    with pytest.raises(CalibrationError, match="18 calibration nodes are too few"):
        rate_interval(18, 0.05)


@pytest.mark.parametrize(("count", "total"), [(0, 20), (7, 20), (20, 20), (3, 1000)])
def test_intervals_of_shares_are_those_of_scipy(count: int, total: int) -> None:
    expected = stats.binomtest(count, total).proportion_ci(0.9, "exact")
    assert share_interval(count, total, 0.9) == pytest.approx((expected.low, expected.high))


def test_expected_precision_is_one_minus_storeys_q_value_and_monotone() -> None:
    rng = np.random.default_rng(0)
    p_values = np.r_[rng.integers(1, 501, size=400) / 501, rng.integers(1, 20, size=100) / 501]
    share = min(1.0, (1 + (p_values > 0.5).sum()) / (0.5 * len(p_values)))
    assert known_share(p_values) == pytest.approx(share)
    fdr = np.array([share * len(p_values) * p / (p_values <= p).sum() for p in p_values])
    q_values = np.array([min(1.0, fdr[p_values >= p].min()) for p in p_values])
    assert expected_precision(p_values) == pytest.approx(1 - q_values)
    assert expected_precision([]).size == 0


def test_expected_precision_is_the_share_of_unknown_nodes_on_average() -> None:
    rng, expected, found = np.random.default_rng(1), [], []
    for _ in range(200):
        known, unknown = rng.normal(size=400), rng.normal(-2.5, 1, size=60)
        scores = np.r_[known, unknown]
        p_values = conformal_p_values(scores, rng.normal(size=600))
        odd = np.argsort(scores)[:40]
        expected.append(expected_precision(p_values)[odd[-1]])
        found.append(np.mean(odd >= 400))
    assert np.mean(expected) == pytest.approx(np.mean(found), abs=0.02)
    assert 0.5 < np.mean(found) < 0.99
