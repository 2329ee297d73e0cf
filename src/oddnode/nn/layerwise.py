"""Exact outputs of the backbones of this library, layer by layer, so that no layer of all nodes has to be in memory.

What a convolution has made of all nodes is kept in a matrix, for a graph on disk in a temporary file. Everything else
works on rows, and is computed for some rows when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import Graph, neighbourhood, node_blocks
from oddnode.nn.base import Backbone
from oddnode.nn.batch_norm import ColumnMoments
from oddnode.nn.convs import PreparedGATConv, PreparedGCNConv, PreparedMixHopConv
from oddnode.nn.evidential_gcn import EvidentialGCN
from oddnode.nn.gat import GAT
from oddnode.nn.gcn import GCN
from oddnode.nn.gpn import GPN, personalised_page_rank
from oddnode.nn.jknet import JKNet
from oddnode.nn.mixhop import MixHop
from oddnode.nn.mlp import MLP

__all__ = ["Layerwise", "NodeMatrix"]

#: A matrix with a row for every node: computes those of some nodes, given by position or as a slice.
NodeMatrix = Callable[[Tensor | slice], Tensor]

# Numbers that are gathered or computed at a time.
_NUMBERS_AT_ONCE = 2**22


class Layerwise:
    """A backbone of this library in evaluation mode on a graph; its convolutions are computed here, once.

    Parameters
    ----------
    module : Backbone
        The network, of a kind that `supports`.
    graph : Graph
        A graph in memory or on disk.
    fit_norms : bool
        Whether batch norm gets the statistics of this graph on the way.
    """

    def __init__(self, module: Backbone, graph: Graph, fit_norms: bool = False):
        self._graph, self._fit_norms = graph, fit_norms
        with torch.no_grad():
            self._hidden, self._logits = _FORWARDS[type(module)](self, module)

    @staticmethod
    def supports(module: nn.Module) -> bool:
        """Whether a network is one of those whose layers are known here.

        Parameters
        ----------
        module : torch.nn.Module
            Any network; one of a class derived from ours may do anything.
        """
        return type(module) in _FORWARDS

    @torch.no_grad()
    def hidden_of(self, rows: Tensor | slice) -> Tensor:
        """Compute the features before the last layer of some nodes.

        Parameters
        ----------
        rows : Tensor or slice
            Positions of the nodes ``[n]``.

        Returns
        -------
        Tensor
            Shape ``[n, H]``.
        """
        return self._hidden(rows)

    @torch.no_grad()
    def logits_of(self, rows: Tensor | slice) -> Tensor:
        """Compute the logits of some nodes.

        Parameters
        ----------
        rows : Tensor or slice
            Positions of the nodes ``[n]``.

        Returns
        -------
        Tensor
            Shape ``[n, C]``.
        """
        return self._logits(rows)

    def convolutions(self, module: Any) -> tuple[NodeMatrix, NodeMatrix]:
        """Hidden features and logits of a `GCN`."""
        layers = self._hidden_convolutions(module)
        return layers[-1], self._convolved(module.convs[-1], layers[-1])

    def evidential_convolutions(self, module: Any) -> tuple[NodeMatrix, NodeMatrix]:
        """Hidden features and logits of an `EvidentialGCN`."""
        hidden, logits = self.convolutions(module)
        return hidden, lambda rows: F.softplus(logits(rows))

    def jumping_knowledge(self, module: Any) -> tuple[NodeMatrix, NodeMatrix]:
        """Hidden features and logits of a `JKNet`."""
        layers = self._hidden_convolutions(module)

        def hidden(rows: Tensor | slice) -> Tensor:
            return module.jump([layer(rows) for layer in layers])

        return hidden, lambda rows: module.lin(hidden(rows))

    def mixed_hops(self, module: Any) -> tuple[NodeMatrix, NodeMatrix]:
        """Hidden features and logits of a `MixHop`."""
        hidden: Any = None
        for conv, norm in zip(module.convs, module.norms, strict=True):
            hidden = self._activated(self._mixed(conv, hidden), norm, F.relu)
        return hidden, lambda rows: module.lin(hidden(rows))

    def attention(self, module: Any) -> tuple[NodeMatrix, NodeMatrix]:
        """Hidden features and logits of a `GAT`."""
        hidden: Any = None
        for conv, norm in zip(module.convs, module.norms, strict=False):
            hidden = self._activated(self._attended(conv, hidden), norm, F.elu)
        return hidden, self._attended(module.convs[-1], hidden)

    def perceptron(self, module: Any) -> tuple[NodeMatrix, NodeMatrix]:
        """Hidden features and logits of an `MLP`."""
        hidden = self._activated(self._times_features(module.first), module.norms[0], F.relu)
        for lin, norm in zip(module.lins, module.norms[1:], strict=False):
            hidden = self._activated(_then(hidden, lin), norm, F.relu)
        return hidden, _then(hidden, module.lins[-1])

    def posterior(self, module: Any) -> tuple[NodeMatrix, NodeMatrix]:
        """Hidden features and logits of a `GPN`."""
        hidden = self._times_features(module.first)
        for layer in module.layers:
            hidden = _then(_then(hidden, F.relu), layer)
        evidence = self._stored(_then(hidden, module.evidence))
        spread = personalised_page_rank(evidence, _Convolution(self._graph))  # type: ignore[arg-type]
        return hidden, lambda rows: spread[rows].log1p()

    def _hidden_convolutions(self, module: Any) -> list[NodeMatrix]:
        layers: list[Any] = [None]
        for conv, norm in zip(module.convs, module.norms, strict=False):
            layers.append(self._activated(self._convolved(conv, layers[-1]), norm, F.relu))
        return layers[1:]

    def _convolved(self, conv: PreparedGCNConv, hidden: NodeMatrix | None) -> NodeMatrix:
        weight, graph = conv.lin.weight, self._graph
        if hidden is None:
            product = graph.convolve_features(weight)
        else:
            product = graph.convolved(self._stored(_then(hidden, conv.lin)))
        return lambda rows: product[rows] + conv.bias

    def _mixed(self, conv: PreparedMixHopConv, hidden: NodeMatrix | None) -> NodeMatrix:
        hops = []
        for power, lin in zip(conv.powers, conv.lins, strict=True):
            if hidden is not None:
                product, done = self._stored(_then(hidden, lin)), 0
            elif power == 0:
                product, done = self._graph.times_features(lin.weight), 0
            else:
                product, done = self._graph.convolve_features(lin.weight), 1
            for _ in range(power - done):
                product = self._graph.convolved(product)
            hops.append(product)
        return lambda rows: torch.cat([hop[rows] for hop in hops], dim=1) + conv.bias

    def _attended(self, conv: PreparedGATConv, hidden: NodeMatrix | None) -> NodeMatrix:
        """Attention in blocks of nodes, each with the rows of its neighbours."""
        if hidden is None:
            transformed = self._graph.times_features(conv.lin.weight)
        else:
            transformed = self._stored(_then(hidden, conv.lin))
        graph = self._graph.with_features(transformed)
        out = graph.empty(len(conv.bias))
        for block in node_blocks(graph, max(_NUMBERS_AT_ONCE // transformed.shape[1], 1)):
            part, _ = neighbourhood(graph, torch.arange(block.start, block.stop), num_hops=1)
            out[block] = conv(part.x, part, _kept)[: block.stop - block.start]
        return lambda rows: out[rows]

    def _times_features(self, lin: nn.Linear) -> NodeMatrix:
        product = self._graph.times_features(lin.weight)
        return lambda rows: product[rows] + lin.bias

    def _activated(
        self, values: NodeMatrix, norm: nn.Module, activation: Callable[[Tensor], Tensor]
    ) -> NodeMatrix:
        if self._fit_norms and isinstance(norm, _BatchNorm):
            moments = ColumnMoments()
            for rows in self._chunks(values):
                moments.update(values(rows))
            moments.set_to(norm)
        return lambda rows: activation(norm(values(rows)))

    def _stored(self, values: NodeMatrix) -> Tensor:
        out = self._graph.empty(values(slice(0, 1)).shape[1])
        for rows in self._chunks(values):
            out[rows] = values(rows)
        return out

    def _chunks(self, values: NodeMatrix) -> list[slice]:
        step = max(_NUMBERS_AT_ONCE // max(values(slice(0, 1)).shape[1], self._graph.x.shape[1]), 1)
        return [slice(start, start + step) for start in range(0, self._graph.num_nodes, step)]


class _Convolution:
    """The matrix of the graph convolution, for products that need not be in memory."""

    def __init__(self, graph: Graph):
        self._graph = graph

    def __matmul__(self, values: Tensor) -> Tensor:
        return self._graph.convolved(values)


def _then(values: NodeMatrix, change: Callable[[Tensor], Tensor]) -> NodeMatrix:
    return lambda rows: change(values(rows))


def _kept(values: Tensor) -> Tensor:
    """No dropout."""
    return values


_FORWARDS: dict[type[nn.Module], Callable[[Layerwise, Any], tuple[NodeMatrix, NodeMatrix]]] = {
    GCN: Layerwise.convolutions,
    EvidentialGCN: Layerwise.evidential_convolutions,
    JKNet: Layerwise.jumping_knowledge,
    MixHop: Layerwise.mixed_hops,
    GAT: Layerwise.attention,
    MLP: Layerwise.perceptron,
    GPN: Layerwise.posterior,
}
