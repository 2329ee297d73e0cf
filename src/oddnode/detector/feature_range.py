"""Nodes whose features are far outside the range of training, about which a network knows nothing.

The logits of a network grow with its input without bound, and with them the energy: a node with one broken feature of
10^10 would get the highest score of all, and raise its neighbours'. Such features are clipped, and such nodes score
below all others.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from oddnode.graph import Graph, GraphError

_log = logging.getLogger("oddnode")

#: A feature is far outside the range of training if its magnitude is more than this many times the largest one there.
FAR = 100.0
# Number of rows processed at a time.
_ROWS = 2**18


def clip_far_features(graph: Graph, max_abs_feature: float) -> tuple[Graph, Tensor | None]:
    """Clip features that are far outside the range of training, and log a message.

    The weights of a layer have similar magnitudes for all features, so the limit is the same for all: a multiple of
    the largest magnitude of any feature in training.
    """
    if graph.max_abs_feature <= FAR * max_abs_feature or max_abs_feature == 0.0:
        return graph, None
    limit = FAR * max_abs_feature
    far = torch.cat([(rows.abs() > limit).any(dim=1) for rows in graph.x.split(_ROWS)]).nonzero().squeeze(1)
    if not len(far):  # a graph folder states its largest magnitude, perhaps wrongly
        return graph, None
    node = int(far[0])
    feature = int((graph.x[node].abs() > limit).nonzero()[0])
    _log.warning(
        "%d of %d nodes have features far beyond those of training, where the largest magnitude is %.4g (the first is "
        "feature %d of node %d, %.4g); they are clipped, and these nodes score below all others",
        len(far), graph.num_nodes, max_abs_feature, feature, node, float(graph.x[node, feature]),
    )  # fmt: skip

    clipped = graph.empty(graph.x.shape[1])
    for rows in graph.row_slices():
        x = graph.x[rows]
        clipped[rows] = torch.where(x.abs() > limit, x.clamp(-max_abs_feature, max_abs_feature), x)
    return graph.with_features(clipped), far


def lower_far_scores(scores: Tensor, far: Tensor | None, known: Tensor | None) -> Tensor:
    """Give nodes with clipped features a lower score than all other nodes."""
    if far is None:
        return scores
    others = torch.ones_like(scores, dtype=torch.bool)
    others[far] = False
    rest = scores[others] if known is None else torch.cat([scores[others], known.to(scores)])
    if len(rest) == 0:
        raise GraphError(
            f"each of the {len(scores)} nodes has features far beyond those of training; scale them as for training"
        )
    below = torch.nextafter(rest.min(), rest.new_tensor(-torch.inf))
    return torch.where(others, scores, scores.clamp(max=below))
