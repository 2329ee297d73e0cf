"""What sets a batch apart, against a dense formula and scikit-learn's ridge regression, and in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from oddnode import Detector, Evidence, FeatureSum, MaxSoftmax
from oddnode.scoring import BatchDifference, Names, Outputs
from oddnode.scoring.batch import Batch

OLD, NEW, UNKNOWN = 500, 220, 70


def grown(seed: int = 0) -> tuple[Data, Data]:
    """Two classes; the unknown new nodes have more of feature 5, and link to nodes of class 1 only."""
    rng = np.random.default_rng(seed)
    total = OLD + NEW
    y = rng.integers(2, size=total)
    y[OLD : OLD + UNKNOWN] = 1
    x = rng.normal(size=(total, 7))
    x[np.arange(total), y] += 3.0
    x[OLD : OLD + UNKNOWN, 5] += 3.0
    alike = [rng.choice(np.flatnonzero(y == each), 3) for each in y]
    edges = torch.tensor(np.stack([np.repeat(np.arange(total), 3), np.concatenate(alike)]))
    whole = Data(x=torch.from_numpy(x).float(), edge_index=to_undirected(edges), y=torch.from_numpy(y))
    inside = (whole.edge_index < OLD).all(dim=0)
    train = Data(x=whole.x[:OLD], edge_index=whole.edge_index[:, inside], y=whole.y[:OLD])
    train.train_mask, train.val_mask = torch.arange(OLD) < 60, (torch.arange(OLD) - 300).abs() < 200
    train.val_mask[:100] = False
    return train, whole


@pytest.fixture(scope="module")
def detector() -> Detector:
    scorer = Evidence((MaxSoftmax(), FeatureSum()), uses_batch=True)
    return Detector("gcn", None, scorer, hidden_channels=16, epochs=20, device="cpu").fit(grown()[0])


def expected(detector: Detector, outputs: Outputs) -> list[BatchDifference]:
    """All differences of a batch, written out with dense matrices, the means over the networks."""
    x = outputs.graph.x.double().numpy()
    adjacency = np.zeros((len(x), len(x)))
    adjacency[outputs.graph.edge_index[1], outputs.graph.edge_index[0]] = 1.0
    walk = adjacency / adjacency.sum(axis=1, keepdims=True).clip(1)
    classes = outputs.logits.argmax(dim=1).numpy()
    to_class = walk @ np.eye(2)[classes]
    members = list(
        zip(outputs.members or [outputs], getattr(detector.scorer_, "scorers", [detector.scorer_]), strict=True)
    )
    sides = []
    for own, scorer in members:
        batch = Batch.of(own)
        assert batch is not None
        old, new, both = batch.old.numpy(), batch.new.numpy(), batch.judged.numpy()
        mean, basis = scorer.centre_.double().numpy(), scorer.basis_.double().numpy()
        u = (x - mean) / np.linalg.norm(x - mean, axis=1, keepdims=True)
        z = u @ basis
        sizes = [np.log1p(adjacency.sum(axis=1)), np.log1p((x != 0).sum(axis=1)), np.linalg.norm(x, axis=1)]
        columns = np.concatenate([z, walk @ z, walk @ walk @ z, np.stack(sizes, axis=1)], axis=1)
        scale = columns[old].std(axis=0, ddof=1).clip(1e-6)
        design = np.clip((columns - columns[old].mean(axis=0)) / scale, -5, 5)
        design = np.concatenate([design, np.ones((len(x), 1))], axis=1)
        rows, y = np.r_[old, both], np.r_[-np.ones(len(old)), np.ones(len(both))]
        weight = np.where(y > 0, len(y) / (2 * len(both)), len(y) / (2 * len(old)))
        w = Ridge(100.0, fit_intercept=False).fit(design[rows], y[rows >= 0], weight).coef_[:-1] / scale
        total = w @ (columns[new].mean(axis=0) - columns[old].mean(axis=0))
        own_part, near, far = basis @ w[:7], w[7:14], w[14:21]
        by_feature = own_part * (u[new].mean(axis=0) - u[old].mean(axis=0))
        value = z[old] @ near + (walk @ z)[old] @ far
        typical = np.array([value[classes[old] == c].mean() for c in range(2)]) - value.mean()
        by_class = typical * (to_class[new].mean(axis=0) - to_class[old].mean(axis=0))
        shown = np.concatenate([x, to_class, adjacency.sum(axis=1, keepdims=True)], axis=1)
        by_degree = w[21] * (columns[new, 21].mean() - columns[old, 21].mean())
        sides.append((shown[new].mean(axis=0), shown[old].mean(axis=0), np.r_[by_feature, by_class, by_degree] / total))
    found = [np.mean(each, axis=0) for each in zip(*sides, strict=True)]
    kinds = [*(("feature", j) for j in range(7)), ("class", 0), ("class", 1), ("edges", 0)]
    return [BatchDifference(*kind, *numbers) for kind, *numbers in zip(kinds, *found, strict=True)]


def test_every_number_follows_from_the_weights_of_the_classifier(detector: Detector) -> None:
    outputs = detector.outputs(grown()[1])
    found = detector.batch_differences(outputs)
    every = {(each.kind, each.number): each for each in expected(detector, outputs)}
    assert ("feature", 5) in [(each.kind, each.number) for each in found]
    for each in found:
        own = every[each.kind, each.number]
        assert (each.new, each.known, each.share) == pytest.approx((own.new, own.known, own.share), rel=1e-4)
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)


def test_a_reason_says_what_the_batch_has_and_whether_the_node_has_it(detector: Detector) -> None:
    whole = grown()[1]
    outputs, names = detector.outputs(whole), list("abcdefg")
    nodes = list(range(OLD, OLD + UNKNOWN))
    texts = [t for t in detector.reasons(outputs, nodes, feature_names=names) if "common among the new nodes" in t]
    assert any("The new nodes have" in t and "more of `f`" in t for t in texts)
    differences = detector.batch_differences(outputs)
    [feature] = [each for each in differences if (each.kind, each.number) == ("feature", 5)]
    with_it = [t for t in texts if "this node" in t and "none of this" not in t]
    assert with_it
    assert feature.has(feature.known + 1.0)
    assert not feature.has(feature.known - 1.0)


def test_without_a_batch_there_is_nothing_to_tell(detector: Detector) -> None:
    train, whole = grown()
    assert detector.batch_differences(train) == ()
    assert detector.batch_differences(detector.outputs(whole, batch=False)) == ()


def test_differences_in_words() -> None:
    names = Names(None, ["kitchen", "toys"], ["price", "seller = ada"])
    assert names.of_difference("feature", 0, True) == "more of `price`"
    assert names.of_difference("class", 0, False) == "fewer links to kitchen"
    assert (names.of_difference("edges", 0, True), Names().of_difference("feature", 4, False)) == (
        "more links",
        "less of feature 4",
    )
