"""Graphs in memory and chunks of graphs are written to graph folders."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator

from torch import Tensor

from oddnode.graph import Graph, GraphSource, as_labels, optional_attribute
from oddnode.large.arrays import row_chunks
from oddnode.large.builder import FolderBuilder, Progress
from oddnode.large.chunks import EdgeChunk, NodeChunk
from oddnode.large.folder import GraphFolder
from oddnode.large.stores import MASKS

__all__ = ["build_folder", "folder_from_data"]

_EDGES_AT_ONCE = 2**21


def build_folder(
    out: str | os.PathLike,
    nodes: Iterable[NodeChunk],
    edges: Iterable[EdgeChunk],
    *,
    classes: list[bool | int | str] | None = None,
    made_from: str | None = None,
    on_progress: Progress | None = None,
) -> GraphFolder:
    """Build a folder from chunks, so that no more than one of them is in memory at a time.

    Edges are used as given: a repeated edge counts twice, a self-loop makes a node its own neighbour. Those of weight 0
    are left out.

    Parameters
    ----------
    out : path
        The folder: a new or empty one, or one whose build was not finished.
    nodes : iterable of NodeChunk
        The nodes; the first node of the first chunk has the position 0.
    edges : iterable of numpy.ndarray, or of (numpy.ndarray, numpy.ndarray)
        Edges ``[2, n]`` from source to target, as positions of nodes; or pairs of these and their weights ``[n]``,
        which are kept in the precision of the features.
    classes : list, optional
        The label that each class stands for.
    made_from : str, optional
        A text that is the same whenever the chunks are the same. With it, a build that was killed goes on after its
        last finished stage; without it, it begins anew.
    on_progress : callable, optional
        Called with what is done, how much there is (``None`` if unknown), and a description.

    Returns
    -------
    GraphFolder
        The folder.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> nodes = (NodeChunk(np.eye(3)[[i]]) for i in range(3))
    >>> edges = [np.array([[0, 1], [1, 2]]), np.array([[0], [2]])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     build_folder(folder, nodes, edges).edge_index
    tensor([[0, 0, 1],
            [1, 2, 2]])
    """
    with FolderBuilder(out, made_from or secrets.token_hex(16), on_progress) as builder:
        if not builder.is_complete:
            builder.add_nodes(lambda: nodes, {} if classes is None else {"classes": classes})
            builder.add_edges(lambda: edges)
        return builder.finish()


def folder_from_data(data: GraphSource, out: str | os.PathLike, on_progress: Progress | None = None) -> GraphFolder:
    """Write a graph in memory to a folder; its labels and masks as well.

    Parameters
    ----------
    data : GraphSource
        A PyG ``Data``, or another graph with its attributes.
    out : path
        The folder: a new or empty one.
    on_progress : callable, optional
        As for `build_folder`.

    Returns
    -------
    GraphFolder
        The folder.
    """
    graph = Graph.from_data(data)
    columns = {name: optional_attribute(data, name) for name in ("y", *MASKS)}
    given = {name: as_labels(value).cpu() for name, value in columns.items() if isinstance(value, Tensor)}

    def nodes() -> Iterator[NodeChunk]:
        for start, stop in row_chunks(graph.num_nodes, graph.x.shape[1] * graph.x.dtype.itemsize):
            own = {name: value[start:stop].numpy() for name, value in given.items()}
            yield NodeChunk(graph.x[start:stop].numpy(), own.pop("y", None), masks=own)

    def edges() -> Iterator[EdgeChunk]:
        for start in range(0, graph.edge_index.shape[1], _EDGES_AT_ONCE):
            own = slice(start, start + _EDGES_AT_ONCE)
            part = graph.edge_index[:, own].numpy()
            yield part if graph.edge_weight is None else (part, graph.edge_weight[own].numpy())

    return build_folder(out, nodes(), edges(), on_progress=on_progress)
