from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from torch import Tensor
from torch_geometric.data import Data

from oddnode import BoundUniform, CrossEntropy, Detector, Energy, MaxSoftmax, Propagated, load_task
from oddnode.detector import RECIPES
from oddnode.functional import auroc
from oddnode.graph import GraphError, split_validation
from oddnode.scoring import Scorer
from tests.detector.networks import Linear, Sage


def far_away(data: Data) -> Data:
    """Nodes that are plainly OOD: the classes' features reversed and made small."""
    other = data.clone()
    other.x = 0.05 * data.x.flip(1)
    other.ood_mask = torch.ones(data.num_nodes, dtype=torch.bool)
    return other


def exposure_for(name: str, data: Data) -> Data | None:
    return far_away(data) if RECIPES[name].needs_exposure else None


@pytest.mark.parametrize("name", ["msp", "energy", "gnnsafe", "nodesafe", "energy-ft", "gnnsafe++", "nodesafe++"])
def test_every_recipe_scores_id_nodes_higher(name: str, two_groups: Data) -> None:
    detector = Detector.from_recipe(name, epochs=40).fit(two_groups, exposure_for(name, two_groups))
    inside, outside = detector.score_samples(two_groups), detector.score_samples(far_away(two_groups))
    assert inside.shape == (60,)
    assert inside.median() > outside.median()
    assert (detector.predict(two_groups) == two_groups.y).float().mean() > 0.95


def test_same_seed_gives_the_same_scores_bit_for_bit(two_groups: Data) -> None:
    def scores(seed: int) -> Tensor:
        return Detector.from_recipe("nodesafe", seed=seed, epochs=10).fit(two_groups).score_samples(two_groups)

    torch.manual_seed(123)
    first = scores(0)
    torch.manual_seed(321)
    assert torch.equal(scores(0), first)
    assert not torch.equal(scores(1), first)


def test_fit_leaves_the_data_and_the_random_stream_alone(two_groups: Data) -> None:
    before = {key: value.clone() for key, value in two_groups.items()}
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    Detector(epochs=2).fit(two_groups)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(two_groups[key], value) for key, value in before.items())


def test_probabilities_are_over_the_id_classes(two_groups: Data) -> None:
    detector = Detector(epochs=3, num_spare_logits=2).fit(two_groups)
    shares = detector.predict_proba(two_groups)
    assert shares.shape == (60, 3)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(60))
    assert torch.equal(shares.argmax(dim=1), detector.predict(two_groups))


def test_another_scorer_needs_no_training_and_gives_the_same(two_groups: Data) -> None:
    objective = CrossEntropy() + BoundUniform()
    first = Detector(objective=objective, scorer=Energy(), epochs=5).fit(two_groups)
    again = Detector(objective=objective, scorer=MaxSoftmax(), epochs=5).fit(two_groups)
    assert torch.equal(first.with_scorer(MaxSoftmax()).score_samples(two_groups), again.score_samples(two_groups))
    assert isinstance(first.scorer, Energy)


def test_an_own_module_is_trained_as_a_copy(two_groups: Data) -> None:
    module = Sage()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    detector = Detector.from_recipe("nodesafe", backbone=module, epochs=30).fit(two_groups)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert (detector.predict(two_groups) == two_groups.y).float().mean() > 0.9


def test_an_own_module_with_the_wrong_output_is_explained(two_groups: Data) -> None:
    class Wrong(Sage):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index)[:5]

    class Narrow(Sage):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index)[:, :2]

    with pytest.raises(ValueError, match=r"returned \[5, 3\], expected logits \[nodes, classes\] with 60 rows"):
        Detector(backbone=Wrong(), epochs=2).fit(two_groups)
    with pytest.raises(ValueError, match="returns 2 logits, but the data has 3 classes"):
        Detector(backbone=Narrow(), epochs=2).fit(two_groups)


class EndsInLogSoftmax(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).log_softmax(dim=-1)


@pytest.mark.parametrize("scorer", [None, Energy(), Propagated(Energy())])
def test_log_probabilities_are_refused_where_energies_are_asked_for(two_groups: Data, scorer: Scorer | None) -> None:
    with pytest.raises(ValueError, match="EndsInLogSoftmax returns log-probabilities"):
        Detector.wrap(EndsInLogSoftmax(), scorer, two_groups)
    with pytest.raises(ValueError, match="without log_softmax"):
        Detector(EndsInLogSoftmax(), scorer=scorer, epochs=2).fit(two_groups)
    wrapped = Detector.wrap(EndsInLogSoftmax(), MaxSoftmax(), two_groups)
    with pytest.raises(ValueError, match="EndsInLogSoftmax returns log-probabilities"):
        wrapped.with_scorer(scorer or Propagated(Energy()))


