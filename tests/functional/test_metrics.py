from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from oddnode.functional import aupr, aupr_ood, auroc, fpr_at_tpr

scores = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=25)


@given(scores, scores, st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_fpr_is_read_at_the_highest_threshold_that_accepts_enough(
    inside: list[float], outside: list[float], tpr: float
) -> None:
    enough = [t for t in sorted(set(inside)) if sum(s >= t for s in inside) >= tpr * len(inside) - 1e-12]
    expected = sum(s >= max(enough) for s in outside) / len(outside)
    assert fpr_at_tpr(inside, outside, tpr) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [auroc, aupr, aupr_ood, fpr_at_tpr])
def test_empty_and_broken_scores_are_named(metric: Callable) -> None:
    with pytest.raises(ValueError, match="id_scores has shape"):
        metric([], [1.0])
    with pytest.raises(ValueError, match="ood_scores has 1 NaN or infinite values of 2"):
        metric([1.0], [float("nan"), 0.0])


def test_impossible_tpr_is_named() -> None:
    with pytest.raises(ValueError, match="tpr is 0"):
        fpr_at_tpr([1.0], [1.0], tpr=0)


@given(scores, scores)
def test_with_many_ties_they_are_scikit_learns(inside: list[float], outside: list[float]) -> None:
    labels, scores = [1] * len(inside) + [0] * len(outside), inside + outside
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(labels, scores))
    assert aupr(inside, outside) == pytest.approx(average_precision_score(labels, scores))
    negated = [-score for score in scores]
    assert aupr_ood(inside, outside) == pytest.approx(average_precision_score([1 - y for y in labels], negated))
