"""A graph of a class from outside, which inherits nothing, goes wherever a PyG ``Data`` goes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import Detector, Energy
from oddnode.graph import GraphError, GraphSource


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


def test_a_network_can_be_wrapped_with_and_without_labels(two_groups: Data) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[:, :4]

    assert Detector.wrap(Net(), Energy(), Stored(two_groups, *LABELLED)).num_classes_ == 3
    assert Detector.wrap(Net(), Energy(), Stored(two_groups)).num_classes_ == 4
    with pytest.raises(GraphError, match="data is str, expected a graph with x and edge_index"):
        Detector.wrap(Net(), Energy(), "graph.pt")  # type: ignore[arg-type]
