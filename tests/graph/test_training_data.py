"""The data of a training: what is refused before anything is computed."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from oddnode import Detector, load_task
from oddnode.graph import GraphError, most_recent, split_validation, training_set

CPU = torch.device("cpu")


@pytest.mark.parametrize("label", [10**6, 10**9, 10**18])
@pytest.mark.parametrize("val_mask", [True, False])
def test_a_label_that_is_no_class_takes_no_memory(two_groups: Data, label: int, val_mask: bool) -> None:
    two_groups.y[:2] = label
    if not val_mask:
        two_groups.val_mask = None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GraphError, match=f"labels up to {label}, but none of class 3; number the classes 0, 1, 2"):
        training_set(two_groups, None, CPU)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_classes_that_are_missing_or_cannot_be_split_are_named(two_groups: Data) -> None:
    two_groups.y[0] = 10**9
    with pytest.raises(GraphError, match="class 1000000000 has one training node"):
        split_validation(two_groups, two_groups.train_mask.nonzero().squeeze(1), 0.2, 0)
    two_groups.y = torch.arange(60) // 20
    two_groups.y[two_groups.y == 1] = 7
    with pytest.raises(GraphError, match="labels up to 7, but none of class 1;"):
        training_set(two_groups, None, CPU)


def test_masks_that_overlap_are_refused(two_groups: Data) -> None:
    two_groups.val_mask = two_groups.val_mask.clone()
    two_groups.val_mask[21] = True
    with pytest.raises(GraphError, match=r"1 of the 24 nodes .* also in data.val_mask, .* node 21"):
        training_set(two_groups, None, CPU)
    two_groups.val_mask = two_groups.train_mask
    with pytest.raises(GraphError, match="24 of the 24 nodes"):
        Detector(epochs=1).fit(two_groups)


def test_timestamps_in_nanoseconds_are_refused_by_name() -> None:
    data = load_task("digits/label").train.clone()
    data.x = data.x.clone()
    data.x[:, 5] = 1.7e18
    with pytest.raises(GraphError, match=r"feature 5 of data.x has values up to 1.7e\+18 .* standardise"):
        Detector.from_recipe("nodesafe", epochs=2).fit(data)


@pytest.mark.parametrize("method", ["nodesafe", "gpn", "mahalanobis", "odin", "gold"])
def test_the_largest_features_that_are_taken_give_finite_scores(two_groups: Data, method: str) -> None:
    x = two_groups.x / two_groups.x.abs().max()
    for scale in (1e14, 2.4e16):  # 16 * 6 * 2.5e16 squared is the largest number of single precision, over 60 nodes
        two_groups.x = x * scale
        detector = Detector.from_recipe(method, epochs=3, device="cpu").fit(two_groups)
        assert bool(detector.score_samples(two_groups).isfinite().all())
    two_groups.x = x * 2.6e16
    with pytest.raises(GraphError, match=r"up to 2.6e\+16 .* overflows beyond 2.5e\+16"):
        Detector.from_recipe(method, epochs=3, device="cpu").fit(two_groups)


def test_double_precision_has_room_for_more(two_groups: Data) -> None:
    two_groups.x = two_groups.x.double() * 1e18
    assert bool(Detector(epochs=3, device="cpu").fit(two_groups).score_samples(two_groups).isfinite().all())


def test_sparse_features_that_do_not_fit_are_refused_before_memory_is_taken() -> None:
    code = """
import resource, torch
from torch_geometric.data import Data
from oddnode.graph import Graph, GraphError
resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
x = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.long), torch.ones(1), (60, 10**9))
try:
    Graph.from_data(Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long)))
except GraphError as error:
    assert "60 x 1000000000" in str(error), error
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "refused\n", done.stderr


def test_the_most_recent_nodes_of_a_mask_are_marked() -> None:
    rng = np.random.default_rng(0)
    mask, time = torch.from_numpy(rng.random(200) < 0.5), torch.from_numpy(rng.integers(1990, 2010, 200))
    chosen = most_recent(mask, time, 30)
    assert int(chosen.sum()) == 30
    assert not (chosen & ~mask).any()
    assert time[chosen].min() >= time[mask & ~chosen].max()


def test_more_recent_nodes_than_there_are_is_an_error() -> None:
    with pytest.raises(GraphError, match="number is 3, expected 1 to 2"):
        most_recent(torch.tensor([True, True, False]), torch.arange(3), 3)
