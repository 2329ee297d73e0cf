"""The estimator contract of a fitted detector, and its state as plain data."""

from __future__ import annotations

import copy

import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch_geometric.data import Data

from oddnode import KNN, Detector, Energy, MaxSoftmax, Propagated
from oddnode.detector import FittedState
from oddnode.scoring import Outputs
from tests.detector.networks import Linear

LEARNT = (
    "module_",
    "scorer_",
    "num_classes_",
    "n_features_in_",
    "best_epoch_",
    "history_",
    "class_means_",
    "graph_profile_",
    "advice_",
    "state_",
)


@pytest.fixture
def fitted(two_groups: Data) -> Detector:
    return Detector(epochs=5, device="cpu").fit(two_groups)


def test_learnt_attributes_are_there_after_fit_only(fitted: Detector, two_groups: Data) -> None:
    for name in LEARNT:
        assert hasattr(fitted, name)
        assert not hasattr(Detector(), name)
    assert not hasattr(fitted, "threshold_")
    fitted.calibrate(two_groups, 0.1, two_groups.test_mask)
    assert hasattr(fitted, "threshold_")
    assert (fitted.n_features_in_, fitted.num_classes_, fitted.false_alarm_rate_) == (6, 3, 0.1)


def test_scikit_learn_knows_whether_it_is_fitted(fitted: Detector) -> None:
    check_is_fitted(fitted)
    for unfitted in (Detector(), clone(fitted)):
        with pytest.raises(NotFittedError):
            check_is_fitted(unfitted)


def test_learnt_attributes_cannot_be_set(fitted: Detector) -> None:
    with pytest.raises(AttributeError):
        fitted.num_classes_ = 7
    with pytest.raises(AttributeError):
        fitted.state_.num_classes = 7  # type: ignore[misc]


@pytest.mark.parametrize("ensemble", [1, 2])
def test_a_deep_copy_scores_as_before_and_shares_no_weights(two_groups: Data, ensemble: int) -> None:
    fitted = Detector(epochs=5, device="cpu", ensemble=ensemble, scorer=KNN()).fit(two_groups)
    fitted.calibrate(two_groups, 0.1, two_groups.test_mask)
    before = fitted.score_samples(two_groups)
    copied = copy.deepcopy(fitted)
    with torch.no_grad():
        for weight in fitted.module_.parameters():
            weight.fill_(float("nan"))
    assert torch.equal(copied.score_samples(two_groups), before)
    assert copied.threshold_ == fitted.threshold_
    # Another scorer learns from the copied network, not from the one that was spoilt.
    assert bool(copied.with_scorer(Propagated(KNN(2))).score_samples(two_groups).isfinite().all())


@pytest.mark.parametrize("method", ["nodesafe", "evidence", "gpn"])
def test_a_method_can_be_copied_before_and_after_fit(two_groups: Data, method: str) -> None:
    unfitted = copy.deepcopy(Detector.from_recipe(method, epochs=2, device="cpu"))
    assert not hasattr(unfitted, "state_")
    fitted = unfitted.fit(two_groups)
    scores = fitted.score_samples(two_groups)
    assert torch.equal(copy.deepcopy(fitted).score_samples(two_groups), scores)


def test_another_threshold_or_scorer_leaves_a_shallow_copy_alone(fitted: Detector, two_groups: Data) -> None:
    fitted.calibrate(two_groups, 0.1, two_groups.test_mask)
    copied = copy.copy(fitted).calibrate(two_groups, 0.5, two_groups.test_mask)
    assert (fitted.false_alarm_rate_, copied.false_alarm_rate_) == (0.1, 0.5)
    assert fitted.with_scorer(MaxSoftmax()).calibration_ is None
    assert fitted.calibration_ is not None


def test_class_means_are_means_by_class(fitted: Detector, two_groups: Data) -> None:
    logits = fitted.outputs(two_groups).logits
    for label in range(3):
        expected = logits[two_groups.train_mask & (two_groups.y == label)].mean(dim=0)
        assert fitted.class_means_ is not None
        torch.testing.assert_close(fitted.class_means_[label], expected)


def test_without_a_training_graph_only_scorers_that_learn_are_refused(two_groups: Data) -> None:
    bare = Data(x=two_groups.x, edge_index=two_groups.edge_index)
    wrapped = Detector.wrap(Linear(), MaxSoftmax(), bare)
    assert wrapped.state_.training is None
    assert wrapped.with_scorer(Propagated(Energy(), 3)).score_samples(bare).shape == (60,)
    for scorer in (KNN(), Propagated(KNN()), Propagated(Energy(), prior_nodes=2.0)):
        with pytest.raises(ValueError, match=r"learns from the training graph.*wrapped without train_mask and y"):
            wrapped.with_scorer(scorer)


def test_a_state_can_be_scored_without_a_detector(fitted: Detector, two_groups: Data) -> None:
    state = fitted.state_
    assert isinstance(state, FittedState)
    outputs = Outputs(state.module, fitted.outputs(two_groups).graph, state.num_classes)
    torch.testing.assert_close(state.scorer.score(outputs), fitted.score_samples(two_groups))
