from __future__ import annotations

import torch
from torch import Tensor

from oddnode.ops import FeatureProducts, SparseMatrix


def features_and_weight() -> tuple[SparseMatrix, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(5, 4, generator=generator, dtype=torch.float64)
    dense = dense * (torch.rand(5, 4, generator=generator) < 0.5)
    return SparseMatrix.from_dense(dense), torch.randn(2, 4, generator=generator, dtype=torch.float64).requires_grad_()


def test_a_product_is_computed_once_for_the_same_objects_and_again_for_others() -> None:
    features, weight = features_and_weight()
    products = FeatureProducts()
    first = products.linear(features, weight)
    torch.testing.assert_close(first, features.to_dense() @ weight.T)
    assert products.linear(features, weight) is first
    other = (2 * weight).detach().requires_grad_()
    torch.testing.assert_close(products.linear(features, other), features.to_dense() @ other.T)
    twice = SparseMatrix.from_dense(2 * features.to_dense())
    torch.testing.assert_close(products.linear(twice, other), 2 * features.to_dense() @ other.T)


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


def test_products_of_another_step_know_nothing_of_an_earlier_one() -> None:
    """Weights may change in place between steps without a trace that could be checked."""
    features, weight = features_and_weight()
    FeatureProducts().linear(features, weight)
    weight.data.add_(1.0)  # neither the address nor the version tells
    torch.testing.assert_close(FeatureProducts().linear(features, weight), features.to_dense() @ weight.T)
