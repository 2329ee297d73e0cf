"""Calibrated decisions: thresholds, p-values and flags with a guaranteed error rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oddnode.detector.checked_json import ModelFileError
from oddnode.detector.model_config import CalibrationConfig
from oddnode.functional import (
    CalibrationError,
    benjamini_hochberg,
    conformal_p_values,
    conformal_p_values_per_class,
    threshold_at,
)
from oddnode.graph import GraphSource, as_labels, check_mask, checked_nodes, optional_attribute

__all__ = ["Calibration", "calibration_nodes"]


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores of held-out known nodes and the resulting threshold.

    It works on scores only (higher = more in-distribution), whatever their source. Make one with `from_scores`.

    Parameters
    ----------
    scores : Tensor
        Scores of the calibration nodes, ascending ``[n]``, on the CPU.
    classes : Tensor or None
        Their predicted classes ``[n]``; ``None`` if they are unknown, so that there are no p-values per class.
    false_alarm_rate : float
        The share of known nodes that may be flagged.
    threshold : float
        Nodes that score below it are flagged.

    Examples
    --------
    >>> calibration = Calibration.from_scores(torch.arange(19.0), false_alarm_rate=0.1)
    >>> calibration.detect(torch.tensor([0.5, 1.5]))
    tensor([ True, False])
    >>> calibration.p_values(torch.tensor([0.5, 1.5]))
    tensor([0.1000, 0.1500], dtype=torch.float64)
    """

    scores: Tensor
    classes: Tensor | None
    false_alarm_rate: float
    threshold: float

    @classmethod
    def from_scores(cls, scores: Any, classes: Any = None, false_alarm_rate: float = 0.05) -> Calibration:
        """Calibrate on the scores of known nodes.

        Parameters
        ----------
        scores : Tensor or array
            Scores ``[n]`` of known nodes that were used neither for training nor for choosing the epoch.
        classes : Tensor or array, optional
            Their predicted classes ``[n]``, for p-values per class.
        false_alarm_rate : float
            The share of known nodes that may be flagged.

        Returns
        -------
        Calibration
            With the highest threshold at which a known node is flagged with at most this probability.
        """
        values = _on_cpu(scores)
        threshold = threshold_at(values, false_alarm_rate)
        order = values.argsort(stable=True)
        own = None if classes is None else _on_cpu(classes)
        if own is not None and own.shape != values.shape:
            raise ValueError(f"{len(values)} scores have classes of shape {list(own.shape)}, expected one per score")
        return cls(values[order], None if own is None else own[order], float(false_alarm_rate), threshold)

    def p_values(self, scores: Any, predicted: Any = None) -> Tensor:
        """Compute conformal p-values: the share of known nodes that score as low, or lower.

        Parameters
        ----------
        scores : Tensor or array
            Scores ``[N]``.
        predicted : Tensor or array, optional
            Predicted classes ``[N]``. Each node is then compared with the calibration nodes of its own class only.

        Returns
        -------
        Tensor
            P-values ``[N]`` in double precision, on the CPU.
        """
        if predicted is None:
            return torch.from_numpy(conformal_p_values(scores, self.scores))
        if self.classes is None:
            raise CalibrationError(
                "p-values per class need the classes of calibration nodes: calibrate with classes=..."
            )
        return torch.from_numpy(conformal_p_values_per_class(scores, predicted, self.scores, self.classes))

    def detect(self, scores: Any) -> Tensor:
        """Flag the nodes that score below the threshold.

        Parameters
        ----------
        scores : Tensor or array
            Scores ``[N]``.

        Returns
        -------
        Tensor
            One boolean per node ``[N]``, True = out-of-distribution; equal to ``p_values <= false_alarm_rate``.
        """
        values = _on_cpu(scores)
        if bool(values.isnan().any()):
            raise ValueError(f"{int(values.isnan().sum())} scores are NaN; no decision is possible")
        # In double precision, like the p-values.
        return values.double() < self.threshold

    def flag(self, scores: Any, fdr: float = 0.1, predicted: Any = None) -> Tensor:
        """Flag nodes so that the expected share of known nodes among them is at most ``fdr``.

        Uses the Benjamini-Hochberg procedure on the p-values of all nodes.

        Parameters
        ----------
        scores : Tensor or array
            Scores ``[N]``.
        fdr : float
            The false discovery rate.
        predicted : Tensor or array, optional
            Predicted classes ``[N]``, for p-values per class.

        Returns
        -------
        Tensor
            One boolean per node ``[N]``, True = flagged.
        """
        return torch.from_numpy(benjamini_hochberg(self.p_values(scores, predicted), fdr))

    def to_config(self) -> dict[str, Any]:
        """The section of a saved model's ``config.json``; the scores are among the `tensors`."""
        return {
            "false_alarm_rate": self.false_alarm_rate,
            "threshold": self.threshold,
            "num_nodes": len(self.scores),
        }

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a saved model's ``model.safetensors``."""
        classes = {} if self.classes is None else {"calibration.classes": self.classes}
        return {"calibration.scores": self.scores} | classes

    @classmethod
    def from_config(cls, config: CalibrationConfig, scores: Tensor | None, classes: Tensor | None) -> Calibration:
        """Restore a saved calibration; its threshold is computed again from its scores and compared.

        Parameters
        ----------
        config : CalibrationConfig
            From ``config.json``.
        scores, classes : Tensor or None
            The saved tensors ``[n]``, ``None`` if the file has none.
        """
        if scores is None or scores.dim() != 1 or (classes is not None and classes.shape != scores.shape):
            raise ModelFileError("the calibration scores and classes are missing or do not match")
        if scores.dtype not in (torch.float32, torch.float64) or (classes is not None and classes.dtype != torch.long):
            found = "none" if classes is None else classes.dtype
            raise ModelFileError(f"the calibration scores are {scores.dtype} and their classes {found}")
        try:
            calibration = cls.from_scores(scores, classes, config.false_alarm_rate)
        except (ValueError, OverflowError) as error:  # the latter for a rate whose inverse is infinite
            raise ModelFileError(f"calibration: {error}") from None
        if (calibration.threshold, len(scores)) != (config.threshold, config.num_nodes):
            raise ModelFileError(
                f"calibration: {len(scores)} scores give the threshold {calibration.threshold}, but the config has "
                f"{config.num_nodes} and {config.threshold}"
            )
        return calibration


