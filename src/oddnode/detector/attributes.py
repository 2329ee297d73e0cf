"""The fitted attributes of a detector, which read its state."""

from __future__ import annotations

from typing import Self

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from oddnode.detector.calibration import Calibration
from oddnode.detector.fitted import FittedState
from oddnode.graph import GraphProfile
from oddnode.scoring import Scorer

__all__ = ["NOT_FITTED", "FittedAttributes"]

NOT_FITTED = "this Detector is not fitted yet: call fit(data) first"
NOT_CALIBRATED = (
    "this Detector has no threshold yet: call calibrate(data, false_alarm_rate=0.05) with held-out known nodes first"
)


class FittedAttributes(BaseEstimator):
    """Base of an estimator with a fitted state.

    Attributes that end in ``_`` raise scikit-learn's `NotFittedError` before `fit`, as ``hasattr`` and
    `sklearn.utils.validation.check_is_fitted` expect.
    """

    _state: FittedState
    _calibration: Calibration | None = None
    _not_calibrated: str = NOT_CALIBRATED

    def _with_state(
        self, state: FittedState, calibration: Calibration | None = None, not_calibrated: str = NOT_CALIBRATED
    ) -> Self:
        """Set the fitted state, and what to say where a calibration is missing; nothing else sets them."""
        self._state, self._calibration, self._not_calibrated = state, calibration, not_calibrated
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "_state" in vars(self)

    @property
    def state_(self) -> FittedState:
        """Everything that was learnt, as plain data; the other attributes read it."""
        if "_state" not in vars(self):
            raise NotFittedError(NOT_FITTED)
        return self._state

    @property
    def calibration_(self) -> Calibration | None:
        """The result of `calibrate`; ``None`` before."""
        return self._calibration

    @property
    def module_(self) -> nn.Module:
        """The trained network, or an `oddnode.nn.Ensemble` of them."""
        return self.state_.module

    @property
    def scorer_(self) -> Scorer:
        """The fitted scorer."""
        return self.state_.scorer

    @property
    def num_classes_(self) -> int:
        """Number of ID classes."""
        return self.state_.num_classes

    @property
    def n_features_in_(self) -> int:
        """Number of features of a node."""
        return self.state_.num_features

    @property
    def best_epoch_(self) -> int:
        """The epoch with the lowest validation loss, whose weights are used; of the first network in an ensemble."""
        return self.state_.best_epoch

    @property
    def history_(self) -> list[dict[str, float]]:
        """Training and validation loss of every epoch; in an ensemble with the number of the member."""
        return self.state_.history

    @property
    def class_means_(self) -> Tensor | None:
        """Mean logits of every class over the training nodes ``[C, C]``; ``None`` if a class has no training node."""
        return self.state_.class_means

    @property
    def graph_profile_(self) -> GraphProfile:
        """Size, degrees and homophily of the training graph."""
        return self.state_.profile

    @property
    def advice_(self) -> list[str]:
        """Messages on the graph, on how the scorer was adapted to it, and on scores to be doubted."""
        return self.state_.advice

    @property
    def threshold_(self) -> float:
        """The score below which a node is flagged; not set before `calibrate`."""
        if self.calibration_ is None:
            raise NotFittedError(self._not_calibrated)
        return self.calibration_.threshold

    @property
    def false_alarm_rate_(self) -> float:
        """The share of known nodes that may be flagged; not set before `calibrate`."""
        if self.calibration_ is None:
            raise NotFittedError(self._not_calibrated)
        return self.calibration_.false_alarm_rate
