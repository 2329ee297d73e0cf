"""Reference nodes: which they are, that nothing is learnt from them, and that they are found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from oddnode import (
    CentredCosine,
    ClassAgreement,
    CrossEntropy,
    Detector,
    Evidence,
    FeatureLikelihood,
    FeatureSum,
    LinkPrediction,
    Mahalanobis,
    MaxSoftmax,
    NeighbourhoodFeatures,
    OutlierExposure,
    Propagated,
    Scorer,
    TwoSided,
    load_task,
)
from oddnode.detector import fitting
from oddnode.detector.fitting import calibration_by_references
from oddnode.detector.part_config import learnt_of
from oddnode.detector.reference import ReferenceNodes, choose_references, labelled_nodes, without_nodes
from oddnode.graph import Graph, GraphError, training_set
from oddnode.nn import Ensemble
from oddnode.scoring import EnsembleMean
from tests.detector.networks import Linear


def known_graph(num_nodes: int = 240, num_val: int = 90, seed: int = 0, num_classes: int = 3) -> Data:
    """Classes with words of their own and edges within them; the first 60 nodes are for training."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(num_classes, (num_nodes,), generator=generator)
    y[:num_classes] = torch.arange(num_classes)
    chance = 0.05 + 0.4 * F.one_hot(y, num_classes).repeat_interleave(8, dim=1)
    x = (torch.rand(num_nodes, 8 * num_classes, generator=generator) < chance).float()
    x = x * (0.5 + torch.rand(num_nodes, 1, generator=generator))
    source = torch.arange(num_nodes).repeat_interleave(3)
    target = torch.stack([torch.randint(num_nodes, (len(source),), generator=generator) for _ in range(4)])
    target = torch.where(y[target[0]] == y[source], target[0], target[1])  # mostly of one class
    edges = torch.stack([source, target])[:, source != target]
    place = torch.arange(num_nodes)
    return Data(
        x=x,
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=y,
        train_mask=place < 60,
        val_mask=(place >= 60) & (place < 60 + num_val),
    )


