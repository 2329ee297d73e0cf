"""Graph convolutions that inherit from PyG's; a separate module, because PyG takes as long to import as torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, MixHopConv
from torch_geometric.utils import softmax

from oddnode.graph import Graph
from oddnode.nn.stages import convolved


class PreparedMixHopConv(MixHopConv):
    """PyG's MixHop convolution, with products by the graph's prepared matrix in place of message passing."""

    def forward(self, hidden: Tensor | None, graph: Graph) -> Tensor:
        hops = []
        for power, lin in zip(self.powers, self.lins, strict=True):
            product = None if hidden is None else hidden @ lin.weight.t()
            hops.append(convolved(product, lin.weight, power, graph, lambda values: graph.gcn_matrix @ values))
        return torch.cat(hops, dim=-1) + self.bias


class PreparedGATConv(GATConv):
    """PyG's graph attention, with products by the graph's prepared pattern in place of message passing.

    An edge of weight w gets the attention of w edges: its share is proportional to w times its unweighted one.
    """

    def forward(self, transformed: Tensor, graph: Graph, drop: Callable[[Tensor], Tensor]) -> Tensor:
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
