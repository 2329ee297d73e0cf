from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

from oddnode.functional import (
    bound_loss,
    dispersion,
    energy_hinge_loss,
    logit_norm_loss,
    outlier_exposure_loss,
    uniform_loss,
)


def logits(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype) + 0.5


def test_bound_is_the_variance_of_norms_over_their_mean() -> None:
    norms = np.linalg.norm(logits().numpy(), axis=1)
    assert bound_loss(logits()).item() == pytest.approx(norms.var(ddof=1) / norms.mean())


def test_uniform_is_the_variance_of_sums_over_their_absolute_mean() -> None:
    for z in (logits(), -logits()):
        sums = z.numpy().sum(axis=1)
        assert uniform_loss(z).item() == pytest.approx(sums.var(ddof=1) / abs(sums.mean()))


def test_scale_is_clamped_where_the_mean_vanishes() -> None:
    values = torch.tensor([1.0, -1.0], dtype=torch.float64)
    assert dispersion(values).item() == pytest.approx(2.0 / 1e-6)


def test_mean_carries_no_gradient() -> None:
    """With the mean held fixed the gradient of var(v) / m is 2 (v - mean) / ((n - 1) m)."""
    values = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64, requires_grad=True)
    dispersion(values).backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([2 * (v - 3) / (2 * 3) for v in (1.0, 2.0, 6.0)])


def test_a_variance_needs_two_nodes() -> None:
    with pytest.raises(ValueError, match="at least two nodes, got 1"):
        bound_loss(torch.ones(1, 3))


def test_hinge_is_two_separate_means() -> None:
    inside, outside = torch.tensor([-4.0, -6.0, -3.0]), torch.tensor([-3.0, 0.0])
    expected = (1 + 0 + 4) / 3 + (4 + 0) / 2
    assert energy_hinge_loss(inside, outside, -5.0, -1.0).item() == pytest.approx(expected)


def test_logit_norm_is_cross_entropy_on_a_sphere() -> None:
    y = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    z = logits().numpy()
    scaled = z / (0.1 * np.linalg.norm(z, axis=1, keepdims=True))
    shares = np.exp(scaled) / np.exp(scaled).sum(axis=1, keepdims=True)
    assert logit_norm_loss(logits(), y, 0.1).item() == pytest.approx(log_loss(y.numpy(), shares, labels=range(4)))


def test_logit_norm_refuses_a_temperature_of_zero() -> None:
    with pytest.raises(ValueError, match="tau is 0"):
        logit_norm_loss(logits(), torch.zeros(7, dtype=torch.long), 0)


def test_outlier_exposure_is_the_cross_entropy_to_the_uniform_distribution() -> None:
    shares = logits().softmax(dim=1).numpy()
    assert outlier_exposure_loss(logits()).item() == pytest.approx(-np.log(shares).mean())


@pytest.mark.parametrize(
    "loss",
    [
        bound_loss,
        uniform_loss,
        outlier_exposure_loss,
        lambda z: logit_norm_loss(z, torch.tensor([0, 1, 2, 3, 0, 1, 2]), 0.3),
        lambda z: energy_hinge_loss(-z.logsumexp(1)[:4], -z.logsumexp(1)[4:], -3.0, -1.0),
    ],
)
def test_losses_keep_precision_and_have_finite_gradients(loss: Callable) -> None:
    for dtype in (torch.float32, torch.float64):
        z = logits(dtype).requires_grad_()
        value = loss(z)
        value.backward()
        assert value.dtype == dtype
        assert value.dim() == 0
        assert z.grad is not None
        assert bool(z.grad.isfinite().all())


@pytest.mark.parametrize("loss", [outlier_exposure_loss, lambda z: logit_norm_loss(z, torch.zeros(7).long(), 0.3)])
def test_gradients_agree_with_finite_differences(loss: Callable) -> None:
    assert torch.autograd.gradcheck(loss, (logits().requires_grad_(),))
