"""Batch norm of some rows by the statistics of all rows, whose moments are computed once however often it is asked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["Beginning"]


class Beginning:
    """A layer's values ``[N, C]`` before batch norm, and their moments once they are known."""

    def __init__(self, values: Tensor, moments: tuple[Tensor, Tensor] | None = None):
        self.values = values
        self._moments = moments

    def detached(self) -> Beginning:
        """The same without a way back for gradients."""
        return Beginning(self.values.detach(), self._moments)

    def normalised(self, norm: nn.Module, rows: Tensor | None = None) -> Tensor:
        """The values after ``norm``, of all rows or of those named."""
        batch_statistics = isinstance(norm, _BatchNorm) and norm.training
        if rows is None:
            return norm(self.values)
        if not batch_statistics:
            return norm(self.values.index_select(0, rows))
        return self._rows_by_all(norm, rows)

    def _rows_by_all(self, norm: Any, rows: Tensor) -> Tensor:
        if self._moments is None:
            self._moments = _moments(self.values.detach())
        mean, variance = self._moments
        _track(norm, mean, variance, len(self.values))
        return _RowsByAll.apply(self.values, norm.weight, norm.bias, rows, mean, (variance + norm.eps).rsqrt())


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    mean = values.mean(dim=0)
    return mean, (values - mean).square_().mean(dim=0)


@torch.no_grad()
def _track(norm: Any, mean: Tensor, variance: Tensor, count: int) -> None:
    """What `torch.nn.BatchNorm1d` does to its running statistics."""
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (count / max(count - 1, 1)), norm.momentum)


class _RowsByAll(torch.autograd.Function):
    r"""Rows of :math:`\gamma \hat z + \beta` with :math:`\hat z = (z - \mu) / \sigma` over all rows.

    With ``g`` the gradient that comes in, zero outside those rows, batch norm's gradient
    :math:`\frac{\gamma}{\sigma} (g - \frac1N \sum g - \frac{\hat z}{N} \sum g \hat z)` is one pass over all rows.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, mean: Tensor, inverse: Tensor
    ) -> Tensor:
        whitened = values.index_select(0, rows).sub_(mean).mul_(inverse)
        ctx.save_for_backward(values, weight, rows, mean, inverse, whitened)
        return torch.addcmul(bias, whitened, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, rows, mean, inverse, whitened = ctx.saved_tensors
        grad_bias = grad.sum(dim=0)
        grad_weight = (grad * whitened).sum(dim=0)
        scale = weight * inverse
        slope = -scale * inverse * grad_weight / len(values)
        grad_values = torch.addcmul(-scale * grad_bias / len(values) - slope * mean, values, slope)
        grad_values.index_add_(0, rows, grad * scale)
        return grad_values, grad_weight, grad_bias, None, None, None
