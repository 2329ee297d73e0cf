"""Graph convolutions with PyG's weights and names that multiply by a graph's prepared matrices."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from oddnode.graph import Graph

# Up to this width a CPU multiplies by a weight faster as (W H^T)^T than as H W^T.
_NARROW = 10


class PreparedGCNConv(nn.Module):
    """PyG's `GCNConv` by weights and their names, with a product by the graph's prepared matrix as its only step."""

    powers = (1,)  # as of a MixHop convolution with one hop

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()  # a second draw, as in PyG's layer: a seed gives the weights that it gives there
        if out_channels > _NARROW:
            # The weight is used transposed: laid out in memory that way, neither it nor its gradient is ever copied.
            self.lin.weight.data = self.lin.weight.data.t().contiguous().t()

    @property
    def lins(self) -> list[nn.Module]:
        return [self.lin]

    def reset_parameters(self) -> None:
        bound = math.sqrt(6.0 / sum(self.lin.weight.shape))  # Glorot and Bengio's
        nn.init.uniform_(self.lin.weight, -bound, bound)
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor | None, graph: Graph) -> Tensor:
        if hidden is None:
            return graph.convolve_features(self.lin.weight) + self.bias
        weight = self.lin.weight
        is_narrow = len(weight) <= _NARROW and hidden.device.type == "cpu"  # faster, forward and backward
        product = (weight @ hidden.t()).t() if is_narrow else hidden @ weight.t()
        return graph.gcn_matrix @ product + self.bias


def convolved(
    product: Tensor | None, weight: Tensor, power: int, graph: Graph, convolve: Callable[[Tensor], Tensor]
) -> Tensor:
    """``A^p (H W^T)``, from ``H W^T`` or with the graph's features: the narrow factor travels over the edges."""
    if product is None and power == 0:
        return graph.times_features(weight)
    if product is None:
        product, power = graph.convolve_features(weight), power - 1
    for _ in range(power):
        product = convolve(product)
    return product
