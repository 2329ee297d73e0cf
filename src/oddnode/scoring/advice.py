"""Advice on how far to propagate scores over a graph.

Propagation assumes that neighbours are alike. Homophily is measured on labelled training and validation nodes only;
OOD nodes and calibration nodes are not used.
"""

from __future__ import annotations

from oddnode.graph import GraphProfile
from oddnode.scoring.base import Scorer

__all__ = ["advised_hops", "advised_scorer"]

# Fewer labelled edges than this are too few to estimate homophily.
_ENOUGH_EDGES = 50
# From this homophily on, all hops are used.
_MOSTLY_ALIKE = 0.5


def advised_hops(num_hops: int, graph: GraphProfile) -> int:
    """Advise on the number of hops: all, fewer, or none if edges are not informative of a node's class.

    All hops are used if at least half of the labelled edges join nodes of the same class, or if there are too few such
    edges to tell. Otherwise the number is proportional to the adjusted homophily, and zero if that is not positive.

    Parameters
    ----------
    num_hops : int
        The number of hops of a scorer.
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
        Any scorer; one that does not propagate is returned unchanged.
    graph : GraphProfile
        The homophily of the training graph.
    apply : bool
        Whether to limit it. Otherwise the scorer is returned unchanged, and the message contains the advice.

    Returns
    -------
    Scorer
        The scorer, or a copy with fewer hops.
    str or None
        A message for the user if fewer hops are advised.
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
        return scorer, f"propagation of scores should be {change}: {why}; `propagation='auto'` does it"
    return scorer.limited_to(hops), f"propagation of scores was {change}: {why}; `propagation='as-given'` keeps it"
