"""Whether scores should be propagated over a graph.

Propagation relies on neighbours being alike. Homophily is measured on the labelled training and validation nodes
alone: no OOD node and no calibration node takes part.
"""

from __future__ import annotations

from oddnode.graph import GraphProfile
from oddnode.scoring.base import Scorer

__all__ = ["advised_hops", "advised_scorer"]

# Fewer labelled edges than this say nothing certain of the graph.
_ENOUGH_EDGES = 50
# Edges that mostly join nodes of one class: propagation stays as it is.
_MOSTLY_ALIKE = 0.5


def advised_hops(num_hops: int, graph: GraphProfile) -> int:
    """How many hops to propagate: all, fewer, or none where edges say nothing of a node's class.

    All hops where at least half of the labelled edges join nodes of one class, and where there are too few such edges
    to tell. Otherwise in proportion to the adjusted homophily, and none where that is zero or less.

    Parameters
    ----------
    num_hops : int
        The hops that a scorer asks for.
    graph : GraphProfile
        The homophily of the training graph.

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
    """Limit a scorer's propagation to what the homophily of a graph supports.

    Parameters
    ----------
    scorer : Scorer
        Any scorer; one that does not propagate is returned as it is.
    graph : GraphProfile
        The homophily of the training graph.
    apply : bool
        Whether to limit it. Otherwise the scorer is returned as it is, and the message says what the advice would be.

    Returns
    -------
    Scorer
        The scorer, or a copy with fewer hops.
    str or None
        A message for the user where fewer hops are advised.
    """
    asked = scorer.num_hops_used
    hops = advised_hops(asked, graph)
    if hops == asked:
        return scorer, None
    assert graph.homophily is not None
    assert graph.chance is not None
    change = "switched off" if hops == 0 else f"reduced from {asked} to {hops} hops"
    why = (
        f"only {100 * graph.homophily:.0f} % of the {graph.labelled_edges} edges between labelled nodes join nodes of "
        f"one class ({100 * graph.chance:.0f} % would by chance)"
    )
    if not apply:
        return scorer, f"propagation of scores should be {change}: {why}; propagation='auto' does it"
    return scorer.limited_to(hops), f"propagation of scores was {change}: {why}; propagation='as-given' keeps it"
