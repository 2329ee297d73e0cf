"""A graph folder whose arrays are in the memory of a device; on the CPU, to test the same code without a GPU."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.detector.fitting import device_for
from oddnode.functional import energy, propagate, support
from oddnode.graph import Graph
from oddnode.large import FolderError, FolderGraph, GraphFolder
from oddnode.large.graph_arrays import GraphArrays
from oddnode.ops import BlockedNeighbourMean, NeighbourMean, neighbour_mean_matrix
from tests.large.graphs import as_folder, graphs, random_graph
from tests.large.test_evidence import undirected, weighted

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
_as_graph = GraphFolder.as_graph  # which a test replaces
METHODS = ["nodesafe-evidence", "nodesafe", "nodesafe-msp", "mahalanobis", "gnnsafe"]


def _copy(folder: GraphFolder, device: str) -> GraphArrays:
    return _as_graph(folder).folder.copy_to(torch.device(device))


def resident(folder: GraphFolder, device: str) -> FolderGraph:
    """The graph of a folder in the memory of a device."""
    return FolderGraph(_copy(folder, device))


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=40, deadline=None)
@given(data=graphs(weighted=True))
def test_products_are_those_of_the_graph_in_memory(device: str, data: Data) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = resident(as_folder(data, Path(folder) / "graph"), device)
    expected = Graph.from_data(data)
    values = torch.arange(3.0 * data.num_nodes, dtype=torch.float64).reshape(-1, 3)
    close = partial(torch.testing.assert_close, atol=1e-9, rtol=1e-9)
    for columns in (values, values[:, 0]):
        walked = found.random_walk.diffuse(columns.to(device), 0.3, 3).cpu()
        close(walked, expected.random_walk.diffuse(columns, 0.3, 3))
    close(found.convolve(values.to(device)).cpu(), expected.convolve(values))
    close(found.smoothed_x.cpu(), expected.smoothed_x)
    close(found.in_degree.double().cpu(), expected.in_degree.double())
    close(found.support(3, 0.5).cpu(), expected.support(3, 0.5))
    assert found.is_symmetric == expected.is_symmetric
    removed = torch.arange(0, data.num_nodes - 1, 2)
    part, place = found.without(removed.to(device))
    rest, moved = expected.without(removed)
    assert torch.equal(place.cpu(), moved)
    close(part.smoothed_x.cpu(), rest.smoothed_x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("with_weights", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_scores_are_those_of_the_graph_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, with_weights: bool, method: str
) -> None:
    data, grown = (weighted(undirected(size)) if with_weights else undirected(size) for size in (150, 180))
    folders = [as_folder(each, tmp_path / str(each.num_nodes)) for each in (data, grown)]
    memory = Detector.from_recipe(method, epochs=4, device="cpu", seed=1).fit(data)
    if device == "cpu":  # where a folder would be read from disk
        monkeypatch.setattr(GraphFolder, "as_graph", lambda folder, _: resident(folder, "cpu"))
    detector = Detector.from_recipe(method, epochs=4, device=device, seed=1).fit(folders[0])
    assert detector.best_epoch_ == memory.best_epoch_
    for graph, folder in zip((data, grown), folders, strict=True):
        outputs = detector.outputs(folder)
        assert isinstance(outputs.graph, FolderGraph)
        assert outputs.graph.folder.kind == "copy"
        assert outputs.graph.device.type == device
        apart = (detector.score_samples(outputs).cpu() - memory.score_samples(graph)).abs()
        # Scores of evidence are ranks, and nodes that tie on a CPU may not on a GPU, which rounds them differently.
        ties = 0.1 if device == "cuda" and "evidence" in method else 0.0
        assert float((apart > 1e-5).double().mean()) <= ties
        assert float(apart.max()) <= 1e-5 + 3 * ties
    nodes = memory.score_samples(data).argsort()[:10]
    memory.calibrate(data, 0.1, data.calibration_mask)
    detector.calibrate(folders[0], 0.1, data.calibration_mask)
    if device == "cpu" or "evidence" not in method:
        assert detector.reasons(folders[0], nodes.to(device)) == memory.reasons(data, nodes)


@needs_cuda
@pytest.mark.parametrize("backbone", ["gat", "jknet", "mixhop", "mlp"])
def test_other_networks_score_a_folder_on_a_gpu_as_on_the_cpu(tmp_path: Path, backbone: str) -> None:
    folder = as_folder(undirected(150), tmp_path / "graph")
    detector = Detector.from_recipe("nodesafe", backbone=backbone, epochs=3, device="cuda").fit(folder)
    detector.save(tmp_path / "model")
    scores = Detector.load(tmp_path / "model", device="cpu").score_samples(folder)
    torch.testing.assert_close(detector.score_samples(folder).cpu(), scores, atol=1e-5, rtol=1e-5)


def test_a_graph_that_does_not_fit_is_refused_or_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = as_folder(random_graph(), tmp_path / "graph")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda _: 0)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda _: 0)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (1000, 10**9))
    with pytest.raises(FolderError, match=r"graph needs about 0.0 GB on cuda, where 0.0 GB are free; use device='cpu'"):
        folder.as_graph("cuda")
    assert device_for("auto", folder) == torch.device("cpu")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (10**9, 10**9))
    assert device_for("auto", folder) == torch.device("cuda")


def test_a_folder_is_copied_to_a_device_once_while_the_copy_is_in_use(tmp_path: Path) -> None:
    copy = _copy(as_folder(random_graph(), tmp_path / "graph"), "cpu")
    assert _copy(GraphFolder(tmp_path / "graph").with_masks(val_mask=torch.ones(60) > 0), "cpu") is copy
    assert _copy(as_folder(random_graph(seed=1), tmp_path / "other"), "cpu") is not copy


def test_ranks_have_a_gpu_each_if_they_ask_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = as_folder(random_graph(), tmp_path / "graph")
    monkeypatch.setattr("oddnode.detector.fitting.active_ranks", lambda: SimpleNamespace(world_size=2))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", lambda _: None)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert device_for("auto", folder) == device_for("cpu", folder) == torch.device("cpu")
    assert device_for("cuda", folder) == torch.device("cuda", 1)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ValueError, match="2 ranks share 1 GPUs; start one rank for each GPU, or use the device cpu"):
        device_for("cuda", folder)


@needs_cuda
@pytest.mark.parametrize("method", METHODS)
def test_a_graph_that_does_not_fit_is_scored_on_the_cpu_by_a_model_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    folder = as_folder(undirected(150), tmp_path / "graph")
    detector = Detector.from_recipe(method, epochs=3, device="auto").fit(folder)
    scores = detector.score_samples(folder)
    monkeypatch.setattr("oddnode.detector.fitting.missing_memory", lambda *_: "no room")
    outputs = detector.outputs(folder)
    assert outputs.graph.device.type == "cpu"
    assert float((detector.score_samples(outputs).cpu() - scores.cpu()).abs().median()) < 1e-5
    assert detector.explain(outputs).score.isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_blocks", [1, 3, 8])
@pytest.mark.parametrize("at_once", [7, 2**27])
def test_sorted_edges_are_divided_into_blocks(
    monkeypatch: pytest.MonkeyPatch, device: str, num_blocks: int, at_once: int
) -> None:
    monkeypatch.setattr("oddnode.ops.neighbour_means._EDGES_AT_ONCE", at_once)
    data = random_graph(num_nodes=61)
    whole = NeighbourMean.from_edges(data.edge_index.to(device), data.num_nodes)
    blocked = BlockedNeighbourMean.from_sorted(whole.offsets, whole.sources, num_blocks)
    values = torch.randn(data.num_nodes, generator=torch.Generator().manual_seed(0)).to(device)
    expected = propagate(values.cpu(), data.edge_index, num_hops=3, eta=0.2)
    found = propagate(values, blocked, num_hops=3, eta=0.2)
    torch.testing.assert_close(found.cpu(), expected)


def test_signs_by_hash_estimate_the_same_support(monkeypatch: pytest.MonkeyPatch) -> None:
    data = undirected(180)
    walk = neighbour_mean_matrix(data.edge_index, data.num_nodes, torch.float64)
    dense = torch.linalg.matrix_power(
        0.5 * torch.eye(data.num_nodes, dtype=torch.float64) + 0.5 * walk.with_self_loops_where_empty.to_dense(), 3
    )
    exact = 1 / dense.square().sum(dim=1)
    drawn = support(walk, 3, 0.5)
    monkeypatch.setattr(energy, "_MANY_NODES", 10)
    hashed = support(walk, 3, 0.5)
    assert not torch.equal(hashed, drawn)
    for estimate in (drawn, hashed):
        assert float((estimate / exact).log().abs().median()) < 0.2
    assert torch.equal(hashed, support(walk, 3, 0.5))
