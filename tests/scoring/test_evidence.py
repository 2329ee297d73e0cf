"""The combination of evidence, recomputed in numpy from the scores of its parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor
from torch_geometric.data import Data

from oddnode import (
    CentredCosine,
    Degree,
    Detector,
    Energy,
    Evidence,
    FeatureSum,
    LinkPrediction,
    Mahalanobis,
    MaxSoftmax,
    NonZeros,
    Outputs,
    Propagated,
    TwoSided,
)
from oddnode.functional import auroc, propagate
from oddnode.graph import Graph
from oddnode.scoring import EnsembleMean, propagated
from oddnode.scoring.evidence import separating_weights
from oddnode.tasks import digits_graph
from tests.functional.test_surprise import by_counting, tail_scale
from tests.scoring.random_graphs import labelled, outputs_on, random_graph

REFERENCE = torch.arange(20, 34)
#: Of every scorer: the scores of nodes, those of reference nodes, and whether high is unusual, too.
Columns = list[tuple[np.ndarray, np.ndarray, bool]]


@dataclass
class Weighed(FeatureSum):
    """A scorer that says how much it carries."""

    carries: float = 1.0

    def informativeness(self, outputs: Outputs) -> float:
        return self.carries


def fitted(evidence: Evidence, graph: Graph, reference: Tensor = REFERENCE) -> Evidence:
    outputs = outputs_on(graph, reference=reference)
    return evidence.fit(outputs, *labelled(graph)).fit_reference(outputs)


def shares(scores: np.ndarray, reference: np.ndarray, left_out: bool = False) -> np.ndarray:
    """Minus the logarithm of the shares, by counting."""
    known, scale = reference.tolist(), tail_scale(reference.tolist())
    if not left_out:
        return np.array([by_counting(s, known, scale) for s in scores.tolist()])
    return np.array([by_counting(s, known[:i] + known[i + 1 :], scale) for i, s in enumerate(known)])


def total(
    columns: Columns, power: float, left_out: bool = False, weights: tuple[float, ...] | None = None
) -> np.ndarray:
    """The evidence against nodes."""
    found = np.zeros(())
    for weight, (scores, reference, two_sided) in zip(weights or (1.0,) * len(columns), columns, strict=True):
        against = shares(scores, reference, left_out)
        if two_sided:
            against = np.maximum(against, shares(-scores, -reference, left_out))
            against = np.maximum(against - np.log(2), 0.0)
        found = found + weight * against**power
    return found


def expected_scores(columns: Columns, power: float, weights: tuple[float, ...] | None, in_place: bool) -> np.ndarray:
    """The share of reference nodes with as much evidence against them."""
    of_reference = total([(r, r, two_sided) for _, r, two_sided in columns], power, left_out=True, weights=weights)
    expected = -shares(-total(columns, power, weights=weights), -of_reference)
    if in_place:
        expected[REFERENCE] = -shares(-of_reference, -of_reference, left_out=True)
    return expected


def columns_of(evidence: Evidence, outputs: Outputs, home: Graph) -> Columns:
    """The scores of all nodes, and of the reference nodes in their home, by every scorer."""
    own = [part.score(outputs).double().numpy() for part in evidence.scorers]
    known = [part.score(outputs_on(home)).double().numpy()[REFERENCE] for part in evidence.scorers]
    return [(s, r, part.two_sided) for s, r, part in zip(own, known, evidence.scorers, strict=True)]


@pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "in place"])
def test_it_is_the_share_of_reference_nodes_with_as_much_against_them(power: float, stored: bool) -> None:
    train, seen = random_graph(seed=1), random_graph(seed=2)
    parts = (MaxSoftmax(), TwoSided(FeatureSum()), CentredCosine(), Propagated(Energy(), 3))
    evidence = fitted(Evidence(parts, power), train)
    evidence.weights_ = evidence.elsewhere_weights_ = torch.ones(4, dtype=torch.float64)
    outputs = outputs_on(seen, reference=None if stored else REFERENCE)
    columns = columns_of(evidence, outputs, train if stored else seen)
    expected = expected_scores(columns, power, None, not stored)
    np.testing.assert_allclose(evidence.score(outputs).numpy(), expected, rtol=1e-8)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "in place"])
def test_given_weights_count_and_some_scorers_only_elsewhere(stored: bool) -> None:
    train, seen = random_graph(seed=1), random_graph(seed=2)
    parts, here, elsewhere = (FeatureSum(), Degree(), MaxSoftmax()), (0.25, 2.0, 0.0), (0.25, 2.0, 3.0)
    evidence = fitted(Evidence(parts, weights=here, elsewhere_weights=elsewhere), train)
    assert evidence.elsewhere_weights_.tolist() == [0.25, 2.0, 3.0]
    outputs = outputs_on(seen, reference=None if stored else REFERENCE)
    columns = columns_of(evidence, outputs, train if stored else seen)
    expected = expected_scores(columns, 2.0, (0.25, 2.0, 3.0 if stored else 0.0), not stored)
    np.testing.assert_allclose(evidence.score(outputs).numpy(), expected, rtol=1e-8)
    # What does not count is no reason either.
    assert bool((evidence.surprises(outputs)[:, 2] > 0).any()) == stored
    [comparison] = evidence.comparisons(outputs)
    assert bool((comparison.contributions[:, 2] > 0).any()) == stored


def test_nodes_that_training_has_seen_have_weights_of_their_own() -> None:
    train, grown = random_graph(seed=1), random_graph(seed=2)
    weights, seen_weights = (0.25, 2.0, 0.0), (0.0, 1.0, 0.5)
    parts = (FeatureSum(), Degree(), MaxSoftmax())
    evidence = fitted(Evidence(parts, weights=weights, seen_weights=seen_weights), train)
    outputs = outputs_on(grown, reference=REFERENCE)
    outputs.seen = torch.rand(grown.num_nodes, generator=torch.Generator().manual_seed(0)) < 0.7
    columns = columns_of(evidence, outputs, grown)
    expected = expected_scores(columns, 2.0, (0.25, 2.0, 0.0), in_place=True)
    others = outputs.seen & ~torch.isin(torch.arange(grown.num_nodes), REFERENCE)
    expected[others] = expected_scores(columns, 2.0, seen_weights, in_place=True)[others]
    np.testing.assert_allclose(evidence.score(outputs).numpy(), expected, rtol=1e-8)
    # What does not count is no reason either.
    surprises = evidence.surprises(outputs)
    assert not bool((surprises[others, 0] > 0).any())
    assert bool((surprises[others, 2] > 0).any())
    assert not bool((surprises[~outputs.seen, 2] > 0).any())


def averaged(own: np.ndarray, graph: Graph, num_hops: int) -> np.ndarray:
    """Means over a node and its neighbours, half and half in every hop; a node without neighbours keeps its own."""
    walk = np.zeros((graph.num_nodes, graph.num_nodes))
    np.add.at(walk, (graph.edge_index[1].numpy(), graph.edge_index[0].numpy()), 1.0)
    degree = walk.sum(axis=1)
    walk[degree == 0, degree == 0] = 1.0
    walk /= np.maximum(degree, 1.0)[:, None]
    for _ in range(num_hops):
        own = own / 2 + walk @ own / 2
    return own


def with_around(own: np.ndarray, around: np.ndarray, known_own: np.ndarray, known_around: np.ndarray) -> np.ndarray:
    """The evidence at and around nodes, compared with that at and around reference nodes."""
    both = own**2 + 2 * shares(-around, -known_around) ** 2
    known = known_own**2 + 2 * shares(known_around, -known_around, left_out=True) ** 2
    return shares(-both, -known)


@pytest.mark.parametrize("place", ["elsewhere", "nothing is known to be new", "the training graph has grown"])
def test_what_is_around_nodes_counts_where_a_whole_region_can_be_unknown(place: str) -> None:
    train, other = random_graph(seed=1), random_graph(seed=2)
    everyone, weights, seen_weights = torch.ones(40, dtype=torch.bool), (1.0, 2.0), (0.5, 1.0)
    parts = (FeatureSum(), MaxSoftmax())
    evidence = Evidence(parts, weights=weights, seen_weights=seen_weights, around_hops=3)
    at_home = outputs_on(train, reference=REFERENCE)
    at_home.seen = everyone
    evidence = evidence.fit(at_home, *labelled(train)).fit_reference(at_home).fit_scores(at_home)
    weights, seen_weights = (tuple(each.tolist()) for each in (evidence.weights_, evidence.seen_weights_))

    def own_of(outputs: Outputs, home: Graph) -> np.ndarray:
        columns, in_place = columns_of(evidence, outputs, home), outputs.reference is not None
        own = expected_scores(columns, 2.0, weights, in_place)
        if outputs.seen is not None:
            is_seen = outputs.seen & ~torch.isin(torch.arange(40), REFERENCE)
            own[is_seen] = expected_scores(columns, 2.0, seen_weights, in_place)[is_seen]
        return -own

    if place == "elsewhere":
        own, known_own = own_of(outputs_on(other), train), own_of(at_home, train)
        known_around = averaged(known_own, train, 3)[REFERENCE]
        expected = with_around(own, averaged(own, other, 3), known_own[REFERENCE], known_around)
        np.testing.assert_allclose(evidence.score(outputs_on(other)).numpy(), -expected, rtol=1e-8)
        return
    outputs = outputs_on(other, reference=REFERENCE)
    if place == "the training graph has grown":
        outputs.seen = torch.rand(40, generator=torch.Generator().manual_seed(0)) < 0.7
        outputs.seen[REFERENCE] = True
    own = own_of(outputs, other)
    around = averaged(own, other, 3)
    expected = with_around(own, around, own[REFERENCE], around[REFERENCE])
    found, is_new = -evidence.score(outputs).numpy(), torch.zeros(40, dtype=torch.bool)
    if outputs.seen is not None:  # new and reference nodes are judged by themselves
        is_new = ~outputs.seen
        is_new[REFERENCE] = True
        np.testing.assert_allclose(found[is_new], own[is_new], rtol=1e-8)
    is_new[REFERENCE] = True
    np.testing.assert_allclose(found[~is_new], expected[~is_new], rtol=1e-8)
    # It is a kind of its own.
    near = evidence.surprises(outputs)[:, -1].numpy()
    np.testing.assert_allclose(near[~is_new], shares(-around, -around[REFERENCE])[~is_new], rtol=1e-8)
    assert evidence.kinds[-1] == "evidence around"


@pytest.mark.parametrize("dataset", ["digits", "social"])
def test_unknown_nodes_that_were_in_the_graph_all_the_time_are_found(dataset: str) -> None:
    """Their features and edges were learnt from; their labels were not."""
    data = digits_graph(3) if dataset == "digits" else blocks(seed=3)
    unknown = data.y < 3
    rng = np.random.default_rng(0)
    known = rng.permutation((~unknown).nonzero().squeeze(1).numpy())
    train, val, fresh = np.split(known, [len(known) // 4, len(known) // 2])
    data.y = (data.y - 3).where(~unknown, torch.tensor(-1))
    for name, nodes in (("train_mask", train), ("val_mask", val)):
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][nodes] = True
    scores = Detector.from_recipe("nodesafe-evidence", epochs=60, device="cpu").fit(data).score_samples(data)
    assert auroc(scores[fresh], scores[unknown]) > 0.9


def blocks(seed: int) -> Data:
    """Six groups with features of their own, joined mostly to themselves."""
    rng = np.random.default_rng(seed)
    y = rng.integers(6, size=600)
    x = rng.normal(size=(6, 16))[y] + rng.normal(size=(600, 16))
    a, b = rng.integers(600, size=(2, 12000))
    kept = (y[a] == y[b]) | (rng.random(12000) < 0.05)
    edges = torch.from_numpy(np.stack([a[kept], b[kept]]))
    both = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(x=torch.from_numpy(x).float(), edge_index=both, y=torch.from_numpy(y))


def test_weights_are_as_given_unless_next_to_nothing_is_carried() -> None:
    parts = tuple(Weighed(carries=each) for each in (1.0, 0.5, 0.1, 0.05, 0.01, 0.0))
    assert fitted(Evidence(parts), random_graph()).weights_.tolist() == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.1, 0.0])
    given = fitted(Evidence(parts, weights=(0.5, 4.0) * 3), random_graph())
    assert given.weights_.tolist() == pytest.approx([0.5, 4.0, 0.5, 2.0, 0.05, 0.0])


BOTH = (Degree(), FeatureSum())


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(()),
        *(Evidence(BOTH[:1], power) for power in (0.5, math.nan)),
        *(Evidence(BOTH, weights=weights) for weights in ((1.0,), (), (1.0, -0.1), (1.0, math.nan), (1.0, math.inf))),
        *(Evidence(BOTH, elsewhere_weights=weights) for weights in ((1.0,), (1.0, -1.0))),
    ],
    ids=repr,
)
def test_settings_that_make_no_sense_are_refused(evidence: Evidence) -> None:
    message = r"2 scorers have the weights .*, expected a finite weight"
    with pytest.raises(ValueError, match=message if len(evidence.scorers) == 2 else "expected 1 or more of both"):
        fitted(evidence, random_graph())


# Weights that are learnt from exposed nodes


def test_the_kind_of_evidence_that_exposed_nodes_have_counts_more() -> None:
    """Exposed nodes have low sums of features, of which their degree knows nothing."""
    graph, other = (random_graph(300, num_edges=900, seed=seed) for seed in (1, 6))
    nodes, exposed = torch.arange(120, 220), torch.arange(100)
    other.x[exposed] -= 0.4  # about one standard deviation of their sum
    before = fitted(
        Evidence((FeatureSum(), Degree()), weights=(1.0, 0.5), learns_weights=True), graph, torch.arange(20, 120)
    )
    known = outputs_on(graph)
    after = before.fit_exposure(known, nodes, outputs_on(other), exposed)
    gain = after.weights_ / before.weights_
    assert float(gain[0]) > 1.05 > 0.95 > float(gain[1]) > 0
    assert before.weights_.tolist() == [1.0, 0.5]  # a copy was fitted
    assert after.needs_exposure
    # Without weights to learn, or without nodes to learn from, they stay.
    fixed = fitted(Evidence((FeatureSum(), Degree())), graph)
    assert not fixed.needs_exposure
    assert torch.equal(fixed.fit_exposure(known, nodes, known, exposed).weights_, fixed.weights_)
    assert torch.equal(before.fit_exposure(known, exposed[:0], known, exposed).weights_, before.weights_)
    assert torch.equal(before.fit_exposure(known, exposed, known, exposed[:0]).weights_, before.weights_)


def test_separating_weights_minimise_the_regression() -> None:
    """Against scipy on the same loss, written in numpy."""
    generator = np.random.default_rng(0)
    known, exposed = generator.gamma(1.0, 1.0, (50, 3)), generator.gamma(1.0, 1.0, (40, 3)) * [3.0, 1.0, 1.0]
    scale = np.concatenate([known, exposed]).mean()

    def loss(values: np.ndarray) -> float:
        logs, slope, shift = values[:3], np.exp(values[3]), values[4]
        odds = [slope * (each / scale) @ np.exp(logs) / 3 + shift for each in (known, exposed)]
        fit = np.logaddexp(0, odds[0]).mean() + np.logaddexp(0, -odds[1]).mean()
        return float(fit + 0.05 * np.square(logs).mean())

    expected = np.exp(minimize(loss, np.zeros(5)).x[:3])
    with torch.no_grad():  # as where a user scores
        found = separating_weights(torch.from_numpy(known), torch.from_numpy(exposed))
    np.testing.assert_allclose(found.numpy(), expected, rtol=0.02)
    assert not found.requires_grad
    assert found[0] > 1 > found[1:].max()


def test_without_a_difference_all_kinds_keep_their_weight() -> None:
    known = torch.rand(30, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).expand(30, 4)
    found = separating_weights(known, known)
    torch.testing.assert_close(found, found[:1].expand(4))
    assert float(found[0]) == pytest.approx(1.0, abs=0.05)
    assert bool(separating_weights(torch.zeros(3, 2).double(), torch.zeros(3, 2).double()).isfinite().all())


def test_surprises_of_reference_nodes_leave_them_out() -> None:
    graph = random_graph(seed=4)
    evidence = fitted(Evidence((FeatureSum(),)), graph)
    sums = graph.x.sum(dim=1).numpy()
    found = evidence.surprises(outputs_on(graph, reference=REFERENCE))[:, 0].numpy()
    expected = shares(sums, sums[REFERENCE])
    expected[REFERENCE] = shares(sums[REFERENCE], sums[REFERENCE], left_out=True)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("reference", [None, torch.tensor([3])])
def test_fewer_than_two_reference_nodes_are_refused(reference: Tensor | None) -> None:
    graph = random_graph()
    outputs = outputs_on(graph, reference=reference)
    evidence = Evidence((Degree(),)).fit(outputs, *labelled(graph))
    with pytest.raises(ValueError, match="at least two reference nodes"):
        evidence.fit_reference(outputs)


def grouped(num_nodes: int = 400, random_edges: bool = False, seed: int = 0) -> Data:
    """Four classes with words of their own; edges within a class, or between any two nodes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(num_nodes) % 4
    chance = torch.full((num_nodes, 40), 0.03) + 0.25 * F.one_hot(y, 4).repeat_interleave(10, dim=1)
    x = (torch.rand(num_nodes, 40, generator=generator) < chance).float()
    source = torch.arange(num_nodes).repeat_interleave(3)
    target = torch.randint(num_nodes, (len(source),), generator=generator)
    if not random_edges:
        target = 4 * (target // 4) + source % 4
    edges = torch.stack([source, target])[:, source != target]
    place = torch.arange(num_nodes)
    return Data(
        x=x,
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=y,
        train_mask=place < 80,
        val_mask=(place >= 80) & (place < 240),
    )


PARTS = (
    MaxSoftmax(),
    TwoSided(Propagated(MaxSoftmax(), 8, 0.1)),
    Mahalanobis(),
    CentredCosine(),
    LinkPrediction(steps=100),
    TwoSided(NonZeros()),
)


def detector(**settings: object) -> Detector:
    return Detector("gcn", None, Evidence(PARTS), hidden_channels=16, epochs=15, device="cpu", **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> Detector:
    return detector().fit(grouped())


@pytest.mark.parametrize("ensemble", [1, 3])
def test_a_loaded_detector_scores_the_same_to_the_last_bit(tmp_path: Path, ensemble: int) -> None:
    data = grouped()
    before = detector(ensemble=ensemble).fit(data)
    before.save(tmp_path / "model")
    after = Detector.load(tmp_path / "model", device="cpu")
    other = grouped(seed=5)  # another graph: compared with stored scores
    other.x[:] = other.x.flip(0)
    for graph in (data, other):
        assert torch.equal(after.score_samples(graph), before.score_samples(graph))
        assert torch.equal(after.detect(graph), before.detect(graph))
    assert before.outputs(data).references
    assert not before.outputs(other).references
    assert after.threshold_ == before.threshold_


def test_an_ensembles_score_is_the_mean_of_its_members_scores() -> None:
    data = grouped()
    several = detector(ensemble=6).fit(data)
    outputs = several.outputs(data)
    assert len(outputs.members) == 6
    assert isinstance(several.scorer_, EnsembleMean)
    own = [scorer.score(member) for scorer, member in zip(several.scorer_.scorers, outputs.members, strict=True)]
    torch.testing.assert_close(several.score_samples(outputs), torch.stack(own).mean(dim=0))
    # Cross-fitted in three pairs: every validation node is a reference node of three networks.
    together = torch.cat([member.reference for member in outputs.members])  # type: ignore[misc]
    assert torch.equal(together.sort().values, data.val_mask.nonzero().squeeze(1).repeat_interleave(3))


def test_another_scorer_on_the_same_networks_is_a_fresh_fit(found: Detector) -> None:
    data = grouped()
    other = Evidence((Mahalanobis(), Propagated(CentredCosine())), power=1.0)
    fresh = Detector("gcn", None, other, hidden_channels=16, epochs=15, device="cpu").fit(data)
    again = found.with_scorer(other)
    torch.testing.assert_close(again.score_samples(data), fresh.score_samples(data))
    assert again.threshold_ == pytest.approx(fresh.threshold_)
    plain = found.with_scorer(MaxSoftmax())
    assert plain.calibration_ is None
    assert plain.score_samples(data).shape == (400,)


def test_a_detector_that_set_nothing_aside_refuses_evidence_and_says_what_to_do() -> None:
    plain = Detector(epochs=2, device="cpu").fit(grouped())
    with pytest.raises(ValueError, match="this detector has set none aside; fit a new detector"):
        plain.with_scorer(Evidence(PARTS))


def test_it_finds_unknown_arrivals_and_says_so(found: Detector) -> None:
    data = grouped()
    generator = torch.Generator().manual_seed(9)
    strange = (torch.rand(30, 40, generator=generator) < 0.1).float()
    far = torch.randint(400, (2, 90), generator=generator)
    near = torch.arange(400, 430).repeat(3)
    added = torch.stack([near, far[0]])
    grown = Data(x=torch.cat([data.x, strange]), edge_index=torch.cat([data.edge_index, added, added.flip(0)], dim=1))
    assert len(found.outputs(grown).references) == len(found.outputs(data).references) > 0
    scores = found.score_samples(grown)
    assert auroc(scores[240:400], scores[400:]) > 0.9
    assert float(found.detect(grown)[400:].double().mean()) > 0.5
    assert float(found.detect(grown)[240:400].double().mean()) < 0.15


def test_scores_are_not_all_equal_where_propagated_scores_are() -> None:
    """On a dense graph, 32 hops give every node the same score."""
    generator = torch.Generator().manual_seed(0)
    data = grouped(300)
    dense = torch.randint(300, (2, 12_000), generator=generator)
    data.edge_index = torch.cat([dense, dense.flip(0)], dim=1)
    scorer = Evidence((Propagated(MaxSoftmax(), 32, 0.1), MaxSoftmax(), CentredCosine()))
    fit = Detector("gcn", None, scorer, hidden_channels=16, epochs=5, propagation="as-given", device="cpu").fit(data)
    alone = fit.with_scorer(Propagated(MaxSoftmax(), 32, 0.1)).score_samples(data)
    assert float(alone.std()) < 1e-3
    scores = fit.score_samples(data)
    assert len(scores.unique()) > 50
    weights = torch.stack([each.weights_ for each in fit.scorer_.scorers])  # type: ignore[attr-defined]
    assert float(weights[:, 0].max()) < 0.3
    assert torch.equal(weights[:, 1], torch.ones(4, dtype=torch.float64))


def test_averages_over_the_same_range_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(seed=1)
    scorers = (
        Propagated(Degree(), 3, 0.2),
        TwoSided(Propagated(FeatureSum(), 3, 0.2)),
        Propagated(FeatureSum(), 4, 0.2),
    )
    evidence = fitted(Evidence(scorers), graph)
    expected = [
        propagate(part.score(outputs_on(graph)), graph.random_walk, hops, 0.2)
        for part, hops in ((Degree(), 3), (FeatureSum(), 3), (FeatureSum(), 4))
    ]
    walked: list[torch.Size] = []
    real = propagated.propagate

    def counted(scores: Tensor, *given: Any) -> Tensor:
        walked.append(scores.shape)
        return real(scores, *given)

    monkeypatch.setattr(propagated, "propagate", counted)
    found = evidence.scores(outputs_on(graph))
    torch.testing.assert_close(found, torch.stack(expected, dim=1).double(), atol=1e-6, rtol=1e-6)
    assert walked == [(graph.num_nodes, 2), (graph.num_nodes,)]