def _on_cpu(values: Any) -> Tensor:
    return torch.as_tensor(values).detach().cpu()


def calibration_nodes(data: GraphSource, mask: Tensor | None, num_classes: int) -> Tensor:
    """Check the nodes for a calibration.

    Parameters
    ----------
    data : GraphSource
        A graph of N nodes.
    mask : Tensor or None
        One boolean per node ``[N]``; ``None`` stands for ``data.calibration_mask``.
    num_classes : int
        Number of classes of the detector.

    Returns
    -------
    Tensor
        Their positions ``[n]``: none in ``train_mask`` or ``val_mask``, none of an unknown class.
    """
    if mask is not None:
        nodes = checked_nodes(mask, data.x.shape[0], "mask")
    elif optional_attribute(data, "calibration_mask") is not None:
        found = check_mask(data, "calibration_mask")
        assert found is not None
        nodes = found
    else:
        raise CalibrationError(
            "no calibration nodes: pass mask=... or set data.calibration_mask to known nodes that were held out "
            "from training and validation"
        )
    _check_held_out(data, nodes)
    _check_known(data, nodes, num_classes)
    return nodes


def _check_held_out(data: GraphSource, nodes: Tensor) -> None:
    for name in ("train_mask", "val_mask"):
        used = optional_attribute(data, name)
        if isinstance(used, Tensor) and bool(used[nodes.to(used.device)].any()):
            shared = int(used[nodes.to(used.device)].sum())
            raise CalibrationError(
                f"{shared} of the {len(nodes)} calibration nodes are also in data.{name}; nodes that the network was "
                "trained or validated on score too high, so the false-alarm rate would not hold"
            )


def _check_known(data: GraphSource, nodes: Tensor, num_classes: int) -> None:
    y = optional_attribute(data, "y")
    if not isinstance(y, Tensor):
        return
    y = as_labels(y)
    if y.dim() != 1 or y.shape[0] != data.x.shape[0]:
        return
    labels = y[nodes.to(y.device)]
    if int(labels.min()) < 0:
        raise CalibrationError(
            f"{int((labels < 0).sum())} of the calibration nodes have label -1, which marks left-out or unlabelled "
            "nodes; calibrate on known nodes only"
        )
    highest = int(labels.max())
    if highest >= num_classes:
        raise CalibrationError(
            f"the calibration nodes include class {highest}, which the detector does not know "
            f"(classes 0..{num_classes - 1}); calibrate on known nodes only"
        )
