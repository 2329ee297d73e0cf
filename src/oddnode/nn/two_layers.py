"""Networks that are trained on graphs on disk as a whole: two layers, of which the first multiplies a constant.

The first layer of a GCN is ``(A X) W^T + b``, that of an MLP ``X W^T + b``. Batch norm, ReLU and dropout work on rows,
and the last layer is linear, so that its product with the edges can come last, when a row has few columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oddnode.graph import Graph
from oddnode.large.graph import FolderGraph
from oddnode.large.moments import Moments
from oddnode.nn.base import RegularLayers


class TwoLayers(NamedTuple):
    """The parts of a network with two layers, such as a GCN or an MLP; tensors are not copied."""

    weight: Tensor  # Of the first layer, `[H, F]` and `[H]`
    bias: Tensor  # Of the first layer, `[H, F]` and `[H]`
    norm: nn.Module  # Batch norm, or the identity
    last_weight: Tensor  # Of the last layer, `[C, H]` and `[C]`
    last_bias: Tensor  # Of the last layer, `[C, H]` and `[C]`
    uses_edges: bool  # Whether both layers convolve

    @classmethod
    def of(cls, module: nn.Module) -> TwoLayers:
        """Take a network apart."""
        blocker = network_blocker(module)
        if blocker is not None:
            raise ValueError(
                f"{blocker}; to train on the whole of a graph on disk needs two linear layers or graph convolutions "
                "with batch norm and ReLU between them, others train with trainer=MiniBatch()"
            )
        parts = RegularLayers.of(module)
        assert parts is not None
        (first, last), [norm] = parts.layers, parts.norms
        return cls(first.weight, first.bias, norm, last.weight, last.bias, parts.uses_edges)

    def inputs(self, graph: Graph) -> Tensor:
        """The constant matrix that the first layer multiplies by, ``[N, F]``."""
        return graph.smoothed_x if self.uses_edges else graph.x

    def moments(self, graph: Graph) -> Moments:
        """Mean and covariance of the rows of `inputs`."""
        if isinstance(graph, FolderGraph):
            return graph.smoothed_moments if self.uses_edges else graph.feature_moments
        return graph.cached(("moments", self.uses_edges), lambda: Moments.of(self.inputs(graph)))

    @torch.no_grad()
    def hidden(self, inputs: Tensor) -> Tensor:
        """Compute hidden features in evaluation mode."""
        return self.norm(torch.addmm(self.bias, inputs, self.weight.t())).relu()


def network_blocker(module: nn.Module) -> str | None:
    """Say why a network cannot be taken apart into two layers."""
    parts = RegularLayers.of(module)
    norms: list[Any] = [] if parts is None else parts.norms
    if parts is None or not all(type(n) is nn.Identity or (type(n) is nn.BatchNorm1d and n.affine) for n in norms):
        return f"{type(module).__name__} has other layers than linear ones or graph convolutions"
    return None if len(parts.layers) == 2 else f"the network has {len(parts.layers)} layers"
