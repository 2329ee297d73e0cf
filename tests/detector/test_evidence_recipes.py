"""`nodesafe-evidence` from end to end: any backbone, any graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode import RECIPES, Detector, Evidence, NeighbourhoodCosine, load_task
from oddnode.detector import kinds_of_evidence
from oddnode.functional import auroc
from tests.detector.networks import Sage
from tests.detector.test_reference import known_graph

METHOD = "nodesafe-evidence"


def detector(backbone: str = "gcn", **settings: object) -> Detector:
    return Detector.from_recipe(METHOD, backbone, **{"epochs": 5, "device": "cpu", **settings})  # type: ignore[arg-type]


def scores_of(data: Data, backbone: str = "gcn", **settings: object) -> Tensor:
    """Scores of a new detector, after what must hold of all of them."""
    fit = detector(backbone, **settings).fit(data)
    scores = fit.score_samples(data)
    assert scores.shape == (data.num_nodes,)
    assert bool(scores.isfinite().all())
    assert torch.equal(fit.score_samples(data), scores)
    assert fit.detect(data).dtype == torch.bool
    assert fit.predict(data).shape == (data.num_nodes,)
    assert fit.explain(data).score.shape == (data.num_nodes,)
    # Stored references: without the known nodes, the same network judges another graph.
    part = data.subgraph(torch.arange(data.num_nodes).flip(0)[:20])
    assert bool(fit.score_samples(part).isfinite().all())
    return scores


def test_the_recipe_is_evidence_on_nodesafes_objective() -> None:
    objective, scorer = RECIPES[METHOD].build()
    assert isinstance(scorer, Evidence)
    assert scorer.scorers == kinds_of_evidence(32, 0.1)
    assert repr(objective) == repr(RECIPES["nodesafe"].build()[0])
    objective, scorer = RECIPES["evidence"].build(num_hops=4, power=1.0)
    assert repr(objective) == "CrossEntropy()"
    assert (scorer.num_hops_used, scorer.power) == (4, 1.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("backbone", ["gcn", "mlp", "gat", "jknet", "mixhop"])
def test_every_backbone(backbone: str) -> None:
    assert len(scores_of(known_graph(), backbone).unique()) > 100


def test_a_users_own_network(tmp_path: Path) -> None:
    data = known_graph()
    _, scorer = RECIPES[METHOD].build()
    fit = Detector(Sage(24, dropout=0.3), None, scorer, epochs=5, device="cpu").fit(data)
    scores = fit.score_samples(data)
    assert len(scores.unique()) > 100
    fit.save(tmp_path / "model")
    loaded = Detector.load(tmp_path / "model", backbone=Sage(24, dropout=0.3), device="cpu")
    assert torch.equal(loaded.score_samples(data), scores)
    data.reference_mask = torch.arange(240) >= 150
    wrapped = Detector.wrap(Sage(24, dropout=0.3), scorer, data, device="cpu")
    assert bool(wrapped.score_samples(data).isfinite().all())


def edges(data: Data, edge_index: Tensor) -> Data:
    other = data.clone()
    other.edge_index = edge_index
    return other


def features(data: Data, x: Tensor) -> Data:
    other = data.clone()
    other.x = x
    return other


def one_class() -> Data:
    data = known_graph()
    data.y = torch.zeros_like(data.y)
    return data


def dense() -> Data:
    one_way = torch.randint(240, (2, 9600), generator=torch.Generator().manual_seed(1))
    return edges(known_graph(), torch.cat([one_way, one_way.flip(0)], dim=1))


def heterophilous() -> Data:
    """Every node is joined to nodes of the next class."""
    data = known_graph()
    generator = torch.Generator().manual_seed(1)
    members = [(data.y == c).nonzero().squeeze(1) for c in range(3)]
    pairs = []
    for node, label in enumerate(data.y.tolist()):
        others = members[(label + 1) % 3]
        pairs += [(node, int(others[i])) for i in torch.randint(len(others), (3,), generator=generator)]
    one_way = torch.tensor(pairs).t()
    return edges(data, torch.cat([one_way, one_way.flip(0)], dim=1))


def half_isolated() -> Data:
    data = known_graph()
    kept = (data.edge_index % 2 == 0).all(dim=0)
    return edges(data, data.edge_index[:, kept])


def with_loops_and_repetitions() -> Data:
    data = known_graph()
    loops = torch.arange(240).repeat(2, 1)
    return edges(data, torch.cat([data.edge_index, data.edge_index[:, :300], loops, loops], dim=1))


def of_both_signs() -> Data:
    data = known_graph()
    return features(data, data.x - data.x.mean(dim=0))


GRAPHS: dict[str, Callable[[], Data]] = {
    "one class": one_class,
    "no edges": lambda: edges(known_graph(), torch.zeros(2, 0, dtype=torch.long)),
    "zero features": lambda: features(known_graph(), torch.zeros(240, 24)),
    "constant features": lambda: features(known_graph(), torch.full((240, 24), 0.3)),
    "one-hot features": lambda: features(known_graph(), torch.eye(240)),
    "one feature": lambda: features(known_graph(), known_graph().x[:, :1]),
    "features of both signs": of_both_signs,
    "large features": lambda: features(known_graph(), 1e4 * known_graph().x),
    "small features": lambda: features(known_graph(), 1e-4 * known_graph().x),
    "double precision": lambda: features(known_graph(), known_graph().x.double()),
    "dense": dense,
    "heterophilous": heterophilous,
    "isolated nodes": half_isolated,
    "directed": lambda: edges(known_graph(), known_graph().edge_index[:, : known_graph().num_edges // 2]),
    "loops and repetitions": with_loops_and_repetitions,
    "small": lambda: known_graph(num_nodes=75, num_val=14),
    "smallest": lambda: known_graph(num_nodes=66, num_val=4),
    "one edge": lambda: edges(known_graph(), torch.tensor([[0, 61], [61, 0]])),
}

# Graphs in which little tells the nodes apart, or with few reference nodes: a score is a share of these.
FEW_SCORES = {"zero features": 5, "constant features": 5, "small": 14, "smallest": 4}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph(name: str) -> None:
    data = GRAPHS[name]()
    if name in ("small", "smallest"):
        fit = detector().fit(data)
        scores = fit.score_samples(data)
        assert bool(scores.isfinite().all())
        assert fit.calibration_ is None  # a rate of 5 % needs 19 reference nodes
    else:
        scores = scores_of(data)
    assert len(scores.unique()) >= FEW_SCORES.get(name, 60)


@pytest.fixture(scope="module")
def fit() -> Detector:
    return detector().fit(known_graph())


def test_an_isolated_new_node_and_a_graph_of_one_node_get_scores(fit: Detector) -> None:
    data = known_graph()
    alone = Data(x=data.x[:1], edge_index=torch.zeros(2, 0, dtype=torch.long))
    assert fit.score_samples(alone).shape == (1,)
    grown = Data(x=torch.cat([data.x, data.x[:1]]), edge_index=data.edge_index)
    assert len(fit.outputs(grown).references) == 4
    assert bool(fit.score_samples(grown).isfinite().all())


def test_it_finds_digits_that_arrive() -> None:
    task = load_task("digits/arrivals/label-scattered")
    fit = detector(epochs=40).fit(task.train)
    data, known = task.id_test
    scores = fit.score_samples(data)
    assert auroc(scores[known], scores[data.ood_mask]) > 0.9
    flagged = fit.detect(data)
    assert float(flagged[data.ood_mask].double().mean()) > 0.5
    assert float(flagged[known].double().mean()) < 0.12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("ensemble", [1, 2])
def test_a_gpu_agrees_with_a_cpu(ensemble: int, tmp_path: Path) -> None:
    data = known_graph()
    data.x = data.x.double()  # ranks among reference nodes jump where rounding lets two scores change places
    fit = detector(device="cuda", ensemble=ensemble).fit(data)
    scores = fit.score_samples(data)
    assert scores.device.type == "cpu"
    assert len(fit.outputs(data).references) == 4  # two pairs that are cross-fitted
    fit.save(tmp_path / "model")
    for device in ("cpu", "cuda"):
        again = Detector.load(tmp_path / "model", device=device).score_samples(data)
        torch.testing.assert_close(again, scores, rtol=1e-5, atol=1e-5)


def test_networks_share_what_depends_on_none_of_them_and_has_not_learnt_from_any_reference_node(tmp_path: Path) -> None:
    fitted = detector().fit(half_isolated())
    fitted.save(tmp_path / "model")
    references = torch.cat([each.nodes for each in fitted.state_.references])
    known = torch.ones(len(half_isolated().x), dtype=torch.bool)
    known[references] = False
    for each in fitted, Detector.load(tmp_path / "model"):
        first, *others = each.scorer_.scorers  # type: ignore[attr-defined]
        assert len(others) == 3
        assert {scorer.is_shared for scorer in first.scorers} == {True, False}
        for other in others:
            assert [a is b for a, b in zip(first.scorers, other.scorers, strict=True)] == [
                scorer.is_shared for scorer in first.scorers
            ]
        [cosine] = [scorer for scorer in first.scorers if type(scorer) is NeighbourhoodCosine]
        assert torch.allclose(cosine.centre_, half_isolated().x[known].mean(dim=0), atol=1e-6)
