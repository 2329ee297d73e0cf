"""Arrivals in a live graph against the whole graph with the arrivals in it."""

from __future__ import annotations

import copy
import math
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from oddnode import (
    RECIPES,
    CalibrationError,
    ClassAgreement,
    Detector,
    Energy,
    LiveGraph,
    MaxSoftmax,
    NeighbourhoodCosine,
    NeighbourhoodFeatures,
    Outputs,
    Propagated,
    Scorer,
    load_task,
)
from oddnode.graph import GraphError
from oddnode.large import FolderError, NodeChunk, build_folder
from oddnode.online import Judgement, growing
from oddnode.online import live as live_graph
from oddnode.tasks import Task

REFUSED = {
    "grasp": "GRASP",
    "odin": "ODIN",
    "neighbour-cosine": "NeighbourCosine",
    "gpn": "GPN reads nodes",
    "gebm": "GEBM",
}
EXACT = {
    "msp",
    "mahalanobis",
    "energy",
    "gkde",
    "oe",
    "energy-ft",
    "knn",
    "nonzeros",
    "degree",
    "centred-cosine",
    "oodgat",
}
Links = Sequence[tuple[Any, ...]]


@pytest.fixture(scope="module")
def task() -> Task:
    """In double precision, in which rounding does not hide what differs."""
    task = copy.deepcopy(load_task("digits/arrivals/label-scattered"))
    assert task.exposure is not None
    for data in (task.train, task.id_test.data, task.exposure):
        data.x = data.x.double()
    return task


@pytest.fixture(scope="module")
def energy(task: Task) -> Detector:
    return Detector(scorer=Energy(), epochs=5, device="cpu").fit(task.train)


@pytest.mark.parametrize("cap", [0, 2.5, math.nan, "5", True])
def test_a_number_of_neighbours_that_is_none_is_refused(energy: Detector, task: Task, cap: Any) -> None:
    with pytest.raises(ValueError, match=f"max_neighbours is {cap!r}, expected an integer of 1 or more"):
        LiveGraph(energy, task.train, max_neighbours=cap)


def test_nothing_is_converted_silently(energy: Detector, task: Task, tmp_path: Path) -> None:
    x, edges = task.train.x, task.train.edge_index
    with pytest.raises(GraphError, match=r"graph\.directed is 'no', expected True or False"):
        LiveGraph(energy, Data(x=x, edge_index=edges, directed="no"))
    folder = build_folder(tmp_path, [NodeChunk(x.numpy(), ids=np.array([7, *range(len(x) - 1)]))], [edges.numpy()])
    with pytest.raises(FolderError, match="has the id 7 more than once"):
        LiveGraph(energy, folder)
    live, row = LiveGraph(energy, task.train), x[:1].numpy()
    with pytest.raises(GraphError, match="the rows: there are masked values"):
        live.score(np.ma.array(row, mask=row > 0))
    with pytest.raises(GraphError, match=r"data.edge_weight: 9007199254740993 would be rounded"):
        LiveGraph(energy, Data(x=x, edge_index=edges, edge_weight=torch.full((edges.shape[1],), 2**53 + 1)))
    single = load_task("digits/arrivals/label-scattered").train
    live = LiveGraph(Detector(scorer=Energy(), epochs=1, device="cpu").fit(single), single)
    with pytest.raises(GraphError, match=r"feature 0 of arrival 0 is 1e\+300, expected a finite .*\(torch.float32\)"):
        live.score(np.full(row.shape, 1e300))
    live = LiveGraph(energy, task.train)
    with pytest.raises(GraphError, match="the rows: 9007199254740993 would be rounded to 9007199254740992"):
        live.score(np.full(row.shape, 2**53 + 1))
    assert live.score(row.tolist())[0].score == live.score(np.ma.array(row))[0].score == live.score(x[:1])[0].score


@pytest.fixture(scope="module")
def evidence(task: Task) -> Detector:
    return Detector.from_recipe("nodesafe-evidence", epochs=20, device="cpu").fit(task.train)


def some_arrivals(task: Task, count: int = 2) -> list[int]:
    known, unknown = task.id_test.mask, task.id_test.data.ood_mask
    return [*known.nonzero().squeeze(1)[:count].tolist(), *unknown.nonzero().squeeze(1)[:count].tolist()]


def known_neighbours(task: Task, node: int) -> list[int]:
    source, target = task.id_test.data.edge_index
    return source[(target == node) & (source < task.train.num_nodes)].tolist()