def positions(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(1)


def chosen(data: Data, ensemble: int = 1, seed: int = 0) -> list[Tensor]:
    return choose_references(data, training_set(data, None, torch.device("cpu"), 1, 0.2, seed), ensemble, seed)


PARTS: tuple[Scorer, ...] = (
    MaxSoftmax(),
    TwoSided(Propagated(MaxSoftmax(), 4, 0.1, prior_nodes=5.0)),
    Mahalanobis(),
    CentredCosine(),
    LinkPrediction(steps=20),
    ClassAgreement(),
    NeighbourhoodFeatures(),
    FeatureLikelihood(),
    TwoSided(FeatureSum()),
)


def detector(scorer: Scorer | None = None, **settings: object) -> Detector:
    own = scorer or Evidence(PARTS)
    others: dict = {"hidden_channels": 16, "epochs": 8, "device": "cpu", "propagation": "as-given", **settings}
    return Detector("gcn", others.pop("objective", None), own, **others)


# Which nodes they are


@pytest.mark.parametrize(("ensemble", "splits"), [(1, 2), (2, 2), (4, 2), (5, 3)])
def test_few_validation_nodes_are_halved_for_pairs_of_networks(ensemble: int, splits: int) -> None:
    data = known_graph()
    parts = chosen(data, ensemble)
    assert len(parts) == 2 * splits
    for first, second in zip(parts[::2], parts[1::2], strict=True):
        assert torch.equal(torch.cat([first, second]).sort().values, positions(data.val_mask))
        assert torch.equal(first, first.sort().values)
        counts = torch.stack([torch.bincount(data.y[part], minlength=3) for part in (first, second)])
        assert int((counts[0] - counts[1]).abs().max()) <= 1  # every class is spread evenly
    assert not torch.equal(parts[0], parts[2])


@pytest.mark.parametrize(("num_val", "shared"), [(399, False), (400, True), (900, True)])
def test_from_400_validation_nodes_on_half_of_them_serve_for_all_networks(num_val: int, shared: bool) -> None:
    data = known_graph(num_nodes=1000, num_val=num_val)
    assert len(chosen(data, 1)) == (1 if shared else 4)
    parts = chosen(data, 3)
    assert len(parts) == (3 if shared else 4)
    assert all(torch.equal(part, parts[0]) for part in parts) == shared
    if shared:
        assert len(parts[0]) in (num_val // 2, num_val - num_val // 2)
        classes, of_all = (torch.bincount(data.y[nodes]) for nodes in (parts[0], positions(data.val_mask)))
        assert int((2 * classes - of_all).abs().max()) <= 1


def test_parts_depend_on_the_seed_alone() -> None:
    data = known_graph()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        expected = torch.rand(3)
        torch.manual_seed(3)
        first = chosen(data, seed=1)
        assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(first, chosen(data, seed=1), strict=True))
    assert not torch.equal(first[0], chosen(data, seed=2)[0])


def test_marked_nodes_serve_for_all_networks_and_validation_nodes_stay() -> None:
    data = known_graph()
    data.reference_mask = torch.arange(240) >= 200
    fit = detector(ensemble=2).fit(data)
    for outputs, part in zip(fit.outputs(data).members, fit.state_.training.parts, strict=True):  # type: ignore[union-attr]
        assert outputs.references[0].tolist() == list(range(200, 240))
        assert part.outputs.graph.num_nodes == 200
        assert len(part.outputs.labelled) == 150
    assert len(fit.calibration_.scores) == 40  # type: ignore[union-attr]


MISTAKES: dict[str, tuple[Callable[[Data], Tensor], str]] = {
    "training nodes": (lambda data: torch.arange(240) >= 55, "95 of the 185 nodes.*also training or validation"),
    "one node": (lambda data: torch.arange(240) == 239, "marks one node, expected at least two"),
    "no node": (lambda data: torch.zeros(240, dtype=torch.bool), "reference_mask"),
    "not a mask": (lambda data: torch.arange(240), "reference_mask"),
    "unknown classes": (lambda data: torch.arange(240) >= 200, "40 of the 40 nodes.*no label among the 3 classes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_marks_that_make_no_sense_are_refused_before_training(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    data = known_graph()
    data.reference_mask = make(data)
    if mistake == "unknown classes":
        data.y[200:] = -1
    epochs: list[int] = []
    with pytest.raises(GraphError, match=message):
        detector().fit(data, on_epoch=epochs.append)
    assert epochs == []


def test_too_few_validation_nodes_are_refused_and_the_way_out_is_named() -> None:
    with pytest.raises(GraphError, match=r"there are 3 validation nodes, too few.*at least 4.*label more nodes"):
        chosen(known_graph(num_val=3))


def test_a_graph_without_validation_nodes_gets_some() -> None:
    data = known_graph()
    data.train_mask = torch.arange(240) < 150
    del data.val_mask
    fit = detector().fit(data)
    parts = fit.state_.training.parts  # type: ignore[union-attr]
    for part, reference in zip(parts, fit.state_.references, strict=True):
        assert part.outputs.graph.num_nodes == 240 - len(reference.nodes)
        assert bool(data.train_mask[reference.nodes].all())


# Nothing is learnt from them


def changed(data: Data, nodes: Tensor, labels: bool = True) -> Data:
    """Other features, edges and labels at some nodes."""
    other = data.clone()
    generator = torch.Generator().manual_seed(99)
    other.x[nodes] = torch.rand(len(nodes), data.num_features, generator=generator)
    if labels:
        other.y[nodes] = (other.y[nodes] + 1) % 3
    at_node = torch.isin(data.edge_index, nodes).any(dim=0)
    new = torch.stack([nodes, torch.randint(data.num_nodes, (len(nodes),), generator=generator)])
    other.edge_index = torch.cat([data.edge_index[:, ~at_node], new, new.flip(0)], dim=1)
    return other


def learnt_by(fit: Detector, network: int) -> dict[str, object]:
    """The weights of a network, and all that its scorers learnt but for what they compare with."""
    module = list(fit.module_.members)[network] if isinstance(fit.module_, Ensemble) else fit.module_
    scorer = fit.scorer_.scorers[network] if isinstance(fit.scorer_, EnsembleMean) else fit.scorer_
    learnt = dict(learnt_of(scorer))
    compared = {name for name in learnt if name.endswith((".reference_", "weights_"))}
    assert len(compared) == 4
    return module.state_dict() | {name: value for name, value in learnt.items() if name not in compared}


def assert_equal(a: dict[str, object], b: dict[str, object]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        first, second = a[name], b[name]
        assert torch.equal(first, second) if isinstance(first, Tensor) else first == second, name  # type: ignore[arg-type]


@pytest.mark.parametrize("backbone", ["gcn", "mlp"])
def test_nothing_of_a_reference_node_reaches_its_network_or_scorers(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = known_graph()
    folds = chosen(data)
    # Labels decide how the folds are dealt out, and nothing else: the same folds for both.
    monkeypatch.setattr(fitting, "choose_references", lambda *_: folds)
    before = detector().set_params(backbone=backbone).fit(data)
    after = detector().set_params(backbone=backbone).fit(changed(data, folds[0]))
    assert_equal(learnt_by(before, 0), learnt_by(after, 0))
    # The other network learns from them, so that the test would notice.
    own, other = learnt_by(before, 1), learnt_by(after, 1)
    assert not all(torch.equal(own[name], other[name]) for name in own if isinstance(own[name], Tensor))  # type: ignore[arg-type]
    references = [fitted.scorer_.scorers[0].reference_ for fitted in (before, after)]  # type: ignore[attr-defined]
    assert not torch.equal(*references)


def test_nothing_of_a_marked_node_reaches_anything() -> None:
    data = known_graph()
    data.reference_mask = torch.arange(240) >= 200
    before = detector().fit(data)
    after = detector().fit(changed(data, torch.arange(200, 240)))
    assert_equal(learnt_by(before, 0), learnt_by(after, 0))


def test_a_network_is_what_it_is_without_its_reference_nodes() -> None:
    """Fitted on a graph from which they were cut by hand."""
    data = known_graph()
    data.reference_mask = torch.arange(240) >= 200
    fit = detector().fit(data)
    cut = data.subgraph(torch.arange(200))
    del cut.reference_mask
    plain = detector(Mahalanobis()).fit(cut)
    for name, value in plain.module_.state_dict().items():
        assert torch.equal(value, fit.module_.state_dict()[name]), name


def test_removed_nodes_take_their_edges_with_them() -> None:
    data = known_graph()
    nodes = torch.tensor([0, 7, 239])
    weights = torch.arange(data.num_edges).float()
    rest, place = Graph(data.x, data.edge_index, weights).without(nodes)
    kept = [node for node in range(240) if node not in nodes.tolist()]
    assert torch.equal(rest.x, data.x[kept])
    pairs = enumerate(data.edge_index.t().tolist())
    edges = {number: [kept.index(u), kept.index(v)] for number, (u, v) in pairs if u in kept and v in kept}
    assert rest.edge_index.t().tolist() == list(edges.values())
    assert rest.edge_weight is not None
    assert rest.edge_weight.tolist() == list(edges)
    assert place[nodes].tolist() == [-1, -1, -1]
    assert place[kept].tolist() == list(range(237))


# They are found again


@pytest.fixture(scope="module")
def fitted() -> Detector:
    return detector().fit(known_graph())


def grown(data: Data, num_new: int = 30) -> Data:
    generator = torch.Generator().manual_seed(5)
    new = torch.arange(num_new) + data.num_nodes
    edges = torch.stack([new.repeat(2), torch.randint(data.num_nodes, (2 * num_new,), generator=generator)])
    x = data.x[torch.randint(data.num_nodes, (num_new,), generator=generator)]
    return Data(x=torch.cat([data.x, x]), edge_index=torch.cat([data.edge_index, edges, edges.flip(0)], dim=1))


def test_in_a_grown_graph_they_are_where_they_were(fitted: Detector) -> None:
    data = known_graph()
    for graph in (data, grown(data)):
        found = fitted.outputs(graph).references
        assert len(found) == 4
        for nodes, reference in zip(found, fitted.state_.references, strict=True):
            assert torch.equal(nodes, reference.nodes)


def test_a_grown_graph_is_compared_with_its_own_reference_nodes(fitted: Detector) -> None:
    graph = grown(known_graph())
    outputs = fitted.outputs(graph)
    own = torch.stack(
        [
            scorer.score(member)
            for scorer, member in zip(fitted.scorer_.scorers, outputs.members, strict=True)  # type: ignore[attr-defined]
        ]
    ).mean(dim=0)
    assert torch.equal(fitted.score_samples(graph), own)
    stored = fitted.outputs(graph)
    stored.references = ()
    assert not torch.equal(fitted.score_samples(stored), own)


def test_other_graphs_are_not_taken_for_it(fitted: Detector) -> None:
    data = known_graph()
    other_edges = Data(x=data.x, edge_index=known_graph(seed=1).edge_index)
    other_features = Data(x=known_graph(seed=1).x, edge_index=data.edge_index)
    no_edges = Data(x=data.x, edge_index=data.edge_index[:, :0])
    part = data.subgraph(torch.arange(80))
    for graph in (other_edges, other_features, no_edges, part):
        assert fitted.outputs(graph).references == ()
        assert bool(fitted.score_samples(graph).isfinite().all())


def test_new_nodes_alone_have_masks_without_a_node(fitted: Detector) -> None:
    part = known_graph().subgraph(torch.arange(200, 240))
    assert not bool(part.val_mask.any())
    assert fitted.outputs(part).references == ()
    assert bool(fitted.score_samples(part).isfinite().all())


def test_a_few_nodes_may_have_changed(fitted: Detector) -> None:
    data = known_graph()
    reference = fitted.state_.references[0].nodes
    for count, is_found in ((2, True), (20, False)):
        other = data.clone()
        other.x[reference[:count]] += 1.0
        found = fitted.outputs(other).references
        assert bool(found) == is_found
        if is_found:
            assert torch.equal(found[0], reference[count:])


def test_in_another_order_marked_nodes_are_recognised(fitted: Detector) -> None:
    data = known_graph()
    order = torch.randperm(240, generator=torch.Generator().manual_seed(0))
    place = order.argsort()
    moved = Data(x=data.x[order], edge_index=place[data.edge_index])
    for name in ("val_mask", "reference_mask"):
        marked = moved.clone()
        marked[name] = data.val_mask[order]
        for nodes, reference in zip(fitted.outputs(marked).references, fitted.state_.references, strict=True):
            assert torch.equal(order[nodes].sort().values, reference.nodes)
    moved = marked
    # A prior estimates the support of a node with random probes, which belong to positions; all else is the same.
    without_prior = fitted.with_scorer(Evidence((PARTS[0], *PARTS[2:])))
    scores = without_prior.score_samples(data)[order]
    torch.testing.assert_close(without_prior.score_samples(moved), scores, rtol=1e-4, atol=1e-4)


def test_they_are_found_where_nodes_have_other_indices_and_not_in_other_graphs(fitted: Detector) -> None:
    data = grown(known_graph())
    data.x[240:] += 0.01  # no new node has the features of a known one
    plain = Data(x=data.x, edge_index=data.edge_index)
    order = torch.randperm(plain.num_nodes, generator=torch.Generator().manual_seed(3))
    place = order.argsort()
    expected = fitted.outputs(data).references
    permuted = fitted.outputs(Data(x=plain.x[order], edge_index=place[plain.edge_index])).references
    assert [nodes.tolist() for nodes in permuted] == [place[nodes].sort().values.tolist() for nodes in expected]
    first = positions(known_graph().train_mask)[0]
    shorter = plain.subgraph(torch.arange(plain.num_nodes) != first)
    assert [nodes.tolist() for nodes in fitted.outputs(shorter).references] == [(n - 1).tolist() for n in expected]
    # The same features with other edges, as in the paper's structure shift.
    ends = torch.randint(plain.num_nodes, plain.edge_index.shape, generator=torch.Generator().manual_seed(4))
    assert not fitted.outputs(Data(x=plain.x[order], edge_index=ends)).references


def test_marked_nodes_count_even_if_most_of_the_others_are_gone(fitted: Detector) -> None:
    data = known_graph()
    everything = torch.cat(list(fitted.outputs(data).references)).unique()
    for num_left, is_found in ((60, True), (3, False)):
        left = everything[:num_left]
        kept = torch.ones(data.num_nodes, dtype=torch.bool)
        kept[everything] = False
        kept[left] = True
        part = Data(x=data.x, edge_index=data.edge_index).subgraph(kept)
        part.reference_mask = torch.isin(positions(kept), left)
        assert bool(fitted.outputs(part).references) == is_found


def test_far_too_many_flagged_nodes_are_said(fitted: Detector, caplog: pytest.LogCaptureFixture) -> None:
    data = known_graph()
    fitted.detect(data)
    fitted.detect(grown(data))
    assert not caplog.records
    other = known_graph(seed=9)
    other.x = 3 * other.x.flip(1)
    alone = Data(x=other.x, edge_index=other.edge_index)
    flagged = fitted.detect(alone)
    assert flagged.double().mean() > 0.5
    [record] = caplog.records
    assert f"{int(flagged.sum())} of {alone.num_nodes} nodes" in record.message
    assert "reference nodes were not found" in record.message
    assert fitted.notes(alone) == [record.message]


def test_the_training_graph_is_recognised_in_double_precision_and_after_loading(
    fitted: Detector, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("saved") / "model"
    fitted.save(folder)
    loaded = Detector.load(folder, device="cpu")
    data = known_graph()
    double = Data(x=data.x.double(), edge_index=data.edge_index)
    for each in (fitted, loaded):
        for graph in (data, double):
            assert [nodes.tolist() for nodes in each.outputs(graph).references] == [
                reference.nodes.tolist() for reference in fitted.state_.references
            ]


# Exposure


@pytest.mark.parametrize("alteration", ["none", "features", "edges"])
def test_they_are_not_in_exposure_that_was_made_from_the_training_graph(alteration: str) -> None:
    data = known_graph()
    reference = torch.arange(200, 240)
    exposed = torch.arange(0, 240, 3)
    exposure = data.clone()
    if alteration == "features":
        exposure.x[exposed] = exposure.x[exposed.flip(0)] * 0.7
    if alteration == "edges":
        exposure.edge_index = known_graph(seed=3).edge_index
    exposure.ood_mask = torch.zeros(240, dtype=torch.bool)
    exposure.ood_mask[exposed] = True
    dataset = training_set(data, exposure, torch.device("cpu"), 1, 0.2, 0)
    part = without_nodes(dataset, ReferenceNodes.of(dataset.graph, reference))
    assert part.exposure is not None
    assert part.exposed is not None
    assert torch.equal(part.exposure.x, exposure.x[:200])
    inside = exposure.edge_index[:, (exposure.edge_index < 200).all(dim=0)]
    assert torch.equal(part.exposure.edge_index, inside)
    assert torch.equal(part.exposed, exposed[exposed < 200])


def test_other_exposure_stays_whole() -> None:
    data, exposure = known_graph(), known_graph(seed=7)
    dataset = training_set(data, exposure, torch.device("cpu"), 1, 0.2, 0)
    part = without_nodes(dataset, ReferenceNodes.of(dataset.graph, torch.arange(200, 240)))
    assert part.exposure is dataset.exposure
    assert torch.equal(part.exposed, dataset.exposed)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["label", "feature", "structure"])
def test_the_exposure_of_arrivals_has_no_reference_node_in_it(kind: str) -> None:
    task = load_task(f"digits/arrivals/{kind}-scattered")
    dataset = training_set(task.train, task.exposure, torch.device("cpu"), 1, 0.2, 0)
    nodes = choose_references(task.train, dataset, 2, 0)[0]
    part = without_nodes(dataset, ReferenceNodes.of(dataset.graph, nodes))
    assert part.exposure is not None
    assert part.exposure.num_nodes == task.exposure.num_nodes - len(nodes)  # type: ignore[union-attr]


def test_a_method_with_exposure_can_have_evidence() -> None:
    data = known_graph()
    exposure = known_graph(seed=2)
    objective = CrossEntropy() + 0.5 * OutlierExposure()
    fit = detector(objective=objective).fit(data, exposure)
    assert bool(fit.score_samples(exposure).isfinite().all())


# Networks that are trained already


def test_wrapping_needs_marked_nodes() -> None:
    data = known_graph()
    with pytest.raises(ValueError, match=r"data.reference_mask must mark them.*for example its test nodes"):
        Detector.wrap(Linear(24), Evidence(PARTS), data, device="cpu")
    del data.train_mask, data.val_mask
    data.reference_mask = torch.arange(240) >= 200
    with pytest.raises(ValueError, match="no train_mask and y"):
        Detector.wrap(Linear(24), Evidence(PARTS), data, device="cpu")


def test_wrapped_networks_are_compared_with_marked_nodes() -> None:
    data = known_graph()
    data.reference_mask = torch.arange(240) >= 150
    wrapped = Detector.wrap(Linear(24), Evidence(PARTS), data, propagation="as-given", device="cpu")
    del data.reference_mask
    assert [nodes.tolist() for nodes in wrapped.outputs(data).references] == [list(range(150, 240))]
    assert wrapped.false_alarm_rate_ == 0.05
    assert bool(wrapped.score_samples(grown(data)).isfinite().all())
    # Scorers learn from the graph without them.
    other = changed(data, torch.arange(150, 240))
    other.reference_mask = torch.arange(240) >= 150
    again = Detector.wrap(Linear(24), Evidence(PARTS), other, propagation="as-given", device="cpu")
    assert_equal(learnt_by(wrapped, 0), learnt_by(again, 0))


def test_wrapping_with_another_scorer_needs_no_marks() -> None:
    wrapped = Detector.wrap(Linear(24), MaxSoftmax(), known_graph(), device="cpu")
    assert wrapped.calibration_ is None
    with pytest.raises(ValueError, match=r"set none aside.*reference_mask"):
        wrapped.with_scorer(Evidence(PARTS))


# Decisions


def test_too_few_reference_nodes_leave_no_threshold_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    fit = detector().fit(known_graph(num_val=12))
    assert fit.calibration_ is None
    assert "the detector has no threshold yet" in caplog.text
    assert bool(fit.score_samples(known_graph()).isfinite().all())


@pytest.mark.parametrize(
    ("marked", "least", "most"), [(True, 0.03, 0.08), (False, 0.01, 0.05)], ids=["marked", "cross-fitted"]
)
def test_false_alarms_among_exchangeable_new_nodes_are_those_asked_for_or_fewer(
    marked: bool, least: float, most: float
) -> None:
    """Known nodes that arrive as the reference nodes did: kept out of training, and scored in the whole graph."""
    flagged = []
    for seed in range(12):
        data = known_graph(num_nodes=400, num_val=120, seed=seed)
        new = torch.arange(400) >= 280
        train = data.subgraph(torch.arange(280))
        if marked:
            train.reference_mask = torch.arange(280) >= 180
        fit = detector(Evidence((MaxSoftmax(), CentredCosine(), TwoSided(FeatureSum()))), seed=seed, epochs=4).fit(
            train
        )
        flagged.append(float(fit.detect(Data(x=data.x, edge_index=data.edge_index))[new].double().mean()))
    assert least < float(np.mean(flagged)) < most


@pytest.mark.parametrize("form", ["meta", "sparse", "numbers", "too short"])
def test_what_is_no_mask_is_ignored_when_scoring(two_groups: Data, form: str) -> None:
    detector = Detector("gcn", epochs=1).fit(two_groups)
    wanted = detector.score_samples(two_groups)
    mask = two_groups.train_mask
    odd = {"meta": mask.to("meta"), "sparse": mask.to_sparse(), "numbers": mask.float(), "too short": mask[1:]}
    two_groups.train_mask = odd[form]
    assert torch.equal(detector.score_samples(two_groups), wanted)
    found = labelled_nodes(two_groups, torch.device("cpu"))
    assert found is not None
    assert found.tolist() == two_groups.val_mask.nonzero().squeeze(1).tolist()


def scores_of_networks(fit: Detector) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The scores of all nodes by every network, and the positions of its reference nodes."""
    outputs = fit.outputs(known_graph())
    pairs = zip(fit.scorer_.scorers, outputs.members, strict=True)  # type: ignore[attr-defined]
    scores = [scorer.score(member).double().numpy() for scorer, member in pairs]
    return scores, [nodes.numpy() for nodes in outputs.references]


def test_shared_reference_nodes_are_scored_as_new_nodes_are() -> None:
    data = known_graph()
    data.reference_mask = torch.arange(240) >= 200
    fit = detector(ensemble=2).fit(data)
    assert fit.calibration_ is not None
    expected = fit.score_samples(data)[200:].sort().values
    torch.testing.assert_close(fit.calibration_.scores, expected)


def test_a_node_is_scored_by_the_networks_that_set_it_aside() -> None:
    """Recomputed node by node in numpy."""
    data = known_graph()
    fit = detector(ensemble=6).fit(data)
    scores, halves = scores_of_networks(fit)
    expected = []
    for node in data.val_mask.nonzero().squeeze(1).tolist():
        votes = [values[node] for values, half in zip(scores, halves, strict=True) if node in half]
        assert len(votes) == 3
        expected.append(np.mean(votes))
    assert fit.calibration_ is not None
    np.testing.assert_allclose(fit.calibration_.scores.numpy(), np.sort(expected), rtol=1e-5, atol=1e-6)


def test_without_reference_nodes_or_training_graph_there_is_no_threshold() -> None:
    state = detector(epochs=2).fit(known_graph()).state_
    assert calibration_by_references(state) is not None
    assert calibration_by_references(replace(state, references=())) is None
    assert calibration_by_references(replace(state, training=None)) is None
