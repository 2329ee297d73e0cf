"""A multi-layer perceptron: a node's own features and nothing else."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from oddnode.graph import Graph
from oddnode.nn.base import LayeredBackbone

__all__ = ["MLP"]


class MLP(LayeredBackbone):
    """Fully connected layers that see no edge: what a node's own features tell.

    Between layers batch norm, ReLU and dropout.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the hidden layers and of the logits.
    num_layers : int
        How many layers.
    dropout : float
        Share of hidden features dropped in training.
    """

    supports_capture = True

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        super().__init__(hidden_channels, num_layers, num_layers - 1, dropout)
        self.first = nn.Linear(in_channels, hidden_channels)
        widths = [hidden_channels] * (num_layers - 1) + [out_channels]
        self.lins = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        if hidden is None:
            return graph.times_features(self.first.weight) + self.first.bias
        return self.lins[layer - 1](hidden)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.lins[-1](hidden)