def grown(graph: Data, x: Tensor, links: Links, directed: bool = False) -> Data:
    """The graph with arrivals at its end; links lead from index to index."""
    ends = torch.tensor([link[:2] for link in links], dtype=torch.long).reshape(-1, 2).t()
    more = ends if directed else torch.cat([ends, ends.flip(0)], dim=1)
    data = Data(x=torch.cat([graph.x, x]), edge_index=torch.cat([graph.edge_index, more], dim=1))
    if graph.edge_weight is not None:
        weight = torch.tensor([link[2] for link in links], dtype=graph.edge_weight.dtype)
        data.edge_weight = torch.cat([graph.edge_weight, weight, *([] if directed else [weight])])
    return data


def arrival(task: Task, node: int, linked: bool = True) -> tuple[Tensor, Links]:
    near = known_neighbours(task, node) if linked else []
    return task.id_test.data.x[node : node + 1], [(task.train.num_nodes, other) for other in near]


@pytest.mark.parametrize("name", RECIPES)
def test_every_method_scores_arrivals_as_in_the_grown_graph_or_refuses(task: Task, name: str) -> None:
    detector = Detector.from_recipe(name, epochs=5, device="cpu")
    detector.fit(task.train, task.exposure if RECIPES[name].needs_exposure else None)
    if name in REFUSED:
        with pytest.raises(ValueError, match=f"{REFUSED[name]}.*(most of the graph|more than its neighbourhood)"):
            LiveGraph(detector, task.train)
        return
    live, spread = LiveGraph(detector, task.train), float(detector.score_samples(task.train).std())
    for linked in (False, True):
        for node in some_arrivals(task):
            x, links = arrival(task, node, linked)
            [found] = live.score(x, links)
            expected = detector.score_samples(grown(task.train, x, links))
            assert found.exact == (not linked or name in EXACT)
            assert found.num_neighbours == len(links)
            assert abs(found.score - float(expected[-1])) <= (1e-5 if found.exact else 0.6 * spread)
            assert found.predicted == int(detector.predict(grown(task.train, x, links))[-1])


def weighted(data: Data) -> Data:
    """The same undirected graph with a random weight for every pair of nodes."""
    low, high = data.edge_index.amin(dim=0).double(), data.edge_index.amax(dim=0).double()
    data = data.clone()
    data.edge_weight = 0.1 + 3.0 * ((low * 12.9898 + high * 78.233).sin() * 43758.5453).frac().abs()
    return data


@pytest.mark.parametrize("scorer", [Energy(), NeighbourhoodCosine()], ids=["energy", "cosine"])
def test_weights_count_as_in_the_grown_graph(task: Task, scorer: Scorer) -> None:
    train = weighted(task.train)
    detector = Detector(scorer=scorer, epochs=5, device="cpu").fit(train)
    live = LiveGraph(detector, train)
    for node in some_arrivals(task):
        x, links = arrival(task, node)
        links = [(*link, 0.2 + place) for place, link in enumerate(links)]
        [found] = live.score(x, links)
        assert found.exact
        assert found.score == pytest.approx(float(detector.score_samples(grown(train, x, links))[-1]), abs=1e-5)
        unlinked = next(other for other in range(100) if other not in known_neighbours(task, node))
        [more] = live.score(x, [*links, (train.num_nodes, unlinked, 0.0)])  # an edge of weight 0 counts as none
        assert more == found


@pytest.mark.parametrize("scorer", [Energy(), NeighbourhoodCosine()], ids=["energy", "cosine"])
def test_edges_of_a_directed_graph_lead_one_way(task: Task, scorer: Scorer) -> None:
    source, target = task.train.edge_index
    train = task.train.clone()
    train.edge_index = task.train.edge_index[:, (source < target) | (source % 3 == 0)]
    detector = Detector(scorer=scorer, epochs=5, device="cpu").fit(train)
    live, last = LiveGraph(detector, train), train.num_nodes
    assert live.directed
    for node in some_arrivals(task):
        x, links = arrival(task, node)
        both = [(b, a) if place % 2 else (a, b) for place, (a, b) in enumerate(links)] + [(last, 5), (5, last)]
        [found] = live.score(x, both)
        expected = detector.score_samples(grown(train, x, both, directed=True))
        assert found.score == pytest.approx(float(expected[-1]), abs=1e-5)


def test_arrivals_of_a_batch_know_each_other(task: Task, energy: Detector, evidence: Detector) -> None:
    nodes, first = some_arrivals(task, 3), task.train.num_nodes
    x = task.id_test.data.x[nodes]
    links = [(first + place, near) for place, node in enumerate(nodes) for near in known_neighbours(task, node)]
    links += [(first, first + 1), (first + 2, first + 1), (first + 4, first + 5)]
    whole = grown(task.train, x, links)
    # Unknown digits are so far beyond the reference nodes that small differences in these count.
    for detector, error in ((energy, 1e-5), (evidence, 0.15)):
        found = [each.score for each in LiveGraph(detector, task.train).score(x, links)]
        assert found == pytest.approx(detector.score_samples(whole)[-len(nodes) :].tolist(), abs=error, rel=error)


