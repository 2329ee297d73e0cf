"""Reference nodes, and with them the training graph, are recognised in other graphs."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from oddnode.detector.adaptation import labelled_nodes
from oddnode.detector.reference import ReferenceNodes
from oddnode.graph import Graph, GraphSource, check_mask

__all__ = ["references_in", "starts_with_training_graph"]


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


def starts_with_training_graph(references: Sequence[ReferenceNodes], graph: Graph) -> bool:
    """Find out whether the nodes of the training graph come first in a graph, as far as reference nodes tell.

    Parameters
    ----------
    references : sequence of ReferenceNodes
        Those of every network.
    graph : Graph
        Any graph with the same features.
    """
    return bool(references) and all(each.find(graph) is not None for each in references)
