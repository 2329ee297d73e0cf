"""Batch norm's statistics in closed form, against those of the product itself."""

from __future__ import annotations

import pytest
import torch

from oddnode.large import moments
from oddnode.large.moments import Moments


@pytest.mark.parametrize("limit", [1, 8 * 4 * 7, 2**25])
def test_moments_of_a_product_are_those_of_its_rows(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    real = moments.row_chunks
    monkeypatch.setattr(moments, "row_chunks", lambda rows, size, *_: real(rows, size, limit))
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(101, 4, generator=generator, dtype=torch.float64) * 3 + 1000
    weight = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    mean, variance = Moments.of(matrix).of_product(weight)
    product = matrix @ weight.t()
    torch.testing.assert_close(mean, product.mean(dim=0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(variance, product.var(dim=0, correction=0), rtol=1e-10, atol=1e-10)
    [found] = torch.autograd.grad(variance.log().sum(), weight)
    [expected] = torch.autograd.grad((matrix @ weight.t()).var(dim=0, correction=0).log().sum(), weight)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_packed_moments_are_the_mean_above_the_covariance() -> None:
    packed = Moments.of(torch.arange(12.0, dtype=torch.float64).reshape(4, 3)).packed
    assert torch.equal(packed[0], torch.tensor([4.5, 5.5, 6.5], dtype=torch.float64))
    assert torch.equal(packed[1:], torch.full((3, 3), 11.25, dtype=torch.float64))