def test_odd_arrivals_count_as_such_for_known_nodes_around_them(task: Task, evidence: Detector) -> None:
    live, generator = LiveGraph(evidence, task.train), torch.Generator().manual_seed(0)
    references = torch.cat([each.nodes for each in evidence.state_.references]).unique().tolist()
    node = next(node for node in range(task.train.num_nodes) if node not in references)
    x = 3.0 * torch.rand(12, task.train.x.shape[1], generator=generator, dtype=torch.float64)
    ids = [f"odd {number}" for number in range(12)]
    edges = [(name, node) for name in ids] + [(a, b) for a in ids for b in ids if a < b]
    [before] = live.rescore([node])
    live.commit(x, edges, ids=ids)
    [after] = live.rescore([node])
    kinds = {kind.kind: kind.surprise for kind in after.evidence}
    assert kinds["evidence around"] > 3.0
    [expected] = live.rebased().rescore([node])
    assert after.score < before.score - 2.0
    assert after.score == pytest.approx(expected.score, abs=2.0)


def test_removing_a_node_reads_no_more_rows_than_adding_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours are hubs, around which much of the graph is one hop further away."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 8, generator=generator)
    pairs = torch.stack([torch.randint(3000, (9000,), generator=generator), torch.arange(9000) % 60])
    data = Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1).unique(dim=1), y=(x[:, 0] > 0).long())
    data.train_mask, data.val_mask = torch.arange(3000) % 9 == 0, torch.arange(3000) % 9 == 1
    detector = Detector.from_recipe("nodesafe-evidence", epochs=2, device="cpu").fit(data)
    live, make = LiveGraph(detector, data), live_graph.LocalGraph
    counted: list[int] = []

    def made(*given: Any) -> Any:
        graph = make(*given)
        counted.append(graph.num_nodes)
        return graph

    monkeypatch.setattr(live_graph, "LocalGraph", made)
    live.commit(x[:1] + 0.1, [("new", hub) for hub in range(10)], ids=["new"])
    adding, counted[:] = sum(counted), []
    live.remove(["new"])
    assert 10 < sum(counted) <= adding


def test_what_is_committed_is_there_for_later_arrivals_until_it_is_removed(task: Task, energy: Detector) -> None:
    live, nodes, first = LiveGraph(energy, task.train), some_arrivals(task), task.train.num_nodes
    x, ids = task.id_test.data.x[nodes], ["a", "b", "c", "d"]
    near = [known_neighbours(task, node) for node in nodes]
    before = live.score(x[3:], [("d", near[3][0])], ids=["d"])
    committed = live.commit(x[:1], [("a", other) for other in near[0]], ids=["a"])
    expected = energy.score_samples(grown(task.train, x[:1], [(first, other) for other in near[0]]))
    assert committed[0].score == pytest.approx(float(expected[-1]), abs=1e-5)
    live.commit(x[1:3], [("b", "a"), ("b", "c"), *(("c", other) for other in near[2])], ids=ids[1:3])
    assert (live.num_nodes, live.version, "b" in live) == (first + 3, 2, True)
    [found] = live.score(x[3:], [("d", "b"), ("d", near[3][0])], ids=["d"])
    pairs = [(first, other) for other in near[0]] + [(first + 1, first), (first + 1, first + 2)]
    pairs += [(first + 2, other) for other in near[2]] + [(first + 3, first + 1), (first + 3, near[3][0])]
    expected = energy.score_samples(grown(task.train, x, pairs))
    assert found.exact
    assert found.score == pytest.approx(float(expected[-1]), abs=1e-5)
    live.remove(ids[:3])
    assert (live.num_nodes, live.version, "b" in live) == (first, 3, False)
    [after] = live.score(x[3:], [("d", near[3][0])], ids=["d"])
    assert after.score == pytest.approx(before[0].score, abs=1e-9)


def changed(graph: Data, x: Tensor, dropped: set[tuple[int, int]], links: Links, directed: bool) -> Data:
    """The graph with other features, without some edges and with others."""
    pairs = map(tuple, graph.edge_index.t().tolist())
    gone = dropped if directed else dropped | {(b, a) for a, b in dropped}
    kept = torch.tensor([pair not in gone for pair in pairs])
    data = Data(x=x, edge_index=graph.edge_index[:, kept])
    if graph.edge_weight is not None:
        data.edge_weight = graph.edge_weight[kept]
    return grown(data, x[:0], links, directed)


