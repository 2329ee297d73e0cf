"""Outputs in blocks of nodes against passes over the whole graph, and a layer against its formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import APPNP, GCNConv, PairNorm, SAGEConv, Sequential

from oddnode.graph import Graph
from oddnode.nn import BACKBONES, GAT, blocks, embed_with, run_backbone, stages
from oddnode.nn.blocks import Layerwise, Neighbourhoods, fit_batch_norm, in_blocks
from tests.large.graphs import random_graph

DATA = random_graph(num_nodes=90, num_edges=300)
SOME = torch.tensor([88, 3, 3, 17])


def some_graph(weighted: bool = False) -> Graph:
    generator = torch.Generator().manual_seed(1)
    weight = 0.1 + torch.rand(DATA.num_edges, generator=generator, dtype=torch.float64)
    return Graph(DATA.x, DATA.edge_index, weight if weighted else None)


def evaluated(module: nn.Module) -> nn.Module:
    """In double precision, with statistics of batch norm that are not those of a new layer."""
    generator = torch.Generator().manual_seed(4)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d) and layer.track_running_stats:
            layer.running_mean = torch.randn(layer.num_features, generator=generator)
            layer.running_var = 0.5 + torch.rand(layer.num_features, generator=generator)
    return module.double().eval()


def new(name: str, num_layers: int) -> nn.Module:
    torch.manual_seed(0)
    return evaluated(BACKBONES[name](5, 8, 4, num_layers=num_layers))


@pytest.fixture(autouse=True)
def _tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_NUMBERS_AT_ONCE", 150)
    monkeypatch.setattr(blocks, "_NODES_AT_ONCE", 40)


@torch.no_grad()
def check(module: nn.Module, graph: Graph, kind: type, dtype: torch.dtype = torch.float64) -> Any:
    graph = graph.with_features(graph.x.to(dtype))
    found = in_blocks(module, graph)
    assert type(found) is kind
    logits, hidden = run_backbone(module, graph), embed_with(module, graph)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for rows in (slice(0, 90), slice(13, 20), SOME):
        torch.testing.assert_close(found.logits_of(rows), logits[rows], atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(found.hidden_of(rows), hidden[rows], atol=tolerance, rtol=tolerance)
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize("name", list(BACKBONES))
def test_every_backbone_is_computed_layer_by_layer(name: str, num_layers: int, weighted: bool) -> None:
    check(new(name, num_layers), some_graph(weighted), Layerwise)


@pytest.mark.parametrize("name", list(BACKBONES))
def test_single_precision_gives_nearly_the_same(name: str) -> None:
    check(new(name, 2).float(), some_graph(), Layerwise, torch.float32)


class _Own(nn.Module):
    """A user's module of two convolutions, by default with batch norm between them."""

    def __init__(self, first: nn.Module, last: nn.Module, between: nn.Module | None = None, again: int = 0):
        super().__init__()
        self.first, self.last, self.again = first, last, again
        self.between = between or nn.BatchNorm1d(8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.between(self.first(x, edge_index)).relu()
        for _ in range(self.again):
            hidden = self.between(self.first(hidden, edge_index)).relu()
        return self.last(hidden, edge_index)


class _ByHand(nn.Module):
    """Passes messages itself, so that no convolution can be counted."""

    def __init__(self, hops: int):
        super().__init__()
        self.lin, self.hops = nn.Linear(5, 4), hops

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for _ in range(self.hops):
            x = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        return self.lin(x)


def own(kind: Any, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    return evaluated(_Own(kind(5, 8), kind(8, 4), **settings))


@pytest.mark.parametrize(
    ("module", "num_hops"),
    [
        (own(SAGEConv), 2),
        (own(GCNConv), 3),  # it divides by the degrees of the sources, which are counted at their own edges
        (evaluated(_ByHand(0)), 0),
        (evaluated(Sequential("x, edge_index", [(APPNP(2, 0.1), "x, edge_index -> x"), nn.Linear(5, 4)])), 3),
    ],
    ids=["mean", "gcn", "no edges", "two hops in one layer"],
)
def test_any_module_is_computed_on_whole_neighbourhoods(module: nn.Module, num_hops: int) -> None:
    assert check(module, some_graph(), Neighbourhoods).num_hops == num_hops


def test_a_class_derived_from_a_backbone_may_do_anything() -> None:
    class Squared(GAT):
        def head(self, hidden: Tensor, graph: Graph) -> Tensor:
            return super().head(hidden.square(), graph)

    torch.manual_seed(0)
    check(evaluated(Squared(5, 8, 4)), some_graph(weighted=True), Neighbourhoods)


@pytest.mark.parametrize(
    "module",
    [
        evaluated(_ByHand(1)),
        evaluated(_ByHand(3)),
        evaluated(_Own(SAGEConv(5, 5), SAGEConv(5, 4), nn.Identity(), again=3)),
        own(SAGEConv, between=PairNorm()),
        own(SAGEConv, between=nn.BatchNorm1d(8, track_running_stats=False)),
    ],
    ids=["by hand", "further by hand", "a layer called again", "norm over all nodes", "norm without statistics"],
)
def test_a_module_that_looks_further_than_can_be_counted_is_refused(module: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"more than . hops away.*give it an attribute num_hops"):
        in_blocks(module, some_graph())


@pytest.mark.parametrize("hops", [1, 3])
def test_a_module_may_say_how_far_it_looks(hops: int) -> None:
    module = evaluated(_ByHand(hops))
    module.num_hops = hops  # type: ignore[assignment]
    assert check(module, some_graph(), Neighbourhoods).num_hops == hops


def test_neighbourhoods_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_MOST_NODES", 8)
    with pytest.raises(ValueError, match=r"the 3 hops around node \d+ reach \d+ nodes, too many to compute _Own"):
        in_blocks(own(GCNConv), some_graph()).logits_of(slice(0, 90))


@pytest.mark.parametrize("module", [*(new(name, 3) for name in BACKBONES), own(GCNConv)], ids=[*BACKBONES, "own"])
def test_batch_norm_gets_the_statistics_of_one_pass_over_the_whole_graph(module: nn.Module) -> None:
    graph = some_graph()
    fit_batch_norm(module, graph)
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d)]
    found = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in norms]  # type: ignore[union-attr]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        run_backbone(module, graph)
    for norm, (mean, variance) in zip(norms, found, strict=True):
        torch.testing.assert_close(mean, norm.running_mean, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(variance, norm.running_var, atol=1e-10, rtol=1e-10)
