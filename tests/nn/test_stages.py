"""A backbone from outside the library that is made of its stages is fast wherever those of the library are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oddnode import Detector, LiveGraph
from oddnode.graph import Graph, training_set
from oddnode.nn import Backbone, Layerwise, embed_with, in_blocks, receptive_hops
from oddnode.nn.base import network_blocker
from oddnode.nn.stages import (
    Activation,
    Convolution,
    Linear,
    NodeMatrix,
    PreparedGCNConv,
    RowWise,
    Stage,
    Stages,
    Stream,
)
from oddnode.objectives import BoundUniform, CrossEntropy
from oddnode.scoring import FolderOutputs
from oddnode.training import FullBatch, MiniBatch, PackedRows, Trainer, TrainingConfig, stacking_blocker
from tests.large.graphs import as_folder, random_graph

OBJECTIVE = CrossEntropy() + BoundUniform(start=2)


class Mine(Backbone):
    """A user's two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = PreparedGCNConv(5, 8), nn.BatchNorm1d(8), PreparedGCNConv(8, 3)
        self.dropout = 0.5

    def stages(self) -> Stages:
        return Stages([Convolution(self.one), Activation(self.norm, 0)], [Convolution(self.two)])


class Squashed(Backbone):
    """One that ends in a function of its own, of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = PreparedGCNConv(5, 8), nn.Linear(8, 3)
        self.dropout = 0.0

    def stages(self) -> Stages:
        return Stages([Convolution(self.one), RowWise(torch.tanh, 0)], [Linear(self.two), RowWise(torch.tanh)])


class Silenced(Mine):
    """One whose head is not what its stages say."""

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return 0.0 * super().head(hidden, graph)


class Annealed(Mine):
    """One that changes with the epoch, which only a single network in memory is told."""

    def begin_epoch(self, epoch: int) -> None:
        self.dropout = 0.5 / (1 + epoch)


def new(kind: type[Backbone]) -> Backbone:
    torch.manual_seed(0)
    return kind().double()


DATA = random_graph(num_nodes=90, num_edges=300)


@pytest.mark.parametrize("kind", [Mine, Squashed])
def test_it_is_computed_layer_by_layer_in_memory_and_on_disk(kind: type[Backbone], tmp_path: Path) -> None:
    module, graph = new(kind).eval(), Graph(DATA.x, DATA.edge_index)
    assert isinstance(in_blocks(module, graph), Layerwise)
    on_disk = FolderOutputs(module, as_folder(DATA, tmp_path / "graph").as_graph(), 3)
    with torch.no_grad():
        torch.testing.assert_close(on_disk.all_logits, module.run(graph), atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(on_disk.hidden, embed_with(module, graph), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("trainer", [FullBatch(stacked=True), PackedRows()])
def test_stacked_and_on_packed_rows_it_becomes_what_it_becomes_alone(trainer: Trainer) -> None:
    outcomes = []
    for each in (trainer, FullBatch(stacked=False)):
        module, data = new(Mine), training_set(DATA, None, torch.device("cpu"))
        [result] = each.start([module], OBJECTIVE, [data], [3], TrainingConfig(epochs=8)).result()
        outcomes.append((result.best_epoch, module.run(data.graph).detach()))
    assert outcomes[0][0] == outcomes[1][0]
    torch.testing.assert_close(outcomes[0][1], outcomes[1][1], atol=1e-9, rtol=1e-9)


def test_its_hops_are_counted() -> None:
    assert [receptive_hops(new(kind)) for kind in (Mine, Squashed)] == [2, 1]


def test_what_its_stages_do_not_tell_is_not_ignored() -> None:
    data, graph = training_set(DATA, None, torch.device("cpu")), Graph(DATA.x, DATA.edge_index)
    silenced, annealed = new(Silenced).eval(), new(Annealed)
    assert not isinstance(in_blocks(silenced, graph), Layerwise)
    assert in_blocks(silenced, graph).logits_of(slice(0, 90)).abs().max() == 0.0
    for module in (silenced, annealed):
        assert network_blocker(module) is not None
        assert stacking_blocker([module], OBJECTIVE, [data], "id-graph") is not None


def test_a_backbone_of_nothing_says_what_it_lacks() -> None:
    with pytest.raises(TypeError, match=r"Backbone must define stages\(\), or both embed\(graph\) and head"):
        Backbone().run(Graph(DATA.x, DATA.edge_index))
    with pytest.raises(ValueError, match="Empty has no parameters to train"):
        Detector(Empty(), epochs=1, device="cpu").fit(DATA)


class Empty(Backbone):
    def stages(self) -> Stages:
        return Stages([], [])


class Around(Stage):
    """A user's stage that adds the mean over neighbours, and may not say that it reads them."""

    def __init__(self, num_hops: int) -> None:
        self.num_hops = num_hops

    def run(self, values: Tensor, graph: Graph, backbone: Backbone) -> Tensor:
        return values + graph.random_walk @ values

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        assert values is not None
        stored, out = stream.stored(values), stream.graph.empty(3)
        for rows, near in stream.graph.neighbour_means(stored, out):
            out[rows] = stored[rows] + near
        return lambda rows: out[rows]


class Undeclared(Backbone):
    """One that sets no dropout either."""

    def __init__(self, num_hops: int = 0) -> None:
        super().__init__()
        self.lin, self.num_around = nn.Linear(5, 3, dtype=torch.float64), num_hops

    def stages(self) -> Stages:
        return Stages([Linear(self.lin)], [Around(self.num_around)])


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_stage_that_reads_neighbours_must_say_so_where_they_are_sampled(tmp_path: Path, on_disk: bool) -> None:
    data: Any = as_folder(DATA, tmp_path / "graph") if on_disk else DATA
    sampled: dict[str, Any] = {"trainer": MiniBatch(), "epochs": 1, "device": "cpu"}
    with pytest.raises(ValueError, match=r"Undeclared depend on nodes that are more than 0 hops away.*its stages"):
        Detector(Undeclared(), **sampled).fit(data)
    Detector(Undeclared(num_hops=1), **sampled).fit(data)
    in_full = Detector(Undeclared(), epochs=1, device="cpu").fit(DATA)
    assert not Undeclared().is_deterministic  # it might drop by itself
    with pytest.raises(ValueError, match="more than 0 hops away"):
        LiveGraph(in_full, DATA)
