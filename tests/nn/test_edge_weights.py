"""Edge weights in modules from outside the library."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT as PyGGAT
from torch_geometric.nn import GCN as PyGGCN
from torch_geometric.nn import GCNConv, Sequential

from oddnode.graph import Graph
from oddnode.nn import Ensemble, embed_with, run_backbone, takes_edge_weight


class _Weighted(nn.Module):
    """A user's module: two of PyG's convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(4, 5), GCNConv(5, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.last(self.first(x, edge_index, edge_weight).tanh(), edge_index, edge_weight)


class _Unweighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


class _OfData(_Weighted):
    def forward(self, data: Data) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index, data.edge_weight)


class _Required(_Weighted):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index, edge_weight)


class _WithBatch(_Weighted):
    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor
    ) -> Tensor:
        return super().forward(x, edge_index, edge_weight)


def weighted_graph() -> Graph:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(8, (2, 20), generator=generator)
    return Graph(torch.randn(8, 4, generator=generator), edges, torch.rand(20, generator=generator) + 0.1)


def plain(graph: Graph) -> Graph:
    return Graph(graph.x, graph.edge_index)


@pytest.mark.parametrize(
    "module",
    [
        _Weighted(),
        PyGGCN(4, 5, 2, out_channels=3),
        Sequential("x, edge_index, edge_weight", [(GCNConv(4, 3), "x, edge_index, edge_weight -> x")]),
    ],
    ids=["own", "PyG's model", "PyG's sequential"],
)
def test_a_module_that_takes_weights_receives_them(module: nn.Module) -> None:
    graph = weighted_graph()
    found = run_backbone(module, graph)
    torch.testing.assert_close(found, module(graph.x, graph.edge_index, graph.edge_weight))
    ones = Graph(graph.x, graph.edge_index, torch.ones(20))
    assert not torch.allclose(found, run_backbone(module, ones))


@pytest.mark.parametrize("kind", [_OfData, _Required])
def test_a_module_gets_the_weights_in_the_way_that_its_forward_asks_for(kind: type[_Weighted]) -> None:
    graph, module, same = weighted_graph(), kind(), _Weighted()
    same.load_state_dict(module.state_dict())
    torch.testing.assert_close(run_backbone(module, graph), same(graph.x, graph.edge_index, graph.edge_weight))
    torch.testing.assert_close(run_backbone(module, plain(graph)), same(graph.x, graph.edge_index))
    assert takes_edge_weight(module)


def test_a_module_with_another_forward_is_refused_with_its_signature() -> None:
    for graph in (weighted_graph(), plain(weighted_graph())):
        with pytest.raises(TypeError, match=r"_WithBatch has forward\(x: .*batch: .*\).*, but a detector calls"):
            run_backbone(_WithBatch(), graph)


def test_hidden_features_are_those_of_the_weighted_graph() -> None:
    graph, module = weighted_graph(), _Weighted()
    expected = module.first(graph.x, graph.edge_index, graph.edge_weight).tanh()
    torch.testing.assert_close(embed_with(module, graph), expected)


@pytest.mark.parametrize(
    "module",
    [
        _Unweighted(),
        PyGGAT(4, 5, 2, out_channels=3),
        Sequential("x, edge_index", [(GCNConv(4, 3), "x, edge_index -> x")]),
    ],
    ids=["own", "PyG's model", "PyG's sequential"],
)
def test_a_module_that_does_not_use_weights_is_refused_a_weighted_graph_only(module: nn.Module) -> None:
    graph = weighted_graph()
    assert run_backbone(module, plain(graph)).shape == (8, 3)
    with pytest.raises(TypeError, match=rf"{type(module).__name__}.*forward does not use.*del data.edge_weight"):
        run_backbone(module, graph)


def test_an_ensemble_gives_its_members_the_weights() -> None:
    graph, members = weighted_graph(), [_Weighted(), _Weighted()]
    ensemble = Ensemble(members)
    found = ensemble(graph.x, graph.edge_index, graph.edge_weight).exp()
    expected = torch.stack([m(graph.x, graph.edge_index, graph.edge_weight).softmax(dim=-1) for m in members]).mean(0)
    torch.testing.assert_close(found, expected)
    assert Ensemble([_Unweighted()])(graph.x, graph.edge_index).shape == (8, 3)
