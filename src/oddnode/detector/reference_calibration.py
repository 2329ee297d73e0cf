"""Calibration of a detector on the reference nodes that its networks set aside."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from oddnode.detector.calibration import Calibration
from oddnode.detector.fitted import FittedState
from oddnode.functional import CalibrationError
from oddnode.scoring import EnsembleMean

__all__ = ["calibration_by_references"]

_log = logging.getLogger("oddnode")


def calibration_by_references(state: FittedState) -> Calibration | None:
    """Calibrate a fitted state on its reference nodes.

    A new node is scored by the mean of all networks. So are reference nodes that all networks share. If the networks
    were cross-fitted, a reference node is new to one of them only; the others have learnt from its part of the graph
    and score it a little too high. Their scores are replaced by those that reference nodes of the same rank have: the
    networks agree on a node as far as they do on new nodes, and none of them scores it too high.

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
    by_network = [scorer.score(own).detach() for scorer, own in zip(scorers, outputs.members or [outputs], strict=True)]
    own_nodes = outputs.references
    shared = all(torch.equal(nodes, own_nodes[0]) for nodes in own_nodes)
    parts = [own_nodes[0]] if shared else list(own_nodes)
    scores = [
        torch.stack(
            [
                scores[nodes] if shared or nodes is own else _as_if_new(scores[nodes], scores[own])
                for scores, own in zip(by_network, own_nodes, strict=True)
            ]
        ).mean(dim=0)
        for nodes in parts
    ]
    classes = outputs.logits.argmax(dim=-1)[torch.cat(parts)]
    try:
        return Calibration.from_scores(torch.cat(scores), classes)
    except CalibrationError as error:
        _log.warning(f"the detector has no threshold yet: {error}")
        return None


def _as_if_new(scores: Tensor, new: Tensor) -> Tensor:
    """Give each of n scores the value that a score of its rank has among the scores of new nodes."""
    ranks = scores.argsort(stable=True).argsort()
    return new.double().quantile((ranks.double() + 0.5) / len(scores)).to(scores.dtype)
