"""OODGAT: graph attention between nodes that are equally known or unknown."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import softmax

from oddnode.graph import Graph
from oddnode.nn.base import Backbone
from oddnode.nn.stages import NodeMatrix, RowWise, Stage, Stages, Stream, blocks_with_neighbours, times_dropped

_HEADS = 4
# Keeps the logarithms of shares finite.
_TINY = 1e-6


class OODGATConv(nn.Module):
    r"""Attention :math:`\alpha_{vu} \propto \exp(1 - |q_v - q_u|)` with :math:`q = \sigma(a^\top W h)` in every head.

    Parameters
    ----------
    in_channels, out_channels : int
        Width of its input and of every head.
    concat : bool
        Whether heads are put side by side; otherwise they are averaged.
    """

    def __init__(self, in_channels: int, out_channels: int, concat: bool):
        super().__init__()
        self.out_channels, self.concat = out_channels, concat
        self.lin = nn.Linear(in_channels, _HEADS * out_channels, bias=False)
        self.att = nn.Parameter(torch.empty(_HEADS, out_channels))
        self.bias = nn.Parameter(torch.zeros(_HEADS * out_channels if concat else out_channels))
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.xavier_uniform_(self.att)

    def forward(self, transformed: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
        """Compute values ``[N, C]`` and the mean :math:`q` of the heads ``[N]`` from ``H W^T``.

        Parameters
        ----------
        transformed : Tensor
            The input times the weight, ``[N, heads * C]``.
        graph : Graph
            The graph.
        """
        edges = graph.attention
        values = transformed.view(-1, _HEADS, self.out_channels)
        q = torch.sigmoid((values * self.att).sum(dim=-1))
        attention = 1 - (q[edges.col] - q[edges.row]).abs()
        if graph.attention_bias is not None:
            attention = attention + graph.attention_bias.unsqueeze(1)
        attention = softmax(attention, ptr=edges.offsets)
        heads = [edges.times(attention[:, head], values[:, head]) for head in range(_HEADS)]
        out = torch.cat(heads, dim=1) if self.concat else torch.stack(heads).mean(dim=0)
        return out + self.bias, q.mean(dim=1)


class OODGAT(Backbone):
    r"""Graph attention that keeps known and unknown nodes apart (Song and Wang, KDD 2022).

    Every layer estimates :math:`q_v`, the share by which a node is unknown, and nodes attend to nodes with a similar
    share; :math:`q` is the mean of the last layer's share and of those before. The logits are log-probabilities:
    :math:`\log (1 - q_v) + \log p_{vc}` of the classes, and :math:`\log q_v` as the last, spare one. Their negative
    energy over the classes is :math:`\log (1 - q_v)`, so that `oddnode.scoring.Energy` ranks nodes by it. The last
    hidden feature is the share of the layers before the last.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of each of four heads and of the logits; the last logit is not that of a class.
    num_layers : int
        Number of layers, two or more.
    dropout : float
        Share of features and hidden features dropped in training.
    """

    supports_capture = True

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        super().__init__()
        if num_layers < 2 or out_channels < 2:
            raise ValueError(
                f"num_layers is {num_layers} and out_channels is {out_channels}, expected 2 or more of each: the last "
                "logit of OODGAT is not that of a class"
            )
        self.dropout = dropout
        widths = [in_channels] + [_HEADS * hidden_channels] * (num_layers - 2)
        self.convs = nn.ModuleList(OODGATConv(width, hidden_channels, concat=True) for width in widths)
        self.last = OODGATConv(_HEADS * hidden_channels, out_channels - 1, concat=False)

    def stages(self) -> Stages:
        hidden = [_KnownAttention(conv, place) for place, conv in enumerate(self.convs, 1)]
        return Stages(hidden, [_KnownAttention(self.last), RowWise(_log_probabilities)])


class _KnownAttention(Stage):
    """An `OODGATConv`, ELU and dropout; the last column is q, the mean of its own and that of the layers before."""

    num_hops = 1
    has_dropout = True

    def __init__(self, conv: Any, place: int | None = None):
        self.conv, self.place = conv, place  # no place: the last layer, without activation and dropout

    def run(self, values: Tensor | None, graph: Graph, backbone: Backbone) -> Tensor:
        weight = self.conv.lin.weight
        transformed = times_dropped(graph, weight, backbone) if values is None else values[:, :-1] @ weight.t()
        out, q = self.conv(transformed, graph)
        if self.place is not None:
            out = backbone._drop(F.elu(out), self.place)
        return _with_share(out, q, values)

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        before = None if values is None else (lambda rows: values(rows)[:, :-1])
        graph = stream.graph.with_features(stream.times(before, self.conv.lin))
        out = graph.empty(len(self.conv.bias) + 1)
        for block, part in blocks_with_neighbours(graph):
            found, q = (each[: block.stop - block.start] for each in self.conv(part.x, part))
            out[block] = _with_share(found if self.place is None else F.elu(found), q, None)
        if values is None:
            return lambda rows: out[rows]
        return lambda rows: _with_share(out[rows][:, :-1], out[rows][:, -1], values(rows))


def _with_share(out: Tensor, q: Tensor, before: Tensor | None) -> Tensor:
    q = q if before is None else (before[:, -1] + q) / 2
    return torch.cat([out, q.unsqueeze(1)], dim=1)


def _log_probabilities(values: Tensor) -> Tensor:
    q = values[:, -1:].clamp(_TINY, 1 - _TINY)
    return torch.cat([torch.log1p(-q) + values[:, :-1].log_softmax(dim=1), q.log()], dim=1)
