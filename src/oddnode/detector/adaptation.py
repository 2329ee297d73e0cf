"""What a detector takes from its settings and its graph: the scorer, its hops, and the labelled nodes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

from oddnode.detector.own_parts import as_scorer
from oddnode.graph import GraphProfile, GraphSource, optional_attribute
from oddnode.scoring import Scorer, advised_scorer

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["adapted_scorer", "labelled_nodes", "scorer_of"]

_log = logging.getLogger("oddnode")


def scorer_of(detector: Detector) -> Scorer:
    """Return the scorer of a detector, or the default one.

    Parameters
    ----------
    detector : Detector
        The detector.
    """
    return as_scorer(detector.scorer)


def adapted_scorer(detector: Detector, profile: GraphProfile) -> tuple[Scorer, list[str]]:
    """Limit the scorer's hops to those that the training graph supports; a message is logged if they are fewer.

    Parameters
    ----------
    detector : Detector
        The detector.
    profile : GraphProfile
        The homophily of its training graph.

    Returns
    -------
    Scorer
        The scorer, unfitted.
    list of str
        The messages.
    """
    scorer, message = advised_scorer(scorer_of(detector), profile, apply=detector.propagation == "auto")
    if message is None:
        return scorer, []
    _log.warning(message)
    return scorer, [message]


def labelled_nodes(
    data: GraphSource, device: torch.device, masks: Sequence[str] = ("train_mask", "val_mask")
) -> Tensor | None:
    """Find the training and validation nodes of a graph.

    Parameters
    ----------
    data : GraphSource
        A graph of N nodes.
    device : torch.device
        The device of the result.
    masks : sequence of str
        The names of the masks; by default those of both.

    Returns
    -------
    Tensor or None
        Positions ``[n]``; ``None`` if the graph has no valid mask, or its masks are empty.
    """
    found = [optional_attribute(data, name) for name in masks]
    valid = [mask.to(device) for mask in found if _is_mask(mask, data.x.shape[0])]
    if not valid:
        return None
    nodes = torch.stack(valid).any(dim=0).nonzero().squeeze(1)
    return nodes if len(nodes) else None


def _is_mask(mask: object, num_nodes: int) -> TypeGuard[Tensor]:
    if not isinstance(mask, Tensor) or mask.is_meta or mask.layout != torch.strided:
        return False
    return mask.dtype == torch.bool and mask.shape == (num_nodes,)
