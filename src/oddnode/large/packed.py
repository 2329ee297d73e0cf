"""Packed rows: what the logits of labelled and validation nodes depend on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.graph import Graph, TrainingSet
from oddnode.large.graph import FolderGraph
from oddnode.large.network import TwoLayers
from oddnode.ops import SparseMatrix

__all__ = ["PackedNodes", "packing_pays"]

# Smaller graphs are trained in full batches as before: an epoch takes milliseconds.
_LARGE = 2**16
# Wider features than this would make the covariance of all features a large part of the work.
_NARROW = 512
# With more rows than this share, packing would copy most of the graph.
_FEW_ROWS = 0.75


class PackedNodes(NamedTuple):
    """Everything that the logits of some nodes depend on.

    Parameters
    ----------
    rows : Tensor
        Positions of these nodes and their neighbours ``[m]``.
    inputs : Tensor
        The rows of the first product there, minus the mean of all rows, ``[m, F]``.
    matrix : SparseMatrix or None
        The last convolution ``[n, m]``; ``None`` for a network that sees no edges.
    """

    rows: Tensor
    inputs: Tensor
    matrix: SparseMatrix | None

    @classmethod
    def of(cls, nodes: Tensor, graph: Graph, layers: TwoLayers) -> PackedNodes:
        """Copy the rows that some nodes need.

        Parameters
        ----------
        nodes : Tensor
            Positions ``[n]``.
        graph : Graph
            The graph, on disk or in memory.
        layers : TwoLayers
            The network.
        """
        rows, matrix = nodes, None
        if layers.uses_edges:
            rows, matrix = _rows_around(graph, nodes)
        source, mean = layers.inputs(graph), layers.moments(graph).mean.to(graph.x.dtype)
        if not isinstance(graph, FolderGraph):
            return cls(rows, source[rows] - mean, matrix)
        inputs = graph.folder.empty((len(rows), source.shape[1]), source.dtype)
        for places in torch.arange(len(rows)).split(2**18):
            inputs[places] = source[rows[places]] - mean
        return cls(rows, inputs, matrix)


def _rows_around(graph: Graph, nodes: Tensor) -> tuple[Tensor, SparseMatrix]:
    """The nodes and their neighbours ``[m]``, and the convolution of the former from the latter ``[n, m]``."""
    if not isinstance(graph, FolderGraph):
        matrix, rows = graph.gcn_matrix.rows(nodes)
        return rows, matrix
    rows, (row, column), values = graph.rows_around(nodes)
    return rows, SparseMatrix(row, column, values, (len(nodes), len(rows)))


def packing_pays(data: TrainingSet) -> bool:
    """Whether training on packed rows is faster than in full batches, for a graph in memory.

    Parameters
    ----------
    data : TrainingSet
        The data of a training.
    """
    graph = data.graph
    if graph.device.type != "cpu" or graph.num_nodes < _LARGE or graph.x.shape[1] > _NARROW or graph.is_sparse:
        return False
    wanted = torch.zeros(graph.num_nodes, dtype=torch.bool)
    wanted[data.train] = wanted[data.val] = True
    around = wanted.clone()
    for source, target, _ in graph.edge_blocks():
        around[source[wanted[target]]] = True
    return int(around.sum()) <= _FEW_ROWS * graph.num_nodes
