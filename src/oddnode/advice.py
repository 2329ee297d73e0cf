"""What a graph looks like, and whether scores should be propagated over it.

Propagation rests on neighbours being alike. Whether they are is measured on the labelled training and validation
nodes alone: no OOD node and no calibration node takes part.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.scorers import Propagated, Scorer

__all__ = ["GraphProfile", "advised_hops", "advised_scorer", "profile"]

# Fewer labelled edges than this say nothing certain of the graph.
_ENOUGH_EDGES = 50
# Edges that mostly join nodes of one class: propagation stays as it is.
_MOSTLY_ALIKE = 0.5


@dataclass(frozen=True)
class GraphProfile:
    """Size, degrees and homophily of a graph.

    ``homophily`` is the share of edges between labelled nodes that join two of the same class, ``chance`` what that
    share would be if edges ignored the classes; both ``None`` where no edge joins two labelled nodes.
    """

    num_nodes: int
    num_edges: int
    mean_degree: float
    isolated_share: float
    labelled_edges: int
    homophily: float | None
    chance: float | None

    @property
    def adjusted_homophily(self) -> float | None:
        """Homophily beyond chance: 1 = only within classes, 0 = as by chance, below 0 = classes avoid themselves.

        ``None`` where all labelled edges lie in one class, so that chance itself is 1.
        """
        if self.homophily is None or self.chance is None or self.chance >= 1.0:
            return None
        return (self.homophily - self.chance) / (1.0 - self.chance)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"adjusted_homophily": self.adjusted_homophily}


def profile(graph: Graph, nodes: Tensor, y: Tensor) -> GraphProfile:
    """Measure a graph; ``nodes`` are the labelled nodes that may be looked at, ``y`` their classes.

    Examples
    --------
    >>> graph = Graph(torch.ones(3, 1), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> profile(graph, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])).homophily
    0.5
    """
    source, target = graph.edge_index
    joins = source != target
    degree = torch.zeros(graph.num_nodes, dtype=torch.long, device=graph.device).index_add_(0, target, joins.long())
    label = torch.full((graph.num_nodes,), -1, dtype=torch.long, device=graph.device)
    label[nodes] = y
    a, b = label[source], label[target]
    known = joins & (a >= 0) & (b >= 0)
    ends = torch.zeros(int(y.max()) + 1 if len(y) else 0, dtype=torch.long, device=graph.device)
    if len(ends):
        for end in (a, b):
            ends.index_add_(0, end.clamp_min(0), known.long())
    counts = torch.stack([joins.sum(), (degree == 0).sum(), known.sum(), (known & (a == b)).sum()])
    # In one go, since each of these waits for a GPU.
    num_edges, isolated, count, alike, *per_class = torch.cat([counts, ends]).tolist()
    return GraphProfile(
        num_nodes=graph.num_nodes,
        num_edges=num_edges,
        mean_degree=num_edges / graph.num_nodes,
        isolated_share=isolated / graph.num_nodes,
        labelled_edges=count,
        homophily=alike / count if count else None,
        chance=sum((end / (2 * count)) ** 2 for end in per_class) if count else None,
    )


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