@pytest.mark.parametrize("scorer", [MaxSoftmax(), Propagated(MaxSoftmax()), Energy(centred=True)])
def test_log_probabilities_are_fine_for_other_scorers(two_groups: Data, scorer: Scorer) -> None:
    scores = Detector.wrap(EndsInLogSoftmax(), scorer, two_groups).score_samples(two_groups)
    assert scores.std() > 0


def test_estimator_contract(two_groups: Data) -> None:
    detector = Detector.from_recipe("nodesafe", epochs=2, lambda2=3.0, num_hops=4)
    copy = clone(detector)
    assert copy.get_params()["epochs"] == 2
    assert repr(copy.objective) == "CrossEntropy() + 3 * BoundUniform(lambda1=0.001, start=20)"
    assert copy.fit(two_groups) is copy
    assert not hasattr(detector, "module_")


def test_validation_nodes_are_split_off_by_class(two_groups: Data) -> None:
    del two_groups.val_mask
    detector = Detector(epochs=2, val_share=0.25)
    kept, held_out = split_validation(two_groups, two_groups.train_mask.nonzero().squeeze(1), 0.25, seed=0)
    assert sorted([*kept.tolist(), *held_out.tolist()]) == two_groups.train_mask.nonzero().squeeze(1).tolist()
    assert torch.bincount(two_groups.y[held_out]).tolist() == [2, 2, 2]
    detector.fit(two_groups)


def test_one_class_can_be_learnt_with_a_spare_logit(two_groups: Data) -> None:
    two_groups.train_mask &= two_groups.y == 0
    two_groups.val_mask &= two_groups.y == 0
    detector = Detector(epochs=20).fit(two_groups)
    scores = detector.score_samples(two_groups)
    assert scores[two_groups.y == 0].mean() > scores[two_groups.y != 0].mean()
    with pytest.raises(GraphError, match=r"one class, .* num_spare_logits=1"):
        Detector(epochs=2, num_spare_logits=0).fit(two_groups)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_mask": torch.zeros(60, dtype=torch.bool)}, "data.train_mask selects no node"),
        ({"val_mask": torch.zeros(60, dtype=torch.bool)}, "data.val_mask selects no node"),
        ({"y": torch.arange(3).repeat_interleave(20) * 2}, "none of class 1; number the classes"),
        ({"x": torch.full((60, 6), float("nan"))}, "360 NaN or infinite values"),
        ({"edge_index": torch.tensor([[0], [60]])}, "edge_index has node 60"),
    ],
)
def test_bad_data_is_refused(two_groups: Data, change: dict, message: str) -> None:
    for name, value in change.items():
        two_groups[name] = value
    with pytest.raises(GraphError, match=message):
        Detector(epochs=2).fit(two_groups)


def test_validation_class_without_training_node_is_named(two_groups: Data) -> None:
    two_groups.train_mask &= two_groups.y < 2
    with pytest.raises(GraphError, match="validation nodes have class 2, which no training node has"):
        Detector(epochs=2).fit(two_groups)


def test_a_class_with_one_node_cannot_be_split(two_groups: Data) -> None:
    del two_groups.val_mask
    two_groups.train_mask = torch.zeros(60, dtype=torch.bool)
    two_groups.train_mask[[0, 1, 20, 21, 40]] = True
    with pytest.raises(GraphError, match="class 2 has one training node"):
        Detector(epochs=2).fit(two_groups)


def test_exposure_must_match_the_method(two_groups: Data) -> None:
    for method, part in (("nodesafe++", "objective"), ("nodesafe-evidence++", "scorer")):
        with pytest.raises(ValueError, match=rf"the {part} of this detector needs.* call fit\(data, exposure=...\)"):
            Detector.from_recipe(method).fit(two_groups)
    with pytest.raises(ValueError, match="exposure was given, but neither the objective nor the scorer"):
        Detector.from_recipe("nodesafe").fit(two_groups, exposure=far_away(two_groups))


