from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from oddnode.functional import aupr, aupr_ood, auroc, fpr_at_tpr

scores = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=25)


@given(scores, scores)
def test_auroc_counts_pairs(inside: list[float], outside: list[float]) -> None:
    won = sum((a > b) + 0.5 * (a == b) for a in inside for b in outside)
    assert auroc(inside, outside) == pytest.approx(won / (len(inside) * len(outside)))


def average_precision(positive: list[float], negative: list[float]) -> float:
    """Precision at every distinct threshold, weighted by the recall it adds."""
    total, last = 0.0, 0.0
    for threshold in sorted({*positive, *negative}, reverse=True):
        hits = sum(p >= threshold for p in positive)
        wrong = sum(n >= threshold for n in negative)
        recall = hits / len(positive)
        total += (recall - last) * hits / (hits + wrong)
        last = recall
    return total


@given(scores, scores)
def test_aupr_is_the_average_precision_of_id_nodes(inside: list[float], outside: list[float]) -> None:
    assert aupr(inside, outside) == pytest.approx(average_precision(inside, outside))


@given(scores, scores)
def test_aupr_ood_is_the_average_precision_of_ood_nodes(inside: list[float], outside: list[float]) -> None:
    flipped = average_precision([-s for s in outside], [-s for s in inside])
    assert aupr_ood(inside, outside) == pytest.approx(flipped)


@given(scores, scores, st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_fpr_is_read_at_the_highest_threshold_that_accepts_enough(
    inside: list[float], outside: list[float], tpr: float
) -> None:
    enough = [t for t in sorted(set(inside)) if sum(s >= t for s in inside) >= tpr * len(inside) - 1e-12]
    expected = sum(s >= max(enough) for s in outside) / len(outside)
    assert fpr_at_tpr(inside, outside, tpr) == pytest.approx(expected)


def test_ties_count_against_the_detector() -> None:
    assert fpr_at_tpr([1.0] * 10, [1.0] * 10) == 1.0


@pytest.mark.parametrize("metric", [auroc, aupr, aupr_ood, fpr_at_tpr])
def test_empty_and_broken_scores_are_named(metric: Callable) -> None:
    with pytest.raises(ValueError, match="id_scores has shape"):
        metric([], [1.0])
    with pytest.raises(ValueError, match="ood_scores has 1 NaN or infinite values of 2"):
        metric([1.0], [float("nan"), 0.0])


def test_impossible_tpr_is_named() -> None:
    with pytest.raises(ValueError, match="tpr is 0"):
        fpr_at_tpr([1.0], [1.0], tpr=0)


@given(
    st.lists(st.integers(-4, 4), min_size=1, max_size=30),
    st.lists(st.integers(-4, 4), min_size=1, max_size=30),
)
def test_with_many_ties_they_are_scikit_learns(inside: list[int], outside: list[int]) -> None:
    labels, scores = [1] * len(inside) + [0] * len(outside), inside + outside
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(labels, scores))
    assert aupr(inside, outside) == pytest.approx(average_precision_score(labels, scores))
    negated = [-score for score in scores]
    assert aupr_ood(inside, outside) == pytest.approx(average_precision_score([1 - y for y in labels], negated))
