"""Scorers: the right direction on plainly separable data, and each against an independent computation."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import (
    GRASP,
    KNN,
    ODIN,
    CentredCosine,
    ClassAgreement,
    CrossEntropy,
    Degree,
    Detector,
    Energy,
    FeatureLikelihood,
    LinkPrediction,
    Mahalanobis,
    MaxLogit,
    MaxSoftmax,
    NeighbourCosine,
    NeighbourhoodFeatures,
    NonZeros,
    Propagated,
    Scorer,
)
from oddnode.functional import auroc, support
from oddnode.graph import Graph
from oddnode.nn import GCN
from oddnode.ops import neighbour_mean_matrix
from oddnode.scoring import Outputs
from tests.scoring.random_graphs import outputs_on, random_graph

SCORERS: list[Scorer] = [
    MaxSoftmax(),
    MaxLogit(),
    Energy(),
    ODIN(2.0, 0.01),
    Mahalanobis(),
    KNN(3),
    GRASP(),
    Propagated(Energy()),
    Propagated(Mahalanobis(), 8),
    CentredCosine(),
    LinkPrediction(),
    NeighbourhoodFeatures(),
    ClassAgreement(),
    FeatureLikelihood(),
    NonZeros(),
    Degree(),
    NeighbourCosine(),
]

_ID, _OOD = 60, 20


def _separable() -> Data:
    """Three classes with a feature of their own each, and OOD nodes in which all features are mixed.

    ID nodes are joined within their class; OOD nodes to a few random OOD nodes.
    """
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(3).repeat(_ID // 3), np.full(_OOD, -1)])
    x = np.zeros((_ID + _OOD, 18))
    for node, label in enumerate(y):
        words = rng.choice(4, 3, replace=False) + 4 * label if label >= 0 else rng.choice(18, 8, replace=False)
        x[node, words] = rng.uniform(0.8, 1.2, len(words)) * (1.0 if label >= 0 else 0.375)
    pairs = []
    for node, label in enumerate(y):
        company = np.flatnonzero(y == label)
        pairs += [(node, other) for other in rng.choice(company, 6 if label >= 0 else 1) if other != node]
    edges = torch.tensor(pairs).t()
    data = Data(
        x=torch.from_numpy(x).float(),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=torch.from_numpy(y),
    )
    place = torch.arange(_ID + _OOD)
    data.train_mask = (place < _ID) & (place % 20 < 8)
    data.val_mask = (place < _ID) & (place % 20 >= 8) & (place % 20 < 12)
    return data


@pytest.fixture(scope="module")
def data() -> Data:
    return _separable()


def _trained(data: Data, scorer: Scorer | None = None, epochs: int = 3) -> Detector:
    """A small network that has seen the ID nodes only."""
    detector = Detector("gcn", CrossEntropy(), scorer, hidden_channels=16, epochs=epochs, device="cpu")
    return detector.fit(data.subgraph(torch.arange(_ID)))


@pytest.fixture(scope="module")
def detector(data: Data) -> Detector:
    return _trained(data, epochs=60)


def _fitted(scorer: Scorer, hidden: Tensor, train: Tensor, y: Tensor) -> tuple[Scorer, Outputs]:
    """A scorer fitted on hidden features that are given, without a network."""
    outputs = Outputs(nn.Identity(), Graph(hidden, torch.empty(2, 0, dtype=torch.long)), int(y.max()) + 1, train)
    outputs.__dict__["hidden"] = hidden
    return scorer.fit(outputs, train, y), outputs


@pytest.mark.parametrize("scorer", SCORERS, ids=repr)
def test_id_scores_higher_than_ood(scorer: Scorer, detector: Detector, data: Data) -> None:
    scores = detector.with_scorer(scorer).score_samples(data)
    assert scores.shape == (_ID + _OOD,)
    test = torch.arange(_ID) % 20 >= 12
    assert auroc(scores[:_ID][test], scores[_ID:]) > 0.85


@pytest.mark.parametrize("scorer", SCORERS, ids=repr)
def test_another_scorer_on_the_same_network_is_a_fresh_fit(scorer: Scorer, data: Data) -> None:
    other, fresh = _trained(data).with_scorer(scorer), _trained(data, scorer)
    torch.testing.assert_close(other.score_samples(data), fresh.score_samples(data))


@pytest.mark.parametrize("scorer", SCORERS, ids=repr)
def test_fitting_returns_a_copy_and_learns_tensors(scorer: Scorer, detector: Detector, data: Data) -> None:
    before = repr(scorer)
    fitted = detector.with_scorer(scorer).scorer_
    assert fitted is not scorer
    assert repr(scorer) == before
    assert not any(name.endswith("_") for name in vars(scorer))
    settings = {f.name for f in fields(fitted)}  # type: ignore[arg-type]
    learnt = {name: value for name, value in vars(fitted).items() if name not in settings}
    assert all(name.endswith("_") and isinstance(value, Tensor) for name, value in learnt.items())


def test_mahalanobis_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    hidden = rng.normal(size=(80, 5)) @ rng.normal(size=(5, 5)) + np.eye(3, 5)[np.arange(80) % 3]
    train = torch.arange(60)
    scorer, outputs = _fitted(Mahalanobis(shrinkage=0.0), torch.from_numpy(hidden), train, torch.from_numpy(y))
    means = np.stack([hidden[:60][y == c].mean(axis=0) for c in range(3)])
    fit = EmpiricalCovariance(assume_centered=True).fit(hidden[:60] - means[y])
    expected = -np.min([fit.mahalanobis(hidden - mean) for mean in means], axis=0)
    np.testing.assert_allclose(scorer.score(outputs).numpy(), expected, rtol=1e-8)


def test_mahalanobis_with_full_shrinkage_is_the_euclidean_distance() -> None:
    hidden = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(20) % 2
    scorer, outputs = _fitted(Mahalanobis(shrinkage=1.0), hidden, torch.arange(20), y)
    means = torch.stack([hidden[y == 0].mean(dim=0), hidden[y == 1].mean(dim=0)])
    variance = (hidden - means[y]).square().mean()
    expected = -torch.cdist(hidden, means).square().amin(dim=1) / variance
    torch.testing.assert_close(scorer.score(outputs), expected)


def test_mahalanobis_stands_fewer_nodes_than_channels_and_constant_ones() -> None:
    hidden = torch.randn(6, 30, generator=torch.Generator().manual_seed(0))
    hidden[:, 0] = 7.0
    scorer, outputs = _fitted(Mahalanobis(), hidden, torch.arange(6), torch.arange(6) % 2)
    assert bool(scorer.score(outputs).isfinite().all())


def test_knn_is_scikit_learns() -> None:
    hidden = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    scorer, outputs = _fitted(KNN(4), hidden, torch.arange(30), torch.arange(30) % 2)
    unit = (hidden / hidden.norm(dim=1, keepdim=True)).numpy()
    distances, _ = NearestNeighbors(n_neighbors=4).fit(unit[:30]).kneighbors(unit)
    np.testing.assert_allclose(scorer.score(outputs).numpy(), -distances[:, -1], atol=1e-6)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    for scorer in (KNN(4), Mahalanobis()):
        fitted, outputs = _fitted(scorer, hidden, torch.arange(30), torch.arange(30) % 2)
        whole = fitted.score(outputs)
        monkeypatch.setattr("oddnode.scoring.hidden_space._CHUNK", 7)
        torch.testing.assert_close(fitted.score(outputs), whole)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        (KNN(0), "k is 0, expected 1..24"),
        (KNN(25), "k is 25, expected 1..24"),
        (Mahalanobis(1.5), "shrinkage is 1.5"),
        (GRASP(share=0.0), "share is 0.0"),
        (Propagated(prior_nodes=-1.0), "prior_nodes is -1.0"),
    ],
)
def test_settings_out_of_range_are_named(scorer: Scorer, message: str, detector: Detector) -> None:
    with pytest.raises(ValueError, match=message):
        detector.with_scorer(scorer)


def test_odins_temperature_is_positive(detector: Detector, data: Data) -> None:
    with pytest.raises(ValueError, match="temperature is 0"):
        detector.with_scorer(ODIN(temperature=0)).score_samples(data)


class _TwoLayers(nn.Module):
    """A user's own module, smooth, so that finite differences tell the sign of every gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        summed = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.last(torch.tanh(self.first(x + 0.5 * summed)))


