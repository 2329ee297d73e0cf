"""Fitting leaves the caller alone: random numbers, gradients and warnings, in threads too."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from oddnode import Detector


class Net(nn.Module):
    """A network of a user's, whose dropout knows no seed but torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(6, 16), GCNConv(16, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.dropout(self.first(x, edge_index).relu(), 0.5, training=self.training)
        return self.second(hidden, edge_index)


NET = Net()

DETECTORS: dict[str, Callable[[int], Detector]] = {
    "nodesafe": lambda seed: Detector.from_recipe("nodesafe", seed=seed, epochs=12, device="cpu"),
    "gold": lambda seed: Detector.from_recipe("gold", seed=seed, epochs=12, device="cpu"),
    "gkde": lambda seed: Detector.from_recipe("gkde", seed=seed, epochs=12, device="cpu"),
    "nodesafe-evidence": lambda seed: Detector.from_recipe("nodesafe-evidence", seed=seed, epochs=2, device="cpu"),
    "own network": lambda seed: Detector(NET, seed=seed, epochs=12, ensemble=2, device="cpu"),
}


@pytest.mark.parametrize("name", DETECTORS)
def test_a_seed_gives_the_same_scores_in_threads_and_the_caller_keeps_its_random_numbers(
    name: str, two_groups: Data, tmp_path: Path
) -> None:
    def run(seed: int) -> Tensor:
        detector = DETECTORS[name](seed).fit(two_groups)
        folder = tmp_path / f"{threading.get_ident()}"
        detector.save(folder)
        own = NET if name == "own network" else None
        return Detector.load(folder, backbone=own, device="cpu").score_samples(two_groups)

    alone = [run(seed) for seed in range(6)]
    assert not torch.equal(alone[0], alone[1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = torch.cat([torch.rand(5) for _ in range(4000)])
        torch.manual_seed(7)
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(run, seed) for seed in range(6)]
            drawn = torch.cat([torch.rand(5) for _ in range(4000)])
            together = [each.result() for each in running]
    for found, wanted in zip(together, alone, strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(drawn, expected)


def test_nobody_touches_the_filters_of_warnings(
    two_groups: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Detector(epochs=2, device="cpu").fit(two_groups).save(tmp_path / "model")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the filters belong to all threads")

    before = list(warnings.filters)
    monkeypatch.setattr(warnings, "catch_warnings", refuse)
    monkeypatch.setattr(warnings, "simplefilter", refuse)
    monkeypatch.setattr(warnings, "filterwarnings", refuse)
    for backbone in ("gcn", "gat"):
        Detector(backbone, epochs=2, device="cpu").fit(two_groups).score_samples(two_groups)
    Detector.load(tmp_path / "model", device="cpu").score_samples(two_groups)
    assert list(warnings.filters) == before


def test_features_that_require_gradients_keep_theirs(two_groups: Data) -> None:
    expected = Detector(epochs=3, device="cpu").fit(two_groups).score_samples(two_groups)
    leaf = two_groups.x.clone().requires_grad_()
    for x in (leaf, leaf * 1.0, nn.Parameter(two_groups.x.clone())):
        data = two_groups.clone()
        data.x = x
        scores = Detector(epochs=3, device="cpu").fit(data).score_samples(data)
        assert torch.equal(scores, expected)
        assert not scores.requires_grad
        assert data.x.requires_grad
    assert leaf.grad is None
    assert data.x.grad is None
