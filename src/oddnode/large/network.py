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
from oddnode.nn import GCN, MLP

__all__ = ["TwoLayers", "network_blocker"]


class TwoLayers(NamedTuple):
    """The parts of a GCN or an MLP with two layers; tensors are not copied.

    Parameters
    ----------
    weight, bias : Tensor
        Of the first layer, ``[H, F]`` and ``[H]``.
    norm : torch.nn.Module
        Batch norm, or the identity.
    last_weight, last_bias : Tensor
        Of the last layer, ``[C, H]`` and ``[C]``.
    uses_edges : bool
        Whether both layers convolve.
    """

    weight: Tensor
    bias: Tensor
    norm: nn.Module
    last_weight: Tensor
    last_bias: Tensor
    uses_edges: bool

    @classmethod
    def of(cls, module: nn.Module) -> TwoLayers:
        """Take a network apart.

        Parameters
        ----------
        module : torch.nn.Module
            A network that `network_blocker` has nothing against.
        """
        blocker = network_blocker(module)
        if blocker is not None:
            raise ValueError(
                f"{blocker}; to train on the whole of a graph on disk needs a GCN or an MLP with two layers, others "
                "train with trainer=MiniBatch()"
            )
        first: Any
        last: Any
        if isinstance(module, GCN):
            first, last = module.convs
            return cls(first.lin.weight, first.bias, module.norms[0], last.lin.weight, last.bias, True)
        assert isinstance(module, MLP)
        first, [last] = module.first, module.lins
        return cls(first.weight, first.bias, module.norms[0], last.weight, last.bias, False)

    def inputs(self, graph: Graph) -> Tensor:
        """The constant matrix that the first layer multiplies by, ``[N, F]``.

        Parameters
        ----------
        graph : Graph
            The graph.
        """
        return graph.smoothed_x if self.uses_edges else graph.x

    def moments(self, graph: Graph) -> Moments:
        """Mean and covariance of the rows of `inputs`.

        Parameters
        ----------
        graph : Graph
            The graph.
        """
        if isinstance(graph, FolderGraph):
            return graph.smoothed_moments if self.uses_edges else graph.feature_moments
        return graph.cached(("moments", self.uses_edges), lambda: Moments.of(self.inputs(graph)))

    @torch.no_grad()
    def hidden(self, inputs: Tensor) -> Tensor:
        """Compute hidden features in evaluation mode.

        Parameters
        ----------
        inputs : Tensor
            Some rows of `inputs`, ``[n, F]``.

        Returns
        -------
        Tensor
            Shape ``[n, H]``.
        """
        return self.norm(torch.addmm(self.bias, inputs, self.weight.t())).relu()


def network_blocker(module: nn.Module) -> str | None:
    """Say why a network cannot be taken apart into two layers.

    Parameters
    ----------
    module : torch.nn.Module
        Any network.

    Returns
    -------
    str or None
        The reason; ``None`` if it can.
    """
    if type(module) not in (GCN, MLP):
        return f"{type(module).__name__} is neither a GCN nor an MLP of this library"
    num_layers = len(module.convs) if isinstance(module, GCN) else len(module.lins) + 1  # type: ignore[arg-type]
    return None if num_layers == 2 else f"the network has {num_layers} layers"