@pytest.mark.parametrize("own", [True, False], ids=["user module", "GCN"])
def test_odin_steps_where_finite_differences_say(own: bool) -> None:
    torch.manual_seed(0)
    graph = Graph(torch.randn(4, 3).double(), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    module = (_TwoLayers() if own else GCN(3, 4, 3)).double().eval()
    outputs, odin = Outputs(module, graph, num_classes=2), ODIN(temperature=3.0, epsilon=0.05)

    def confidences(x: Tensor) -> Tensor:
        with torch.no_grad():
            return (module(x, graph.edge_index) / 3.0).softmax(dim=-1)[:, :2].amax(dim=-1)

    moved = graph.x.clone()
    for index in np.ndindex(*graph.x.shape):
        nudge = torch.zeros_like(graph.x)
        nudge[index] = 1e-6
        difference = (confidences(graph.x + nudge).log() - confidences(graph.x - nudge).log()).sum()
        moved[index] += 0.05 * difference.sign()
    torch.testing.assert_close(odin.score(outputs), confidences(moved))


def test_odin_without_a_step_at_temperature_one_is_max_softmax(detector: Detector, data: Data) -> None:
    odin, msp = detector.with_scorer(ODIN(1.0, 0.0)), detector.with_scorer(MaxSoftmax())
    torch.testing.assert_close(odin.score_samples(data), msp.score_samples(data))


@pytest.mark.parametrize(("num_labelled", "weighted"), [(12, False), (0, False), (12, True)])
def test_grasp_is_a_loop_over_nodes(num_labelled: int, weighted: bool) -> None:
    graph = random_graph(seed=4, weighted=weighted)
    outputs, anchors = outputs_on(graph), list(range(num_labelled))
    outputs.labelled = torch.tensor(anchors) if anchors else None
    base = outputs.all_logits.softmax(dim=1)[:, :3].amax(dim=1).tolist()
    weight = [1.0] * graph.num_edges if graph.edge_weight is None else graph.edge_weight.tolist()
    neighbours: list[list[tuple[int, float]]] = [[] for _ in base]
    for (source, target), each in zip(graph.edge_index.t().tolist(), weight, strict=True):
        neighbours[target].append((source, each / np.mean(weight)))
    others = sorted((v for v in range(len(base)) if v not in anchors), key=lambda v: base[v])
    size = round(0.2 * len(others))

    def inside(v: int, chosen: list[int]) -> float:
        return sum(w for u, w in neighbours[v] if u in chosen)

    trust = {i: inside(i, others[-size:]) / (inside(i, others[:size]) + 1) for i in anchors}
    group = sorted(anchors, key=lambda i: (-trust[i], i))[: len(anchors) // 2]
    scores = [max(s, 1.0) if v in anchors else s for v, s in enumerate(base)]
    for _ in range(3):
        extra = 1.001 * sum(scores[u] for u in group)
        new = []
        for v, near in enumerate(neighbours):
            degree = sum(w for _, w in near) + (len(group) if v in group else 0)
            total = sum(w * scores[u] for u, w in near) + (extra if v in group else 0.0)
            new.append(total / degree if degree else scores[v])
        scores = [max(s, 1.0) if v in anchors else s for v, s in enumerate(new)]
    found = GRASP(num_hops=3, share=0.2).score(outputs)
    np.testing.assert_allclose(found.numpy(), scores, rtol=1e-6)  # the extra weight is a number in single precision


def test_model_free_scores_by_hand() -> None:
    # 0 - 1 - 2, node 3 alone, node 4 without features; the edge 2 -> 4 goes one way.
    x = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0], [3.0, 0.0], [0.0, 0.0]])
    edges = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 4]])
    outputs = Outputs(nn.Identity(), Graph(x, edges), num_classes=2)
    assert NonZeros().score(outputs).tolist() == [-1.0, -2.0, -1.0, -1.0, 0.0]
    assert Degree().score(outputs).tolist() == [1.0, 2.0, 1.0, 0.0, 1.0]
    root = 0.5**0.5
    known = [root, 3 / (2**0.5 * 5**0.5), root, 0.0]
    expected = torch.tensor([*known[:3], sum(known) / 4, known[3]])
    torch.testing.assert_close(NeighbourCosine().score(outputs), expected)


