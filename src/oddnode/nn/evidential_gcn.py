"""The network of GKDE: a graph convolutional network that gives evidence."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from oddnode.graph import Graph
from oddnode.nn.gcn import GCN

__all__ = ["EvidentialGCN"]


class EvidentialGCN(GCN):
    r"""A graph convolutional network whose logits are :math:`\log \alpha`, with :math:`\alpha = 1 + e^{f}`.

    Since :math:`\log(1 + e^f)` is the softplus function, no evidence ever overflows on its way to the logits. As in the
    paper there is no batch norm.

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
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.5
    ):
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, dropout, batch_norm=False)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return F.softplus(super().head(hidden, graph))
