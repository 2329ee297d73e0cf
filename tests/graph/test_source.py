"""A graph of a class from outside, which inherits nothing, goes wherever a PyG ``Data`` goes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import Detector, Energy
from oddnode.graph import Graph, GraphError, GraphSource, training_set


class Stored:
    """Tensors that are made when they are asked for, as a graph on disk would."""

    def __init__(self, data: Data, *names: str):
        self._data = data
        self._names = {"x", "edge_index", *names}

    @property
    def x(self) -> Tensor:
        return self._data.x.clone()

    @property
    def edge_index(self) -> Tensor:
        return self._data.edge_index.clone()

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(name)
        return self._data[name].clone()


LABELLED = ("y", "train_mask", "val_mask")


def test_a_detector_fits_scores_and_decides_as_on_data(two_groups: Data) -> None:
    source: GraphSource = Stored(two_groups, *LABELLED)
    ours = Detector(epochs=5, device="cpu").fit(source)
    theirs = Detector(epochs=5, device="cpu").fit(two_groups)
    for detector, graph in ((ours, source), (theirs, two_groups)):
        detector.calibrate(graph, 0.1, two_groups.test_mask)
    for method in ("score_samples", "predict", "detect", "p_values"):
        assert torch.equal(getattr(ours, method)(source), getattr(theirs, method)(two_groups))


def test_exposure_and_calibration_masks_are_attributes(two_groups: Data) -> None:
    two_groups.calibration_mask = two_groups.test_mask
    two_groups.ood_mask = two_groups.y == 2
    source = Stored(two_groups, *LABELLED, "calibration_mask")
    detector = Detector.from_recipe("energy-ft", epochs=3, device="cpu").fit(source, Stored(two_groups, "ood_mask"))
    expected = Detector.from_recipe("energy-ft", epochs=3, device="cpu").fit(two_groups, two_groups)
    assert detector.calibrate(source, 0.1).threshold_ == expected.calibrate(two_groups, 0.1).threshold_


def test_checked_graphs_and_training_sets_are_made_from_it(two_groups: Data) -> None:
    assert torch.equal(Graph.from_data(Stored(two_groups)).edge_index, two_groups.edge_index)
    dataset = training_set(Stored(two_groups, *LABELLED), None, torch.device("cpu"))
    assert torch.equal(dataset.y_train, two_groups.y[two_groups.train_mask])
    with pytest.raises(GraphError, match=r"data\.train_mask is missing"):
        training_set(Stored(two_groups, "y"), None, torch.device("cpu"))


def test_a_network_can_be_wrapped_with_and_without_labels(two_groups: Data) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[:, :4]

    assert Detector.wrap(Net(), Energy(), Stored(two_groups, *LABELLED)).num_classes_ == 3
    assert Detector.wrap(Net(), Energy(), Stored(two_groups)).num_classes_ == 4
    with pytest.raises(GraphError, match="data is str, expected a graph with x and edge_index"):
        Detector.wrap(Net(), Energy(), "graph.pt")  # type: ignore[arg-type]