def test_a_change_is_all_or_nothing(task: Task, energy: Detector) -> None:
    live, x = LiveGraph(energy, task.train), task.id_test.data.x
    near = known_neighbours(task, some_arrivals(task)[0])
    good: dict[str, Any] = {
        "add_nodes": x[700:701],
        "ids": ["a"],
        "add_edges": [("a", 3), (3, 500)],
        "change_nodes": x[701:702],
        "changed_ids": [9],
        "remove_nodes": [20],
        "remove_edges": [(near[0], live.neighbours(near[0])[0][0])],
    }
    for wrong, message in (
        ({"add_edges": [("a", 3), (3, 99999)]}, "first 99999"),
        ({"add_edges": [(near[0], live.neighbours(near[0])[0][0])]}, "already an edge"),
        ({"add_edges": [("a", 20)]}, "20 is removed"),
        ({"changed_ids": [20]}, "20 is removed"),
        ({"changed_ids": ["b"]}, "no node with the id 'b'"),
        ({"changed_ids": None}, "rows have no ids"),
        ({"change_nodes": None}, "cannot be read as features"),
        ({"remove_nodes": [20, "b"]}, "no node with the id 'b'"),
        ({"remove_edges": [(3, 500)]}, "there is no edge"),
    ):
        with pytest.raises(GraphError, match=message):
            live.change(**(good | wrong))
    assert (live.version, live.num_nodes, "a" in live) == (0, task.train.num_nodes, False)
    assert live.scores_of([9]).score == pytest.approx(energy.score_samples(task.train)[[9]].tolist(), abs=1e-5)
    added, updated = live.change(**good)
    assert (added.id, updated.id, live.version, live.num_nodes) == ("a", 9, 1, task.train.num_nodes)
    dropped = {*good["remove_edges"], *((a, b) for a, b in task.train.edge_index.t().tolist() if 20 in (a, b))}
    features = task.train.x.clone()
    features[9] = x[701]
    whole = grown(changed(task.train, features, dropped, [(3, 500)], False), x[700:701], [(task.train.num_nodes, 3)])
    expected = energy.score_samples(whole)
    assert [added.score, updated.score] == pytest.approx([float(expected[-1]), float(expected[9])], abs=1e-5)


def test_what_is_kept_of_nodes_is_that_of_the_whole_graph(task: Task, evidence: Detector) -> None:
    live, nodes = LiveGraph(evidence, task.train), [5, 3, 5, 600]
    found, outputs = live.scores_of(nodes), evidence.outputs(task.train, False)
    assert all(found.exact)
    assert found.score == pytest.approx(evidence.score_samples(outputs)[nodes].tolist(), abs=1e-5)
    assert found.p_value == pytest.approx(evidence.p_values(outputs)[nodes].tolist(), abs=1e-9)
    assert found.is_ood == evidence.detect(outputs)[nodes].tolist()
    assert found.predicted == evidence.predict(outputs)[nodes].tolist()
    x, links = arrival(task, some_arrivals(task)[0])
    [added] = live.commit(x, [("a", b) for _, b in links], ids=["a"])
    later = live.scores_of(["a", 5])
    assert (later.score[0], later.p_value[0]) == pytest.approx((added.score, added.p_value))
    assert (later.predicted[0], later.is_new, later.exact) == (added.predicted, [True, False], [False, False])
    with pytest.raises(GraphError, match="no node with the id 'b'"):
        live.scores_of(["a", "b"])


def test_a_neighbourhood_has_the_nearest_nodes_and_their_edges(task: Task, energy: Detector) -> None:
    live, pairs = LiveGraph(energy, task.train), {tuple(pair) for pair in task.train.edge_index.t().tolist()}
    live.commit(task.id_test.data.x[700:701], [("a", 3), ("a", 14)], ids=["a"])
    assert live.neighbours("a") == [(3, 1.0), (14, 1.0)]
    assert live.row("a") == {"id": "a", "x": task.id_test.data.x[700].tolist()}
    found = live.neighbourhood(["a"], hops=2, limit=1000)
    assert not found.truncated
    assert (found.nodes.ids[:3], found.hops[:3]) == (["a", 3, 14], [0, 1, 1])
    second = {a for a, b in pairs if b in (3, 14)} - {3, 14}
    assert {*found.nodes.ids[3:]} == second
    assert {*found.hops[3:]} == {2}
    inside = second | {3, 14}
    expected = {frozenset(pair) for pair in pairs if inside.issuperset(pair)} | {
        frozenset(["a", 3]),
        frozenset(["a", 14]),
    }
    assert {frozenset(edge[:2]) for edge in found.edges} == expected
    assert len(found.edges) == len(expected)
    few = live.neighbourhood(["a"], hops=2, limit=4)
    assert (few.truncated, len(few.nodes.ids)) == (True, 5)


