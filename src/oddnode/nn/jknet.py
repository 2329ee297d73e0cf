"""The jumping knowledge network."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge

from oddnode.graph import Graph
from oddnode.nn.base import LayeredBackbone
from oddnode.nn.convs import PreparedGCNConv
from oddnode.ops import PreNormActivations

__all__ = ["JKNet"]


class JKNet(LayeredBackbone):
    r"""Jumping knowledge network (Xu et al., ICML 2018) on graph convolutions with batch norm.

    The hidden features are the channel-wise maximum over all layers, :math:`\max(H^{(1)}, ..., H^{(L)})`; a linear
    layer gives the logits.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the hidden layers and of the logits.
    num_layers : int
        How many convolutions.
    dropout : float
        Share of hidden features dropped in training.
    """

    supports_capture = True

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        super().__init__(hidden_channels, num_layers, num_layers, dropout)
        widths = [in_channels] + [hidden_channels] * num_layers
        self.convs = nn.ModuleList(PreparedGCNConv(a, b) for a, b in pairwise(widths))
        self.jump = JumpingKnowledge("max")
        self.lin = nn.Linear(hidden_channels, out_channels)

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        return self.convs[layer](hidden, graph)

    def _embed(self, first: PreNormActivations, graph: Graph, rows: Tensor | None = None) -> Tensor:
        layers = [self._activate(first, 0)]
        for layer in range(1, len(self.convs)):
            layers.append(self._activate(PreNormActivations(self._layer(layer, layers[-1], graph)), layer))
        hidden = self.jump(layers)
        return hidden if rows is None else hidden[rows]

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.lin(hidden)
