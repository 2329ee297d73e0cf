"""What a graph looks like, and whether scores should be propagated over it.

Propagation rests on neighbours being alike. Whether they are is measured on the labelled training and validation
nodes alone: no OOD node and no calibration node takes part.
"""

from __future__ import annotations

import copy

from oddnode.graph import GraphProfile
from oddnode.scoring.base import Scorer
from oddnode.scoring.propagated import Propagated

__all__ = ["advised_hops", "advised_scorer"]

# Fewer labelled edges than this say nothing certain of the graph.
_ENOUGH_EDGES = 50
# Edges that mostly join nodes of one class: propagation stays as it is.
_MOSTLY_ALIKE = 0.5


def advised_hops(num_hops: int, graph: GraphProfile) -> int:
    """How many hops to propagate: all, fewer, or none where edges say nothing of a node's class.

    All hops where at least half of the labelled edges join nodes of one class, and where there are too few such edges
    to tell. Otherwise in proportion to the adjusted homophily, and none where that is zero or less.

    Examples
    --------
    >>> graph = GraphProfile(9, 99, 11.0, 0.0, labelled_edges=99, homophily=0.1, chance=0.5)
    >>> advised_hops(16, graph)
    0
    """
    adjusted = graph.adjusted_homophily
    if adjusted is None or graph.labelled_edges < _ENOUGH_EDGES:
        return num_hops
    assert graph.homophily is not None
    if graph.homophily >= _MOSTLY_ALIKE:
        return num_hops
    return round(num_hops * max(adjusted, 0.0))


def advised_scorer(scorer: Scorer, graph: GraphProfile, apply: bool = True) -> tuple[Scorer, str | None]:
    """The scorer with as much propagation as the graph bears, and what to tell the user where that is less.

    Without ``apply`` the scorer stays as it is, and the message says what the advice would be.
    """
    if not isinstance(scorer, Propagated):
        return scorer, None
    hops = advised_hops(scorer.num_hops, graph)
    if hops == scorer.num_hops:
        return scorer, None
    assert graph.homophily is not None
    assert graph.chance is not None
    change = "switched off" if hops == 0 else f"reduced from {scorer.num_hops} to {hops} hops"
    why = (
        f"only {100 * graph.homophily:.0f} % of the {graph.labelled_edges} edges between labelled nodes join nodes of "
        f"one class ({100 * graph.chance:.0f} % would by chance)"
    )
    if not apply:
        return scorer, f"propagation of scores should be {change}: {why}; propagation='auto' does it"
    other = copy.copy(scorer)
    other.num_hops = hops
    return other, f"propagation of scores was {change}: {why}; propagation='as-given' keeps it"
