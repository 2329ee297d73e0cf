from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from oddnode.tasks import RULES, feature_shift, label_task, load_task, stochastic_block_edges, structure_shift
from oddnode.tasks.shifts import _triangle_pair


@given(st.integers(0, 2000))
def test_pairs_are_counted_row_by_row(count: int) -> None:
    expected = [(row, col) for row in range(1, 70) for col in range(row)][count]
    row, col = _triangle_pair(np.array([count]))
    assert (int(row[0]), int(col[0])) == expected


def test_pairs_of_huge_graphs_are_exact() -> None:
    row = 50_000_000
    ends = np.array([row * (row - 1) // 2, row * (row + 1) // 2 - 1])
    assert [found.tolist() for found in _triangle_pair(ends)] == [[row, row], [0, row - 1]]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 100))
def test_certain_edges_give_the_complete_graph(sizes: list[int], seed: int) -> None:
    n = sum(sizes)
    edges = stochastic_block_edges(sizes, 1.0, 1.0, np.random.default_rng(seed))
    expected = {(a, b) for a in range(n) for b in range(n) if a != b}
    assert edges.shape == (2, len(expected))
    assert {tuple(pair) for pair in edges.t().tolist()} == expected


def test_block_model_has_the_densities_it_should_have() -> None:
    """Within five standard deviations of the binomial, for blocks and across."""
    sizes = [300, 300, 400]
    edges = stochastic_block_edges(sizes, 0.06, 0.02, np.random.default_rng(0))
    block = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    inside = int((block[edges[0]] == block[edges[1]]).sum()) // 2
    across = edges.shape[1] // 2 - inside
    pairs_inside = sum(s * (s - 1) // 2 for s in sizes)
    pairs_across = 1000 * 999 // 2 - pairs_inside
    for found, pairs, p in ((inside, pairs_inside, 0.06), (across, pairs_across, 0.02)):
        assert abs(found - pairs * p) < 5 * (pairs * p * (1 - p)) ** 0.5


def test_structure_shift_changes_edges_alone(two_groups: Data) -> None:
    shifted = structure_shift(two_groups, 3, seed=1)
    assert torch.equal(shifted.x, two_groups.x)
    assert bool(shifted.ood_mask.all())
    reverse = shifted.edge_index.flip(0)
    as_set = {tuple(pair) for pair in shifted.edge_index.t().tolist()}
    assert as_set == {tuple(pair) for pair in reverse.t().tolist()}
    assert torch.equal(shifted.edge_index, structure_shift(two_groups, 3, seed=1).edge_index)
    assert not torch.equal(shifted.edge_index, structure_shift(two_groups, 3, seed=2).edge_index)


@pytest.mark.parametrize("blocks", [0, 61])
def test_impossible_numbers_of_blocks_are_named(two_groups: Data, blocks: int) -> None:
    with pytest.raises(ValueError, match=f"num_blocks is {blocks}, expected 1..60"):
        structure_shift(two_groups, blocks)


def is_mixture(row: Tensor, x: Tensor) -> bool:
    """Whether a row is on a segment between two rows of ``x``: found by trying all pairs."""
    row, x = row.double(), x.double()
    a = row - x
    b = x.unsqueeze(1) - x.unsqueeze(0)  # x_i - x_j
    w = (a.unsqueeze(0) * b).sum(-1) / b.square().sum(-1).clamp_min(1e-12)  # best w for x_j + w (x_i - x_j)
    gap = (a.unsqueeze(0) - w.unsqueeze(-1) * b).norm(dim=-1) + 10 * ((w < -1e-4) | (w > 1 + 1e-4))
    return bool(gap.min() < 1e-4)


def test_feature_shift_lies_between_two_nodes(two_groups: Data) -> None:
    shifted, data = feature_shift(two_groups, seed=3), weighted(two_groups)
    assert "edge_weight" not in shifted
    assert torch.equal(feature_shift(data, seed=3).edge_weight, data.edge_weight)
    assert torch.equal(shifted.edge_index, two_groups.edge_index)
    assert all(is_mixture(row, two_groups.x) for row in shifted.x[:10])


def test_exposure_and_test_are_independent_draws() -> None:
    for name in ("digits/structure", "digits/feature"):
        task = load_task(name)
        shift = name.split("/")[1]
        assert task.exposure is not None
        test = task.tests[shift]
        same_edges = test.edge_index.shape == task.exposure.edge_index.shape and torch.equal(
            test.edge_index, task.exposure.edge_index
        )
        assert not (same_edges and torch.equal(test.x, task.exposure.x))


def test_clean_leave_out_trains_without_left_out_nodes(two_groups: Data) -> None:
    task = label_task("t", two_groups, [2], [1], [0])
    assert task.train.num_nodes == 20
    assert torch.equal(task.train.x, two_groups.x[two_groups.y == 2])
    assert set(task.train.y.tolist()) == {0}
    assert "ood_mask" not in task.train
    assert task.exposure is not None
    assert task.exposure.num_nodes == 40
    assert int(task.exposure.ood_mask.sum()) == 20
    full = task.tests["label"]
    assert full.num_nodes == 60
    assert torch.equal(full.ood_mask, two_groups.y == 0)
    assert torch.equal(task.id_test.mask, two_groups.test_mask & (two_groups.y == 2))
    assert task.id_test.data is full


def test_published_leave_out_keeps_all_nodes_everywhere(two_groups: Data) -> None:
    task = label_task("t", two_groups, [2], [1], [0], RULES["published"])
    assert task.exposure is not None
    assert task.train.num_nodes == task.exposure.num_nodes == 60
    assert task.num_left_out == 2
    assert int(task.train.train_mask.sum()) == 8


def weighted(data: Data) -> Data:
    data = data.clone()
    data.edge_weight = 1.0 + data.edge_index.amin(dim=0) + data.edge_index.amax(dim=0) / 100
    return data


def test_a_structure_shift_gives_every_pair_one_of_the_weights_and_draws_the_same_edges(two_groups: Data) -> None:
    data = weighted(two_groups)
    shifted = structure_shift(data, 3, seed=1)
    assert torch.equal(shifted.edge_index, structure_shift(two_groups, 3, seed=1).edge_index)
    both = dict(zip(map(tuple, shifted.edge_index.t().tolist()), shifted.edge_weight.tolist(), strict=True))
    assert all(both[v, u] == weight for (u, v), weight in both.items())
    assert set(both.values()) <= set(data.edge_weight.tolist())
    assert len(set(both.values())) > 50


def test_the_training_graph_has_the_edges_between_id_nodes_with_their_weights(two_groups: Data) -> None:
    data = weighted(two_groups)
    task = label_task("t", data, [2, 0], [], [1])
    kept = (data.y != 1).nonzero().squeeze(1)
    source, target = kept[task.train.edge_index]
    expected = 1.0 + torch.minimum(source, target) + torch.maximum(source, target) / 100
    assert torch.equal(task.train.edge_weight, expected)
    inside = data.y != 1
    edges = [tuple(pair) for pair in torch.stack([source, target]).t().tolist()]
    assert set(edges) == {(a, b) for a, b in data.edge_index.t().tolist() if inside[a] and inside[b]}
    full = task.tests["label"]
    assert torch.equal(full.edge_weight, data.edge_weight)
    assert torch.equal(full.y, torch.tensor([1, -1, 0])[data.y])  # numbered anew, and left-out ones marked
