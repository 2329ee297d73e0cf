from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import false_discovery_control, percentileofscore
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import CalibrationError, Detector, Energy, Propagated, load_task
from oddnode.detector import Calibration
from oddnode.functional import negative_energy, propagate
from oddnode.graph import GraphError


@pytest.fixture(scope="module")
def graph() -> Data:
    data = load_task("digits/label").train
    known = data.test_mask.nonzero().squeeze(1)
    data.calibration_mask = torch.zeros_like(data.test_mask)
    data.calibration_mask[known[:200]] = True
    return data


@pytest.fixture(scope="module")
def fitted(graph: Data) -> Detector:
    return Detector.from_recipe("nodesafe", epochs=30).fit(graph).calibrate(graph, 0.1)


def test_the_share_flagged_of_the_calibration_nodes_is_at_most_the_rate(fitted: Detector, graph: Data) -> None:
    assert 0.08 <= fitted.detect(graph)[graph.calibration_mask].double().mean() <= 0.1


def test_ood_nodes_are_flagged_more_often_than_known_ones(fitted: Detector) -> None:
    """Calibrated on known nodes of the very graph that is judged, as the guarantee asks."""
    task = load_task("digits/label")
    data = task.tests["label"]
    known = task.id_test.mask.nonzero().squeeze(1)
    calibration = torch.zeros_like(task.id_test.mask)
    calibration[known[::2]] = True
    detector = copy.copy(fitted).calibrate(data, 0.1, mask=calibration)
    flags = detector.detect(data)
    assert flags[data.ood_mask].double().mean() > 0.5
    assert flags[known[1::2]].double().mean() < 0.2


def test_without_calibration_there_is_no_decision(graph: Data, fitted: Detector) -> None:
    other = fitted.with_scorer(Energy())
    for decide in (other.detect, other.p_values, other.flag):
        with pytest.raises(CalibrationError, match=r"call calibrate\(data"):
            decide(graph)
    for name in ("calibrate", "detect", "p_values", "score_samples"):
        with pytest.raises(NotFittedError, match=r"call fit\(data\) first"):
            getattr(Detector(), name)(graph)


def test_training_nodes_cannot_calibrate(fitted: Detector, graph: Data) -> None:
    with pytest.raises(CalibrationError, match=r"100 of the 100 calibration nodes are also in data.train_mask"):
        fitted.calibrate(graph, mask=graph.train_mask)
    with pytest.raises(CalibrationError, match=r"data.val_mask"):
        fitted.calibrate(graph, mask=graph.val_mask)


def test_unknown_classes_cannot_calibrate(fitted: Detector, graph: Data) -> None:
    data = copy.copy(graph)
    data.y = data.y.clone()
    data.y[data.calibration_mask.nonzero()[3]] = 7
    with pytest.raises(CalibrationError, match=r"class 7, which the detector does not know \(classes 0\.\.4\)"):
        fitted.calibrate(data)


def test_calibration_needs_nodes_and_enough_of_them(fitted: Detector, graph: Data) -> None:
    data = Data(x=graph.x, edge_index=graph.edge_index)
    with pytest.raises(CalibrationError, match=r"pass mask=... or set data.calibration_mask"):
        fitted.calibrate(data)
    with pytest.raises(CalibrationError, match="needs at least 999 calibration nodes, but there are 200"):
        fitted.calibrate(graph, 0.001)
    assert fitted.false_alarm_rate_ == 0.1


def test_own_score_and_neighbours_add_up(fitted: Detector, graph: Data) -> None:
    why = fitted.explain(graph)
    logits = fitted.outputs(graph).all_logits.cpu()
    assert torch.allclose(why.own_score, negative_energy(logits[:, :5]) - logits.mean(dim=1), atol=1e-5)
    assert torch.allclose(why.own_score + why.neighbour_contribution, fitted.score_samples(graph), atol=1e-6)


def test_the_nearest_class_of_a_training_node_is_mostly_its_own(fitted: Detector, graph: Data) -> None:
    nearest = fitted.explain(graph).nearest_class[graph.train_mask]
    assert (nearest == graph.y[graph.train_mask]).double().mean() > 0.9


class Net(nn.Module):
    def __init__(self, features: int, classes: int):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(features, 8), nn.BatchNorm1d(8), nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(torch.dropout(self.norm(self.first(x)).relu(), 0.5, self.training))


