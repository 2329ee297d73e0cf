"""Statistics of a graph: size, degrees, homophily."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from oddnode.graph.graph import Graph

# This many edges show whether most of them lead one way only.
_ENOUGH_EDGES = 10_000
# Nodes of a graph on disk whose edges are read at a time.
_NODES_AT_ONCE = 2**14


@dataclass(frozen=True)
class GraphProfile:
    """Size, degrees and homophily of a graph."""

    num_nodes: int  #: Number of nodes.
    num_edges: int  #: Number of directed edges, self-loops excluded.
    mean_degree: float  #: Edges per node.
    isolated_share: float  #: The share of nodes without an incoming edge.
    labelled_edges: int  #: Number of edges whose two ends are labelled.
    #: The share of these edges, by their weights, that join two nodes of the same class; ``None`` if there are no such
    #: edges.
    homophily: float | None
    chance: float | None  #: The homophily to expect if edges ignored the classes; ``None`` if there are no such edges.

    @property
    def adjusted_homophily(self) -> float | None:
        """Homophily beyond chance: 1 = edges within classes only, 0 = chance, below 0 = less than chance.

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

    Examples
    --------
    >>> graph = Graph(torch.ones(3, 1), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> profile_graph(graph, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])).homophily
    0.5
    """
    degree = graph.num_others()
    label = torch.full_like(degree, -1)
    label[nodes] = y
    counts = torch.zeros(3, dtype=torch.float64, device=graph.device)
    ends = counts.new_zeros(int(y.max()) + 1 if len(y) else 0)
    for source, target, weight in _edges_to(graph, nodes):
        a, b = label[source], label[target]
        known = (source != target) & (a >= 0) & (b >= 0)
        amount = known.double() if weight is None else known * weight.double()
        if len(ends):
            for end in (a, b):
                ends.index_add_(0, end.clamp_min(0), amount)
        counts += torch.stack([known.sum(), amount.sum(), (amount * (a == b)).sum()])
    # A single transfer: each one would synchronise with the GPU.
    facts = torch.cat([torch.stack([(degree == 0).sum(), degree.sum()]), counts, ends])
    isolated, num_edges, labelled, total, alike, *per_class = facts.tolist()
    return GraphProfile(
        num_nodes=graph.num_nodes,
        num_edges=int(num_edges),
        mean_degree=num_edges / graph.num_nodes,
        isolated_share=isolated / graph.num_nodes,
        labelled_edges=int(labelled),
        homophily=alike / total if total else None,
        chance=sum((end / (2 * total)) ** 2 for end in per_class) if total else None,
    )


def one_way_share(graph: Graph) -> float:
    """Estimate the share of edges without an edge back, from 0 to 1, from about 10,000 of them.

    Parameters
    ----------
    graph : Graph
        The graph. Self-loops do not count, and repeated edges count once; without any edge the share is 0.

    Examples
    --------
    >>> one_way_share(Graph(torch.ones(4, 1), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 3]])))
    0.5
    """
    if graph.is_on_disk:  # where edges are sorted, so that a look-up does not read all of them
        return _one_way_share_of_sorted(graph)
    edges = graph.edge_index
    source, target = edges[:, edges[0] != edges[1]]
    step = 1 + len(source) // _ENOUGH_EDGES
    back = (target[::step] * graph.num_nodes + source[::step]).unique()
    if not len(back):
        return 0.0
    edges = source * graph.num_nodes + target
    index = torch.searchsorted(back, edges).clamp_max(len(back) - 1)
    is_there = torch.zeros(len(back), dtype=torch.bool, device=graph.device)
    is_there[index[back[index] == edges]] = True
    return 1.0 - int(is_there.sum()) / len(back)


def _one_way_share_of_sorted(graph: Graph) -> float:
    indices = torch.arange(0, graph.num_edges, 1 + graph.num_edges // _ENOUGH_EDGES, device=graph.device)
    edges = graph.edges_at(indices)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    if not edges.shape[1]:
        return 0.0
    return 1.0 - int(graph.contains(edges.flip(0)).sum()) / edges.shape[1]


def _edges_to(graph: Graph, nodes: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Sources, targets and weights of some edges at a time: of a graph on disk, of those that lead to the nodes."""
    if not graph.is_on_disk:
        yield *graph.edge_index, graph.edge_weight
        return
    _, sources, weights = graph.csr
    for part in nodes.split(_NODES_AT_ONCE if graph.device.type == "cpu" else 64 * _NODES_AT_ONCE):
        edge, owner = graph.csr.edges_to(part)
        yield sources[edge].long(), part[owner], None if weights is None else weights[edge]
