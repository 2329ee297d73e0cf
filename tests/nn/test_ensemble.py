from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import KNN, Detector, Energy, Mahalanobis, MaxSoftmax, ModelFileError, Outputs, Propagated, Scorer
from oddnode.detector import fit_together
from oddnode.nn import Ensemble, member_seeds
from tests.saved_models import rewrite


@pytest.fixture
def detector(two_groups: Data) -> Detector:
    return Detector.from_recipe("nodesafe", epochs=15, ensemble=3, seed=4).fit(two_groups)


def alone(seed: int, data: Data) -> Detector:
    return Detector.from_recipe("nodesafe", epochs=15, seed=seed).fit(data)


def test_scores_and_probabilities_are_the_means_over_detectors_of_the_members_seeds(
    detector: Detector, two_groups: Data
) -> None:
    members = [alone(seed, two_groups) for seed in member_seeds(4, 3)]
    for method in ("score_samples", "predict_proba"):
        expected = torch.stack([getattr(member, method)(two_groups) for member in members]).mean(dim=0)
        torch.testing.assert_close(getattr(detector, method)(two_groups), expected)
    assert torch.equal(detector.predict(two_groups), detector.predict_proba(two_groups).argmax(dim=1))
    own = torch.stack([member.explain(two_groups).own_score for member in members])
    torch.testing.assert_close(detector.explain(two_groups).own_score, own.mean(dim=0))


def test_an_ensemble_of_one_is_nothing_new(two_groups: Data) -> None:
    one = Detector.from_recipe("nodesafe", epochs=15, ensemble=1, seed=4).fit(two_groups)
    assert torch.equal(one.score_samples(two_groups), alone(4, two_groups).score_samples(two_groups))
    assert "member" not in one.history_[0]


def test_members_differ_and_their_history_is_kept(detector: Detector) -> None:
    assert len(set(member_seeds(4, 100))) == 100
    assert set(member_seeds(4, 3)) & set(member_seeds(5, 3)) == set()
    assert [row["member"] for row in detector.history_] == [0] * 15 + [1] * 15 + [2] * 15


@pytest.mark.parametrize("scorer", [MaxSoftmax(), Mahalanobis(), KNN(), Propagated(KNN())])
def test_other_scorers_on_the_same_networks(detector: Detector, two_groups: Data, scorer: Scorer) -> None:
    other = detector.with_scorer(scorer)
    members = [alone(seed, two_groups).with_scorer(scorer) for seed in member_seeds(4, 3)]
    expected = torch.stack([member.score_samples(two_groups) for member in members]).mean(dim=0)
    torch.testing.assert_close(other.score_samples(two_groups), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scorer", [Propagated(Energy()), Mahalanobis(), Propagated(KNN())])
def test_saved_and_loaded_it_scores_and_decides_as_before(
    detector: Detector, two_groups: Data, scorer: Scorer, tmp_path: Path
) -> None:
    detector = detector.with_scorer(scorer)
    detector.calibrate(two_groups, false_alarm_rate=0.1, mask=two_groups.test_mask)
    detector.save(tmp_path / "model")
    loaded = Detector.load(tmp_path / "model")
    assert loaded.ensemble == 3
    assert repr(loaded.scorer) == repr(scorer)
    for method in ("score_samples", "predict_proba", "detect", "p_values"):
        assert torch.equal(getattr(loaded, method)(two_groups), getattr(detector, method)(two_groups))
    explained = loaded.explain(two_groups)
    torch.testing.assert_close(explained.own_score + explained.neighbour_contribution, explained.score)
    assert torch.equal(loaded.fit(two_groups).score_samples(two_groups), detector.score_samples(two_groups))


class OwnScorer(Scorer):
    def score(self, outputs: Outputs) -> Tensor:
        return outputs.logits[:, 0]


def test_own_parts_come_back_when_they_are_given_again(two_groups: Data, tmp_path: Path) -> None:
    detector = Detector(_Own(nn.Linear(6, 3)), scorer=OwnScorer(), epochs=3, ensemble=2).fit(two_groups)
    detector.save(tmp_path / "model")
    loaded = Detector.load(tmp_path / "model", backbone=_Own(nn.Linear(6, 3)), scorer=OwnScorer())
    assert torch.equal(loaded.score_samples(two_groups), detector.score_samples(two_groups))


@pytest.mark.parametrize("count", [2, 4, 0, 100_000_000])
def test_a_folder_whose_count_does_not_fit_is_refused(detector: Detector, tmp_path: Path, count: int) -> None:
    detector.save(tmp_path / "model")
    rewrite(tmp_path / "model", lambda config: config["settings"].update(ensemble=count))
    with pytest.raises(ModelFileError, match="ensemble"):
        Detector.load(tmp_path / "model")


def test_the_number_of_networks_is_checked(two_groups: Data) -> None:
    with pytest.raises(ValueError, match="ensemble is 0, expected 1 or more"):
        Detector(ensemble=0).fit(two_groups)


def test_detectors_fitted_together_are_those_fitted_alone(two_groups: Data) -> None:
    detectors = [Detector(seed=s, epochs=8, ensemble=2) for s in (1, 2)]
    fit_together(detectors, [two_groups] * 2, [None] * 2)
    for detector in detectors:
        expected = Detector(seed=detector.seed, epochs=8, ensemble=2).fit(two_groups)
        assert torch.equal(detector.score_samples(two_groups), expected.score_samples(two_groups))


class _Own(nn.Module):
    """A user's network without dropout: its members differ by their first weights or not at all."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x)


class _NoReset(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def test_members_of_an_own_network_start_from_different_weights(two_groups: Data) -> None:
    detector = Detector(_Own(nn.Linear(6, 3)), epochs=1, ensemble=2).fit(two_groups)
    assert isinstance(detector.module_, Ensemble)
    first, second = detector.module_.members
    a, b = (torch.cat([p.flatten() for p in member.parameters()]) for member in (first, second))
    assert not torch.allclose(a, b, atol=0.05)


def test_equal_members_are_refused(two_groups: Data) -> None:
    with pytest.raises(ValueError, match="no layer of _Own has reset_parameters"):
        Detector(_Own(_NoReset()), epochs=1, ensemble=2).fit(two_groups)
