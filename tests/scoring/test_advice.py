from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import homophily

from oddnode import Detector, Energy, Propagated, load_task
from oddnode.functional import auroc
from oddnode.graph import Graph, GraphProfile, profile_graph
from oddnode.scoring import advised_hops


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


def test_edges_of_unlabelled_nodes_and_self_loops_do_not_count() -> None:
    graph = Graph(torch.ones(4, 1), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 3]]))
    measured = profile_graph(graph, torch.tensor([0, 1]), torch.tensor([0, 1]))
    assert (measured.labelled_edges, measured.homophily, measured.num_edges) == (1, 0.0, 3)
    nothing = profile_graph(graph, torch.tensor([0]), torch.tensor([0]))
    assert nothing.homophily is None
    assert nothing.adjusted_homophily is None


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


class Alone(torch.nn.Module):
    """Sees a node's own features only, so that edges matter for the propagation and for nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.fixture(scope="module")
def fit() -> Callable[..., Detector]:
    def fit(data: Data, propagation: str) -> Detector:
        scorer = Propagated(Energy(), num_hops=8)
        return Detector(Alone(), scorer=scorer, epochs=60, propagation=propagation).fit(data)  # type: ignore[arg-type]

    return fit


def test_propagation_is_switched_off_where_it_hurts(
    fit: Callable[..., Detector], caplog: pytest.LogCaptureFixture
) -> None:
    data, unknown = heterophilous_graph()
    torch.manual_seed(0)
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


def test_as_given_keeps_the_hops_and_still_says_so(
    fit: Callable[..., Detector], caplog: pytest.LogCaptureFixture
) -> None:
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
