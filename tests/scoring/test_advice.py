from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import homophily, to_undirected

from oddnode import Detector, Energy, MaxLogit, Outputs, Propagated, Scorer, load_task
from oddnode.functional import auroc
from oddnode.graph import Graph, GraphProfile, profile_graph
from oddnode.scoring import EnsembleMean, advised_hops, doubt_about, rank_agreement, spread_left


def _profile(homophily: float, chance: float, edges: int = 1000) -> GraphProfile:
    return GraphProfile(100, edges, 10.0, 0.0, edges, homophily, chance)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_homophily_is_what_pyg_measures(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(20, (2, 60), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    y = torch.randint(3, (20,), generator=generator)
    measured = profile_graph(Graph(torch.ones(20, 1), edges), torch.arange(20), y)
    assert measured.homophily == pytest.approx(homophily(edges, y, method="edge"), abs=1e-6)
    assert measured.mean_degree == pytest.approx(edges.shape[1] / 20)


@pytest.mark.parametrize(("weight", "homophily"), [(None, 2 / 3), ([0.5, 0.25, 0.25, 9.0, 9.0], 0.75)])
def test_edges_of_unlabelled_nodes_and_self_loops_do_not_count(weight: list[float] | None, homophily: float) -> None:
    edges, y = torch.tensor([[0, 1, 2, 0, 3], [1, 0, 1, 0, 1]]), torch.tensor([0, 0, 1])
    graph = Graph(torch.ones(4, 1), edges, None if weight is None else torch.tensor(weight))
    measured = profile_graph(graph, torch.arange(3), y)
    assert (measured.labelled_edges, measured.num_edges) == (3, 4)
    assert measured.homophily == pytest.approx(homophily)
    other = (1 - homophily) / 2  # the share of the ends in class 1
    assert measured.chance == pytest.approx((1 - other) ** 2 + other**2)
    nothing = profile_graph(graph, torch.tensor([0]), torch.tensor([0]))
    assert nothing.homophily is nothing.adjusted_homophily is None


@pytest.mark.parametrize(
    ("graph", "hops"),
    [
        (_profile(0.8, 0.2), 16),  # alike
        (_profile(0.63, 0.57), 16),  # a little more than by chance, but mostly alike
        (_profile(0.1, 0.5), 0),  # classes avoid themselves
        (_profile(0.1, 0.1), 0),  # as by chance
        (_profile(0.4, 0.1), 5),  # between: a third of the way from chance to certainty
        (_profile(0.1, 0.5, edges=49), 16),  # too few edges to tell
        (_profile(1.0, 1.0), 16),  # one class: nothing to compare
    ],
)
def test_the_rule(graph: GraphProfile, hops: int) -> None:
    assert advised_hops(16, graph) == hops


def heterophilous_graph(seed: int = 0) -> tuple[Data, torch.Tensor]:
    """Classes 0, 1, 2 are known, 3 is not; an edge nearly always joins two different classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=600)
    x = rng.normal(size=(600, 8)) + 3.0 * np.eye(8)[y]
    pairs = rng.integers(600, size=(2, 4000))
    pairs = pairs[:, (y[pairs[0]] != y[pairs[1]]) | (rng.random(4000) < 0.05)]
    edges = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    data = Data(x=torch.from_numpy(x).float(), edge_index=edges, y=torch.from_numpy(np.where(y == 3, -1, y)))
    labelled = torch.from_numpy(rng.random(600) < 0.4) & (data.y >= 0)
    data.train_mask = labelled
    return data, torch.from_numpy(y == 3)


def fit(data: Data, propagation: str) -> Detector:
    """A network without edges, which matter for the propagation and for nothing else."""
    settings: dict[str, Any] = {"epochs": 60, "propagation": propagation, "hidden_channels": 16}
    return Detector("mlp", scorer=Propagated(Energy(), num_hops=8), **settings).fit(data)


def test_propagation_is_switched_off_where_it_hurts(caplog: pytest.LogCaptureFixture) -> None:
    data, unknown = heterophilous_graph()
    with caplog.at_level(logging.WARNING, "oddnode"):
        adapted = fit(data, "auto")
    assert "propagation of scores was switched off" in caplog.text
    assert adapted.advice_
    assert isinstance(adapted.scorer_, Propagated)
    assert adapted.scorer_.num_hops == 0
    as_given = adapted.with_scorer(Propagated(Energy(), num_hops=8))
    rest = ~unknown & ~data.train_mask
    better, worse = (
        auroc(scores[rest], scores[unknown]) for scores in (d.score_samples(data) for d in (adapted, as_given))
    )
    assert better > worse + 0.1


def test_as_given_keeps_the_hops_and_still_says_so(caplog: pytest.LogCaptureFixture) -> None:
    data, _ = heterophilous_graph()
    with caplog.at_level(logging.WARNING, "oddnode"):
        detector = fit(data, "as-given")
    assert "should be switched off" in caplog.text
    assert isinstance(detector.scorer_, Propagated)
    assert detector.scorer_.num_hops == 8


def test_a_homophilous_graph_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "oddnode"):
        detector = Detector.from_recipe("gnnsafe", epochs=2).fit(load_task("digits/label").train)
    assert not caplog.text
    assert detector.advice_ == []
    assert isinstance(detector.scorer_, Propagated)
    assert detector.scorer_.num_hops == 32


def test_an_unknown_propagation_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown propagation 'atuo'. Did you mean 'auto'\?"):
        Detector(propagation="atuo").fit(load_task("digits/label").train)  # type: ignore[arg-type]


# --- scores that the network does not determine ----------------------------------------------------------------------


def dense_graph() -> Data:
    """Three known blocks and an unknown one, of 100 nodes each, with about 30 links per node, most within a block."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(4).repeat_interleave(100)
    odds = torch.where(y.unsqueeze(1) == y, 0.2, 0.04).triu(1)
    half = (torch.rand(400, 400, generator=generator) < odds).nonzero().t()
    words = torch.rand(4, 30, generator=generator) < 0.2
    x = (torch.rand(400, 30, generator=generator) < 0.05 + 0.4 * words[y]).float()
    place = torch.rand(400, generator=generator)
    known = y < 3
    return Data(
        x=x,
        edge_index=torch.cat([half, half.flip(0)], dim=1),
        y=torch.where(known, y, -1),
        train_mask=known & (place < 0.3),
        val_mask=known & (place >= 0.3) & (place < 0.6),
    )


def test_a_dense_graph_that_washes_scores_out_is_named(caplog: pytest.LogCaptureFixture) -> None:
    data = dense_graph()
    with caplog.at_level(logging.WARNING, logger="oddnode"):
        detector = Detector.from_recipe("nodesafe", epochs=30).fit(data)
    [message] = detector.advice_
    assert message in caplog.text
    assert "propagation over 32 hops leaves less than 0.01 % of their spread over validation nodes" in message
    assert "`num_hops=2`, `eta=0.5`" in message
    near = Detector.from_recipe("nodesafe", num_hops=2, eta=0.5, epochs=30).fit(data)
    assert near.advice_ == []


@pytest.mark.slow
def test_the_recommended_method_is_not_doubted_on_a_dense_graph() -> None:
    assert Detector.from_recipe("nodesafe-evidence", epochs=10).fit(dense_graph()).advice_ == []


@pytest.mark.parametrize("method", ["nodesafe", "gnnsafe", "msp-prop", "nodesafe-ensemble", "grasp", "msp"])
def test_methods_are_not_doubted_where_they_work(method: str) -> None:
    assert Detector.from_recipe(method, epochs=50).fit(load_task("digits/label").train).advice_ == []


@pytest.mark.parametrize("prior_nodes", [0.0, 10.0])
def test_the_spread_that_is_left_is_that_of_the_dense_formula(prior_nodes: float) -> None:
    data = dense_graph()
    scorer = Propagated(Energy(), num_hops=3, eta=0.5, prior_nodes=prior_nodes)
    detector = Detector(scorer=scorer, epochs=5, ensemble=2).fit(data)
    nodes, outputs = data.val_mask.nonzero().squeeze(1), detector.outputs(data)
    adjacency = torch.zeros(400, 400, dtype=torch.float64)
    adjacency[data.edge_index[1], data.edge_index[0]] = 1.0
    walk = adjacency / adjacency.sum(dim=1, keepdim=True)
    ratios = []
    for member in outputs.members:
        own = member.logits.double().logsumexp(dim=1)
        averages = own
        for _ in range(3):
            averages = 0.5 * averages + 0.5 * walk @ averages
        ratios.append(float(averages[nodes].std() / own[nodes].std()))
    assert spread_left(detector.scorer_, outputs, nodes) == pytest.approx(np.mean(ratios), rel=1e-4)


def test_networks_that_rank_in_reverse_do_not_agree() -> None:
    data = dense_graph()
    detector = Detector(scorer=MaxLogit(), epochs=5, ensemble=3).fit(data)
    nodes, outputs = data.val_mask.nonzero().squeeze(1), detector.outputs(data)
    scores = [member.logits.amax(dim=1)[nodes].numpy() for member in outputs.members]
    pairs = [spearmanr(scores[a], scores[b]).statistic for a, b in ((0, 1), (0, 2), (1, 2))]
    assert rank_agreement(detector.scorer_, outputs, nodes) == pytest.approx(np.mean(pairs))
    assert rank_agreement(MaxLogit(), outputs.members[0], nodes) == 1.0
    upside_down = EnsembleMean((MaxLogit(), MaxLogit(), Reversed()))
    pairs[1:] = [-each for each in pairs[1:]]
    assert rank_agreement(upside_down, outputs, nodes) == pytest.approx(np.mean(pairs))
    message = doubt_about(upside_down, outputs, nodes)
    assert message is not None
    assert (
        f"the 3 networks do not agree on the ranking of validation nodes (mean rank correlation {np.mean(pairs):.2f})"
        in message
    )
    assert "hops" not in message
    constant = EnsembleMean((MaxLogit(), MaxLogit(), Constant()))
    assert rank_agreement(constant, outputs, nodes) == 1.0


class Reversed(Scorer):
    def score(self, outputs: Outputs) -> Tensor:
        return -outputs.logits.amax(dim=1)


class Constant(Scorer):
    def score(self, outputs: Outputs) -> Tensor:
        return torch.ones(outputs.graph.num_nodes)


def test_wrapping_measures_it_too() -> None:
    data = dense_graph()
    trained = Detector(epochs=30).fit(data).module_
    far = Propagated(Energy(), num_hops=32, eta=0.1)
    [message] = Detector.wrap(trained, far, data).advice_
    assert "propagation over 32 hops leaves" in message
    assert Detector.wrap(trained, Energy(), data).advice_ == []


# --- directed graphs -------------------------------------------------------------------------------------------------


def test_a_directed_graph_is_named_unless_it_is_meant(two_groups: Data, caplog: pytest.LogCaptureFixture) -> None:
    two_groups.edge_index = two_groups.edge_index[:, :240]
    with caplog.at_level(logging.WARNING, logger="oddnode"):
        [message] = Detector.from_recipe("msp", epochs=1).fit(two_groups).advice_
    pairs = {tuple(edge) for edge in two_groups.edge_index.t().tolist() if edge[0] != edge[1]}
    share = np.mean([(b, a) not in pairs for a, b in pairs])
    assert message.startswith(f"{100 * share:.0f} % of the edges have no reverse edge")
    assert "torch_geometric.utils.to_undirected" in message
    assert message in caplog.text
    two_groups.directed = True
    assert Detector.from_recipe("msp", epochs=1).fit(two_groups).advice_ == []
    two_groups.directed = False
    two_groups.edge_index = to_undirected(two_groups.edge_index)
    assert Detector.from_recipe("msp", epochs=1).fit(two_groups).advice_ == []
