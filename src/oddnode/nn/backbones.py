"""The backbones with batch norm between layers: GCN, MLP, GAT, JKNet, MixHop, and the network of GKDE."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode.nn.base import Backbone
from oddnode.nn.stages import (
    Activation,
    Attention,
    Convolution,
    Jump,
    Linear,
    Norm,
    PreparedGCNConv,
    RowWise,
    Stage,
    Stages,
)


class _Normalised(Backbone):
    """Hidden layers with batch norm."""

    def __init__(self, width: int, num_layers: int, num_hidden: int, dropout: float):
        super().__init__()
        if num_hidden < 1:
            raise ValueError(f"num_layers is {num_layers}, expected {num_layers - num_hidden + 1} or more")
        self.dropout = dropout
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(num_hidden))

    def _activated(self, layers: Iterable[Stage]) -> list[Stage]:
        """Batch norm, ReLU and dropout after every layer."""
        stages: list[Stage] = []
        for place, (layer, norm) in enumerate(zip(layers, self.norms, strict=True)):
            stages += [layer, Activation(norm, place)]
        return stages


class GCN(_Normalised):
    r"""Graph convolutional network (Kipf and Welling, ICLR 2017) with batch norm, as in the paper.

    Per layer :math:`H' = D^{-1/2} (A + I) D^{-1/2} H W + b`; between layers batch norm, ReLU and dropout.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the hidden layers and of the logits.
    num_layers : int
        Number of convolutions.
    dropout : float
        Share of hidden features dropped in training.
    batch_norm : bool
        Whether there is batch norm between the layers.
    """

    supports_capture = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.0,
        batch_norm: bool = True,
    ):
        super().__init__(hidden_channels, num_layers, num_layers - 1, dropout)
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(PreparedGCNConv(a, b) for a, b in pairwise(widths))
        if not batch_norm:
            self.norms = nn.ModuleList(nn.Identity() for _ in self.norms)

    def stages(self) -> Stages:
        *layers, last = map(Convolution, self.convs)
        return Stages(self._activated(layers), [last])


class EvidentialGCN(GCN):
    r"""A graph convolutional network whose logits are :math:`\log \alpha`, with :math:`\alpha = 1 + e^{f}`.

    Since :math:`\log(1 + e^f)` is the softplus function, the evidence never overflows. As in the paper, there is no
    batch norm.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the hidden layers and of the logits.
    num_layers : int
        Number of convolutions.
    dropout : float
        Share of hidden features dropped in training.
    """

    supports_capture = True

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.5
    ):
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, dropout, batch_norm=False)

    def stages(self) -> Stages:
        hidden, head = super().stages()
        return Stages(hidden, [*head, RowWise(F.softplus)])


class MLP(_Normalised):
    """Fully connected layers, which use a node's features and no edges.

    Between layers batch norm, ReLU and dropout.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the hidden layers and of the logits.
    num_layers : int
        Number of layers.
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

    def stages(self) -> Stages:
        lins: list[Any] = [self.first, *self.lins]
        *layers, last = map(Linear, lins)
        return Stages(self._activated(layers), [last])


class GAT(_Normalised):
    r"""Graph attention network (Velickovic et al., ICLR 2018) with batch norm: two heads, and one in the last layer.

    Per head :math:`h'_v = \sum_{u \in N(v) \cup v} \alpha_{vu} W h_u`; between layers batch norm, ELU and dropout.
    In training, input features and attention weights are dropped too. With edge weights, :math:`\alpha_{vu}` is
    proportional to :math:`w_{vu}` times its value without them; the self-loop has weight 1.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of every head and of the logits.
    num_layers : int
        Number of layers.
    dropout : float
        Share of hidden features dropped in training.
    """

    supports_capture = True
    _HEADS = 2

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        from oddnode.nn.pyg_convs import PreparedGATConv

        wide = self._HEADS * hidden_channels
        super().__init__(wide, num_layers, num_layers - 1, dropout)
        widths = [in_channels] + [wide] * (num_layers - 2)
        self.convs = nn.ModuleList(PreparedGATConv(w, hidden_channels, self._HEADS) for w in widths)
        self.convs.append(PreparedGATConv(wide, out_channels, heads=1, concat=False))

    def stages(self) -> Stages:
        convs: Any = self.convs
        *layers, last = (Attention(conv, len(convs) + layer) for layer, conv in enumerate(convs))
        hidden: list[Stage] = []
        for place, (layer, norm) in enumerate(zip(layers, self.norms, strict=True), 1):
            hidden += [layer, Norm(norm), RowWise(F.elu, place)]
        return Stages(hidden, [last])


def _maximum(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts, dim=-1).max(dim=-1)[0]


class JKNet(_Normalised):
    r"""Jumping knowledge network (Xu et al., ICML 2018) on graph convolutions with batch norm.

    The hidden features are the channel-wise maximum over all layers, :math:`\max(H^{(1)}, ..., H^{(L)})`; a linear
    layer gives the logits.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the hidden layers and of the logits.
    num_layers : int
        Number of convolutions.
    dropout : float
        Share of hidden features dropped in training.
    """

    supports_capture = True

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        super().__init__(hidden_channels, num_layers, num_layers, dropout)
        widths = [in_channels] + [hidden_channels] * num_layers
        self.convs = nn.ModuleList(PreparedGCNConv(a, b) for a, b in pairwise(widths))
        self.lin = nn.Linear(hidden_channels, out_channels)

    def stages(self) -> Stages:
        first, *rest = self._activated(map(Convolution, self.convs))
        return Stages([first, Jump(_maximum, rest)], [Linear(self.lin)])


class MixHop(_Normalised):
    r"""MixHop (Abu-El-Haija et al., ICML 2019) with batch norm, hops 0, 1 and 2.

    Per layer :math:`H' = [H W_0 \,|\, \hat A H W_1 \,|\, \hat A^2 H W_2] + b` with
    :math:`\hat A = D^{-1/2} (A + I) D^{-1/2}`; then batch norm, ReLU and dropout; a linear layer gives the logits.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of every hop and of the logits.
    num_layers : int
        Number of hidden layers.
    dropout : float
        Share of hidden features dropped in training.
    """

    supports_capture = True
    _HOPS = (0, 1, 2)

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        from oddnode.nn.pyg_convs import PreparedMixHopConv

        wide = len(self._HOPS) * hidden_channels
        super().__init__(wide, num_layers, num_layers, dropout)
        widths = [in_channels] + [wide] * (num_layers - 1)
        self.convs = nn.ModuleList(PreparedMixHopConv(w, hidden_channels, list(self._HOPS)) for w in widths)
        self.lin = nn.Linear(wide, out_channels)

    def stages(self) -> Stages:
        return Stages(self._activated(map(Convolution, self.convs)), [Linear(self.lin)])
