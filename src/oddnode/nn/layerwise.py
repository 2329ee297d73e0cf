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
_NUMBERS_AT_ONCE = 2**23


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
        with torch.no_grad():
            self._hidden, self._logits = _FORWARDS[type(module)](_Layers(graph, fit_norms), module)

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


class _Layers:
    """The layers of backbones as maps between matrices of all nodes; ``None`` stands for the graph's features."""

    def __init__(self, graph: Graph, fit_norms: bool):
        self.graph, self._fit_norms = graph, fit_norms

    def times(self, hidden: NodeMatrix | None, lin: Any) -> Tensor:
        """``H W^T`` of all nodes, for a layer without a bias."""
        return self.graph.times_features(lin.weight) if hidden is None else self.stored(_then(hidden, lin))

    def convolved(self, hidden: NodeMatrix | None, lin: Any, power: int = 1) -> Tensor:
        """``A^p H W^T`` of all nodes: the narrow factor travels over the edges."""
        if hidden is None and power > 0:
            product, done = self.graph.convolve_features(lin.weight), 1
        else:
            product, done = self.times(hidden, lin), 0
        for _ in range(power - done):
            product = self.graph.convolve(product)
        return product

    def attended(self, hidden: NodeMatrix | None, conv: Any) -> NodeMatrix:
        """Attention, in blocks of nodes with the rows of their neighbours."""
        graph = self.graph.with_features(self.times(hidden, conv.lin))
        out = graph.empty(len(conv.bias))
        for block in node_blocks(graph, max(_NUMBERS_AT_ONCE // graph.x.shape[1], 1)):
            part, _ = neighbourhood(graph, torch.arange(block.start, block.stop), num_hops=1)
            out[block] = conv(part.x, part, drop=_kept)[: block.stop - block.start]
        return lambda rows: out[rows]

    def activated(
        self, values: NodeMatrix, norm: nn.Module, activation: Callable[[Tensor], Tensor] = F.relu
    ) -> NodeMatrix:
        """Batch norm and an activation."""
        if self._fit_norms and isinstance(norm, _BatchNorm):
            moments = ColumnMoments()
            for rows in self._chunks(values):
                moments.update(values(rows))
            moments.set_to(norm)
        return lambda rows: activation(norm(values(rows)))

    def stored(self, values: NodeMatrix) -> Tensor:
        """The rows of all nodes."""
        out = self.graph.empty(_width(values))
        for rows in self._chunks(values):
            out[rows] = values(rows)
        return out

    def _chunks(self, values: NodeMatrix) -> list[slice]:
        step = max(_NUMBERS_AT_ONCE // max(_width(values), self.graph.x.shape[1]), 1)
        return [slice(start, start + step) for start in range(0, self.graph.num_nodes, step)]


def _width(values: NodeMatrix) -> int:
    return values(slice(0, 1)).shape[1]


def _then(values: NodeMatrix, change: Callable[[Tensor], Tensor]) -> NodeMatrix:
    return lambda rows: change(values(rows))


def _plus(product: Tensor, bias: Tensor) -> NodeMatrix:
    return lambda rows: product[rows] + bias


def _kept(values: Tensor) -> Tensor:
    """No dropout."""
    return values


# Hidden features and logits. The layers below have no type, since torch knows those of a list as modules only.
_Outputs = tuple[NodeMatrix, NodeMatrix]


def _convolutions(layers: _Layers, module: Any) -> list[NodeMatrix]:
    """All hidden layers of a GCN or a JKNet."""
    hidden: list[Any] = [None]
    for conv, norm in zip(module.convs, module.norms, strict=False):
        hidden.append(layers.activated(_plus(layers.convolved(hidden[-1], conv.lin), conv.bias), norm))
    return hidden[1:]


def _gcn(layers: _Layers, module: GCN) -> _Outputs:
    hidden = _convolutions(layers, module)[-1]
    last: Any = module.convs[-1]
    return hidden, _plus(layers.convolved(hidden, last.lin), last.bias)


def _evidential_gcn(layers: _Layers, module: EvidentialGCN) -> _Outputs:
    hidden, logits = _gcn(layers, module)
    return hidden, _then(logits, F.softplus)


def _jknet(layers: _Layers, module: JKNet) -> _Outputs:
    parts = _convolutions(layers, module)

    def hidden(rows: Tensor | slice) -> Tensor:
        return module.jump([part(rows) for part in parts])

    return hidden, _then(hidden, module.lin)


def _mixhop(layers: _Layers, module: MixHop) -> _Outputs:
    hidden: Any = None
    for conv, norm in zip(module.convs, module.norms, strict=True):
        hidden = layers.activated(_mixed(layers, hidden, conv), norm)
    return hidden, _then(hidden, module.lin)


def _mixed(layers: _Layers, hidden: NodeMatrix | None, conv: Any) -> NodeMatrix:
    hops = [layers.convolved(hidden, lin, power) for power, lin in zip(conv.powers, conv.lins, strict=True)]
    return lambda rows: torch.cat([hop[rows] for hop in hops], dim=1) + conv.bias


def _gat(layers: _Layers, module: GAT) -> _Outputs:
    hidden: Any = None
    for conv, norm in zip(module.convs, module.norms, strict=False):
        hidden = layers.activated(layers.attended(hidden, conv), norm, F.elu)
    return hidden, layers.attended(hidden, module.convs[-1])


def _mlp(layers: _Layers, module: MLP) -> _Outputs:
    hidden = layers.activated(_plus(layers.times(None, module.first), module.first.bias), module.norms[0])
    for lin, norm in zip(module.lins, module.norms[1:], strict=False):
        hidden = layers.activated(_then(hidden, lin), norm)
    return hidden, _then(hidden, module.lins[-1])


def _gpn(layers: _Layers, module: GPN) -> _Outputs:
    hidden = _plus(layers.times(None, module.first), module.first.bias)
    for layer in module.layers:
        hidden = _then(_then(hidden, F.relu), layer)
    evidence = layers.stored(_then(hidden, module.evidence))
    spread = personalised_page_rank(evidence, _Convolution(layers.graph))  # type: ignore[arg-type]
    return hidden, lambda rows: spread[rows].log1p()


class _Convolution:
    """The matrix of the graph convolution, for products that need not be in memory."""

    def __init__(self, graph: Graph):
        self._graph = graph

    def __matmul__(self, values: Tensor) -> Tensor:
        return self._graph.convolve(values)


_FORWARDS: dict[type[nn.Module], Callable[[_Layers, Any], _Outputs]] = {
    GCN: _gcn,
    EvidentialGCN: _evidential_gcn,
    JKNet: _jknet,
    MixHop: _mixhop,
    GAT: _gat,
    MLP: _mlp,
    GPN: _gpn,
}
