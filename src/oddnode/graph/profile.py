"""What a graph looks like: size, degrees, and whether neighbours are alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from oddnode.graph.graph import Graph

__all__ = ["GraphProfile", "profile_graph"]


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


def profile_graph(graph: Graph, nodes: Tensor, y: Tensor) -> GraphProfile:
    """Measure a graph; ``nodes`` are the labelled nodes that may be looked at, ``y`` their classes.

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
