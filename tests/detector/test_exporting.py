"""A fitted scorer as a plain torch program: exported, saved, loaded, and run on other graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from oddnode import KNN, ODIN, Detector, Energy, MaxLogit, MaxSoftmax, Outputs, Propagated, Scorer


@pytest.fixture
def other() -> Data:
    """Self-loops, repeated and one-way edges, isolated nodes, and one node far beyond training."""
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(80, (2, 150), generator=generator)
    edges = torch.cat([edges, edges[:, :9], torch.tensor([[3, 3, 4], [3, 3, 4]])], dim=1)
    x = torch.randn(90, 6, generator=generator)
    x[7, 2] = 1e6
    return Data(x=x, edge_index=edges)


def loaded(detector: Detector, folder: Path) -> Any:
    torch.export.save(detector.export(), folder / "scores.pt2")
    return torch.export.load(folder / "scores.pt2").module()


@pytest.mark.parametrize(
    ("backbone", "scorer"),
    [
        ("gcn", "msp"),
        ("gcn", "energy"),
        ("gcn", MaxLogit()),
        ("gcn", Propagated(Energy(centred=True), num_hops=3, eta=0.3)),
        ("gcn", Propagated(MaxSoftmax(), num_hops=2, isolated="shrink")),
        ("mlp", Propagated(Energy())),
        ("jknet", "msp"),
        ("mixhop", "msp"),
    ],
)
def test_a_loaded_program_scores_another_graph_as_the_detector_does(
    two_groups: Data, other: Data, tmp_path: Path, backbone: str, scorer: Scorer | str
) -> None:
    detector = Detector(backbone, scorer=scorer, epochs=5, device="cpu").fit(two_groups)
    program = loaded(detector, tmp_path)
    for data in (two_groups, other):
        expected = detector.score_samples(data)
        torch.testing.assert_close(program(data.x, data.edge_index), expected, rtol=1e-4, atol=1e-5)
    scores = program(other.x, other.edge_index)
    assert int(scores.argmin()) == 7
    alone = Data(x=other.x[:1], edge_index=torch.empty(2, 0, dtype=torch.long))
    torch.testing.assert_close(program(alone.x, alone.edge_index), detector.score_samples(alone))


def test_a_few_hops_of_gnnsafe_can_be_exported_and_calibrated(two_groups: Data, other: Data, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_hops": 2, "eta": 0.5, "prior_nodes": 0.0}
    detector = Detector.from_recipe("gnnsafe", epochs=5, device="cpu", ensemble=2, **settings).fit(two_groups)
    detector.calibrate(two_groups, 0.1, two_groups.test_mask)
    scores = loaded(detector, tmp_path)(other.x, other.edge_index)
    torch.testing.assert_close(scores, detector.score_samples(other), rtol=1e-4, atol=1e-5)
    assert torch.equal(scores.double() < detector.threshold_, detector.detect(other))
    assert detector.calibration_ is not None
    assert scores[7] < detector.calibration_.scores[0]


def test_the_file_needs_torch_and_nothing_else(two_groups: Data, tmp_path: Path) -> None:
    detector = Detector(scorer=Propagated(Energy()), epochs=2, device="cpu").fit(two_groups)
    torch.export.save(detector.export(), tmp_path / "scores.pt2")
    torch.save([two_groups.x, two_groups.edge_index], tmp_path / "graph.pt")
    code = """
import sys, torch
x, edge_index = torch.load("graph.pt")
torch.save(torch.export.load("scores.pt2").module()(x, edge_index), "scores.pt")
assert "oddnode" not in sys.modules and "torch_geometric" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    found = torch.load(tmp_path / "scores.pt")
    torch.testing.assert_close(found, detector.score_samples(two_groups), rtol=1e-4, atol=1e-5)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(6, 8), GCNConv(8, 3)

    def forward(self, data: Data) -> Tensor:
        return self.last(self.first(data.x, data.edge_index).relu(), data.edge_index)


class FixedSize(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x[:, :3] + float(x.sum())


class Margin(Scorer):
    supports_export = True

    def score(self, outputs: Outputs) -> Tensor:
        first, second = outputs.logits.topk(2, dim=1).values.unbind(dim=1)
        return first - second


def test_an_own_network_and_an_own_scorer_can_be_exported(two_groups: Data, other: Data, tmp_path: Path) -> None:
    detector = Detector.wrap(Own(), Propagated(Margin()), two_groups, device="cpu")
    scores = loaded(detector, tmp_path)(other.x, other.edge_index)
    torch.testing.assert_close(scores, detector.score_samples(other), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scorer", [KNN(), ODIN(), Propagated(KNN()), Propagated(Energy(), prior_nodes=1.0), "grasp"])
def test_scorers_that_need_more_are_refused_with_a_reason(two_groups: Data, scorer: Scorer | str) -> None:
    detector = Detector(scorer=scorer, epochs=1, device="cpu").fit(two_groups)
    with pytest.raises(TypeError, match=r"cannot be exported: it needs more than .* prior_nodes=0"):
        detector.export()


def test_networks_that_cannot_be_traced_are_named(two_groups: Data) -> None:
    with pytest.raises(TypeError, match=r"cannot trace GAT .*: graph attention works on sorted edges"):
        Detector("gat", scorer="msp", epochs=1, device="cpu").fit(two_groups).export()
    with pytest.raises(TypeError, match=r"torch.export cannot trace FixedSize for graphs of any size"):
        Detector.wrap(FixedSize(), "msp", two_groups, device="cpu").export()
