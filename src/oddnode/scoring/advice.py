"""Advice on how far to propagate scores over a graph, and on scores that the network does not determine.

Propagation assumes that neighbours are alike. Homophily, and what propagation leaves of the network's scores, are
measured on labelled training and validation nodes only; OOD nodes and calibration nodes are not used.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from oddnode.graph import GraphProfile
from oddnode.scoring.base import Scorer
from oddnode.scoring.combinations import EnsembleMean
from oddnode.scoring.outputs import Outputs

# Fewer labelled edges than this are too few to estimate homophily.
_ENOUGH_EDGES = 50
# From this homophily on, all hops are used.
_MOSTLY_ALIKE = 0.5
# When to doubt scores. 32 hops leave 0.18 or more of the spread of unpropagated scores over validation nodes on Cora,
# CiteSeer and digits, where they help, and 0.02 or less on dense social graphs (mean degree 40 to 80), where the
# direction of the scores flipped with the seed. Evidence is weighted down below the same limit. Networks with
# different seeds have a mean rank correlation of 0.6 or more on the former; reversing one of five makes it 0.2.
_LITTLE_LEFT = 0.1
_LITTLE_AGREEMENT = 0.3


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
        A message for the user if fewer hops are advised, also if the scorer cannot be limited.
    """
    given = scorer.num_hops_used
    hops = advised_hops(given, graph)
    if hops == given:
        return scorer, None
    assert graph.homophily is not None
    assert graph.chance is not None
    change = "switched off" if hops == 0 else f"reduced from {given} to {hops} hops"
    why = (
        f"only {100 * graph.homophily:.0f} % of the {graph.labelled_edges} edges between labelled nodes join nodes of "
        f"the same class ({100 * graph.chance:.0f} % would by chance)"
    )
    if not apply:
        return scorer, f"propagation of scores should be {change}: {why}; `propagation='auto'` does it"
    limited = scorer.limited_to(hops)
    if limited.num_hops_used > hops:
        unlimited = f"{type(scorer).__name__}.limited_to({hops}) has num_hops_used={limited.num_hops_used}"
        return scorer, f"propagation of scores should be {change}: {why}; {unlimited}; override it"
    return limited, f"propagation of scores was {change}: {why}; `propagation='as-given'` keeps it"


def doubt_about(scorer: Scorer, outputs: Outputs, nodes: Tensor) -> str | None:
    """Return a message for the user if the scores hardly depend on what the network has learnt.

    This happens if propagation over a dense graph averages out the network's scores, so that only a node's position in
    the graph matters, or if the networks of an ensemble disagree on the ranking of nodes.

    Parameters
    ----------
    scorer : Scorer
        A fitted scorer. Scorers that need reference nodes, which weight evidence by how informative it is, and those
        that hold labelled nodes at a fixed score are never doubted.
    outputs : Outputs
        The network's outputs on the training graph.
    nodes : Tensor
        Indices ``[n]`` of known nodes that the network was not trained on.
    """
    if scorer.needs_reference or scorer.needs_labelled_nodes or len(nodes) < 3:
        return None
    left, agreement = spread_left(scorer, outputs, nodes), rank_agreement(scorer, outputs, nodes)
    hops, found = scorer.num_hops_used, []
    if left < _LITTLE_LEFT:
        share = f"{100 * left:.2g} %" if left >= 1e-4 else "less than 0.01 %"
        found.append(f"propagation over {hops} hops leaves {share} of their spread over validation nodes")
    if agreement < _LITTLE_AGREEMENT:
        found.append(
            f"the {outputs.num_networks} networks do not agree on the ranking of validation nodes (mean rank "
            f"correlation {agreement:.2f})"
        )
    if not found:
        return None
    fewer = "use fewer hops (`num_hops=2`, `eta=0.5`), or " if hops > 2 else "use "
    return (
        f"the scores hardly depend on what the network has learnt: {', and '.join(found)}; nodes may be ranked by "
        f"chance, even in reverse; {fewer}nodesafe-evidence, which does not rest on one such score"
    )


def spread_left(scorer: Scorer, outputs: Outputs, nodes: Tensor) -> float:
    """Measure the spread left after propagation: the ratio of the standard deviations of scores after and before.

    The mean over the networks of an ensemble; 1 for a scorer that does not propagate.

    Parameters
    ----------
    scorer, outputs, nodes
        As for `doubt_about`.
    """
    if scorer.num_hops_used == 0:
        return 1.0
    ratios = []
    for own, member in _members(scorer, outputs):
        before, after = (each(member)[nodes].double().std() for each in (own.own_score, own.propagated_score))
        ratios.append(float(after / before) if float(before) > 0 else 1.0)
    return sum(ratios) / len(ratios)


def rank_agreement(scorer: Scorer, outputs: Outputs, nodes: Tensor) -> float:
    """Measure how far the networks of an ensemble agree on the ranking of nodes, by Spearman's rank correlation.

    It is the mean over all pairs of networks; 1 for a single network, and if a network gives all nodes the same score.

    Parameters
    ----------
    scorer, outputs, nodes
        As for `doubt_about`.
    """
    members = _members(scorer, outputs)
    if len(members) < 2:
        return 1.0
    scores = torch.stack([own.propagated_score(member)[nodes] for own, member in members])
    if scores.dim() != 2:  # not one number per node: an error when nodes are scored
        return 1.0
    from scipy.stats import rankdata  # a slow import that only fit needs

    ranks = rankdata(scores.detach().cpu().numpy(), axis=1)
    if not ranks.std(axis=1).all():
        return 1.0
    correlations = np.corrcoef(ranks)
    return float(correlations[np.triu_indices(len(members), 1)].mean())


def _members(scorer: Scorer, outputs: Outputs) -> list[tuple[Scorer, Outputs]]:
    scorers = scorer.scorers if isinstance(scorer, EnsembleMean) else (scorer,)
    return list(zip(scorers, outputs.members or [outputs], strict=True))
