"""The graph convolutional network, the default backbone."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from oddnode.graph import Graph
from oddnode.nn.base import LayeredBackbone
from oddnode.nn.convs import PreparedGCNConv

__all__ = ["GCN"]


class GCN(LayeredBackbone):
    r"""Graph convolutional network (Kipf and Welling, ICLR 2017) with batch norm, as in the paper.

    Per layer :math:`H' = D^{-1/2} (A + I) D^{-1/2} H W + b`; between layers batch norm, ReLU and dropout.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the hidden layers and of the logits.
    num_layers : int
        How many convolutions.
    dropout : float
        Share of hidden features dropped in training.
    batch_norm : bool
        Whether there is batch norm between the layers.
    """

    supports_capture = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.0,
        batch_norm: bool = True,
    ):
        super().__init__(hidden_channels, num_layers, num_layers - 1, dropout)
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(PreparedGCNConv(a, b) for a, b in pairwise(widths))
        if not batch_norm:
            self.norms = nn.ModuleList(nn.Identity() for _ in self.norms)

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        return self.convs[layer](hidden, graph)

    def receptive_field(self, nodes: Tensor, graph: Graph) -> tuple[Tensor, Graph]:
        return graph.one_hop_subgraph(nodes)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.convs[-1](hidden, graph)
