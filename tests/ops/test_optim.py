from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from oddnode.ops import Adam

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")


@pytest.fixture(params=[torch.float32, torch.float64])
def default_dtype(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.usefixtures("default_dtype")
def test_adam_is_torchs_bit_for_bit(device: str) -> None:
    torch.manual_seed(0)
    ours, theirs = ([nn.Parameter(torch.ones(shape, device=device)) for shape in ((3, 4), (5,), ())] for _ in range(2))
    torchs = torch.optim.Adam(theirs, lr=0.1, weight_decay=0.01, fused=True)
    mine = Adam(ours, lr=0.1, weight_decay=0.01)
    for step in range(6):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        if step == 3:
            ours[1].grad = theirs[1].grad = None
        mine.step()
        torchs.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_sparse_gradients_are_explained() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="sparse=False"):
        Adam(list(table.parameters()), 0.1, 0.0).step()


def test_a_weight_that_lies_transposed_is_updated_in_place_as_torch_does() -> None:
    torch.manual_seed(0)
    start = torch.randn(4, 3)
    ours = nn.Parameter(start.t().contiguous().t())
    theirs = nn.Parameter(start.clone())
    assert not ours.is_contiguous()
    memory = ours.data_ptr()
    mine, torchs = Adam([ours], 0.1, 0.01), torch.optim.Adam([theirs], lr=0.1, weight_decay=0.01, fused=True)
    for _ in range(4):
        slope = torch.randn(4, 3)
        mine.zero_grad()
        torchs.zero_grad()
        for parameter in (ours, theirs):  # by autograd, which lays gradients out like their parameters
            (parameter * slope).sum().backward()
        mine.step()
        torchs.step()
    assert torch.equal(ours, theirs)
    assert ours.data_ptr() == memory
    mine.zero_grad()
    assert ours.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_without_the_fused_kernel_every_bit_is_that_of_torch(dtype: torch.dtype, weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=generator, dtype=dtype) for shape in ((5, 3), (7,), ())]
    ours, theirs = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    mine, torchs = (
        Adam(ours, 0.05, weight_decay, fused=False),
        torch.optim.Adam(theirs, 0.05, weight_decay=weight_decay),
    )
    for _ in range(200):
        target = torch.randn((), generator=generator, dtype=dtype)
        for optimiser, parameters in ((mine, ours), (torchs, theirs)):
            optimiser.zero_grad()
            sum((value.sin() - target).square().sum() for value in parameters).backward()  # type: ignore[union-attr]
            optimiser.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