def test_a_rebased_graph_gives_the_scores_of_the_whole_graph(task: Task, evidence: Detector) -> None:
    live, nodes, first = LiveGraph(evidence, task.train), some_arrivals(task), task.train.num_nodes
    x = task.id_test.data.x[nodes]
    links = [(f"n{place}", near) for place, node in enumerate(nodes) for near in known_neighbours(task, node)]
    live.commit(x, links, ids=[f"n{place}" for place in range(len(nodes))])
    live.commit(x[:1], [("gone", 3)], ids=["gone"])
    live.remove(["gone"])
    live.rebase()
    whole = grown(task.train, x, [(first + int(name[1:]), near) for name, near in links])
    alone = grown(whole, x[:1], [])
    [found] = live.score(x[:1], ids=["alone"])
    assert found.exact
    assert found.score == pytest.approx(float(evidence.score_samples(alone)[-1]), abs=1e-5)
    [known] = live.explain(["n1"])
    assert known.id == "n1"
    assert known.score == pytest.approx(float(evidence.score_samples(whole)[first + 1]), abs=0.1)


def test_answers_are_data_with_the_evidence_and_the_decision(task: Task, evidence: Detector) -> None:
    live = LiveGraph(evidence, task.train)
    x, links = arrival(task, some_arrivals(task)[-1])
    [found] = live.score(x, links, explain=True)
    whole = grown(task.train, x, links)
    expected = evidence.explain(whole)
    assert tuple(each.kind for each in found.evidence) == expected.kinds
    surprises = torch.tensor([each.surprise for each in found.evidence])
    assert float((surprises - expected.evidence[-1]).abs().median()) < 0.05
    assert found.p_value == pytest.approx(float(evidence.p_values(whole)[-1]), abs=0.02)
    assert found.p_value is not None
    assert found.is_ood == (found.p_value <= 0.05)
    strongest = max(found.evidence, key=lambda each: each.contribution)
    assert found.reason == (strongest.kind if strongest.surprise > 2.31 else found.reason)
    assert found.confidence == pytest.approx(float(evidence.predict_proba(whole)[-1].max()), abs=1e-6)
    assert found.why == evidence.reasons(whole, [whole.num_nodes - 1], node_names=range(whole.num_nodes))[0]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Judgement) == found


def test_known_nodes_are_explained_as_in_the_whole_graph(task: Task, energy: Detector, evidence: Detector) -> None:
    reference = int(evidence.state_.references[0].nodes[0])
    nodes = [3, 40, reference]
    for detector, error in ((energy, 1e-5), (evidence, 0.1)):
        found, expected = LiveGraph(detector, task.train).explain(nodes), detector.score_samples(task.train)[nodes]
        assert [each.score for each in found] == pytest.approx(expected.tolist(), abs=error)
    assert all(each.why for each in found)
    for ids, message in ((["x"], "no node with the id 'x'"), ([3, 3], "3 is given twice")):
        with pytest.raises(GraphError, match=message):
            LiveGraph(energy, task.train).explain(ids)


class TwoCalls(nn.Module):
    """Three hops by two layers, one of which is called twice, as the attribute says."""

    num_hops = 3

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(64, 64), GCNConv(64, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(self.first(x, edge_index).relu(), edge_index).relu(), edge_index)


