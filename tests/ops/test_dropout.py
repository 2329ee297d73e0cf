from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from torch import nn

from oddnode.ops import DropoutStream, PreNormActivations, dropout, dropout_scales, stacked_keys
from oddnode.ops.dropout import dropout_keys


def lowbias32(x: int) -> int:
    """Wellons' hash of 32 bits."""
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def is_kept(key: Sequence[int], node: int, channel: int, width: int, p: float) -> bool:
    """Whether dropout keeps a feature: by one random bit per channel where p is a half, by sixteen bits otherwise."""
    bits = 1 if p == 0.5 else 16
    per_word = 32 // bits
    word = node * -(-width // per_word) + channel // per_word
    low, high = (part & 0xFFFFFFFF for part in key)
    random = lowbias32(lowbias32(word ^ low) ^ high) >> bits * (channel % per_word) & (1 << bits) - 1
    return random >= round(p * 2**bits)


def scales(p: float, seed: int = 0, epoch: int = 0, graph: int = 0, layer: int = 0, width: int = 64) -> torch.Tensor:
    stream = DropoutStream(seed)
    stream.at(epoch, graph)
    return stream.scales(torch.arange(2000), width, p, layer, torch.float64)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
def test_the_share_dropped_is_p_in_every_channel_and_the_mean_is_kept(p: float) -> None:
    kept = scales(p)
    assert kept.unique().tolist() == [0.0, pytest.approx(1 / (1 - p), rel=1e-4)]
    dropped = (kept == 0).double()
    # Five standard deviations of a mean of 2000 coins, and of 128000.
    assert (dropped.mean(dim=0) - p).abs().max() < 5 * (p * (1 - p) / 2000) ** 0.5
    assert abs(float(dropped.mean()) - p) < 5 * (p * (1 - p) / 128000) ** 0.5


@pytest.mark.parametrize("other", [{"seed": 1}, {"epoch": 1}, {"graph": 1}, {"layer": 1}])
def test_masks_at_different_places_are_independent(other: dict[str, int]) -> None:
    a, b = scales(0.5), scales(0.5, **other)
    both = torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]
    assert both.abs() < 5 / 128000**0.5


@pytest.mark.parametrize("p", [0.3, 0.5])
@pytest.mark.parametrize("width", [7, 64])
def test_some_nodes_have_the_masks_they_have_among_all(p: float, width: int) -> None:
    stream = DropoutStream(3)
    nodes = torch.tensor([4, 40, 7])
    some, every = (stream.scales(n, width, p, 0, torch.float32) for n in (nodes, torch.arange(50)))
    assert torch.equal(some, every[nodes])


def test_stacked_keys_are_those_of_every_place() -> None:
    seeds = [0, 5, 2**62 - 1, -3]
    stacked = stacked_keys(seeds, epochs=3, graphs=2, layers=2)
    for epoch, graph, layer in product(range(3), range(2), range(2)):
        expected = [list(dropout_keys(seed, epoch, graph, layer)) for seed in seeds]
        assert stacked[epoch, graph, layer].tolist() == expected


@pytest.mark.parametrize("p", [0.3, 0.5])
def test_networks_side_by_side_have_the_masks_they_have_alone(p: float) -> None:
    keys, nodes = stacked_keys([5, 6, 7], epochs=2, graphs=2, layers=1), torch.arange(9)
    together = dropout_scales(keys[1, 0, 0], nodes, 40, p, torch.float32)
    assert together.shape == (9, 3, 40)
    for place, seed in enumerate([5, 6, 7]):
        key = torch.tensor(dropout_keys(seed, 1, 0, 0), dtype=torch.int32)
        assert torch.equal(together[:, place], dropout_scales(key, nodes, 40, p, torch.float32))


@pytest.mark.parametrize("p", [0.25, 0.5])
@pytest.mark.parametrize("width", [7, 64])
def test_masks_are_the_bits_of_the_hash(p: float, width: int) -> None:
    key, nodes = dropout_keys(1, 2, 1, 3), [0, 3, 1999]
    expected = [[is_kept(key, node, channel, width, p) / (1 - p) for channel in range(width)] for node in nodes]
    assert scales(p, 1, 2, 1, 3, width)[nodes].tolist() == expected


def test_the_hash_of_torch_is_that_of_numpy() -> None:
    counter = torch.arange(-500, 500, dtype=torch.int32).view(100, 10)
    low, high = torch.tensor([-7], dtype=torch.int32), torch.tensor([2**31 - 5], dtype=torch.int32)
    by_torch = dropout._finalise(dropout._finalise(counter ^ low) ^ high)
    assert torch.equal(by_torch, dropout._random_words(counter, low, high))


def values() -> torch.Tensor:
    return (3 + 2 * torch.randn(40, 5, dtype=torch.float64)).requires_grad_()


def norm(momentum: float = 0.1) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(5, momentum=momentum).double()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("some", [True, False])
@pytest.mark.parametrize("dropped", [True, False])
def test_values_and_all_gradients_are_those_of_torch(training: bool, some: bool, dropped: bool) -> None:
    torch.manual_seed(0)
    z, layer = values(), norm()
    layer(z + 1)  # running statistics that are not the values' own
    layer.train(training)
    rows = torch.tensor([3, 30, 7, 8]) if some else torch.arange(40)
    scales = 2.0 * torch.randint(2, (len(rows), 5)).double() if dropped else torch.ones(len(rows), 5).double()
    ours = PreNormActivations(z).activated(layer, rows if some else None, scales if dropped else None)
    whole = layer(z).relu()[rows] * scales
    torch.testing.assert_close(ours, whole)
    direction = torch.randn(len(rows), 5, dtype=torch.float64)
    inputs = (z, layer.weight, layer.bias)
    for a, b in zip(
        torch.autograd.grad((ours * direction).sum(), inputs),
        torch.autograd.grad((whole * direction).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("momentum", [0.1, 1.0])
def test_running_statistics_are_those_of_torch(momentum: float) -> None:
    torch.manual_seed(0)
    z, ours, theirs = values(), norm(momentum), norm(momentum)
    PreNormActivations(z).activated(ours, torch.tensor([1, 2]))
    theirs(z)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))


def test_an_evaluation_before_the_training_pass_shares_its_batch_norm() -> None:
    torch.manual_seed(0)
    z, layer, rows = values(), norm(), torch.tensor([0, 5])
    shared, expected = PreNormActivations(z), norm()
    expected.load_state_dict(layer.state_dict())
    with torch.no_grad():
        evaluated = shared.activated(layer, rows)
    trained = shared.activated(layer)
    assert not evaluated.requires_grad
    assert layer.num_batches_tracked == 1
    whole = expected(z).relu()
    torch.testing.assert_close(evaluated, whole[rows].detach())
    torch.testing.assert_close(trained, whole)
    direction = torch.randn(40, 5, dtype=torch.float64)
    found = torch.autograd.grad(trained, [z, *layer.parameters()], direction)
    torch.testing.assert_close(found, torch.autograd.grad(whole, [z, *expected.parameters()], direction))


def test_running_statistics_are_used_beside_the_values_own() -> None:
    torch.manual_seed(0)
    z, layer = values(), norm()
    shared = PreNormActivations(z)
    shared.activated(layer)
    layer.eval()
    torch.testing.assert_close(shared.activated(layer, torch.tensor([7, 3])), layer(z).relu()[[7, 3]])
