from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from oddnode import GCN, CrossEntropy, Detector, Energy, Evidence, LogitNorm, MaxSoftmax, Propagated
from oddnode.detector import fit_together
from oddnode.training import FullBatch


def test_equal_keys_train_equal_networks(two_groups: Data) -> None:
    one = Detector(scorer=Energy(), epochs=3, device="cpu")
    other = Detector(objective=CrossEntropy(), scorer=MaxSoftmax(), propagation="as-given", epochs=3, device="cpu")
    assert one.training_key() == other.training_key()
    assert hash(one.training_key()) == hash(other.training_key())
    weights = [dict(detector.fit(two_groups).module_.state_dict()) for detector in (one, other)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.parametrize(
    "change",
    [
        {"backbone": "gat"},
        {"objective": LogitNorm(0.1)},
        {"hidden_channels": 8},
        {"dropout": 0.25},
        {"epochs": 4},
        {"lr": 0.02},
        {"val_share": 0.3},
        {"batch_norm": "running"},
        {"ensemble": 2},
        {"device": "cuda:1"},
        {"trainer": FullBatch()},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("include_seed", [True, False])
def test_a_setting_that_changes_training_changes_the_key(change: dict[str, Any], include_seed: bool) -> None:
    assert Detector(**change).training_key(include_seed) != Detector().training_key(include_seed)


def test_the_seed_counts_where_it_is_asked_for() -> None:
    assert Detector(seed=1).training_key() != Detector(seed=2).training_key()
    assert Detector(seed=1).training_key(include_seed=False) == Detector(seed=2).training_key(include_seed=False)


def test_modules_of_one_shape_differ_by_their_weights() -> None:
    torch.manual_seed(0)
    one, other = GCN(6, 4, 3), GCN(6, 4, 3)
    assert Detector(one).training_key() != Detector(other).training_key()
    other.load_state_dict(one.state_dict())
    assert Detector(one).training_key() == Detector(other).training_key()


def test_fields_can_be_blanked() -> None:
    one, other = Detector("gcn", device="cpu").training_key(), Detector("gat", device="cuda").training_key()
    assert replace(one, backbone="", device="") == replace(other, backbone="", device="")


def test_only_detectors_of_one_key_are_fitted_together(two_groups: Data) -> None:
    pair = [Detector(seed=0, epochs=2, scorer=Energy()), Detector(seed=1, epochs=2, scorer=Propagated(Energy()))]
    fit_together(pair, [two_groups] * 2, [None] * 2)
    assert all(hasattr(detector, "module_") for detector in pair)
    with pytest.raises(ValueError, match="same settings"):
        fit_together([Detector(lr=0.1), Detector(lr=0.2)], [two_groups] * 2, [None] * 2)


def test_a_scorer_that_learns_from_exposure_or_needs_reference_nodes_has_a_training_of_its_own() -> None:
    plain, evidence, exposed = (
        Detector(scorer=scorer).training_key()
        for scorer in (MaxSoftmax(), Evidence((MaxSoftmax(),)), Evidence((MaxSoftmax(),), learns_weights=True))
    )
    assert len({plain, evidence, exposed}) == 3
    assert evidence == Detector(scorer=Evidence((Energy(), MaxSoftmax()), power=1.0)).training_key()
    assert (
        exposed
        == replace(evidence, needs_exposure=True)
        == replace(plain, sets_reference_aside=True, needs_exposure=True)
    )
