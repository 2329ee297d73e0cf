"""Reference nodes, and with them the training graph, are recognised in other graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from oddnode.detector.adaptation import labelled_nodes
from oddnode.detector.reference import ReferenceNodes
from oddnode.graph import Graph, GraphSource, check_mask

__all__ = ["references_in", "seen_in"]


def references_in(references: Sequence[ReferenceNodes], data: GraphSource, graph: Graph) -> list[Tensor]:
    """Find the reference nodes of every network in a graph.

    Parameters
    ----------
    references : sequence of ReferenceNodes
        Those of every network.
    data : GraphSource
        The user's graph, whose ``reference_mask`` or ``val_mask`` may mark them.
    graph : Graph
        The same graph after checks.

    Returns
    -------
    list of Tensor
        Their positions; empty if they are not in it.
    """
    if not references:
        return []
    marked = check_mask(data, "reference_mask", required=False)
    # A part of a graph, such as its new nodes, may have no validation node.
    validated = labelled_nodes(data, graph.device, ("val_mask",))
    tried = [None, *([] if validated is None else [validated])]
    for among in tried if marked is None else [marked.to(graph.device), *tried]:
        found = [each.find(graph, among) for each in references]
        present = [nodes for nodes in found if nodes is not None]
        if len(present) == len(found):
            return present
    return []


def seen_in(references: Sequence[ReferenceNodes], num_nodes: int, data: GraphSource, graph: Graph) -> Tensor | None:
    """Find the nodes of the training graph in a graph.

    Parameters
    ----------
    references : sequence of ReferenceNodes
        Those of every network.
    num_nodes : int
        The number of nodes of the training graph.
    data : GraphSource
        The user's graph, whose ``seen_mask`` may mark them.
    graph : Graph
        The same graph after checks.

    Returns
    -------
    Tensor or None
        Whether a node was in the training graph ``[N]``; without marks, whether it is one of its first nodes, if these
        are the training graph as far as reference nodes tell. ``None`` if none was.
    """
    if not references:
        return None
    seen = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    marked = check_mask(data, "seen_mask", required=False)
    if marked is not None:
        seen[marked.to(graph.device)] = True
        return seen
    if any(each.find(graph) is None for each in references):
        return None
    seen[:num_nodes] = True
    return seen