class Sage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = SAGEConv(64, 16), SAGEConv(16, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("backbone", ["mlp", "gat", "jknet", "mixhop", "deep", "wrapped", "sage"])
def test_any_network_is_computed_as_in_the_grown_graph(task: Task, backbone: str) -> None:
    torch.manual_seed(0)
    if backbone in ("wrapped", "sage"):
        module = (TwoCalls() if backbone == "wrapped" else Sage()).double()
        detector = Detector.wrap(module, MaxSoftmax(), task.train, device="cpu")
    else:
        layers: Any = {"num_layers": 4} if backbone == "deep" else {}
        name = "gcn" if backbone == "deep" else backbone
        detector = Detector(name, scorer=MaxSoftmax(), epochs=3, device="cpu", **layers).fit(task.train)
    live = LiveGraph(detector, task.train)
    for node in some_arrivals(task, 1):
        x, links = arrival(task, node)
        [found] = live.score(x, links)
        assert found.exact
        assert found.score == pytest.approx(float(detector.score_samples(grown(task.train, x, links))[-1]), abs=1e-5)


def test_a_network_that_reads_further_than_it_says_is_computed_as_in_the_grown_graph() -> None:
    generator = torch.Generator().manual_seed(0)
    pairs, ends = torch.arange(40).reshape(2, 20), torch.randint(40, 140, (2, 400), generator=generator)
    x = torch.randn(140, 64, generator=generator).double()
    data = Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0), ends, ends.flip(0)], dim=1).unique(dim=1))
    data.y, data.train_mask = torch.arange(140) % 5, torch.ones(140, dtype=torch.bool)
    module = TwoCalls().double()
    module.num_hops = None  # type: ignore[assignment]  # two layers are counted, of which one is called twice
    live = LiveGraph(detector := Detector.wrap(module, MaxSoftmax(), data, device="cpu"), data)
    [found] = live.score(x[:1] + 0.1, links := [(140, 50), (140, 60)])  # few edges lead to pairs, which show one hop
    assert found.exact
    assert found.score == pytest.approx(float(detector.score_samples(grown(data, x[:1] + 0.1, links))[-1]), abs=1e-5)


@pytest.mark.parametrize(
    "scorer",
    [ClassAgreement(), NeighbourhoodFeatures(), Propagated(num_hops=1), Propagated(num_hops=2, prior_nodes=2.0)],
)
@pytest.mark.parametrize("backbone", ["gcn", "mlp"])
def test_a_score_that_rests_on_kept_values_of_neighbours_is_not_exact(
    task: Task, backbone: str, scorer: Scorer
) -> None:
    detector = Detector(backbone, scorer=scorer, epochs=3, device="cpu").fit(task.train)
    live = LiveGraph(detector, task.train)
    for node in some_arrivals(task):
        x, links = arrival(task, node)
        [found] = live.score(x, links)
        is_estimated = getattr(scorer, "prior_nodes", 0.0) > 0  # on the whole graph
        assert found.exact == (isinstance(scorer, NeighbourhoodFeatures) or (backbone == "mlp" and not is_estimated))
        expected = float(detector.score_samples(grown(task.train, x, links))[-1])
        assert found.score == pytest.approx(expected, abs=1e-5 if found.exact else 0.3)


def test_what_rests_on_reference_nodes_is_exact_until_the_graph_changes(task: Task, evidence: Detector) -> None:
    live, x = LiveGraph(evidence, task.train), task.id_test.data.x
    reference = int(evidence.state_.references[0].nodes[0])
    changes: list[dict[str, Any]] = [
        {"add_nodes": x[:1], "add_edges": [("a", reference)], "ids": ["a"]},
        {"change_nodes": x[1:2], "changed_ids": [live.neighbours(reference)[0][0]]},
        {"remove_nodes": [live.neighbours(reference)[1][0]]},
    ]
    for change in changes:
        assert all(each.exact for each in live.score(x[700:702]))
        alone = live.change(add_nodes=x[700:701], **change) if "add_nodes" not in change else live.change(**change)
        assert not any(each.exact for each in [*alone, *live.score(x[700:702])])
        live.rebase()


def test_arrivals_without_edges_of_their_own_count_for_others_of_a_batch(task: Task) -> None:
    train = task.train.clone()
    train.directed = True
    detector = Detector(scorer=Propagated(Energy(), 32), epochs=3, device="cpu").fit(train)
    x, links = task.id_test.data.x[700:702], [(train.num_nodes, train.num_nodes + 1)]
    found = [each.score for each in LiveGraph(detector, train).score(x, links)]
    expected = detector.score_samples(grown(train, x, links, directed=True))[-2:]
    assert found == pytest.approx(expected.tolist(), abs=1e-5)


class AmongAll(Scorer):
    """Depends on all nodes, and does not say so."""

    def score(self, outputs: Outputs) -> Tensor:
        total = outputs.graph.x.sum(dim=1)
        return total - total.mean()


def test_a_scorer_that_depends_on_the_whole_graph_is_found_out(task: Task) -> None:
    detector = Detector(scorer=AmongAll(), epochs=2, device="cpu").fit(task.train)
    with pytest.raises(ValueError, match="AmongAll scores a node by more than its neighbourhood"):
        LiveGraph(detector, task.train)


def star(num_leaves: int = 300) -> Data:
    generator = torch.Generator().manual_seed(0)
    leaves = torch.arange(1, num_leaves + 1)
    ring = torch.stack([leaves, leaves.roll(1)])
    spokes = torch.stack([torch.zeros_like(leaves), leaves])
    y = torch.randint(2, (num_leaves + 1,), generator=generator)
    edges = torch.cat([ring, spokes], dim=1)
    mask = torch.arange(num_leaves + 1) < 100
    x = torch.randn(num_leaves + 1, 4, generator=generator).double() + y.unsqueeze(1)
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, train_mask=mask)


