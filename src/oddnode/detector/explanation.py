"""Explanations of scores."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.detector.fitted import FittedState
from oddnode.scoring import Outputs

__all__ = ["Explanation", "explain"]


class Explanation(NamedTuple):
    """Explanations of the scores of N nodes: ``score = own_score + neighbour_contribution``.

    Parameters
    ----------
    score : Tensor
        Scores ``[N]``.
    own_score : Tensor
        Scores without those of the neighbours ``[N]`` (`oddnode.Scorer.own_score`).
    neighbour_contribution : Tensor
        The contribution of the neighbours' scores ``[N]``. It includes that of a prior, if the scorer has one
        (`oddnode.Propagated`).
    nearest_class : Tensor
        The training class whose mean logits are nearest to the node's ``[N]``.
    """

    score: Tensor
    own_score: Tensor
    neighbour_contribution: Tensor
    nearest_class: Tensor


def explain(state: FittedState, outputs: Outputs) -> Explanation:
    """Explain the scores of all nodes of a graph.

    Parameters
    ----------
    state : FittedState
        The state of the detector that scores them.
    outputs : Outputs
        The network's outputs on the graph of N nodes.
    """
    if state.class_means is None:
        raise ValueError(
            "the nearest training class is unknown: this detector was wrapped without labelled training "
            "nodes of every class; pass Detector.wrap(module, data=...) a graph with train_mask and y"
        )
    score = state.scorer.score(outputs).detach()
    own = state.scorer.own_score(outputs).detach()
    nearest = torch.cdist(outputs.logits, state.class_means.to(outputs.logits)).argmin(dim=1)
    return Explanation(score, own, score - own, nearest)