def test_wrapping_scores_the_module_and_leaves_it_as_it_was(graph: Data) -> None:
    net = Net(64, 5).train()
    before = copy.deepcopy(net.state_dict())
    detector = Detector.wrap(net, scorer=Propagated(Energy(), num_hops=3), data=graph)
    scores = detector.calibrate(graph, 0.1).score_samples(graph)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with torch.no_grad():
        logits = copy.deepcopy(net).eval()(graph.x, graph.edge_index)
    assert torch.allclose(scores, propagate(negative_energy(logits), graph.edge_index, num_hops=3), atol=1e-6)


def test_wrapping_takes_the_classes_from_labels_else_from_logits(graph: Data) -> None:
    net = Net(64, 7)
    bare = Data(x=graph.x, edge_index=graph.edge_index)
    assert Detector.wrap(net, data=graph).num_classes_ == 5
    assert Detector.wrap(net, data=bare).num_classes_ == 7
    assert Detector.wrap(net, data=bare, num_classes=6).num_classes_ == 6


def test_unknown_nodes_are_refused_in_labels_of_either_shape(graph: Data, fitted: Detector) -> None:
    data = graph.clone()
    for y in (graph.y, graph.y.unsqueeze(1)):
        data.y = torch.where(graph.calibration_mask if y.dim() == 1 else graph.calibration_mask.unsqueeze(1), -1, y)
        with pytest.raises(CalibrationError, match="200 of the calibration nodes have label -1"):
            fitted.calibrate(data)
    with pytest.raises(GraphError, match="data is dict, expected a graph"):
        fitted.calibrate({})  # type: ignore[arg-type]


def test_wrapping_refuses_what_does_not_fit(graph: Data) -> None:
    with pytest.raises(ValueError, match="Net returns 3 logits, but the data has 5 classes"):
        Detector.wrap(Net(64, 3), data=graph)
    with pytest.raises(GraphError, match="data is NoneType"):
        Detector.wrap(Net(64, 5))


def test_without_training_nodes_a_wrapped_model_cannot_name_the_nearest_class(graph: Data) -> None:
    detector = Detector.wrap(Net(64, 5), data=Data(x=graph.x, edge_index=graph.edge_index))
    with pytest.raises(ValueError, match="wrapped without labelled training nodes"):
        detector.explain(graph)


def test_a_class_without_training_nodes_is_no_obstacle_to_saving(graph: Data, tmp_path: Path) -> None:
    net = Net(64, 6)
    detector = Detector.wrap(net, data=graph, num_classes=6)
    detector.save(tmp_path / "m")
    loaded = Detector.load(tmp_path / "m", backbone=Net(64, 6))
    assert torch.equal(loaded.score_samples(graph), detector.score_samples(graph))


