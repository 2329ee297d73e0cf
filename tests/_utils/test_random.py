"""Random streams: the numbers of torch's generator, without touching it, in every thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode._utils.random import current_generator, new_dropout_seed, new_weights, redirected, seeded

CPU = torch.device("cpu")


def draws() -> list[Tensor]:
    """Numbers of every kind that layers draw, with and without a generator among the arguments of the operation."""
    x = torch.ones(5, 7)
    linear = nn.Linear(3, 4)
    return [
        linear.weight.detach(), linear.bias.detach(), torch.rand(3), torch.randn(2, 2), torch.randint(9, (4,)),
        torch.randint(2, 9, (4,)), torch.randperm(6), torch.rand_like(x.t()), torch.randn_like(x),
        torch.bernoulli(x / 2), torch.multinomial(x, 2), torch.normal(x, x), torch.empty(4).exponential_(),
        F.dropout(x, 0.3), F.alpha_dropout(x, 0.3, training=True), F.gumbel_softmax(x), F.rrelu(-x, training=True),
        nn.init.orthogonal_(torch.empty(3, 3)), nn.init.trunc_normal_(torch.empty(3)),
    ]  # fmt: skip


def test_a_stream_has_the_numbers_of_torchs_generator_and_leaves_it_alone() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = draws()
        state = torch.get_rng_state()
        with seeded(5), redirected():
            found = draws()
        assert torch.equal(torch.get_rng_state(), state)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_blocks_nest_and_outside_of_them_or_for_a_callers_generator_torchs_own_is_used() -> None:
    with seeded(1), redirected():
        first = new_dropout_seed()
        with seeded(1):
            assert new_dropout_seed() == first
        assert new_dropout_seed() != first
        own = torch.rand(3, generator=torch.Generator().manual_seed(2))
    assert torch.equal(own, torch.rand(3, generator=torch.Generator().manual_seed(2)))
    assert current_generator(CPU) is None
    with torch.random.fork_rng(devices=[]), redirected():
        torch.manual_seed(1)
        seed = new_dropout_seed()
        torch.manual_seed(1)
        assert seed == int(torch.randint(2**62, ()))
    with torch.device("meta"), seeded(0), new_weights():
        assert nn.Linear(2, 3).weight.is_meta


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_do_not_depend_on_the_callers_default_precision(dtype: torch.dtype) -> None:
    with seeded(3), new_weights():
        expected = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).state_dict()
    torch.set_default_dtype(dtype)
    try:
        with seeded(3), new_weights():
            found = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).state_dict()
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


def test_streams_of_threads_do_not_meet() -> None:
    def run(seed: int) -> Tensor:
        with seeded(seed), redirected():
            return torch.cat([nn.Linear(20, 20).weight.detach().flatten() for _ in range(20)])

    alone = [run(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for found, expected in zip(pool.map(run, range(4)), alone, strict=True):
                assert torch.equal(found, expected)
