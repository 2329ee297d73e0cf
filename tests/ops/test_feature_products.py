from __future__ import annotations

import torch
from torch import Tensor

from oddnode.ops import FeatureProducts, SparseMatrix


def features_and_weight() -> tuple[SparseMatrix, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(5, 4, generator=generator, dtype=torch.float64)
    dense = dense * (torch.rand(5, 4, generator=generator) < 0.5)
    return SparseMatrix.from_dense(dense), torch.randn(2, 4, generator=generator, dtype=torch.float64).requires_grad_()


def test_a_product_without_a_gradient_is_no_product_with_one() -> None:
    features, weight = features_and_weight()
    products = FeatureProducts()
    with torch.no_grad():
        assert not products.linear(features, weight).requires_grad
    assert products.linear(features, weight).requires_grad
    with torch.no_grad():
        assert not products.linear(features, weight).requires_grad


def test_two_users_of_one_product_both_count_in_the_gradient() -> None:
    features, weight = features_and_weight()
    products = FeatureProducts()
    loss = (products.linear(features, weight) ** 2).sum() + products.linear(features, weight).sum()
    [gradient] = torch.autograd.grad(loss, weight)
    dense = features.to_dense()
    torch.testing.assert_close(gradient, (2 * (dense @ weight.T) + 1).T @ dense)
