"""Calibration of a detector on the reference nodes that its networks set aside."""

from __future__ import annotations

import logging

import torch

from oddnode.detector.calibration import Calibration
from oddnode.detector.fitted import FittedState
from oddnode.functional import CalibrationError
from oddnode.scoring import EnsembleMean

__all__ = ["calibration_by_references"]

_log = logging.getLogger("oddnode")


def calibration_by_references(state: FittedState) -> Calibration | None:
    """Calibrate a fitted state on its reference nodes.

    A new node is scored by the mean of all networks. So are reference nodes that all networks share. If the networks
    were cross-fitted, a reference node is scored by those that set it aside: the others have learnt from it and its
    edges, and score it too high. A mean of fewer networks varies a little more, so that a little fewer new nodes are
    flagged than was asked for.

    Parameters
    ----------
    state : FittedState
        The state, with its training graph.

    Returns
    -------
    Calibration or None
        At the usual false-alarm rate; ``None`` without reference nodes, or with too few of them for that rate.
    """
    if not state.references or state.training is None or not state.scorer.needs_reference:
        return None
    outputs = state.training.outputs
    scorers = state.scorer.scorers if isinstance(state.scorer, EnsembleMean) else (state.scorer,)
    total = outputs.graph.x.new_zeros(outputs.graph.num_nodes)
    count = torch.zeros_like(total)
    for scorer, own, nodes in zip(scorers, outputs.members or [outputs], outputs.references, strict=True):
        total[nodes] += scorer.score_at(own, nodes).detach()
        count[nodes] += 1
    known = count.nonzero().squeeze(1)
    classes = outputs.logits[known].argmax(dim=-1)
    try:
        return Calibration.from_scores(total[known] / count[known], classes)
    except CalibrationError as error:
        _log.warning(f"the detector has no threshold yet: {error}")
        return None
