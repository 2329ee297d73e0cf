"""Rehearsal: what is learnt from altered reference nodes, against scikit-learn, and that nothing leaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from oddnode import Degree, Detector, Evidence, FeatureSum, MaxSoftmax, NonZeros, TwoSided
from oddnode.graph.alterations import ALTERATIONS, Alteration, Altered, register_alteration, related_to
from oddnode.scoring.rehearsal import Rehearsed, fold_of, learn, odds
from oddnode.tasks import load_task
from tests.detector.test_reference import known_graph

KINDS = (MaxSoftmax(), TwoSided(NonZeros()), TwoSided(FeatureSum()), TwoSided(Degree()))


def drawn(seed: int = 0, count: int = 120) -> Rehearsed:
    generator = torch.Generator().manual_seed(seed)
    surprises = -torch.rand(2 * count, 3, generator=generator, dtype=torch.float64).log()
    kinds = torch.cat([torch.full((count,), -1), torch.arange(count) % 4])
    surprises[count:, 1] += 1.5
    return Rehearsed(surprises, kinds, torch.randint(2, (2 * count,), generator=generator))


def test_it_is_a_logistic_regression_on_the_other_half() -> None:
    rehearsed = drawn()
    found = learn(rehearsed)
    assert found is not None
    features = torch.cat([rehearsed.surprises, rehearsed.surprises.square() / 5], dim=1).numpy()
    is_altered, folds = (rehearsed.kinds >= 0).numpy(), rehearsed.folds.numpy()
    for fold in range(2):
        other = folds != fold
        weight = np.where(is_altered, (other & ~is_altered).sum() / (other & is_altered).sum(), 1.0)
        expected = LogisticRegression(C=0.03, tol=1e-10, max_iter=1000)
        expected.fit(features[other], is_altered[other], weight[other])
        np.testing.assert_allclose(found[fold, :-1].numpy(), expected.coef_[0], atol=1e-5)
        mine = folds == fold
        np.testing.assert_allclose(
            odds(found, rehearsed.surprises[mine], rehearsed.folds[mine]).numpy(),
            expected.decision_function(features[mine]),
            atol=1e-4,
        )


def test_what_is_learnt_from_a_node_is_not_used_for_it() -> None:
    rehearsed = drawn()
    changed = rehearsed.surprises.clone()
    mine = rehearsed.folds == 1
    changed[mine] *= 3
    before, after = learn(rehearsed), learn(rehearsed._replace(surprises=changed))
    assert before is not None
    assert after is not None
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0], after[0])


def test_a_node_is_in_the_same_half_in_every_graph() -> None:
    x = torch.rand(200, 9, generator=torch.Generator().manual_seed(0))
    folds = fold_of(x)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    assert torch.equal(fold_of(x[order]), folds[order])
    assert 60 < int(folds.sum()) < 140


def fitted(**settings: object) -> Detector:
    scorer = Evidence(KINDS, rehearses=True, **settings)  # type: ignore[arg-type]
    data = known_graph()
    data.reference_mask = torch.arange(240) >= 160
    data.train_mask = data.train_mask & ~data.reference_mask
    data.val_mask = data.val_mask & ~data.reference_mask
    return Detector("gcn", None, scorer, hidden_channels=16, epochs=8, device="cpu").fit(data)


@pytest.mark.usefixtures("own_registries")
def test_alterations_of_ones_own_are_rehearsed_and_others_can_be_left_out() -> None:
    seen: list[Tensor] = []

    def brighter(data: object, nodes: Tensor, rng: np.random.Generator) -> Altered:
        seen.append(nodes)
        return Altered(data.x[nodes] + 3.0)  # type: ignore[attr-defined]

    register_alteration("brighter", Alteration(brighter))
    detector = fitted()
    assert set(detector.forecast_) == {*(name for name, each in ALTERATIONS.items() if each.is_rehearsed)}
    assert torch.cat(seen).sort().values.tolist() == list(range(160, 240))[: len(torch.cat(seen))] or len(seen) == 2
    assert detector.forecast_["brighter"] > 0.8
    without = fitted(not_rehearsed=("brighter", "mixed"))
    assert not {"brighter", "mixed"} & set(without.forecast_)


def test_a_rehearsed_model_is_saved_with_its_forecast(tmp_path: object) -> None:
    detector = fitted()
    detector.save(f"{tmp_path}/model")
    loaded = Detector.load(f"{tmp_path}/model", device="cpu")
    assert loaded.forecast_ == detector.forecast_
    data = known_graph()
    torch.testing.assert_close(loaded.score_samples(data), detector.score_samples(data))


def test_tasks_name_what_is_like_their_unknown_nodes() -> None:
    assert related_to("rewired") == ("rewired", "bridged")
    assert related_to("") == ()
    assert load_task("digits/arrivals/structure-scattered").not_rehearsed == ("rewired", "bridged")
    assert load_task("digits/arrivals/label-scattered").not_rehearsed == ()
    assert load_task("digits/feature").not_rehearsed == ("mixed",)
