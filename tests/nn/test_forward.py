"""A user's module is called in the way that its ``forward`` asks for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from oddnode import Detector
from oddnode.graph import Graph
from oddnode.nn import Ensemble, embed_with, run_backbone


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = GCNConv(6, 8), GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


class OfData(Plain):
    """As in PyG's own tutorial."""

    def forward(self, data: Any) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index)


class Annotated(Plain):
    def forward(self, g: Data, hops: int = 2) -> Tensor:  # type: ignore[override]
        return super().forward(g.x, g.edge_index)


class Weighted(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        return self.last(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class Open(Plain):
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(*args, **kwargs)


class Optional(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        assert edge_weight is None
        return super().forward(x, edge_index)


class FeaturesOnly(Plain):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


class WithBatch(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        return x


class WithMore(Plain):
    def forward(self, data: Data, batch: Tensor) -> Tensor:
        return data.x


@pytest.mark.parametrize("kind", [OfData, Annotated, Weighted, Open, Optional])
def test_every_usual_forward_gives_the_same_logits(two_groups: Data, kind: type[Plain]) -> None:
    graph = Graph.from_data(two_groups)
    expected = Plain()(two_groups.x, two_groups.edge_index)
    assert torch.equal(run_backbone(kind(), graph), expected)
    assert embed_with(kind(), graph).shape == (60, 8)
    twice = Ensemble([kind(), kind()])(two_groups.x, two_groups.edge_index)
    torch.testing.assert_close(twice, expected.log_softmax(dim=-1))


@pytest.mark.parametrize("kind", [OfData, Weighted])
def test_a_detector_trains_wraps_and_scores_such_modules(two_groups: Data, kind: type[Plain]) -> None:
    settings: dict[str, Any] = {"scorer": "knn", "epochs": 3, "device": "cpu", "ensemble": 2}
    expected = Detector(Plain(), **settings).fit(two_groups).score_samples(two_groups)
    assert torch.equal(Detector(kind(), **settings).fit(two_groups).score_samples(two_groups), expected)
    plain, other = (Detector.wrap(module, "msp", two_groups) for module in (Plain(), kind()))
    assert torch.equal(plain.score_samples(two_groups), other.score_samples(two_groups))


def test_a_module_with_another_forward_is_refused_with_its_signature(two_groups: Data) -> None:
    for module, signature in (
        (FeaturesOnly(), r"forward\(x: .*\)"),
        (WithBatch(), r"forward\(x: .*batch: .*\)"),
        (WithMore(), r"forward\(data: .*batch: .*\)"),
        (nn.Linear(6, 3), r"forward\(input: .*\)"),
    ):
        message = rf"{type(module).__name__} has {signature}.*but a detector calls forward\(x, edge_index\)"
        with pytest.raises(TypeError, match=message):
            Detector.wrap(module, "msp", two_groups)


def test_threads_that_share_a_module_read_their_own_hidden_features() -> None:
    """Hidden features of a user's module are read by hooks, which every thread that runs the module meets."""
    passed = threading.Barrier(2)

    class Meeting(Plain):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            hidden = self.first(x, edge_index).relu()
            passed.wait(timeout=10)  # all hooks are there, and no pass has reached the last layer
            out = self.last(hidden, edge_index)
            passed.wait(timeout=10)
            return out

    module, edges = Meeting().eval(), torch.tensor([[0, 1], [1, 2]])
    graphs = [Graph(torch.full((3, 6), value), edges) for value in (1.0, 2.0)]
    with ThreadPoolExecutor(2) as pool, torch.no_grad():
        found = list(pool.map(lambda graph: embed_with(module, graph), graphs))
    for graph, hidden in zip(graphs, found, strict=True):
        torch.testing.assert_close(hidden, module.first(graph.x, edges).relu())