def test_cosine_on_a_graph_without_edges_is_zero() -> None:
    graph = Graph(torch.ones(3, 2), torch.empty(2, 0, dtype=torch.long))
    assert NeighbourCosine().score(Outputs(nn.Identity(), graph, 2)).tolist() == [0.0, 0.0, 0.0]


def test_centred_energy_does_not_see_a_shift_of_all_logits(two_groups: Data) -> None:
    outputs = Detector(epochs=3, device="cpu").fit(two_groups).outputs(two_groups)
    z = outputs.all_logits.double()
    expected = (z - z.mean(dim=1, keepdim=True))[:, : outputs.num_classes].exp().sum(dim=1).log()
    torch.testing.assert_close(Energy(centred=True).score(outputs).double(), expected, rtol=1e-4, atol=1e-4)
    before = Energy(centred=True).score(outputs)
    outputs.__dict__["all_logits"] = outputs.all_logits + torch.linspace(-5, 5, 60).unsqueeze(1)
    torch.testing.assert_close(Energy(centred=True).score(outputs), before, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(Energy().score(outputs), before)


def test_a_prior_counts_like_so_many_nodes_of_the_mean_held_out_score(detector: Detector, data: Data) -> None:
    plain = detector.with_scorer(Propagated(Energy(), 3, 0.2)).score_samples(data)
    found = detector.with_scorer(Propagated(Energy(), 3, 0.2, prior_nodes=7.0)).score_samples(data)
    known = data.subgraph(torch.arange(_ID))
    prior = detector.with_scorer(Propagated(Energy(), 3, 0.2)).score_samples(known)[known.val_mask].mean()
    m = support(neighbour_mean_matrix(data.edge_index, data.num_nodes), 3, 0.2)
    torch.testing.assert_close(found, (m * plain + 7.0 * prior) / (m + 7.0))


def test_the_prior_comes_from_training_nodes_where_no_others_are_labelled(detector: Detector, data: Data) -> None:
    only_train = data.clone()
    del only_train.val_mask
    wrapped = Detector.wrap(detector.module_, Propagated(Energy(), prior_nodes=3.0), only_train)
    scores = detector.with_scorer(Propagated(Energy())).score_samples(data)
    assert isinstance(wrapped.scorer_, Propagated)
    assert wrapped.scorer_.prior_.item() == pytest.approx(scores[data.train_mask].mean().item(), rel=1e-5)
