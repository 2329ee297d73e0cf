"""The batch: what new nodes have in common, against explicit refits, and with known and unknown new nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import false_discovery_control
from sklearn.linear_model import Ridge
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from oddnode import Detector, Evidence, FeatureSum, MaxSoftmax
from oddnode.functional import auroc
from oddnode.scoring import evidence
from oddnode.scoring.batch import Batch, seen_in_batch
from tests.scoring.random_graphs import outputs_on, random_graph

NUM_OLD, NUM_NEW = 600, 240


def growing(seed: int, num_unknown: int = 0, shift: float = 0.0) -> tuple[Data, Data, Tensor]:
    """A graph of two classes, the same with new nodes, and which of these are of a third class.

    ``shift`` is added to a feature of all new nodes.
    """
    rng = np.random.default_rng(seed)
    total = NUM_OLD + NUM_NEW
    y = rng.integers(2, size=total)
    y[NUM_OLD : NUM_OLD + num_unknown] = 2
    x = rng.normal(size=(total, 8))
    x[np.arange(total), y] += 2.0
    x[NUM_OLD:, 7] += shift
    alike = [rng.choice(np.flatnonzero(y % 2 == each % 2), 3) for each in y]
    edges = torch.tensor(np.stack([np.repeat(np.arange(total), 3), np.concatenate(alike)]))
    grown = Data(x=torch.from_numpy(x).float(), edge_index=to_undirected(edges), y=torch.from_numpy(y))
    inside = (grown.edge_index < NUM_OLD).all(dim=0)
    train = Data(x=grown.x[:NUM_OLD], edge_index=grown.edge_index[:, inside], y=grown.y[:NUM_OLD])
    train.train_mask, train.val_mask = torch.arange(NUM_OLD) < 60, (torch.arange(NUM_OLD) - 180).abs() < 100
    return train, grown, grown.y == 2


def fitted(train: Data) -> Detector:
    scorer = Evidence((MaxSoftmax(), FeatureSum()), uses_batch=True)
    return Detector("gcn", None, scorer, hidden_channels=16, epochs=20, device="cpu").fit(train)


def batch_of(num_old: int, num_reference: int, num_new: int) -> Batch:
    reference = torch.arange(num_old, num_old + num_reference)
    new = torch.arange(num_old + num_reference, num_old + num_reference + num_new)
    return Batch(torch.arange(num_old), reference, new, torch.ones(num_new, dtype=torch.bool))


def test_every_node_is_judged_by_a_regression_without_it() -> None:
    columns = torch.randn(90, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = batch_of(40, 20, 30)
    found = batch.scores(columns.__getitem__, torch.zeros(90, dtype=torch.float64)).numpy()
    old = columns[:40].numpy()
    scaled = np.clip((columns.numpy() - old.mean(axis=0)) / old.std(axis=0, ddof=1), -5, 5)
    design = np.concatenate([scaled, np.ones((90, 1))], axis=1)
    y = np.where(np.arange(90) < 40, -1.0, 1.0)
    weight = np.where(y > 0, 90 / (2 * 50), 90 / (2 * 40))
    assert not found[:40].any()
    for node in range(40, 90):
        rest = np.arange(90) != node
        ridge = Ridge(100.0, fit_intercept=False).fit(design[rest], y[rest], weight[rest])
        assert found[node] == pytest.approx(-ridge.predict(design[node : node + 1])[0], rel=1e-8)


def test_reference_nodes_and_known_new_nodes_are_exchangeable() -> None:
    """Without unknown nodes, p-values against the reference nodes are uniform, although the new nodes were used."""
    shares = []
    for seed in range(60):
        columns = torch.randn(400, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        columns[200:, 0] += 1.0  # reference nodes and new nodes both differ from those of the training graph
        batch = batch_of(200, 60, 140)
        found = batch.scores(columns.__getitem__, torch.zeros(400, dtype=torch.float64))
        rank = (found[200:260, None] <= found[None, 260:]).sum(dim=0)
        shares.append(float(((rank + 1) / 61 <= 0.1).double().mean()))
    assert np.mean(shares) == pytest.approx(6 / 61, abs=0.02)


def test_kinds_that_see_something_weigh_more() -> None:
    generator = torch.Generator().manual_seed(1)
    usual = -torch.rand(5000, 2, generator=generator, dtype=torch.float64).log()
    new = -torch.rand(5000, 2, generator=generator, dtype=torch.float64).log()
    new[:800, 1] = 4.0
    weights = seen_in_batch(new, usual)
    assert weights[0] == pytest.approx(0.1)
    expected = (0.16 * 16 + 0.84 * float(usual[:, 1].clamp_max(5).square().mean())) / float(
        usual[:, 1].clamp_max(5).square().mean()
    )
    assert float(weights[1]) == pytest.approx(0.1 + expected - 1.3, abs=0.1)


def test_the_batch_finds_nodes_that_are_alike_and_holds_the_rate() -> None:
    caught, alarms, gains = [], [], []
    for seed in range(4):
        train, grown, unknown = growing(seed, num_unknown=40)
        detector = fitted(train)
        known = (torch.arange(grown.num_nodes) >= NUM_OLD) & ~unknown
        alone, together = (detector.score_samples(detector.outputs(grown, batch=batch)) for batch in (False, True))
        gains.append(auroc(together[known], together[unknown]) - auroc(alone[known], alone[unknown]))
        flagged = together < detector.threshold_
        caught.append(float(flagged[unknown].double().mean()))
        alarms.append(float(flagged[known].double().mean()))
    assert min(gains) > 0
    assert np.mean(caught) > 0.3
    assert np.mean(alarms) < 0.12


def test_drift_is_said_and_not_held_against_the_nodes() -> None:
    train, grown, _ = growing(5, shift=8.0)
    detector = fitted(train)
    outputs, alone = detector.outputs(grown), detector.outputs(grown, batch=False)
    [note] = detector.scorer_.notes(outputs)
    assert "differ from the known ones" in note
    assert detector.scorer_.notes(alone) == []
    torch.testing.assert_close(detector.score_samples(outputs), detector.score_samples(alone))


def test_networks_step_back_together(monkeypatch: pytest.MonkeyPatch) -> None:
    train, grown, _ = growing(5, shift=1.5)
    train.reference_mask, train.val_mask = train.val_mask, torch.arange(NUM_OLD) >= NUM_OLD - 100
    scorer = Evidence((MaxSoftmax(), FeatureSum()), uses_batch=True)
    detector = Detector("gcn", None, scorer, hidden_channels=16, epochs=20, device="cpu", ensemble=4).fit(train)
    alone = detector.score_samples(detector.outputs(grown, batch=False))
    for votes in ([True, False, False, False], [True, True, False, False]):
        left = iter(votes)
        monkeypatch.setattr(evidence, "looks_like_drift", lambda *_, left=left: next(left))
        outputs = detector.outputs(grown)
        steps_back = sum(votes) >= 2
        assert torch.equal(detector.score_samples(outputs), alone) == steps_back
        note = detector.notes(outputs)[0]
        assert ("differ from the known ones" in note) == steps_back


@pytest.mark.parametrize("change", ["few", "off", "no training graph"])
def test_without_a_batch_nodes_are_judged_alone(change: str) -> None:
    train, grown, _ = growing(6, num_unknown=40)
    detector = fitted(train)
    if change == "few":
        kept = torch.arange(NUM_OLD + 99)
        inside = (grown.edge_index < len(kept)).all(dim=0)
        grown = Data(x=grown.x[kept], edge_index=grown.edge_index[:, inside])
    outputs = detector.outputs(grown, batch=change != "off")
    if change == "no training graph":
        outputs.seen = None
        outputs.__dict__.pop("members", None)
    alone = detector.outputs(grown, batch=False)
    if change == "no training graph":
        alone.seen = None
        alone.__dict__.pop("members", None)
    torch.testing.assert_close(detector.score_samples(outputs), detector.score_samples(alone))


def test_a_graph_without_reference_nodes_has_no_batch() -> None:
    outputs: Any = outputs_on(random_graph())
    assert Batch.of(outputs) is None


def test_the_batch_alone_is_a_method() -> None:
    train, grown, unknown = growing(7, num_unknown=40)
    scores = Detector.from_recipe("adadetect", epochs=20, device="cpu").fit(train).score_samples(grown)
    known = (torch.arange(grown.num_nodes) >= NUM_OLD) & ~unknown
    assert auroc(scores[known], scores[unknown]) > 0.6


def test_false_discoveries_are_controlled_among_the_new_nodes() -> None:
    train, grown, _ = growing(8, num_unknown=60)
    detector = fitted(train)
    outputs = detector.outputs(grown)
    scores, new = detector.score_samples(outputs), torch.arange(grown.num_nodes) >= NUM_OLD
    known = detector.calibration_.scores  # type: ignore[union-attr]
    p_values = [(1 + int((known <= score).sum())) / (len(known) + 1) for score in scores[new]]
    expected = torch.zeros_like(new)
    expected[new] = torch.from_numpy(false_discovery_control(p_values, method="bh") <= 0.3)
    assert bool(expected.any())
    assert torch.equal(detector.flag(outputs, 0.3), expected)
    assert torch.equal(detector.flag(outputs, 0.3, nodes=new), expected)
    everyone = detector.flag(outputs, 0.3, nodes=torch.ones_like(new))
    assert torch.equal(everyone, detector.calibration_.flag(scores, 0.3))  # type: ignore[union-attr]
    assert not detector.flag(outputs, 0.3, nodes=[0, 1]).any()


def test_where_drift_is_expected_a_batch_counts_only_if_most_nodes_look_known() -> None:
    train, grown, _ = growing(9, num_unknown=80)
    scorer = Evidence((MaxSoftmax(), FeatureSum()), uses_batch=True)
    shares = {}
    for name, each in {"usual": scorer, "wary": scorer.expecting_drift()}.items():
        detector = Detector("gcn", None, each, hidden_channels=16, epochs=20, device="cpu").fit(train)
        together, alone = (detector.score_samples(detector.outputs(grown, batch=batch)) for batch in (True, False))
        shares[name] = float((together == alone).double().mean())
    assert shares["wary"] == 1.0
    assert shares["usual"] < 1.0
