"""Scorers and networks of the user's own: what is taken, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor
from torch_geometric.data import Data

from oddnode import KNN, Detector, Energy, Evidence, MaxSoftmax, Outputs, Propagated, Scorer
from oddnode.detector.fitting import folder_blocker
from tests.detector.networks import Linear


class EndsInSoftmax(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).softmax(dim=-1)


@pytest.mark.parametrize(("name", "scorer"), [("msp", MaxSoftmax()), ("energy", Energy()), ("knn", KNN())])
def test_a_method_can_name_its_scorer(two_groups: Data, name: str, scorer: Scorer) -> None:
    wrapped = Detector.wrap(Linear(), name, two_groups)
    assert wrapped.state_.base_scorer == scorer
    expected = Detector.wrap(Linear(), scorer, two_groups).score_samples(two_groups)
    assert torch.equal(wrapped.score_samples(two_groups), expected)
    assert torch.equal(Detector.wrap(Linear(), None, two_groups).with_scorer(name).score_samples(two_groups), expected)
    trained = [Detector(Linear(), scorer=each, epochs=2).fit(two_groups) for each in (name, scorer)]
    assert torch.equal(*(detector.score_samples(two_groups) for detector in trained))
    assert clone(trained[0]).scorer == name


def test_a_detector_with_a_named_scorer_is_saved(two_groups: Data, tmp_path: Any) -> None:
    detector = Detector(scorer="gnnsafe", epochs=2, device="cpu").fit(two_groups)
    assert detector.state_.base_scorer == Propagated(Energy(), 32, 0.1, prior_nodes=10.0)
    detector.save(tmp_path / "model")
    loaded = Detector.load(tmp_path / "model", device="cpu")
    assert torch.equal(loaded.score_samples(two_groups), detector.score_samples(two_groups))


@pytest.mark.parametrize(
    ("scorer", "error", "message"),
    [
        ("mps", ValueError, "unknown method 'mps'. Did you mean 'msp'"),
        ("gpn", ValueError, "the scorer of gpn requires the backbone gpn"),
        (lambda outputs: outputs.logits[:, 0], TypeError, "scorer is function, expected a Scorer.*subclass"),
        (MaxSoftmax, TypeError, "scorer is the class MaxSoftmax, expected a Scorer"),
        (3, TypeError, "scorer is int, expected a Scorer"),
    ],
)
def test_what_is_no_scorer_is_refused(two_groups: Data, scorer: Any, error: type[Exception], message: str) -> None:
    fitted = Detector(epochs=1).fit(two_groups)
    for give in (
        lambda: Detector.wrap(Linear(), scorer, two_groups),
        lambda: Detector(scorer=scorer, epochs=1).fit(two_groups),
        lambda: fitted.with_scorer(scorer),
    ):
        with pytest.raises(error, match=message):
            give()


@pytest.mark.parametrize(("backbone", "given"), [(Linear, "the class Linear"), (3, "int")])
def test_what_is_no_network_is_refused(two_groups: Data, backbone: Any, given: str) -> None:
    for give in (lambda: Detector(backbone).fit(two_groups), lambda: Detector.wrap(backbone, "msp", two_groups)):
        with pytest.raises(TypeError, match=rf"backbone is {given}, expected a torch.nn.Module \(an instance\)"):
            give()


class Forgetful(MaxSoftmax):
    supports_folders = False

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize("scorer", [Forgetful(), Propagated(Forgetful()), Evidence((Forgetful(), Energy()))])
@pytest.mark.parametrize("ensemble", [1, 2])
def test_a_fit_that_returns_nothing_is_named(two_groups: Data, scorer: Scorer, ensemble: int) -> None:
    with pytest.raises(TypeError, match=r"Forgetful.fit returned NoneType, expected a fitted copy of the scorer"):
        Detector(scorer=scorer, epochs=1, ensemble=ensemble).fit(two_groups)


def test_a_scorer_of_ones_own_may_say_that_it_supports_graphs_on_disk() -> None:
    for scorer in (Forgetful(), Propagated(Forgetful())):
        assert "set `supports_folders = True`" in str(folder_blocker(Detector(scorer=scorer)))
    assert "supports_folders" not in str(folder_blocker(Detector.from_recipe("odin")))


@pytest.mark.parametrize("scorer", ["msp", "energy", "knn", None])
def test_probabilities_are_refused_for_every_scorer(two_groups: Data, scorer: str | None) -> None:
    message = "EndsInSoftmax returns probabilities.*return logits, without softmax at the end"
    with pytest.raises(ValueError, match=message):
        Detector.wrap(EndsInSoftmax(), scorer, two_groups)
    with pytest.raises(ValueError, match=message):
        Detector(EndsInSoftmax(), scorer=scorer, epochs=1).fit(two_groups)
    # Of a network with spare logits, all of them sum to 1.
    with pytest.raises(ValueError, match=message):
        Detector.wrap(EndsInSoftmax(num_classes=5), scorer, two_groups)


def test_one_logit_and_unequal_sums_are_no_probabilities(two_groups: Data) -> None:
    class Ones(Linear):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return torch.ones(len(x), 1)

    class Positive(Linear):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index).exp()

    bare = Data(x=two_groups.x, edge_index=two_groups.edge_index)
    assert Detector.wrap(Ones(), "msp", bare).num_classes_ == 1
    assert Detector.wrap(Positive(), "msp", bare).num_classes_ == 3


class Matrix(Scorer):
    def score(self, outputs: Outputs) -> Tensor:
        return outputs.logits


class Array(Scorer):
    def score(self, outputs: Outputs) -> Tensor:
        return np.zeros(len(outputs.logits))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("scorer", "found"),
    [
        (Matrix(), r"Matrix\(\) returned \[60, 3\]"),
        (Array(), r"Array\(\) returned ndarray"),
    ],
)
def test_scores_that_are_not_one_number_per_node_are_refused(two_groups: Data, scorer: Scorer, found: str) -> None:
    detector = Detector.wrap(Linear(), scorer, two_groups)
    if isinstance(scorer, Matrix):
        with pytest.raises(ValueError, match="expected one score per node"):
            Detector(scorer=scorer, epochs=1, ensemble=2).fit(two_groups).score_samples(two_groups)
    for use in (detector.score_samples, detector.explain):
        with pytest.raises(ValueError, match=rf"{found}, expected one score per node, \[60\]"):
            use(two_groups)
    with pytest.raises(ValueError, match=found):
        detector.calibrate(two_groups, 0.1, two_groups.test_mask)


def test_a_scorer_that_is_no_dataclass_shows_its_settings() -> None:
    class Margin(Scorer):
        def __init__(self, scale: float):
            self.scale = scale
            self.learnt_ = torch.zeros(3)

    assert repr(Margin(2.0)) == "Margin(scale=2.0)"
    assert repr(Propagated(Margin(2.0))).startswith("Propagated(scorer=Margin(scale=2.0), num_hops=2")
