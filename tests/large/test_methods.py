"""Detectors on graphs on disk give what they give on the same graph in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from oddnode import RECIPES, Detector
from oddnode.detector.fitting import folder_blocker
from oddnode.large import GraphFolder, product
from oddnode.large import graph as large_graph
from oddnode.training import PackedRows
from tests.large.graphs import as_folder, random_graph

METHODS = [
    name
    for name in RECIPES
    if not RECIPES[name].needs_exposure and folder_blocker(Detector.from_recipe(name, device="cpu")) is None
]
EPOCHS = 25


@pytest.mark.parametrize("backbone", ["gcn", "mlp"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_gives_the_same_losses_scores_and_explanations(
    data: Data, folder: GraphFolder, method: str, backbone: str
) -> None:
    memory, disk = same_results(data, folder, method, backbone)
    assert disk.graph_profile_ == memory.graph_profile_


@pytest.mark.parametrize("method", METHODS)
def test_a_method_gives_the_same_with_weights(weighted_data: Data, weighted_folder: GraphFolder, method: str) -> None:
    memory, disk = same_results(weighted_data, weighted_folder, method, "gcn")
    assert disk.graph_profile_.as_dict() == pytest.approx(memory.graph_profile_.as_dict())


def same_results(data: Data, folder: GraphFolder, method: str, backbone: str) -> tuple[Detector, Detector]:
    """Fit a method in memory and on disk, and compare all that it computes."""
    fitted = [
        Detector.from_recipe(method, backbone, seed=3, device="cpu", epochs=EPOCHS).fit(graph)
        for graph in (data, folder)
    ]
    memory, disk = fitted
    assert disk.best_epoch_ == memory.best_epoch_
    losses = [torch.tensor([[row["loss"], row["val_loss"]] for row in each.history_]) for each in fitted]
    torch.testing.assert_close(losses[1], losses[0], atol=1e-7, rtol=1e-7)
    scores = [each.score_samples(graph) for each, graph in zip(fitted, (data, folder), strict=True)]
    torch.testing.assert_close(scores[1], scores[0], atol=1e-5, rtol=1e-5)
    assert torch.equal(disk.predict(folder), memory.predict(data))
    torch.testing.assert_close(disk.predict_proba(folder), memory.predict_proba(data), atol=1e-6, rtol=1e-6)
    for detector, graph in zip(fitted, (data, folder), strict=True):
        detector.calibrate(graph, false_alarm_rate=0.1)
    assert disk.threshold_ == pytest.approx(memory.threshold_, abs=1e-5)
    torch.testing.assert_close(disk.p_values(folder), memory.p_values(data))
    assert torch.equal(disk.detect(folder), memory.detect(data))
    explained = [each.explain(graph) for each, graph in zip(fitted, (data, folder), strict=True)]
    for name in ("score", "own_score", "neighbour_contribution"):
        torch.testing.assert_close(getattr(explained[1], name), getattr(explained[0], name), atol=1e-5, rtol=1e-5)
    assert torch.equal(explained[1].nearest_class, explained[0].nearest_class)
    return memory, disk


@pytest.mark.parametrize("rows_at_once", [1, 7, 1000])
@pytest.mark.parametrize("dropout", [0.0, 0.3, 0.5])
def test_the_size_of_chunks_changes_nothing(
    weighted_folder: GraphFolder,
    weighted_data: Data,
    monkeypatch: pytest.MonkeyPatch,
    rows_at_once: int,
    dropout: float,
) -> None:
    folder, data = weighted_folder, weighted_data
    settings: dict[str, Any] = {"epochs": 6, "dropout": dropout, "device": "cpu"}
    expected = Detector.from_recipe("nodesafe", **settings).fit(data)
    real = large_graph.row_chunks
    monkeypatch.setattr(large_graph, "row_chunks", lambda rows, size, *limit: real(rows, size, rows_at_once * size))
    monkeypatch.setattr(product, "_ROWS_AT_ONCE", rows_at_once)
    found = Detector.from_recipe("nodesafe", trainer=PackedRows(rows_at_once), **settings).fit(folder)
    for one, other in zip(found.history_, expected.history_, strict=True):
        assert one == pytest.approx(other, abs=1e-9)
    torch.testing.assert_close(found.score_samples(folder), expected.score_samples(data), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_single_precision_gives_nearly_the_same_scores(tmp_path: Path, weighted: bool) -> None:
    data = random_graph(num_nodes=120, num_edges=500, dtype=torch.float32, weighted=weighted)
    folder = as_folder(data, tmp_path)
    expected = Detector.from_recipe("nodesafe", epochs=EPOCHS, device="cpu").fit(data)
    found = Detector.from_recipe("nodesafe", epochs=EPOCHS, device="cpu").fit(folder)
    assert found.score_samples(folder).dtype == torch.float32
    torch.testing.assert_close(found.score_samples(folder), expected.score_samples(data), atol=1e-3, rtol=1e-3)
    # The same trained network, so that training has no part in the difference.
    torch.testing.assert_close(expected.score_samples(folder), expected.score_samples(data), atol=1e-5, rtol=1e-5)


def test_a_model_scores_graphs_on_disk_with_and_without_weights_as_it_does_in_memory(
    data: Data, folder: GraphFolder, weighted_data: Data, weighted_folder: GraphFolder
) -> None:
    graphs = [(data, folder), (weighted_data, weighted_folder)]
    for fitted_on in (data, weighted_data):
        detector = Detector.from_recipe("nodesafe", epochs=5, device="cpu").fit(fitted_on)
        scores = [[detector.score_samples(graph) for graph in pair] for pair in graphs]
        for memory, disk in scores:
            torch.testing.assert_close(disk, memory, atol=1e-9, rtol=1e-9)
        assert not torch.allclose(scores[0][0], scores[1][0], atol=1e-3)


def test_another_scorer_can_be_used_on_the_same_folder(folder: GraphFolder, data: Data) -> None:
    from oddnode import Mahalanobis

    memory = Detector.from_recipe("msp", epochs=5, device="cpu").fit(data).with_scorer(Mahalanobis())
    disk = Detector.from_recipe("msp", epochs=5, device="cpu").fit(folder).with_scorer(Mahalanobis())
    torch.testing.assert_close(disk.score_samples(folder), memory.score_samples(data), atol=1e-6, rtol=1e-6)


def test_far_features_are_clipped_as_in_memory(data: Data, tmp_path: Path) -> None:
    detector = Detector.from_recipe("gnnsafe", epochs=5, device="cpu").fit(data)
    broken = data.clone()
    broken.x[[7, 100], 2] = 1e9
    folder = as_folder(broken, tmp_path)
    found, expected = detector.score_samples(folder), detector.score_samples(broken)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    assert set(found.argsort()[:2].tolist()) == {7, 100}


REFUSED = [name for name in RECIPES if name not in METHODS and not RECIPES[name].needs_exposure]


@pytest.mark.parametrize("method", REFUSED)
def test_other_methods_are_refused_with_a_reason(folder: GraphFolder, method: str) -> None:
    detector = Detector.from_recipe(method, device="cpu")
    reason = folder_blocker(detector)
    assert reason is not None
    with pytest.raises(ValueError, match="cannot be used on a graph on disk") as refused:
        detector.fit(folder)
    assert reason in str(refused.value)


def test_a_folder_in_another_precision_is_refused(folder: GraphFolder) -> None:
    detector = Detector.from_recipe("msp", device="cpu", epochs=2).fit(random_graph(dtype=torch.float32))
    with pytest.raises(ValueError, match=r"are torch.float64, but the network is torch.float32"):
        detector.score_samples(folder)


def test_a_wrapped_network_scores_a_folder(data: Data, folder: GraphFolder) -> None:
    fitted = Detector.from_recipe("gnnsafe", epochs=3, device="cpu").fit(data)
    wrapped = Detector.wrap(fitted.module_, None, data, device="cpu")
    torch.testing.assert_close(wrapped.score_samples(folder), wrapped.score_samples(data), atol=1e-9, rtol=1e-9)
    with pytest.raises(ValueError, match=r"Detector.wrap needs a graph in memory"):
        Detector.wrap(fitted.module_, data=folder, device="cpu")
