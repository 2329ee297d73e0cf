from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oddnode.functional import (
    CalibrationError,
    benjamini_hochberg,
    conformal_p_values,
    conformal_p_values_per_class,
    nodes_needed,
    threshold_at,
)

_p_values = st.integers(1, 200).flatmap(
    lambda n: st.lists(st.builds(Fraction, st.integers(1, n + 1), st.just(n + 1)), min_size=1, max_size=50)
)
_scores = st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=60)


@settings(deadline=None)
@given(_scores, _scores)
def test_p_values_are_the_definition_counted_by_hand(scores: list[float], calibration: list[float]) -> None:
    expected = [(1 + sum(c <= s for c in calibration)) / (len(calibration) + 1) for s in scores]
    assert conformal_p_values(scores, calibration).tolist() == pytest.approx(expected, abs=0)


@settings(deadline=None)
@given(_scores, _scores, st.sampled_from([0.01, 0.05, 0.07, 0.1, 0.29, 0.3, 0.5, 0.57, 0.9]))
def test_below_the_threshold_is_a_p_value_at_most_the_rate(
    scores: list[float], calibration: list[float], rate: float
) -> None:
    p_values = conformal_p_values(scores, calibration)
    if len(calibration) < nodes_needed(rate):
        with pytest.raises(CalibrationError):
            threshold_at(calibration, rate)
        assert not (p_values <= rate).any()
    else:
        assert ((np.array(scores) < threshold_at(calibration, rate)) == (p_values <= rate)).all()


def test_the_error_says_how_many_nodes_a_rate_needs() -> None:
    with pytest.raises(
        CalibrationError, match=r"1 % needs at least 99 calibration nodes, but there are 98; .* 1\.01 %"
    ):
        threshold_at(np.arange(98.0), 0.01)
    assert threshold_at(np.arange(99.0), 0.01) == 0.0


def test_false_alarms_of_exchangeable_scores_keep_to_the_rate() -> None:
    rng = np.random.default_rng(0)
    alarms = []
    for _ in range(4000):
        drawn = rng.normal(size=50)
        alarms.append(drawn[-1] < threshold_at(drawn[:-1], 0.1))
    # 5 of 50 places in the order are alarms: exactly 10 %; three standard errors of 4,000 draws are 1.4 points.
    assert abs(np.mean(alarms) - 0.1) < 0.0143


def test_per_class_compares_within_the_class_only() -> None:
    p_values = conformal_p_values_per_class([1.5, 1.5, 1.5], [0, 1, 2], [1.0, 2.0, 3.0, 1.0], [0, 0, 1, 1])
    assert p_values.tolist() == pytest.approx([2 / 3, 2 / 3, 1.0])


def test_per_class_wants_one_class_per_score() -> None:
    with pytest.raises(ValueError, match="expected one class per score"):
        conformal_p_values_per_class([1.0, 2.0], [0], [1.0], [0])


def rejected(p_values: list[Fraction], fdr: Fraction) -> list[bool]:
    """The step-up procedure as Benjamini and Hochberg state it, in exact arithmetic."""
    passing = [p for rank, p in enumerate(sorted(p_values), 1) if p <= fdr * rank / len(p_values)]
    return [bool(passing) and p <= passing[-1] for p in p_values]


@settings(deadline=None)
@given(_p_values, st.sampled_from(["0.05", "0.1", "0.29", "0.3"]))
def test_benjamini_hochberg_is_the_step_up_procedure_also_on_its_limits(p_values: list[Fraction], fdr: str) -> None:
    """Conformal p-values are fractions of n + 1, so that many of them meet a limit exactly."""
    flagged = benjamini_hochberg([float(p) for p in p_values], float(fdr))
    assert flagged.tolist() == rejected(p_values, Fraction(fdr))


@pytest.mark.parametrize("fdr", ["0.05", "0.1", "0.29"])
def test_p_values_on_a_limit_are_flagged_and_those_just_above_are_not(fdr: str) -> None:
    """In floating point p * size / rank may come out above fdr where the two are equal, for example 0.034 * 25 / 17."""
    for size in range(1, 41):
        for rank in range(1, size + 1):
            limit = float(Fraction(fdr) * rank / size)
            on_it, above = ([p] * rank + [1.0] * (size - rank) for p in (limit, limit * (1 + 1e-9)))
            assert benjamini_hochberg(on_it, float(fdr)).sum() == rank, (size, rank)
            assert benjamini_hochberg(above, float(fdr)).sum() == 0, (size, rank)


def test_false_discoveries_of_conformal_p_values_keep_to_the_rate() -> None:
    """Half of the nodes are known: the expected share of known nodes among the flagged is half of fdr."""
    rng = np.random.default_rng(0)
    shares, found = [], []
    for _ in range(400):
        known, unknown = rng.normal(size=50), rng.normal(-4, 1, size=50)
        p_values = conformal_p_values(np.concatenate([known, unknown]), rng.normal(size=400))
        flagged = benjamini_hochberg(p_values, fdr=0.2)
        shares.append(flagged[:50].sum() / max(flagged.sum(), 1))
        found.append(flagged[50:].mean())
    assert abs(np.mean(shares) - 0.1) < 4 * np.std(shares) / np.sqrt(len(shares)) + 0.01
    assert np.mean(found) > 0.9


def test_benjamini_hochberg_of_nothing_flags_nothing() -> None:
    assert benjamini_hochberg([]).shape == (0,)
    with pytest.raises(ValueError, match=r"expected 0\.\.1"):
        benjamini_hochberg([0.5, 1.5])


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 5, float("nan"), True, "0.05"])
def test_a_rate_outside_zero_to_one_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="expected a share between 0 and 1"):
        threshold_at([1.0, 2.0], rate)


def test_nan_is_never_decided_on() -> None:
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        conformal_p_values(torch.tensor([1.0, float("nan")]), [1.0])
    with pytest.raises(ValueError, match="expected one number per node"):
        conformal_p_values([[1.0]], [1.0])
