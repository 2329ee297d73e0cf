"""Packed rows: what the logits of labelled and validation nodes depend on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.large.graph import FolderGraph
from oddnode.nn.two_layers import TwoLayers
from oddnode.ops import SparseMatrix


class PackedNodes(NamedTuple):
    """Everything that the logits of some nodes depend on."""

    rows: Tensor  # Positions of these nodes and their neighbours `[m]`
    inputs: Tensor  # The rows of the first product there, minus the mean of all rows, `[m, F]`
    matrix: SparseMatrix | None  # The last convolution `[n, m]`; `None` for a network that sees no edges

    @classmethod
    def of(cls, nodes: Tensor, graph: Graph, layers: TwoLayers) -> PackedNodes:
        """Copy the rows that some nodes need."""
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