def test_an_own_module_without_weights_can_be_wrapped(graph: Data) -> None:
    class Fixed(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[:, :5]

    scores = Detector.wrap(Fixed(), Energy(), graph).score_samples(graph)
    assert torch.allclose(scores, graph.x[:, :5].logsumexp(dim=1))


def _scores(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Calibration scores and their classes, and scores to decide on with theirs; with ties."""
    rng = np.random.default_rng(seed)
    known, new = np.round(rng.normal(size=199), 1), np.round(rng.normal(-1, 2, size=300), 1)
    return known, rng.integers(3, size=199), new, rng.integers(3, size=300)


@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_plain_scores_get_the_p_values_that_scipy_counts(kind: str) -> None:
    known, classes, new, predicted = _scores()
    make = torch.from_numpy if kind == "tensor" else np.asarray
    calibration = Calibration.from_scores(make(known), make(classes), 0.1)
    # percentileofscore(kind="weak") is the percentage of values at or below the score.
    shares = np.array([percentileofscore(known, score, kind="weak") / 100 for score in new])
    np.testing.assert_allclose(calibration.p_values(make(new)), (1 + 199 * shares) / 200)
    expected = [
        (1 + (known[classes == own] <= score).sum()) / (1 + (classes == own).sum())
        for score, own in zip(new, predicted, strict=True)
    ]
    np.testing.assert_allclose(calibration.p_values(make(new), make(predicted)), expected)


@pytest.mark.parametrize("rate", [0.005, 0.05, 0.29])
def test_plain_scores_are_detected_where_the_p_value_is_at_most_the_rate(rate: float) -> None:
    known, _, new, _ = _scores(1)
    calibration = Calibration.from_scores(known, false_alarm_rate=rate)
    assert torch.equal(calibration.detect(new), calibration.p_values(new) <= rate + 1e-12)
    assert calibration.threshold == np.sort(known)[round(rate * 200) - 1]


def test_plain_scores_are_flagged_as_scipy_controls_false_discoveries() -> None:
    known, _, new, _ = _scores(2)
    calibration = Calibration.from_scores(known, false_alarm_rate=0.1)
    expected = false_discovery_control(calibration.p_values(new).numpy(), method="bh") <= 0.2
    assert calibration.flag(new, fdr=0.2).tolist() == expected.tolist()
    assert 0 < expected.sum() < len(new)


def test_a_calibration_without_classes_says_what_it_cannot_do() -> None:
    calibration = Calibration.from_scores(np.arange(50.0))
    with pytest.raises(CalibrationError, match="calibrate with classes"):
        calibration.p_values([1.0], [0])
    with pytest.raises(ValueError, match="expected one per score"):
        Calibration.from_scores(np.arange(50.0), np.arange(49))
    with pytest.raises(ValueError, match="1 scores are NaN"):
        calibration.detect([1.0, float("nan")])


def test_a_detector_decides_by_its_calibration(fitted: Detector, graph: Data) -> None:
    calibration, scores = fitted.calibration_, fitted.score_samples(graph)
    assert calibration is not None
    assert torch.equal(fitted.detect(graph), calibration.detect(scores))
    assert torch.equal(fitted.detect(graph), fitted.p_values(graph) <= 0.1)
    per_class = calibration.p_values(scores, fitted.predict(graph))
    assert torch.equal(fitted.p_values(graph, per_class=True), per_class)
    assert torch.equal(fitted.flag(graph, 0.2, per_class=True), calibration.flag(scores, 0.2, fitted.predict(graph)))


@pytest.mark.parametrize("method", ["msp", "knn", "nodesafe", "nodesafe-evidence"])
def test_fit_calibrates_on_the_calibration_mask_whatever_the_method(graph: Data, method: str) -> None:
    fitted = Detector.from_recipe(method, epochs=3, device="cpu").fit(graph)
    assert fitted.calibration_ is not None
    assert (len(fitted.calibration_.scores), fitted.false_alarm_rate_) == (200, 0.05)
    calibrated = copy.copy(fitted).calibrate(graph)
    assert torch.equal(calibrated.calibration_.scores, fitted.calibration_.scores)  # type: ignore[union-attr]


def test_marked_nodes_that_were_trained_on_are_refused_and_too_few_are_named(
    graph: Data, caplog: pytest.LogCaptureFixture
) -> None:
    data = copy.copy(graph)
    data.calibration_mask = graph.train_mask
    with pytest.raises(CalibrationError, match=r"are also in data.train_mask"):
        Detector.from_recipe("msp", epochs=1).fit(data)
    data.calibration_mask = torch.zeros_like(graph.calibration_mask)
    data.calibration_mask[graph.calibration_mask.nonzero()[:5]] = True
    assert Detector.from_recipe("msp", epochs=1).fit(data).calibration_ is None
    assert "no threshold yet: a false-alarm rate of 5 % needs at least 19" in caplog.text


def test_weights_stand_for_repeated_nodes(fitted: Detector, graph: Data, tmp_path: Path) -> None:
    scores = fitted.score_samples(graph)[graph.calibration_mask]
    weights = torch.ones(graph.num_nodes, dtype=torch.float64)
    low = graph.calibration_mask & (fitted.score_samples(graph) < scores.median())
    weights[low] = 0.25
    weighted = copy.copy(fitted).calibrate(graph, 0.1, weights=weights)
    known = scores.double().sort().values
    share = torch.where(known < scores.median(), 0.25, 1.0)
    limits = share.cumsum(0) / (share.sum() + share)
    assert weighted.threshold_ == known[limits <= 0.1].max()
    weighted.save(tmp_path / "model")
    again = Detector.load(tmp_path / "model")
    assert torch.equal(again.p_values(graph), weighted.p_values(graph))
    assert again.set_false_alarm_rate(0.2).threshold_ == known[limits <= 0.2].max()
