"""The graph attention network."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from oddnode.graph import Graph
from oddnode.nn.base import LayeredBackbone
from oddnode.nn.convs import PreparedGATConv

__all__ = ["GAT"]


class GAT(LayeredBackbone):
    r"""Graph attention network (Velickovic et al., ICLR 2018) with batch norm: two heads, and one in the last layer.

    Per head :math:`h'_v = \sum_{u \in N(v) \cup v} \alpha_{vu} W h_u`; between layers batch norm, ELU and dropout.
    In training, features that come in and attention weights are dropped too. With edge weights, :math:`\alpha_{vu}` is
    proportional to :math:`w_{vu}` times what it is without; the node itself has the weight 1.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of every head and of the logits.
    num_layers : int
        How many layers.
    dropout : float
        Share of hidden features dropped in training.
    """

    supports_capture = True
    _HEADS = 2

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        wide = self._HEADS * hidden_channels
        super().__init__(wide, num_layers, num_layers - 1, dropout)
        widths = [in_channels] + [wide] * (num_layers - 2)
        self.convs = nn.ModuleList(PreparedGATConv(w, hidden_channels, self._HEADS) for w in widths)
        self.convs.append(PreparedGATConv(wide, out_channels, heads=1, concat=False))

    def embed(self, graph: Graph) -> Tensor:
        hidden = None
        for layer, norm in enumerate(self.norms):
            hidden = self._drop(F.elu(norm(self._layer(layer, hidden, graph))), layer + 1)
        assert hidden is not None
        return hidden

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self._layer(len(self.norms), hidden, graph)

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        conv, drop_attention = self.convs[layer], partial(self._drop, place=len(self.convs) + layer)
        assert isinstance(conv, PreparedGATConv)
        weight = conv.lin.weight
        transformed = self._times_features(weight, graph) if hidden is None else hidden @ weight.t()
        return conv(transformed, graph, drop_attention)

    def _times_features(self, weight: Tensor, graph: Graph) -> Tensor:
        """``drop(X) W^T``; of sparse features only those that are not zero can be dropped."""
        if not self._drops:
            return graph.times_features(weight)
        if not graph.is_sparse:
            return self._drop(graph.x, 0) @ weight.t()
        return graph.feature_pattern.times(self._drop(graph.feature_entries, 0), weight.t())