def test_of_a_hub_some_edges_are_read_and_the_answer_says_so() -> None:
    graph = star()
    detector = Detector(scorer=Energy(), epochs=10, device="cpu").fit(graph)
    x = graph.x[:1] + 0.1
    expected = float(detector.score_samples(grown(graph, x, [(301, 0), (301, 5)]))[-1])
    for most, is_exact in ((400, True), (20, False)):
        live = LiveGraph(detector, graph, max_neighbours=most)
        [found] = live.score(x, [(301, 0), (301, 5)])
        assert found.exact == is_exact
        # The hub counts as it was before, which one more of 300 neighbours hardly changes.
        assert found.score == pytest.approx(expected, abs=1e-5 if is_exact else 0.02)
        [beside] = live.score(x, [(301, 5), (301, 9)])
        assert beside.exact


def test_the_error_is_measured_against_the_whole_graph(task: Task, energy: Detector, evidence: Detector) -> None:
    exact = LiveGraph(energy, task.train).measure_error(8)
    assert (exact.num_arrivals, exact.num_exact) == (8, 8)
    assert exact.largest < 1e-5
    live = LiveGraph(evidence, task.train)
    found = live.measure_error(16)
    assert found.num_exact == 0
    assert 0 < found.mean <= found.largest < 0.5 * found.spread
    assert found.rank_correlation > 0.95
    assert (live.version, live.num_nodes) == (0, task.train.num_nodes)


