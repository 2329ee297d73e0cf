from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_undirected

from oddnode.graph import Graph
from oddnode.nn import PreparedGCNConv
from oddnode.ops import Adam

#: Around the width up to which a CPU multiplies the other way round.
WIDTHS = [1, 2, 7, 10, 11, 64]


def graph(nodes: int = 30, dtype: torch.dtype = torch.float64) -> Graph:
    torch.manual_seed(0)
    return Graph(torch.randn(nodes, 5, dtype=dtype), to_undirected(torch.randint(nodes, (2, 3 * nodes))))


def pair(width: int) -> tuple[PreparedGCNConv, GCNConv]:
    ours, theirs = PreparedGCNConv(6, width).double(), GCNConv(6, width).double()
    torch.nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def gradients(loss: Tensor, conv: torch.nn.Module, hidden: Tensor) -> dict[str, Tensor]:
    inputs = {"hidden": hidden} | dict(conv.named_parameters())
    return dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values())), strict=True))


@pytest.mark.parametrize("width", WIDTHS)
def test_values_and_gradients_are_those_of_pyg(width: int) -> None:
    data, (ours, theirs) = graph(), pair(width)
    hidden = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    got, expected = ours(hidden, data), theirs(hidden, data.edge_index)
    torch.testing.assert_close(got, expected)
    direction = torch.randn(30, width, dtype=torch.float64)
    found = gradients((got * direction).sum(), ours, hidden)
    torch.testing.assert_close(found, gradients((expected * direction).sum(), theirs, hidden))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("nodes", [[4, 17, 5], []])
def test_some_rows_are_rows_of_the_whole(width: int, nodes: list[int]) -> None:
    data, (ours, _) = graph(), pair(width)
    hidden = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    chosen = torch.tensor(nodes, dtype=torch.long)
    rows, part = data.one_hop_subgraph(chosen)
    got, expected = ours(hidden[rows], part), ours(hidden, data)[chosen]
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients(got.sum(), ours, hidden), gradients(expected.sum(), ours, hidden))


@pytest.mark.parametrize("width", [2, 11])
def test_second_derivatives_and_vmap(width: int) -> None:
    data, (ours, _) = graph(8), pair(width)
    hidden = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda h: ours(h, data).square(), hidden)
    stack = torch.randn(3, 8, 6, dtype=torch.float64)
    one_by_one = torch.stack([ours(each, data) for each in stack])
    torch.testing.assert_close(torch.vmap(lambda h: ours(h, data))(stack), one_by_one)


@pytest.mark.parametrize("width", WIDTHS)
def test_adam_moves_the_weight_as_torch_does_whatever_its_layout(width: int) -> None:
    data, (ours, _) = graph(), pair(width)
    theirs = PreparedGCNConv(6, width).double()
    theirs.load_state_dict(ours.state_dict())
    hidden = torch.randn(30, 6, dtype=torch.float64)
    fused = Adam(list(ours.parameters()), 0.1, 0.01)
    plain = torch.optim.Adam(theirs.parameters(), 0.1, weight_decay=0.01, foreach=False, fused=False)
    for _ in range(3):
        for conv, optimiser in ((ours, fused), (theirs, plain)):
            optimiser.zero_grad()
            conv(hidden, data).square().sum().backward()
            assert conv.lin.weight.grad.stride() == conv.lin.weight.stride()
            optimiser.step()
    torch.testing.assert_close(ours.lin.weight, theirs.lin.weight)
