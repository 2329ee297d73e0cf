"""Networks of a user's own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv


class Linear(nn.Module):
    """A network that sees no edges, with the same weights every time."""

    def __init__(self, num_features: int = 6, num_classes: int = 3):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer = nn.Linear(num_features, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x)


class Sage(nn.Module):
    """Two convolutions, with a dropout that knows no seed but torch's."""

    def __init__(self, num_features: int = 6, dropout: float = 0.0):
        super().__init__()
        self.first, self.second, self.dropout = SAGEConv(num_features, 16), SAGEConv(16, 3), dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(F.dropout(self.first(x, edge_index).relu(), self.dropout, self.training), edge_index)
