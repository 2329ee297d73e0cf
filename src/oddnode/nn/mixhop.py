"""MixHop."""

from __future__ import annotations

from torch import Tensor, nn

from oddnode.graph import Graph
from oddnode.nn.base import LayeredBackbone
from oddnode.nn.convs import PreparedMixHopConv

__all__ = ["MixHop"]


class MixHop(LayeredBackbone):
    r"""MixHop (Abu-El-Haija et al., ICML 2019) with batch norm, hops 0, 1 and 2.

    Per layer :math:`H' = [H W_0 \,|\, \hat A H W_1 \,|\, \hat A^2 H W_2] + b` with
    :math:`\hat A = D^{-1/2} (A + I) D^{-1/2}`; then batch norm, ReLU and dropout; a linear layer gives the logits.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of every hop and of the logits.
    num_layers : int
        How many hidden layers.
    dropout : float
        Share of hidden features dropped in training.
    """

    supports_capture = True
    _HOPS = (0, 1, 2)

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        wide = len(self._HOPS) * hidden_channels
        super().__init__(wide, num_layers, num_layers, dropout)
        widths = [in_channels] + [wide] * (num_layers - 1)
        self.convs = nn.ModuleList(PreparedMixHopConv(w, hidden_channels, list(self._HOPS)) for w in widths)
        self.lin = nn.Linear(wide, out_channels)

    def _layer(self, layer: int, hidden: Tensor | None, graph: Graph) -> Tensor:
        return self.convs[layer](hidden, graph)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.lin(hidden)