def test_threads_may_share_a_live_graph(task: Task, evidence: Detector) -> None:
    live = LiveGraph(evidence, task.train)
    asked = [arrival(task, node) for node in some_arrivals(task, 4)]
    expected = [live.score(*each)[0] for each in asked]
    found: dict[int, list[Judgement]] = {}

    def ask(worker: int) -> None:
        found[worker] = [live.score(*each)[0] for each in asked]

    threads = [threading.Thread(target=ask, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == expected for each in found.values())


def test_the_callers_tensors_are_not_kept(task: Task, energy: Detector) -> None:
    graph = task.train.clone()
    live = LiveGraph(energy, graph)
    x, links = arrival(task, some_arrivals(task)[0])
    before = live.score(x, links)
    given = x.clone()
    live.commit(given, [], ids=["a"])
    graph.x.zero_()
    given.zero_()
    assert live.score(x, links, ids=[task.train.num_nodes]) == [msgspec.structs.replace(before[0], version=1)]


def test_features_far_beyond_training_score_below_all_known_nodes(task: Task, evidence: Detector) -> None:
    x = task.train.x[:1].clone()
    x[0, 3] = 1e10
    [found] = LiveGraph(evidence, task.train).score(x, [("a", 1), ("a", 2)], ids=["a"])
    assert found.is_far
    assert found.is_ood
    assert evidence.calibration_ is not None
    assert found.score < float(evidence.calibration_.scores.min())


def test_without_a_calibration_there_is_no_decision(task: Task) -> None:
    detector = Detector(scorer=Propagated(Energy()), epochs=2, device="cpu").fit(task.train)
    [found] = LiveGraph(detector, task.train).score(task.train.x[:1], [])
    assert (found.p_value, found.is_ood, found.evidence, found.reason) == (None, None, (), None)
    with pytest.raises(CalibrationError):
        detector.detect(task.train)


WRONG_EDGES: list[tuple[Any, str]] = [
    ([("a", 1.9)], "1.9 of type float, expected ids"),
    ([("a", True)], "True of type bool, expected ids"),
    ([("a", None)], "None of type NoneType, expected ids"),
    ([("a", [1, 2])], "expected ids"),
    ([("a", -1)], "neither nodes of the graph nor arrivals, first -1"),
    ([("a", 2**70)], "neither nodes of the graph nor arrivals"),
    ([("a", "1")], "neither nodes of the graph nor arrivals, first '1'"),
    ([(1, 2)], "joins two nodes of the graph"),
    ([("a", 1), (1, "a")], "given twice; one pair stands for both directions"),
    ([("a", 1, 2.0)], "have no weights"),
    ([("a",)], "expected .source, target."),
    ([1, 2], "are list, expected a list of .source, target."),
    (torch.tensor([[0], [1]]), "edge_index.t.."),
    ("a", "are str"),
]
WRONG_ROWS: list[tuple[Any, str]] = [
    (torch.zeros(64), r"shape \[64\], expected real numbers \[arrivals, 64\]"),
    (torch.zeros(2, 32), r"shape \[2, 32\]"),
    (torch.full((1, 64), torch.nan), "feature 0 of arrival 0 is nan"),
    (torch.ones(1, 64, dtype=torch.bool), "torch.bool"),
    ([["x"] * 64], "cannot be read as features"),
]


@pytest.mark.parametrize(("edges", "message"), WRONG_EDGES)
def test_edges_are_taken_strictly(task: Task, energy: Detector, edges: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        LiveGraph(energy, task.train).score(task.train.x[:1], edges, ids=["a"])


def test_rows_ids_and_weights_are_taken_strictly(task: Task, energy: Detector) -> None:
    live, x = LiveGraph(energy, task.train), task.train.x[:2]
    for rows, message in WRONG_ROWS:
        with pytest.raises(GraphError, match=message):
            live.score(rows, [])
    wrong: Any = {
        "more than 64 bits": ["a", 2**64],
        "1 ids for 2 rows": ["a"],
        "given twice": ["a", "a"],
        "already a node": [0, 1],
        "float": [1.0, 2],
    }
    for message, ids in wrong.items():
        with pytest.raises(GraphError, match=message):
            live.score(x, [], ids=ids)
    train = weighted(task.train)
    live = LiveGraph(Detector(scorer=Energy(), epochs=2, device="cpu").fit(train), train)
    for edge, message in (
        (("a", 1), "None, but edges of the graph have weights"),
        (("a", 1, -1.0), "weight -1.0"),
        (("a", 1, torch.nan), "weight nan"),
        (("a", 1, 1e31), "from 0 to 1e30"),
    ):
        with pytest.raises(GraphError, match=message):
            live.score(x[:1], [edge], ids=["a"])


def test_evidence_around_a_network_of_ones_own_is_as_in_the_grown_graph() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 5
    x = torch.eye(64, dtype=torch.float64)[y] + 0.3 * torch.randn(300, 64, generator=generator, dtype=torch.float64)
    steps = torch.randint(1, 59, (300,), generator=generator)
    ends = torch.stack([torch.arange(300), (torch.arange(300) + 5 * steps) % 300])
    data = Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1), y=y)
    data.train_mask, data.val_mask, data.calibration_mask = (torch.arange(300) % 15 // 5 == part for part in range(3))
    detector = Detector(Sage().double(), scorer=RECIPES["nodesafe-evidence-alone"].build()[1], epochs=20).fit(data)
    live = LiveGraph(detector, data)  # logits of neighbours are right, or not used
    links = [(300, 0), (300, 5), (300, 7)]
    [answer] = live.score(x[:1], links)
    assert answer.score == pytest.approx(float(detector.score_samples(grown(data, x[:1], links))[-1]), abs=0.1)


def test_ids_are_integers_and_strings_and_none_is_given_twice(task: Task, energy: Detector, tmp_path: Path) -> None:
    live, x, first = LiveGraph(energy, task.train), task.id_test.data.x[:1], task.train.num_nodes
    live.save(tmp_path / "base")
    chosen: list[Any] = [[first + 1], None, np.array([first + 7]), None]
    assert [live.commit(x, ids=ids)[0].id - first for ids in chosen] == [1, 2, 7, 8]
    live.remove([first + 8])
    assert live.commit(x)[0].id == first + 9
    assert True not in live
    answers = [*live.rescore(np.array([3, first + 7])), live.scores_of(np.array([3]))]  # type: ignore[arg-type]
    assert msgspec.json.encode(answers)
    live.commit(x, ids=[2**62])
    live.save_changes(tmp_path / "changes")
    later = LiveGraph.open(energy, tmp_path / "base")
    later.load_changes(tmp_path / "changes")
    assert later.commit(x)[0].id == 2**62 + 1
    assert growing.Ids(pa.array([5, 9, -7]), 3).next_id == 10


def test_one_long_id_among_many_does_not_take_the_room_of_many_long_ones() -> None:
    for base in (None, pa.array([5, 2**62, -7])):
        ids = growing.Ids(base, 3)
        ids.add(["x", 2**62 + 1], [3, 4])
        known = [2, 1, 0] if base is None else [-7, 2**62, 5]
        asked: list[int | str] = [*known, "y" * 4096, "x", 2**62 + 1, 2**70, "5", *["a"] * 50_000]
        tracemalloc.start()
        found = ids.find_all(asked)
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
        tracemalloc.stop()
        assert found.tolist() == [2, 1, 0, -1, 3, 4, *[-1] * 50_002]
