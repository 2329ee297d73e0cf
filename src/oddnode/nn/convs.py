"""Graph convolutions with PyG's weights and names that multiply by a graph's prepared matrices."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, Linear, MixHopConv
from torch_geometric.utils import softmax

from oddnode.graph import Graph

# Up to this width a CPU multiplies by a weight faster as (W H^T)^T than as H W^T.
_NARROW = 10


class PreparedGCNConv(nn.Module):
    """PyG's `GCNConv` by weights and their names, with a product by the graph's prepared matrix as its only step."""

    powers = (1,)  # as of a MixHop convolution with one hop

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()  # a second time, as PyG's layer does: a seed gives the weights that it gives there
        if out_channels > _NARROW:
            # The weight is used transposed: laid out in memory that way, neither it nor its gradient is ever copied.
            self.lin.weight.data = self.lin.weight.data.t().contiguous().t()

    @property
    def lins(self) -> list[nn.Module]:
        """The linear layer of every power."""
        return [self.lin]

    def reset_parameters(self) -> None:
        """New weights."""
        self.lin.reset_parameters()
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor | None, graph: Graph) -> Tensor:
        """Convolve hidden features, or the graph's own."""
        if hidden is None:
            return graph.convolve_features(self.lin.weight) + self.bias
        return graph.gcn_matrix @ self._times_weight(hidden) + self.bias

    def _times_weight(self, hidden: Tensor) -> Tensor:
        """``H W^T``; narrow, it is computed as ``(W H^T)^T``, whose products, forward and backward, are faster."""
        weight = self.lin.weight
        if len(weight) <= _NARROW and hidden.device.type == "cpu":
            return (weight @ hidden.t()).t()
        return hidden @ weight.t()


class PreparedMixHopConv(MixHopConv):
    """PyG's MixHop convolution, with products by the graph's prepared matrix in place of message passing."""

    def forward(self, hidden: Tensor | None, graph: Graph) -> Tensor:
        """Convolve hidden features, or the graph's own."""
        hops = [self._hop(power, lin.weight, hidden, graph) for power, lin in zip(self.powers, self.lins, strict=True)]
        return torch.cat(hops, dim=-1) + self.bias

    @staticmethod
    def _hop(power: int, weight: Tensor, hidden: Tensor | None, graph: Graph) -> Tensor:
        """``A^p (H W^T)``: the narrow factor travels over the edges, not the wide one."""
        if hidden is not None:
            out, done = hidden @ weight.t(), 0
        elif power == 0:
            out, done = graph.times_features(weight), 0
        else:
            out, done = graph.convolve_features(weight), 1
        for _ in range(power - done):
            out = graph.gcn_matrix @ out
        return out


class PreparedGATConv(GATConv):
    """PyG's graph attention, with products by the graph's prepared pattern in place of message passing.

    An edge of weight w is attended to as w edges would be: its share is proportional to w times what it is without.
    """

    def forward(self, transformed: Tensor, graph: Graph, drop: Callable[[Tensor], Tensor]) -> Tensor:
        """Attend to neighbours."""
        edges = graph.attention
        values = transformed.view(-1, self.heads, self.out_channels)
        to_source, to_target = ((values * att).sum(dim=-1) for att in (self.att_src, self.att_dst))
        attention = F.leaky_relu(to_source[edges.col] + to_target[edges.row], self.negative_slope)
        if graph.attention_bias is not None:
            attention = attention + graph.attention_bias.unsqueeze(1)
        attention = drop(softmax(attention, ptr=edges.offsets))
        heads = [edges.times(attention[:, head], values[:, head]) for head in range(self.heads)]
        out = torch.cat(heads, dim=1) if self.concat else torch.stack(heads).mean(dim=0)
        return out + self.bias