def test_other_feature_widths_are_refused(two_groups: Data) -> None:
    wide = far_away(two_groups)
    wide.x = torch.ones(60, 7)
    with pytest.raises(GraphError, match="exposure has 7 features, but the training graph 6"):
        Detector.from_recipe("gnnsafe++").fit(two_groups, exposure=wide)
    detector = Detector(epochs=2).fit(two_groups)
    with pytest.raises(GraphError, match=r"data.x has 7 features, but the detector was fitted on 6"):
        detector.score_samples(wide)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("nodsafe", {}, "unknown method 'nodsafe'. Did you mean 'nodesafe'"),
        ("nodesafe", {"lamda2": 1.0}, "unknown setting of nodesafe 'lamda2'. Did you mean 'lambda2'"),
        ("gpn", {"backbone": "gat"}, "gpn requires the backbone gpn"),
    ],
)
def test_unknown_names_and_other_networks_are_refused(name: str, overrides: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Detector.from_recipe(name, **overrides)


def test_double_precision_runs_through(two_groups: Data) -> None:
    two_groups.x = two_groups.x.double()
    assert Detector(epochs=2).fit(two_groups).score_samples(two_groups).dtype == torch.float64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0, expected 1 or more"),
        ({"num_spare_logits": -1}, "num_spare_logits is -1"),
        ({"val_share": 5.0}, "val_share is 5.0"),
        ({"lr": -0.01}, "lr is -0.01, expected a number of 0 or more"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"weight_decay": -1e-2}, "weight_decay is -0.01"),
        ({"batch_norm": "idgraph"}, "Did you mean 'id-graph'"),
        ({"backbone": "gcnn"}, "unknown backbone 'gcnn'. Did you mean 'gcn'"),
    ],
)
def test_settings_out_of_range_are_named(two_groups: Data, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Detector(**settings).fit(two_groups)


def test_other_precisions_of_exposure_and_own_modules_are_brought_in_line(two_groups: Data) -> None:
    other = far_away(two_groups)
    other.x = other.x.double()
    Detector.from_recipe("nodesafe++", epochs=2).fit(two_groups, exposure=other)
    two_groups.x = two_groups.x.double()
    assert Detector(backbone=Sage(), epochs=2).fit(two_groups).score_samples(two_groups).dtype == torch.float32


def test_isolated_unknown_nodes_score_below_isolated_known_ones() -> None:
    task = load_task("digits/label")
    graph = task.id_test.data
    detector = Detector.from_recipe("nodesafe").fit(task.train)
    alone = Data(x=graph.x, edge_index=torch.empty(2, 0, dtype=torch.long))
    scores = detector.score_samples(alone)
    known, unknown = scores[task.id_test.mask], scores[graph.ood_mask]
    assert auroc(known, unknown) > 0.9
    together = detector.score_samples(Data(x=torch.cat([graph.x, graph.x]), edge_index=graph.edge_index))
    assert torch.allclose(together[graph.num_nodes :], scores, atol=1e-4), "unconnected nodes change nothing"


@given(
    st.integers(4, 12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
    st.integers(1, 3),
)
def test_any_graph_gives_finite_scores(n: int, pairs: list[tuple[int, int]], features: int) -> None:
    """Directed, disconnected, with self-loops and repeated edges, or without any edge."""
    edges = torch.tensor([(a % n, b % n) for a, b in pairs], dtype=torch.long).reshape(-1, 2).t()
    node = torch.arange(n)
    train = node % 4 < 2
    data = Data(x=torch.randn(n, features), edge_index=edges, y=node % 2, train_mask=train, val_mask=~train)
    scores = Detector.from_recipe("nodesafe", epochs=2).fit(data).score_samples(data)
    assert scores.shape == (n,)
    assert bool(scores.isfinite().all())


def test_a_detector_knows_its_method_as_long_as_it_is_one(two_groups: Data, tmp_path: Path) -> None:
    detector = Detector.from_recipe("gnnsafe", num_hops=2, epochs=2, device="cpu")
    assert (detector.method, detector.hyper_parameters) == ("gnnsafe", {"num_hops": 2})
    assert copy.deepcopy(detector).method == "gnnsafe"
    detector.fit(two_groups).save(tmp_path / "m")
    loaded = Detector.load(tmp_path / "m", device="cpu")
    assert (loaded.method, loaded.hyper_parameters) == ("gnnsafe", {"num_hops": 2})
    assert loaded.with_scorer(Energy()).method is None
    assert detector.set_params(scorer=Energy()).method is None
    assert detector.hyper_parameters == {}
    assert Detector().method is None
