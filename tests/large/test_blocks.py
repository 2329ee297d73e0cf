"""Networks of all kinds on graphs on disk: trained in mini-batches, scored exactly in blocks of nodes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from oddnode import Detector, MaxSoftmax
from oddnode.graph import Graph
from oddnode.large import GraphFolder, product, ranks
from oddnode.large import graph as large_graph
from oddnode.nn import BACKBONES, blocks, embed_with, run_backbone, stages
from oddnode.scoring import FolderOutputs
from oddnode.training import FullBatch, MiniBatch, PackedRows

ALL = MiniBatch(num_neighbours=-1, batch_size=200, num_random=200)
FEW = MiniBatch(num_neighbours=2, batch_size=8, num_random=16)


class Sage(nn.Module):
    """A user's module."""

    def __init__(self, kind: Any = SAGEConv) -> None:
        super().__init__()
        self.first, self.norm, self.last = kind(5, 8), nn.BatchNorm1d(8), kind(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x, edge_index)).relu(), edge_index)


@pytest.fixture
def _tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    real = large_graph.row_chunks
    monkeypatch.setattr(large_graph, "row_chunks", lambda rows, size, *limit: real(rows, size, 13 * size))
    monkeypatch.setattr(stages, "_NUMBERS_AT_ONCE", 150)
    monkeypatch.setattr(blocks, "_NODES_AT_ONCE", 40)
    monkeypatch.setattr(product, "_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(ranks, "memory_share", lambda: 120 * 8 * 3)


@pytest.mark.usefixtures("_tiny_blocks")
@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize("name", [*BACKBONES, "own"])
def test_outputs_are_those_of_the_graph_in_memory(data: Data, folder: GraphFolder, name: str, num_layers: int) -> None:
    torch.manual_seed(0)
    module = Sage(GCNConv) if name == "own" else BACKBONES[name](5, 8, 3, num_layers=num_layers)
    module = module.double().eval()
    graph = Graph(data.x, data.edge_index)
    found = FolderOutputs(module, folder.as_graph(), 3)
    with torch.no_grad():
        logits, hidden = run_backbone(module, graph), embed_with(module, graph)
    torch.testing.assert_close(found.all_logits, logits, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(found.hidden, hidden, atol=1e-10, rtol=1e-10)
    some = torch.tensor([119, 4, 4, 30])
    torch.testing.assert_close(found.hidden_of(some), hidden[some], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    "settings",
    [
        {"backbone": "gat"},
        {"backbone": "jknet"},
        {"backbone": "mixhop"},
        {"num_layers": 3},
        {"batch_norm": "running"},
        {"backbone": "mlp", "num_layers": 3},
        {"backbone": Sage().double()},
    ],
    ids=["gat", "jknet", "mixhop", "deeper", "running average", "deeper mlp", "own"],
)
def test_with_all_neighbours_training_is_that_of_the_graph_in_memory(
    data: Data, folder: GraphFolder, settings: dict[str, Any]
) -> None:
    settings = {"scorer": MaxSoftmax(), "dropout": 0.0, "epochs": 5, "device": "cpu", "trainer": ALL, **settings}
    memory, disk = (Detector(**settings).fit(graph) for graph in (data, folder))
    losses = [torch.tensor([[row["loss"], row["val_loss"]] for row in each.history_]) for each in (memory, disk)]
    torch.testing.assert_close(losses[1], losses[0], atol=1e-7, rtol=1e-7)
    torch.testing.assert_close(disk.score_samples(folder), memory.score_samples(data), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(disk.score_samples(data), memory.score_samples(data), atol=1e-9, rtol=1e-9)


def test_a_seed_gives_the_same_samples_and_scores(folder: GraphFolder) -> None:
    def scores(seed: int) -> Tensor:
        detector = Detector("gat", seed=seed, epochs=3, trainer=FEW, device="cpu").fit(folder)
        return detector.score_samples(folder)

    first = scores(0)
    assert torch.equal(scores(0), first)
    assert not torch.equal(scores(1), first)


def test_mini_batches_are_chosen_where_the_closed_form_is_impossible(
    folder: GraphFolder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "oddnode"):
        Detector("gat", epochs=1, device="cpu").fit(folder)
        Detector(num_layers=3, epochs=1, device="cpu").fit(folder)
        Detector(batch_norm="running", epochs=1, device="cpu").fit(folder)
        Detector("gcn", epochs=1, device="cpu").fit(folder)
    said = [record.message for record in caplog.records if "mini-batches" in record.message]
    reasons = ("the network is gat", "the network has 3 layers", "batch norm takes a running average")
    assert len(said) == 3
    for message, reason in zip(said, reasons, strict=True):
        assert message.startswith(f"training in mini-batches of sampled neighbourhoods: {reason}")


def test_exposed_nodes_are_learnt_from(data: Data, folder: GraphFolder) -> None:
    exposure = data.clone()
    exposure.x = -3.0 * data.x
    detector = Detector.from_recipe("energy-ft", epochs=30, device="cpu").fit(folder, exposure)
    assert detector.score_samples(folder).median() > detector.score_samples(exposure).median()


def test_a_wrapped_network_of_ones_own_scores_a_folder(data: Data, folder: GraphFolder) -> None:
    torch.manual_seed(0)
    wrapped = Detector.wrap(Sage(GCNConv).double(), "msp", data, device="cpu")
    torch.testing.assert_close(wrapped.score_samples(folder), wrapped.score_samples(data), atol=1e-10, rtol=1e-10)


def test_what_cannot_be_trained_is_refused_before_training(folder: GraphFolder) -> None:
    class Far(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(5, 3, dtype=torch.float64)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.lin(x - x.mean(dim=0))

    with pytest.raises(ValueError, match="the logits of Far depend on nodes that are more than 0 hops away"):
        Detector(Far(), epochs=1, device="cpu").fit(folder)
    with pytest.raises(ValueError, match=r"are torch.float64, but the network is torch.float32; prepare the graph"):
        Detector(Sage(), epochs=1, device="cpu").fit(folder)
    with pytest.raises(ValueError, match=r"GAT has layers other than.*train with trainer=MiniBatch\(\)"):
        Detector("gat", epochs=1, trainer=PackedRows(), device="cpu").fit(folder)
    with pytest.raises(ValueError, match="are on disk, and this operation needs `edge_index` in memory"):
        Detector("gat", epochs=1, trainer=FullBatch(), device="cpu").fit(folder)
