"""Other features for the nodes of a graph, which may be on disk."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from oddnode.graph import Graph
from oddnode.large.graph import FolderGraph

__all__ = ["changed_features"]


def changed_features(graph: Graph, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Change the features of a graph row by row; those of a graph on disk go into a temporary file.

    Parameters
    ----------
    graph : Graph
        Any graph.
    change : callable
        Maps features of some nodes ``[n, F]`` to others of the same shape.

    Returns
    -------
    Tensor
        Features ``[N, F]``.
    """
    if not isinstance(graph, FolderGraph):
        return change(graph.x)
    out = graph.empty(graph.x.shape[1])
    for rows in graph.row_slices():
        out[rows] = change(graph.x[rows])
    return out
