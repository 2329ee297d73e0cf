"""Statistics of a graph: size, degrees, homophily."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from oddnode.graph.graph import Graph

__all__ = ["GraphProfile", "one_way_share", "profile_graph"]

# So many edges tell whether most of them lead one way only.
_ENOUGH_EDGES = 10_000


@dataclass(frozen=True)
class GraphProfile:
    """Size, degrees and homophily of a graph.

    Parameters
    ----------
    num_nodes : int
        Number of nodes.
    num_edges : int
        Number of directed edges, self-loops excluded.
    mean_degree : float
        Edges per node.
    isolated_share : float
        The share of nodes without an incoming edge.
    labelled_edges : int
        Number of edges whose two ends are labelled.
    homophily : float or None
        The share of these edges that join two nodes of the same class; ``None`` if there are no such edges.
    chance : float or None
        The homophily to expect if edges ignored the classes; ``None`` if there are no such edges.
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
        """Homophily beyond chance: 1 = edges within classes only, 0 = chance, below 0 = classes avoid themselves.

        ``None`` if all labelled edges lie in one class, where chance is 1 already.
        """
        if self.homophily is None or self.chance is None or self.chance >= 1.0:
            return None
        return (self.homophily - self.chance) / (1.0 - self.chance)

    def as_dict(self) -> dict[str, Any]:
        """All fields and `adjusted_homophily`, for JSON."""
        return asdict(self) | {"adjusted_homophily": self.adjusted_homophily}


def profile_graph(graph: Graph, nodes: Tensor, y: Tensor) -> GraphProfile:
    """Measure a graph.

    Parameters
    ----------
    graph : Graph
        The graph.
    nodes : Tensor
        The labelled nodes whose classes may be used, ``[M]``.
    y : Tensor
        Their classes, ``[M]``.

    Returns
    -------
    GraphProfile
        Its statistics.

    Examples
    --------
    >>> graph = Graph(torch.ones(3, 1), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> profile_graph(graph, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])).homophily
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
    # A single transfer: each one would synchronise with the GPU.
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


def one_way_share(graph: Graph) -> float:
    """Estimate the share of edges without an edge back, from some 10,000 of them.

    Parameters
    ----------
    graph : Graph
        The graph. Self-loops do not count, and repeated edges count once.

    Returns
    -------
    float
        From 0 for an undirected graph, or one without edges, to 1.

    Examples
    --------
    >>> one_way_share(Graph(torch.ones(4, 1), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 3]])))
    0.5
    """
    source, target = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]]
    step = 1 + len(source) // _ENOUGH_EDGES
    back = (target[::step] * graph.num_nodes + source[::step]).unique()
    if not len(back):
        return 0.0
    edges = source * graph.num_nodes + target
    place = torch.searchsorted(back, edges).clamp_max(len(back) - 1)
    is_there = torch.zeros(len(back), dtype=torch.bool, device=graph.device)
    is_there[place[back[place] == edges]] = True
    return 1.0 - int(is_there.sum()) / len(back)
