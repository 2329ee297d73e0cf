"""Backbones turn the nodes of a graph into logits.

A backbone is an ordinary PyG-style module, ``forward(x, edge_index) -> logits``. Ours also take a prepared
`Graph`, which spares them the work that is the same in every step. Any other `torch.nn.Module` with that
``forward`` works in their place.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from oddnode.graph import Graph

if TYPE_CHECKING:
    from oddnode.objectives import TrainingSet

__all__ = ["BACKBONES", "GCN", "Backbone", "embed_with", "run_backbone"]


class Backbone(nn.Module):
    """Two steps: ``embed`` gives a node's hidden features, ``head`` turns them into logits."""

    dropout: float

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of every node."""
        return self.run(Graph(x, edge_index))

    def run(self, graph: Graph) -> Tensor:
        """Logits of every node of a prepared graph."""
        return self.head(self.embed(graph), graph)

    @abstractmethod
    def embed(self, graph: Graph) -> Tensor:
        """The features before the last layer (after activation and dropout)."""

    @abstractmethod
    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        """The last layer."""

    def prepare(self, data: TrainingSet) -> None:
        """Called once before training; for backbones that take more than features from the data."""

    def begin_epoch(self, epoch: int) -> None:
        """Called before every training pass; for backbones that learn in stages."""

    @property
    def is_deterministic(self) -> bool:
        """Whether two passes in training mode give the same logits."""
        return self.dropout == 0.0


class PreparedGCNConv(GCNConv):
    """PyG's graph convolution, with a product by the graph's prepared matrix in place of message passing."""

    def forward(self, hidden: Tensor | None, graph: Graph) -> Tensor:
        """The convolution of ``hidden``, or of the graph's own features where that is ``None``."""
        if hidden is None:
            return graph.convolve_features(self.lin.weight.t()) + self.bias
        return graph.gcn_matrix @ self.lin(hidden) + self.bias


class GCN(Backbone):
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

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.0,
        batch_norm: bool = True,
    ):
        super().__init__()
        if num_layers < 2:
            raise ValueError(f"num_layers is {num_layers}, expected 2 or more")
        self.dropout = dropout
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(PreparedGCNConv(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(hidden_channels) if batch_norm else nn.Identity() for _ in range(num_layers - 1)
        )

    def embed(self, graph: Graph) -> Tensor:
        hidden = self._activate(self.convs[0](None, graph), 0)
        for layer in range(1, len(self.norms)):
            hidden = self._activate(self.convs[layer](hidden, graph), layer)
        return hidden

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.convs[-1](hidden, graph)

    def _activate(self, hidden: Tensor, layer: int) -> Tensor:
        return F.dropout(F.relu(self.norms[layer](hidden)), self.dropout, self.training)


#: Names that stand for a backbone in `Detector` and on the command line. The evidential ones join from their modules.
BACKBONES: dict[str, type[Backbone]] = {"gcn": GCN}


def run_backbone(module: nn.Module, graph: Graph) -> Tensor:
    """Logits of every node, from one of our backbones or from anybody's module."""
    if isinstance(module, Backbone):
        return module.run(graph)
    logits = module(graph.x, graph.edge_index)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != graph.num_nodes:
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"{type(module).__name__}.forward(x, edge_index) returned {found}, "
            f"expected logits [nodes, classes] with {graph.num_nodes} rows"
        )
    return logits


def embed_with(module: nn.Module, graph: Graph) -> Tensor:
    """The features before the last layer.

    For a user's module these are what goes into the layer that is called last among those with parameters of their
    own and no layers inside (a `torch.nn.Linear`, a PyG convolution taken as a whole, ...).
    """
    if isinstance(module, Backbone):
        return module.embed(graph)
    raise TypeError(f"{type(module).__name__} has no hidden features to read")
