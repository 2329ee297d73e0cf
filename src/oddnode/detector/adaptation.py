"""What a detector takes from its settings and its graph: the scorer, its hops, and the labelled nodes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

from oddnode.detector.own_parts import as_scorer
from oddnode.graph import Graph, GraphProfile, GraphSource, one_way_share, optional_attribute
from oddnode.scoring import Scorer, advised_scorer, doubt_about

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector
    from oddnode.detector.fitted import FittedState

__all__ = ["adapted_scorer", "doubt_about_edges", "labelled_nodes", "scorer_of", "with_doubts"]

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
    return scorer, [] if message is None else _logged(message)


def with_doubts(state: FittedState, nodes: Tensor) -> FittedState:
    """Measure whether the fitted scores depend on what the network has learnt; a message is logged if they do not.

    Parameters
    ----------
    state : FittedState
        The state of a detector, with the outputs on its training graph.
    nodes : Tensor
        Positions ``[n]`` of known nodes that the network was not trained on.

    Returns
    -------
    FittedState
        The same state, with the message in its advice.
    """
    assert state.training is not None
    message = doubt_about(state.scorer, state.training.outputs, nodes)
    return state if message is None else replace(state, advice=state.advice + _logged(message))


def doubt_about_edges(data: GraphSource, graph: Graph) -> list[str]:
    """Say if most edges lead one way only; a message is logged.

    Parameters
    ----------
    data : GraphSource
        The user's graph, whose attribute ``directed`` may say that this is meant.
    graph : Graph
        The same graph after checks.

    Returns
    -------
    list of str
        The message, or nothing.
    """
    share = 0.0 if optional_attribute(data, "directed") is True else one_way_share(graph)
    if share <= 0.5:
        return []
    return _logged(
        f"{100 * share:.0f} % of the edges lead one way only, so that a node sees few of its neighbours; if links have "
        "no direction, pass edge_index through torch_geometric.utils.to_undirected; if they have one, set "
        "data.directed = True"
    )


def _logged(message: str) -> list[str]:
    _log.warning(message)
    return [message]


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
