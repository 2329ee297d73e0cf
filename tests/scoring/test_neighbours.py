"""Scorers that judge which nodes a node is linked to, recomputed edge by edge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from oddnode import Detector, NeighbourCloseness, NeighbourDegree, evaluate
from oddnode.functional import auroc
from oddnode.graph import Graph
from oddnode.graph.positions import positions
from oddnode.scoring import Outputs
from oddnode.tasks import Arrivals, arrivals_task
from tests.graph.test_positions import block_graph
from tests.scoring.random_graphs import labelled, means_over_edges, outputs_on, random_graph
from tests.scoring.test_evidence import blocks


def grown_outputs(graph: Graph, references: tuple[Tensor, ...], num_known: int) -> Outputs:
    outputs = Outputs(torch.nn.Identity(), graph, 2, references=references)
    outputs.seen = torch.arange(graph.num_nodes) < num_known
    return outputs


def pairs_of(graph: Graph, anchors: Tensor, place: Tensor) -> list[list[float]]:
    """The products of all ordered pairs of different edges that lead to a node from linked anchors."""
    found: list[list[float]] = [[] for _ in range(graph.num_nodes)]
    near: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for source, target in graph.edge_index.t().tolist():
        if anchors[source] and place[source].any():
            near[target].append(source)
    for node, own in enumerate(near):
        found[node] = [float(place[a] @ place[b]) for a, b in itertools.permutations(own, 2)]
    return found


def test_closeness_is_that_of_pairs_of_known_neighbours_by_what_is_usual() -> None:
    graph, _ = block_graph()
    references = (torch.tensor([3, 40, 80]), torch.tensor([5, 40, 77]))
    held_out = [3, 5, 40, 77, 80]
    outputs = grown_outputs(graph, references, 120)
    anchors = torch.arange(graph.num_nodes) < 120
    anchors[held_out] = False
    place = positions(graph, anchors)
    assert place is not None
    pairs = pairs_of(graph, anchors, place)
    usual = sum(sum(pairs[node]) for node in held_out) / sum(len(pairs[node]) for node in held_out)
    expected = [(sum(own) - usual / 2 * len(own)) / (len(own) + 1) ** 0.5 for own in pairs]
    np.testing.assert_allclose(NeighbourCloseness().score(outputs).numpy(), expected, atol=1e-9)


def test_with_weights_pairs_count_by_their_weights() -> None:
    """Anchors 0 to 3; node 4 has one that weighs much beside others without a position, node 5 three of them."""
    edges = [[0, 1, 10.0], [1, 2, 3.0], [2, 3, 2.0], [3, 0, 1.0], [0, 2, 4.0]]
    pairs = torch.tensor([[a, b] for a, b, _ in edges] + [[b, a] for a, b, _ in edges], dtype=torch.long).t()
    more = torch.tensor([[0, 6, 7, 0, 1, 3], [4, 4, 4, 5, 5, 5]])
    weight = torch.tensor([w for *_, w in edges] * 2 + [10.0, 1.0, 1.0, 5.0, 2.0, 3.0], dtype=torch.float64)
    x = torch.rand(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = Graph(x, torch.cat([pairs, more], dim=1), weight)
    outputs = grown_outputs(graph, (torch.tensor([4, 5]),), 6)
    place = positions(graph, torch.arange(8) < 4)
    assert place is not None
    own = {0: 0.5, 1: 0.2, 3: 0.3}
    mean = sum(own[a] * own[b] * float(place[a] @ place[b]) for a, b in itertools.permutations(own, 2))
    mean /= sum(own[a] * own[b] for a, b in itertools.permutations(own, 2))
    count = 1 / sum(share**2 for share in own.values())
    number = count * (count - 1)
    scores = NeighbourCloseness().score(outputs)
    assert float(scores[4]) == 0.0
    # What is usual is the mean closeness of held-out nodes, of which node 5 alone has pairs.
    assert float(scores[5]) == pytest.approx((mean * number - mean / 2 * number) / (number + 1) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_method_takes_weighted_graphs_of_either_precision(dtype: torch.dtype) -> None:
    data = blocks(seed=0)
    data.x, data.edge_weight = data.x.to(dtype), torch.rand(data.num_edges).to(dtype) + 0.1
    data.train_mask, data.val_mask = torch.arange(600) < 200, (torch.arange(600) >= 200) & (torch.arange(600) < 400)
    scores = Detector.from_recipe("nodesafe-evidence", epochs=3, device="cpu").fit(data).score_samples(data)
    assert scores.isfinite().all()


def test_closeness_says_nothing_where_it_is_unknown_which_nodes_are_new() -> None:
    graph = random_graph()
    scorer, outputs = NeighbourCloseness(), outputs_on(graph, reference=torch.arange(5))
    assert scorer.score(outputs).eq(0).all()
    assert scorer.informativeness(outputs) == 0.0


@pytest.mark.parametrize("weighted", [False, True])
def test_degrees_of_neighbours_are_compared_with_those_at_all_edges(weighted: bool) -> None:
    train, graph = random_graph(seed=1, weighted=weighted), random_graph(seed=2, weighted=weighted)
    scorer = NeighbourDegree().fit(outputs_on(train), *labelled(train))

    def logs(of: Graph) -> np.ndarray:
        return np.log1p(of.effective_degree.numpy())[of.edge_index[0]]

    (known, often), (mean, worth) = means_over_edges(train, logs(train)), means_over_edges(graph, logs(graph))
    expected = worth * (mean - (known * often).sum() / often.sum()) / np.sqrt(worth + 1)
    np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), expected, atol=0.51e-4)


def test_rewired_arrivals_are_found_by_their_links_alone() -> None:
    """Features say nothing in this graph, and links lead to nodes of many links and of one group."""
    rng = np.random.default_rng(0)
    y, activity = rng.integers(4, size=1200), rng.gamma(0.5, size=1200)
    weights = (0.02 + np.equal.outer(y, y)) * np.outer(activity, activity)
    pairs = np.triu(rng.random(weights.shape) < weights * 1200 * 20 / weights.sum(), 1).nonzero()
    edges = to_undirected(torch.from_numpy(np.stack(pairs)), num_nodes=1200)
    x = torch.rand(1200, 4, generator=torch.Generator().manual_seed(1))
    data = Data(x=x, edge_index=edges, y=torch.from_numpy(y))
    task = arrivals_task("groups", data, Arrivals("structure", "scattered", share=0.1), seed=0)
    detector = Detector.from_recipe("nodesafe-evidence", epochs=10, device="cpu").fit(task.train)
    found = detector.explain(detector.outputs(task.id_test.data, batch=False))
    known, unknown = task.id_test.mask, task.id_test.data.ood_mask
    for kind in ("closeness of neighbours", "degrees of neighbours"):
        evidence = found.evidence[:, found.kinds.index(kind)]
        assert auroc(-evidence[known], -evidence[unknown]) > 0.75, kind
    assert evaluate(detector, task)["auroc"] > 85
