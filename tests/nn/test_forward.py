"""A user's module is called in the way that its ``forward`` asks for, with edge weights where it takes them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, GINConv, Sequential
from torch_geometric.nn import GAT as PyGGAT
from torch_geometric.nn import GCN as PyGGCN

from oddnode import Detector, register_backbone
from oddnode.graph import Graph
from oddnode.nn import BACKBONES, Ensemble, embed_with, run_backbone, takes_edge_weight


class Optional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = GCNConv(6, 8), GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.last(x=self.hidden(x, edge_index, edge_weight), edge_index=edge_index, edge_weight=edge_weight)

    def hidden(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.first(x, edge_index, edge_weight).relu()


class Plain(Optional):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index)


class OfData(Optional):
    """As in PyG's own tutorial."""

    def forward(self, data: Any) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index, data.edge_weight)


class Annotated(Optional):
    def forward(self, g: Data, hops: int = 2) -> Tensor:  # type: ignore[override]
        return super().forward(g.x, g.edge_index, g.edge_weight)


class Required(Optional):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index, edge_weight)


class Open(Optional):
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(*args, **kwargs)


class FeaturesOnly(Optional):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


class WithBatch(Optional):
    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor
    ) -> Tensor:
        return x


class WithMore(Optional):
    def forward(self, data: Data, batch: Tensor) -> Tensor:  # type: ignore[override]
        return data.x


def weighted(data: Data) -> Graph:
    weight = 0.1 + torch.rand(data.edge_index.shape[1], generator=torch.Generator().manual_seed(0))
    return Graph(data.x, data.edge_index, weight)


@pytest.mark.parametrize("kind", [Plain, OfData, Annotated, Required, Open])
def test_every_usual_forward_gives_the_same_logits(two_groups: Data, kind: type[nn.Module]) -> None:
    graph = Graph.from_data(two_groups)
    expected = Optional()(two_groups.x, two_groups.edge_index)
    assert torch.equal(run_backbone(kind(), graph), expected)
    assert torch.equal(embed_with(kind(), graph), Optional().hidden(two_groups.x, two_groups.edge_index))
    twice = Ensemble([kind(), kind()])(two_groups.x, two_groups.edge_index)
    torch.testing.assert_close(twice, expected.log_softmax(dim=-1))


@pytest.mark.parametrize("kind", [OfData, Required])
def test_a_detector_trains_wraps_and_scores_such_modules(two_groups: Data, kind: type[nn.Module]) -> None:
    settings: dict[str, Any] = {"scorer": "knn", "epochs": 3, "device": "cpu", "ensemble": 2}
    expected = Detector(Plain(), **settings).fit(two_groups).score_samples(two_groups)
    assert torch.equal(Detector(kind(), **settings).fit(two_groups).score_samples(two_groups), expected)
    plain, other = (Detector.wrap(module, "msp", two_groups) for module in (Plain(), kind()))
    assert torch.equal(plain.score_samples(two_groups), other.score_samples(two_groups))


@pytest.mark.parametrize("kind", [Optional, OfData, Annotated, Required])
def test_a_module_gets_the_weights_in_the_way_that_its_forward_asks_for(two_groups: Data, kind: Any) -> None:
    graph, same = weighted(two_groups), Optional()
    parts = graph.x, graph.edge_index, graph.edge_weight
    torch.testing.assert_close(run_backbone(kind(), graph), same(*parts))
    torch.testing.assert_close(embed_with(kind(), graph), same.hidden(*parts))
    torch.testing.assert_close(Ensemble([kind()] * 2)(*parts), same(*parts).log_softmax(dim=-1))
    assert takes_edge_weight(kind())
    assert not torch.allclose(same(*parts), run_backbone(kind(), Graph(graph.x, graph.edge_index)))


@pytest.mark.parametrize(
    "module",
    [
        PyGGCN(6, 5, 2, out_channels=3),
        Sequential("x, edge_index, edge_weight", [(GCNConv(6, 3), "x, edge_index, edge_weight -> x")]),
    ],
    ids=["model", "sequential"],
)
def test_a_module_of_pyg_that_takes_weights_receives_them(two_groups: Data, module: nn.Module) -> None:
    graph = weighted(two_groups)
    expected = module(graph.x, graph.edge_index, graph.edge_weight)
    torch.testing.assert_close(run_backbone(module, graph), expected)
    ones = torch.ones(graph.edge_index.shape[1])
    unweighted = run_backbone(module, Graph(graph.x, graph.edge_index, ones))
    assert not torch.allclose(unweighted, expected)
    torch.testing.assert_close(run_backbone(module, Graph(graph.x, graph.edge_index)), unweighted)


@pytest.mark.parametrize(
    "module",
    [
        Plain(),
        PyGGAT(6, 5, 2, out_channels=3),
        Sequential("x, edge_index", [(GCNConv(6, 3), "x, edge_index -> x")]),
    ],
    ids=["own", "PyG's model", "PyG's sequential"],
)
def test_a_module_that_does_not_use_weights_is_refused_a_weighted_graph_only(
    two_groups: Data, module: nn.Module
) -> None:
    assert run_backbone(module, Graph.from_data(two_groups)).shape == (60, 3)
    with pytest.raises(TypeError, match=rf"{type(module).__name__}.*forward does not use.*del data.edge_weight"):
        run_backbone(module, weighted(two_groups))


