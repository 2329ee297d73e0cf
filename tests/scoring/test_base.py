"""What scorers say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import GRASP, KNN, Detector, Energy, Evidence, Mahalanobis, MaxSoftmax, Propagated, Scorer, TwoSided
from oddnode.graph import Graph, GraphProfile
from oddnode.protocols.published import AllLogitsEnergy, Negated
from oddnode.scoring import EnsembleMean, Outputs, ScorerWrapper, advised_scorer

# 0 - 1 - 2, and node 3 alone; the logits of two classes are the features.
PATH = Graph(torch.tensor([[2.0, 0.0], [0.0, 0.0], [1.0, 1.0], [3.0, 0.0]]), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))


class Features(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x


@pytest.fixture
def outputs() -> Outputs:
    return Outputs(Features(), PATH, num_classes=2)


MSP = torch.tensor([2.0, 0.0, 0.0, 3.0]).sigmoid()  # of two classes: the sigmoid of the gap between their logits


def test_explaining_grasp_shows_what_the_neighbours_contribute() -> None:
    labelled = {"y": torch.tensor([0, 1, 0, 1]), "train_mask": torch.tensor([True, True, False, False])}
    data = Data(x=PATH.x, edge_index=PATH.edge_index, **labelled)
    detector = Detector.wrap(Features(), GRASP(MaxSoftmax(), num_hops=1), data)
    why = detector.explain(Data(x=PATH.x, edge_index=PATH.edge_index))
    # One hop without anchors is the mean over neighbours; a node without any keeps its score.
    neighbours = torch.stack([MSP[1], (MSP[0] + MSP[2]) / 2, MSP[1], MSP[3]])
    torch.testing.assert_close(why.own_score, MSP)
    torch.testing.assert_close(why.neighbour_contribution, neighbours - MSP)
    torch.testing.assert_close(why.score, neighbours)


def test_own_scores_of_wrappers(outputs: Outputs) -> None:
    torch.testing.assert_close(Propagated(MaxSoftmax(), 4).own_score(outputs), MSP)
    torch.testing.assert_close(Propagated(GRASP(num_hops=3), 4).own_score(outputs), MSP)
    torch.testing.assert_close(Negated(Propagated(MaxSoftmax(), 4)).own_score(outputs), -MSP)
    torch.testing.assert_close(TwoSided(Propagated(MaxSoftmax(), 4)).own_score(outputs), MSP)
    assert torch.equal(TwoSided(GRASP()).score(outputs), GRASP().score(outputs))
    assert (TwoSided(GRASP()).two_sided, GRASP().two_sided) == (True, False)


@pytest.mark.parametrize(
    ("scorer", "hops"),
    [
        (Energy(), 0),
        (KNN(), 0),
        (Propagated(Energy(), 5), 5),
        (GRASP(num_hops=8), 8),
        (Propagated(GRASP(num_hops=8), 5), 13),
        (Negated(Propagated(Energy(), 5)), 5),
        (EnsembleMean((Propagated(Energy(), 5), Propagated(Energy(), 5))), 5),
        (TwoSided(Propagated(Energy(), 4)), 4),
        (Evidence((MaxSoftmax(), Propagated(Energy(), 7), TwoSided(Propagated(MaxSoftmax(), 3)))), 7),
    ],
    ids=repr,
)
def test_hops_are_limited_in_a_copy(scorer: Scorer, hops: int) -> None:
    before = repr(scorer)
    assert scorer.num_hops_used == hops
    for limit in (0, 3, 10, 100):
        assert scorer.limited_to(limit).num_hops_used == min(hops, limit)
    assert repr(scorer) == before


def test_advice_sees_every_scorer_that_propagates() -> None:
    graph = GraphProfile(100, 1000, 10.0, 0.0, 1000, homophily=0.1, chance=0.5)
    for scorer in (GRASP(num_hops=8), Propagated(Energy(), 8), Negated(GRASP(num_hops=8))):
        advised, message = advised_scorer(scorer, graph)
        assert advised.num_hops_used == 0
        assert message is not None
        assert "switched off" in message
        assert advised_scorer(scorer, graph, apply=False)[0] is scorer
    assert advised_scorer(MaxSoftmax(), graph) == (MaxSoftmax(), None)


@pytest.mark.parametrize("wrap", [lambda scorer: scorer, Propagated, TwoSided])
def test_advice_does_not_claim_that_a_scorer_was_limited_if_it_was_not(wrap: Callable[[Scorer], Scorer]) -> None:
    class Fixed(Energy):
        num_hops_used = 1

    scorer, graph = wrap(Fixed()), GraphProfile(100, 1000, 10.0, 0.0, 1000, homophily=0.1, chance=0.5)
    advised, message = advised_scorer(scorer, graph)
    assert advised is scorer
    assert message is not None
    assert "should be switched off" in message
    assert message.endswith(f"{type(scorer).__name__}.limited_to(0) has num_hops_used=1; override it")


@pytest.mark.parametrize(
    ("scorer", "raw_logits", "labelled", "learns"),
    [
        (Energy(), True, False, False),
        (Energy(centred=True), False, False, False),
        (AllLogitsEnergy(), True, False, False),
        (MaxSoftmax(), False, False, False),
        (Mahalanobis(), False, False, True),
        (KNN(), False, False, True),
        (GRASP(), False, True, False),
        (GRASP(Energy()), True, True, False),
        (Propagated(Energy()), True, False, False),
        (Propagated(MaxSoftmax(), prior_nodes=1.0), False, False, True),
        (Propagated(GRASP(KNN())), False, True, True),
        (Negated(Mahalanobis()), False, False, True),
        (EnsembleMean((KNN(), KNN())), False, False, True),
        (EnsembleMean((Propagated(Energy()), Propagated(Energy()))), True, False, False),
        (Evidence((MaxSoftmax(), TwoSided(Energy()))), False, False, True),
        (Evidence((MaxSoftmax(),)), False, False, True),
    ],
    ids=repr,
)
def test_scorers_say_what_they_need(scorer: Scorer, raw_logits: bool, labelled: bool, learns: bool) -> None:
    assert scorer.needs_raw_logits == raw_logits
    assert scorer.needs_labelled_nodes == labelled
    assert scorer.learns_from_training_graph == learns
    assert scorer.needs_reference == EnsembleMean.of(scorer, 2).needs_reference == isinstance(scorer, Evidence)


def test_a_scorer_from_outside_has_safe_defaults(outputs: Outputs) -> None:
    @dataclass
    class First(Scorer):
        def score(self, outputs: Outputs) -> Tensor:
            return outputs.logits[:, 0]

    class Learns(First):
        def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
            return self

    @dataclass
    class Doubled(ScorerWrapper):
        def score(self, outputs: Outputs) -> Tensor:
            return 2 * self.scorer.score(outputs)

    assert First().own_score(outputs).tolist() == [2.0, 0.0, 1.0, 3.0]
    assert (First().num_hops_used, First().limited_to(3)) == (0, First())
    assert not First().learns_from_training_graph
    assert Learns().learns_from_training_graph
    assert Doubled(Learns()).learns_from_training_graph
    assert not Doubled(First()).learns_from_training_graph
    assert Doubled(Propagated(Energy(), 4)).limited_to(3).num_hops_used == 3


def test_a_wrapped_scorer_learns_from_exposure_and_the_wrapper_stays_as_it_is(outputs: Outputs) -> None:
    @dataclass
    class Exposed(Scorer):
        needs_exposure = True
        seen: tuple[int, ...] = ()

        def fit_exposure(self, known: Outputs, nodes: Tensor, exposure: Outputs, exposed: Tensor) -> Scorer:
            assert known is outputs
            assert exposure is other
            return Exposed((*nodes.tolist(), *exposed.tolist()))

    other = Outputs(Features(), PATH, num_classes=2)
    wrapper = Propagated(TwoSided(Exposed()), 4, 0.2)
    fitted = wrapper.fit_exposure(outputs, torch.tensor([2]), other, torch.tensor([0, 1]))
    assert fitted == Propagated(TwoSided(Exposed((2, 0, 1))), 4, 0.2)
    assert wrapper == Propagated(TwoSided(Exposed()), 4, 0.2)
    assert wrapper.needs_exposure
    assert EnsembleMean((wrapper, wrapper)).needs_exposure
    assert not Propagated(TwoSided(Energy())).needs_exposure
    assert not EnsembleMean((Energy(), Energy())).needs_exposure
