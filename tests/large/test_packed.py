"""Packed rows of graphs in memory: the same training as in full batches, and when it is chosen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.detector import fitting
from oddnode.detector.fitting import packing_pays
from oddnode.graph import Graph, TrainingSet
from oddnode.training import FullBatch, PackedRows, packed_rows
from tests.large.graphs import random_graph


def weighted(data: Data) -> Data:
    data.edge_weight = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    return data


@pytest.mark.parametrize("backbone", ["gcn", "mlp"])
@pytest.mark.parametrize("method", ["msp", "nodesafe", "nodesafe-ensemble"])
@pytest.mark.parametrize("change", [lambda data: data, weighted])
@pytest.mark.parametrize("has_room", [True, False])
def test_packed_rows_train_what_full_batches_do(
    monkeypatch: pytest.MonkeyPatch, method: str, backbone: str, change: Any, has_room: bool
) -> None:
    if not has_room:  # hidden features are computed again in the backward pass
        monkeypatch.setattr(packed_rows, "_room_for", lambda inputs, width: None)
    data = change(random_graph(num_nodes=120, num_edges=500))
    full, some = (
        Detector.from_recipe(method, backbone, epochs=12, device="cpu", trainer=trainer).fit(data)
        for trainer in (FullBatch(), PackedRows(rows_at_once=9))
    )
    assert some.best_epoch_ == full.best_epoch_
    for found, expected in zip(some.history_, full.history_, strict=True):
        assert found == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(some.score_samples(data), full.score_samples(data), atol=1e-9, rtol=1e-9)


def star(num_leaves: int, labelled: list[int], validated: list[int]) -> TrainingSet:
    """Edges lead from the leaves to node 0, and from node 0 to leaf 1."""
    leaves = torch.arange(1, num_leaves + 1)
    edges = torch.stack([torch.cat([leaves, torch.tensor([0])]), torch.cat([0 * leaves, torch.tensor([1])])])
    graph = Graph(torch.ones(num_leaves + 1, 2), edges)
    train, val = torch.tensor(labelled), torch.tensor(validated)
    return TrainingSet(graph, train, 0 * train, val, 0 * val, num_classes=1)


def test_packing_pays_if_few_rows_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not packing_pays(star(11, [2], [3]))  # a small graph
    monkeypatch.setattr(fitting, "_LARGE", 12)
    assert packing_pays(star(11, [2], [3]))  # rows 2 and 3
    assert packing_pays(star(11, [1], [3, 4, 5, 6, 7, 8, 9]))  # these and row 0: three quarters
    assert not packing_pays(star(11, [1], [2, 3, 4, 5, 6, 7, 8, 9]))
    assert not packing_pays(star(11, [0], [3]))  # all
    monkeypatch.setattr(fitting, "_NARROW", 1)
    assert not packing_pays(star(11, [2], [3]))


def test_a_large_graph_with_few_labels_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_graph(num_nodes=120, num_edges=60)
    for name in ("train_mask", "val_mask"):
        data[name][24:] = False
    settings: dict[str, Any] = {"epochs": 5, "device": "cpu"}
    expected = Detector.from_recipe("nodesafe", **settings).fit(data).score_samples(data)
    calls: list[int] = []
    start = PackedRows.start

    def counted(self: PackedRows, *given: Any) -> Any:
        calls.append(1)
        return start(self, *given)

    monkeypatch.setattr(PackedRows, "start", counted)
    monkeypatch.setattr(fitting, "_LARGE", 100)
    found = Detector.from_recipe("nodesafe", **settings).fit(data).score_samples(data)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    assert calls == [1]
    Detector.from_recipe("nodesafe", batch_norm="running", **settings).fit(data)
    Detector.from_recipe("nodesafe", num_layers=3, **settings).fit(data)
    assert calls == [1]  # neither can be packed
