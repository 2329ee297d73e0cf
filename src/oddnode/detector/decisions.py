"""What a fitted detector decides: calibration, flags, p-values and reasons. A part of `Detector`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode.functional import (
    CalibrationError,
    benjamini_hochberg,
    conformal_p_values,
    conformal_p_values_per_class,
    threshold_at,
)
from oddnode.graph import check_mask
from oddnode.scoring import MemberMean, Outputs, Propagated, Scorer

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["Decisions", "Explanation"]

_CALIBRATED = ("calibration_scores_", "calibration_classes_", "false_alarm_rate_", "threshold_")


class Explanation(NamedTuple):
    """Why nodes score as they do; one entry per node in each.

    ``own_score + neighbour_share`` is the score: what the node says of itself, and what its neighbourhood adds.
    Where the scorer counts a prior (`Propagated`), its pull towards the mean known score is in the neighbours' share.
    ``nearest_class`` is the training class whose mean logits are nearest to the node's.
    """

    score: Tensor
    own_score: Tensor
    neighbour_share: Tensor
    nearest_class: Tensor


class Decisions:
    """The methods of `Detector` that turn scores into decisions."""

    if TYPE_CHECKING:
        num_classes_: int
        scorer_: Scorer
        class_means_: Tensor | None

        def score_samples(self, data: Data | Outputs) -> Tensor: ...
        def predict(self, data: Data | Outputs) -> Tensor: ...
        def outputs(self, data: Data) -> Outputs: ...

    def calibrate(self: Any, data: Data, false_alarm_rate: float = 0.05, mask: Tensor | None = None) -> Detector:
        """Set the threshold so that a known node is flagged with at most the given probability.

        Parameters
        ----------
        data : Data
            A graph with ID nodes that were used neither for training nor for choosing the epoch.
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        mask : Tensor, optional
            Those nodes, one boolean per node; ``data.calibration_mask`` if left out.

        Examples
        --------
        >>> from oddnode import Detector, load_task
        >>> task = load_task("digits/label")
        >>> detector = Detector.from_recipe("nodesafe", epochs=50).fit(task.train)
        >>> known = task.train.test_mask & (task.train.y >= 0)
        >>> detector = detector.calibrate(task.train, false_alarm_rate=0.05, mask=known)
        >>> detector.detect(task.id_test.data).dtype
        torch.bool
        """
        nodes = _calibration_nodes(data, mask, self.num_classes_ if hasattr(self, "num_classes_") else None)
        outputs = self.outputs(data)
        scores = self.score_samples(outputs)[nodes.to(outputs.graph.device)].cpu()
        threshold = threshold_at(scores, false_alarm_rate)
        order = scores.argsort(stable=True)
        self.calibration_scores_ = scores[order]
        self.calibration_classes_ = self.predict(outputs)[nodes.to(outputs.graph.device)].cpu()[order]
        self.false_alarm_rate_ = float(false_alarm_rate)
        self.threshold_ = threshold
        return self

    def detect(self: Any, data: Data | Outputs) -> Tensor:
        """One boolean per node: True = out-of-distribution, at the calibrated false-alarm rate.

        The same as ``p_values(data) <= false_alarm_rate``.
        """
        self._check_calibrated()
        scores = self.score_samples(data).cpu()
        if bool(scores.isnan().any()):
            raise ValueError(f"{int(scores.isnan().sum())} scores are NaN; no decision can rest on them")
        # In double precision, as the p-values are compared.
        return scores.double() < self.threshold_

    def p_values(self: Any, data: Data | Outputs, per_class: bool = False) -> Tensor:
        """Conformal p-values: the share of known nodes that score as low as this one, or lower.

        With ``per_class`` each node is compared with the calibration nodes of its own predicted class only.
        """
        self._check_calibrated()
        outputs = data if isinstance(data, Outputs) else self.outputs(data)
        scores = self.score_samples(outputs)
        if not per_class:
            return torch.from_numpy(conformal_p_values(scores, self.calibration_scores_))
        return torch.from_numpy(
            conformal_p_values_per_class(
                scores, self.predict(outputs), self.calibration_scores_, self.calibration_classes_
            )
        )

    def flag(self: Any, data: Data | Outputs, fdr: float = 0.1, per_class: bool = False) -> Tensor:
        """One boolean per node: True = flagged, at most a share ``fdr`` of the flagged being known nodes, on average.

        Benjamini-Hochberg over the p-values of all nodes of ``data``.
        """
        return torch.from_numpy(benjamini_hochberg(self.p_values(data, per_class), fdr))

    def explain(self: Any, data: Data | Outputs) -> Explanation:
        """Why nodes score as they do: their own score, their neighbours' share, the nearest training class."""
        outputs = data if isinstance(data, Outputs) else self.outputs(data)
        if self.class_means_ is None:
            raise ValueError(
                "the nearest training class is not known: this detector was wrapped without labelled training "
                "nodes of every class; pass Detector.wrap(module, data=...) a graph with train_mask and y"
            )
        score = self.score_samples(outputs)
        own = _own_score(self.scorer_, outputs, score).detach()
        means = self.class_means_.to(outputs.logits)
        nearest = torch.cdist(outputs.logits, means).argmin(dim=1)
        where = score.device if isinstance(data, Outputs) else data.x.device  # so that the data's masks fit
        return Explanation(*(each.to(where) for each in (score, own, score - own, nearest)))

    def _check_calibrated(self) -> None:
        if not hasattr(self, "threshold_"):
            raise CalibrationError(
                "this Detector has no threshold yet: call calibrate(data, false_alarm_rate=0.05) with held-out "
                "known nodes first"
            )

    def _forget_calibration(self) -> None:
        for name in _CALIBRATED:
            self.__dict__.pop(name, None)


