"""What goes in where a graph is expected, and what is refused with a way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader, NeighborLoader
from torch_geometric.utils import coalesce, from_networkx, to_networkx

from oddnode import Detector, Energy
from oddnode.graph import Graph, GraphError, as_source

NODES = ("x", "y", "train_mask", "val_mask", "calibration_mask")


@pytest.fixture
def data(two_groups: Data) -> Data:
    two_groups.calibration_mask = two_groups.test_mask
    two_groups.edge_index = coalesce(two_groups.edge_index)  # NetworkX keeps an edge once
    return two_groups


def as_hetero(data: Data) -> HeteroData:
    hetero = HeteroData()
    for name in NODES:
        hetero["paper"][name] = data[name]
    hetero["paper", "cites", "paper"].edge_index = data.edge_index
    return hetero


def as_networkx(data: Data) -> nx.Graph:
    return to_networkx(data, node_attrs=list(NODES), to_undirected=True)


class Stored:
    """A class from outside, which inherits nothing: tensors are made when they are asked for."""

    def __init__(self, data: Data, names: tuple[str, ...] = NODES):
        self._data, self._names = data, {"x", "edge_index", *names}

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(name)
        return self._data[name].clone()


@pytest.mark.parametrize("make", [as_hetero, as_networkx, Stored])
def test_other_kinds_of_graphs_fit_score_calibrate_detect_and_explain(data: Data, make: Callable) -> None:
    other = make(data)
    expected = Detector(epochs=3, device="cpu").fit(data).calibrate(data, 0.1)
    found = Detector(epochs=3, device="cpu").fit(other).calibrate(other, 0.1)
    assert found.threshold_ == pytest.approx(expected.threshold_)
    for method in ("score_samples", "predict", "predict_proba", "detect", "p_values"):
        torch.testing.assert_close(getattr(found, method)(other), getattr(expected, method)(data))
    torch.testing.assert_close(found.explain(other).own_score, expected.explain(data).own_score)
    assert found.reasons(other, [0]) == expected.reasons(data, [0])


def test_a_network_can_be_wrapped_with_and_without_labels(data: Data) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[:, :4]

    for source, expected in ((Stored(data), 3), (Stored(data, ()), 4)):
        assert Detector.wrap(Net(), Energy(), source).num_classes_ == expected


def test_exposure_may_be_another_kind_of_graph_too(data: Data) -> None:
    fitted = [
        Detector.from_recipe("energy-ft", epochs=2, device="cpu").fit(data, exposure)
        for exposure in (data, as_hetero(data))
    ]
    assert torch.equal(*(detector.score_samples(data) for detector in fitted))


def test_a_networkx_graph_is_read_as_pyg_reads_it(data: Data) -> None:
    graph = as_networkx(data)
    ours, theirs = as_source(graph), from_networkx(graph)
    for name in ("x", "edge_index", "y", "train_mask"):
        assert torch.equal(getattr(ours, name), theirs[name])
        assert getattr(ours, name).dtype == theirs[name].dtype


def test_nodes_without_a_label_or_a_mask_are_unlabelled() -> None:
    graph = nx.DiGraph()
    graph.add_node("b", x=[1.0, 2.0], y=3, train_mask=True)
    graph.add_node("a", x=np.array([0.0, 1.0]), name="left out")
    graph.add_edge("a", "b", colour="red")
    source = as_source(graph)
    assert isinstance(source, Data)
    assert source.to_dict().keys() == {"x", "y", "train_mask", "edge_index"}
    assert source.y.tolist() == [3, -1]
    assert source.train_mask.tolist() == [True, False]
    assert source.edge_index.tolist() == [[1], [0]]
    assert source.x.tolist() == [[1.0, 2.0], [0.0, 1.0]]


def test_edges_of_a_multigraph_and_loops_count_as_often_as_they_are_there() -> None:
    graph = nx.MultiGraph([(0, 1), (0, 1), (1, 1)])
    nx.set_node_attributes(graph, [1.0], "x")
    assert sorted(as_source(graph).edge_index.t().tolist()) == [[0, 1], [0, 1], [1, 0], [1, 0], [1, 1]]


@pytest.mark.parametrize("weight", [3, 0.5])
def test_networkx_edges_bring_their_weights_along(weight: float) -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, [1.0], "x")
    graph.edges[0, 1]["weight"] = weight
    source = as_source(graph)
    assert isinstance(source, Data)
    pairs = source.edge_index.t().tolist()
    assert dict(zip(map(tuple, pairs), source.edge_weight.tolist(), strict=True)) == {
        **dict.fromkeys([(0, 1), (1, 0)], weight),
        **dict.fromkeys([(1, 2), (2, 1)], 1.0),
    }
    assert Graph.from_data(graph).in_degree.tolist() == [weight, weight + 1, 1.0]


def test_whole_numbers_are_weights_too() -> None:
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, [1.0], "x")
    nx.set_edge_attributes(graph, 2, "weight")
    assert Graph.from_data(graph).in_degree.tolist() == [2.0, 2.0]


def with_features(data: Data, x: Any) -> nx.Graph:
    graph = as_networkx(data)
    graph.nodes[5]["x"] = x
    return graph


def bank(**more: dict[str, Tensor]) -> HeteroData:
    """Three accounts with two features and labels, two cards with one feature, and a device without features."""
    data = HeteroData()
    data["account"].x, data["account"].y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([0, 1, 1])
    data["account"].train_mask = torch.tensor([True, True, False])
    data["card"].x, data["device"].num_nodes = torch.tensor([[7.0], [8.0]]), 1
    data["account", "has", "card"].edge_index = torch.tensor([[0, 2], [1, 0]])
    data["account", "uses", "device"].edge_index = torch.tensor([[1, 2], [0, 0]])
    data["account", "uses", "device"].edge_weight = torch.tensor([0.5, 2.0])
    for kind in [*data.node_types, *data.edge_types]:
        data[kind].update(more.get(kind if isinstance(kind, str) else kind[1], {}))
    return data


def test_types_of_nodes_and_edges_become_one_graph() -> None:
    joined = as_source(bank())
    expected = torch.tensor(
        [
            [1.0, 2.0, 1.0, 0.0, 0.0, 0.0],
            [3.0, 4.0, 1.0, 0.0, 0.0, 0.0],
            [5.0, 6.0, 1.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 7.0, 1.0, 0.0],
            [0.0, 0.0, 0.0, 8.0, 1.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    )
    assert torch.equal(joined.x, expected)
    assert joined.edge_index.tolist() == [[0, 2, 1, 2], [4, 3, 5, 5]]
    assert joined.edge_weight.tolist() == [1.0, 1.0, 0.5, 2.0]  # type: ignore[attr-defined]
    assert joined.y.tolist() == [0, 1, 1, -1, -1, -1]  # type: ignore[attr-defined]
    assert joined.train_mask.tolist() == [True, True, False, False, False, False]  # type: ignore[attr-defined]


def test_several_types_of_edges_between_one_type_of_nodes_are_joined(data: Data) -> None:
    joined = as_source(with_relation(data, "paper", False))
    assert torch.equal(joined.x, data.x)
    assert torch.equal(joined.edge_index, torch.cat([data.edge_index, data.edge_index], dim=1))


def with_relation(data: Data, target: str, features: bool) -> HeteroData:
    """One more type of edges, or the only one, which may lead to nodes of a type that the graph does not hold."""
    hetero = as_hetero(data) if target == "paper" else HeteroData(paper={"x": data.x})
    hetero["paper", "by", target].edge_index = data.edge_index
    if features:
        hetero[target].x = data.x
    return hetero


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("has", {"edge_index": torch.tensor([[3], [0]])}, r"have node 3, but there are only 3 nodes"),
        ("has", {"edge_index": torch.tensor([[0], [-1]])}, r"'card'\) have node -1, but .* only 2 nodes"),
        ("has", {"edge_index": torch.ones(2, 1).bool()}, r"are torch.bool of shape \[2, 1\], expected integers"),
        ("has", {"edge_weight": torch.ones(3)}, r"are 2, with 3 weights; give one per edge"),
        ("card", {"seen_mask": torch.ones(3).bool()}, r"2 nodes of type 'card', but 3 values in 'seen_mask'"),
        ("card", {"x": torch.tensor([[2**24 + 1], [0]])}, r"x of type 'card': 16777217 would be rounded to 16777216"),
    ],
)
def test_what_is_of_no_node_of_its_type_is_refused(kind: str, given: dict[str, Tensor], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        as_source(bank(**{kind: given}))


def test_numbers_that_are_none_or_do_not_fit_are_refused(data: Data) -> None:
    with pytest.raises(GraphError, match="'x' of the NetworkX graph: there are masked values"):
        as_source(with_features(data, np.ma.array([1.0] * 6, mask=True)))
    data.x = torch.full((60, 6), 2**24 + 1)
    with pytest.raises(GraphError, match=r"data\.x: 16777217 would be rounded to 16777216"):
        Graph.from_data(data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda data: with_relation(data, "author", False),
            r"has no nodes of type 'author': give them x, or num_nodes",
        ),
        (
            lambda data: bank(card={"y": torch.zeros(2)}),
            r"labels of several types \('account', 'card'\).*to_homogeneous",
        ),
        (lambda data: bank(has={"edge_attr": torch.ones(2)}), r"'has', 'card'\) have one number each, edge_attr"),
        (lambda data: nx.path_graph(3), r"has the node 0 without the attribute 'x'.*from_networkx\("),
        (lambda data: nx.Graph(), r"has no nodes"),
        (lambda data: with_features(data, [1.0]), r"of the NetworkX graph: .* numbers of equal shape everywhere"),
        (lambda data: with_features(data, ["a"] * 6), r"'x' of the NetworkX graph: .*; give values of one type"),
        (lambda data: [data, data], r"is list, expected a graph.*Batch\.from_data_list"),
        (lambda data: DataLoader([data]), r"is DataLoader, expected a graph.*give the whole graph that the loader"),
        (lambda data: data.x, r"is Tensor, expected a graph.*a graph also needs edges"),
        (lambda data: data.x.numpy(), r"is ndarray, expected .*make Data\(x=\.\.\., edge_index=\.\.\., y=\.\.\."),
        (lambda data: "nodes.csv", r"is str, expected a graph.*TableModel"),
        (lambda data: None, r"is NoneType, expected a graph with x and edge_index"),
    ],
)
def test_what_is_no_graph_is_refused_at_every_door(data: Data, make: Callable[[Data], Any], message: str) -> None:
    detector = Detector(epochs=1, device="cpu").fit(data).calibrate(data, 0.1)
    wrong = make(data)
    doors: list[Callable[[Any], Any]] = [
        Detector(epochs=1).fit,
        detector.calibrate,
        detector.score_samples,
        detector.predict,
        detector.predict_proba,
        detector.detect,
        detector.p_values,
        detector.flag,
        detector.explain,
        detector.reasons,
        lambda graph: Detector.wrap(torch.nn.Linear(6, 3), "msp", graph),
    ]
    for door in doors:
        with pytest.raises(GraphError, match=message):
            door(wrong)


def test_loaders_of_pyg_are_known_by_their_base_class() -> None:
    assert issubclass(NeighborLoader, torch.utils.data.DataLoader)