@pytest.mark.parametrize(
    ("module", "signature"),
    [
        (FeaturesOnly(), r"forward\(x: .*\)"),
        (WithBatch(), r"forward\(x: .*batch: .*\)"),
        (WithMore(), r"forward\(data: .*batch: .*\)"),
        (nn.Linear(6, 3), r"forward\(input: .*\)"),
        (Sequential("x, edge_index, size", [(GCNConv(6, 3), "x, edge_index -> x")]), r"forward\(x, edge_index, size\)"),
    ],
)
def test_a_module_with_another_forward_is_refused_with_its_signature(
    two_groups: Data, module: nn.Module, signature: str
) -> None:
    message = rf"{type(module).__name__} has {signature}.*but a detector calls forward\(x, edge_index\)"
    with pytest.raises(TypeError, match=message):
        Detector.wrap(module, "msp", two_groups)
    if takes_edge_weight(module):
        with pytest.raises(TypeError, match=message):
            run_backbone(module, weighted(two_groups))


class Stateful(Plain):
    """Keeps hidden features on itself and calls its layers through a list and a method, as users' modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.read_out = [self.first], self.last.forward

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        self.kept = self.steps[0](x, edge_index).relu()
        time.sleep(1e-4)  # lets another thread in
        return self.last(self.kept, edge_index) + 0 * self.read_out(self.kept, edge_index)


def test_threads_may_share_a_wrapped_module_and_detectors_that_share_it(two_groups: Data) -> None:
    graphs = [two_groups.clone() for _ in range(4)]
    for seed, graph in enumerate(graphs):
        graph.x = graph.x + torch.randn(graph.x.shape, generator=torch.Generator().manual_seed(seed))
    for module in (Plain(), Stateful().train()):
        hidden = Detector.wrap(module, "knn", two_groups)
        detectors = [hidden, hidden.with_scorer("energy"), Detector.wrap(module, "knn", two_groups)]
        work = [(detector, graph) for _ in range(25) for graph in graphs for detector in detectors]
        alone = [detector.score_samples(graph) for detector, graph in work[:12]]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda item: item[0].score_samples(item[1]), work))
        for index, scores in enumerate(together):
            assert torch.equal(scores, alone[index % 12])
        assert not hasattr(module, "kept")
        assert module.training
        assert not any(layer._forward_pre_hooks for layer in hidden.module_.modules())


class Meeting(Plain):
    """Goes on once two threads are inside."""

    barrier = Barrier(2, timeout=60)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        self.barrier.wait()
        return super().forward(x, edge_index)


def test_passes_of_two_threads_run_side_by_side(two_groups: Data) -> None:
    with ThreadPoolExecutor(2) as pool:
        detectors = list(pool.map(lambda _: Detector.wrap(Meeting(), "energy", two_groups), range(2)))
        [one, other] = pool.map(lambda _: detectors[0].score_samples(two_groups), range(2))
    assert torch.equal(one, other)


class NamedInAnotherOrder(nn.Module):
    """A user's network that calls its layers in another order than it names them."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)
        self.body = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU())

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.body(x)).relu()


class Propagating(nn.Module):
    """Ends with a convolution that has no parameters; a layer with layers inside comes before it."""

    def __init__(self) -> None:
        super().__init__()
        self.gin = GINConv(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)))
        self.spread = APPNP(K=2, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.spread(self.gin(x, edge_index), edge_index)


class FunctionalOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 6))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Transposing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(60, 60)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x.t()).t()


def test_hidden_features_of_a_module_go_into_the_layer_called_last(two_groups: Data) -> None:
    graph, module = Graph.from_data(two_groups), NamedInAnotherOrder().eval()
    torch.testing.assert_close(embed_with(module, graph), module.body(graph.x))
    # A PyG convolution is taken as a whole.
    torch.testing.assert_close(embed_with(Propagating().eval(), graph), graph.x)
    assert all(not layer._forward_pre_hooks for layer in module.modules())


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (FunctionalOnly(), r"FunctionalOnly calls no layer.*subclass oddnode.nn.base.Backbone"),
        (Transposing(), r"last layer of Transposing takes \[6, 60\], expected .* 60 rows"),
    ],
)
def test_a_module_whose_hidden_features_cannot_be_read_is_refused(
    two_groups: Data, module: nn.Module, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        embed_with(module, Graph.from_data(two_groups))


class Linear(nn.Module):
    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        super().__init__()
        self.sizes = (in_channels, hidden_channels, out_channels, num_layers, dropout)
        self.layer = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x)


@pytest.fixture
def registered(own_registries: None) -> None:
    register_backbone("linear", Linear)


def test_a_backbone_is_made_by_name_with_the_detectors_settings(registered: None, two_groups: Data) -> None:
    settings = {"hidden_channels": 7, "num_layers": 5, "dropout": 0.25, "num_spare_logits": 2, "epochs": 2}
    detector = Detector("linear", device="cpu", **settings).fit(two_groups)  # type: ignore[arg-type]
    assert isinstance(detector.module_, Linear)
    assert detector.module_.sizes == (6, 7, 3 + 2, 5, 0.25)
    logits = two_groups.x @ detector.module_.layer.weight.t() + detector.module_.layer.bias
    torch.testing.assert_close(detector.outputs(two_groups).all_logits, logits.detach())


def test_a_constructor_with_other_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match=r"the backbone 'bad' cannot be called as \(in_channels.*'num_layers'"):
        register_backbone("bad", nn.Bilinear)
    assert "bad" not in BACKBONES


def test_an_unknown_name_gets_the_nearest(two_groups: Data) -> None:
    with pytest.raises(ValueError, match=r"unknown backbone 'gcm'. Did you mean 'gcn'"):
        Detector("gcm").fit(two_groups)