def _own_score(scorer: Scorer, outputs: Outputs, score: Tensor) -> Tensor:
    """What the nodes say of themselves: their score before it is propagated."""
    if isinstance(scorer, MemberMean) and isinstance(scorer.scorers[0], Propagated):
        pairs = zip(scorer.scorers, outputs.members, strict=True)
        return torch.stack([_own_score(own, member, score) for own, member in pairs]).mean(dim=0)
    return scorer.scorer.score(outputs) if isinstance(scorer, Propagated) else score


def _calibration_nodes(data: Data, mask: Tensor | None, num_classes: int | None) -> Tensor:
    if mask is None and data.get("calibration_mask") is None:
        raise CalibrationError(
            "no calibration nodes: pass mask=... or set data.calibration_mask to known nodes that were held out "
            "from training and validation"
        )
    view = data if mask is None else Data(x=data.x, calibration_mask=mask)
    nodes = check_mask(view, "calibration_mask")
    assert nodes is not None
    for name in ("train_mask", "val_mask"):
        used = data.get(name)
        if isinstance(used, Tensor) and bool(used[nodes.to(used.device)].any()):
            shared = int(used[nodes.to(used.device)].sum())
            raise CalibrationError(
                f"{shared} of the {len(nodes)} calibration nodes are in data.{name} too; nodes that the network was "
                "trained or chosen on score too high, and the false-alarm rate would not hold"
            )
    y = data.get("y")
    if num_classes is not None and isinstance(y, Tensor) and y.dim() == 1 and y.shape[0] == data.x.shape[0]:
        labels = y[nodes.to(y.device)]
        if int(labels.min()) < 0:
            raise CalibrationError(
                f"{int((labels < 0).sum())} of the calibration nodes have label -1, the mark of left-out or unlabelled "
                "nodes; calibrate on known nodes only"
            )
        highest = int(labels.max())
        if highest >= num_classes:
            raise CalibrationError(
                f"the calibration nodes include class {highest}, which the detector does not know "
                f"(classes 0..{num_classes - 1}); calibrate on known nodes only"
            )
    return nodes
