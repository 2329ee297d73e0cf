"""Batch norm, ReLU and dropout of a layer as one step, for all nodes or for some.

The statistics are those of all rows. On a CPU the step is one differentiable operation of a few passes over memory, and
for some rows most of these passes are over them alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.ops import triton_kernels as _kernels

__all__ = ["PreNormActivations", "ReluDropout"]


class PreNormActivations:
    """A layer's values before batch norm, and their moments once they have been computed.

    Parameters
    ----------
    values : Tensor
        Shape ``[N, C]``.
    moments : list of tuple of Tensor, optional
        Empty, or the mean and the variance ``[C]`` of the values. Instances that share the list share the moments.
    """

    def __init__(self, values: Tensor, moments: list[tuple[Tensor, Tensor]] | None = None):
        self.values = values
        self._moments = [] if moments is None else moments

    def detached(self) -> PreNormActivations:
        """A detached view that shares its moments with this one."""
        return PreNormActivations(self.values.detach(), self._moments)

    def activated(
        self, norm: nn.Module, rows: Tensor | None = None, scales: Tensor | None = None, factor: float = 1.0
    ) -> Tensor:
        """Compute ``relu(norm(values)) * scales``, of all rows or of some.

        Parameters
        ----------
        norm : torch.nn.Module
            Batch norm, or a module in its place.
        rows : Tensor, optional
            Positions ``[n]`` of the rows to compute; the statistics are those of all rows in any case.
        scales : Tensor, optional
            Shape ``[n, C]``: 0 where a feature is dropped, and ``factor`` elsewhere.
        factor : float
            What features that are not dropped are multiplied by.

        Returns
        -------
        Tensor
            Shape ``[n, C]``.
        """
        # Scoring goes step by step: only training is worth an operation that cannot be differentiated twice.
        in_training = scales is not None or norm.training
        if not isinstance(norm, nn.BatchNorm1d) or not in_training or self.values.device.type != "cpu":
            return self._step_by_step(norm, rows, scales)
        mean, variance = self._statistics(norm)
        inverse = (variance + norm.eps).rsqrt()
        return _NormReluDrop.apply(
            self.values, norm.weight, norm.bias, rows, mean, inverse, scales, factor, norm.training
        )

    def _step_by_step(self, norm: nn.Module, rows: Tensor | None, scales: Tensor | None) -> Tensor:
        values = self.values
        if rows is not None and not (isinstance(norm, _BatchNorm) and norm.training):
            values, rows = values.index_select(0, rows), None
        hidden = norm(values)
        hidden = (hidden if rows is None else hidden.index_select(0, rows)).relu()
        return hidden if scales is None else hidden * scales

    def _statistics(self, norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
        """Mean and variance to normalise by: in training those of the values, which the layer then keeps track of."""
        assert norm.running_mean is not None
        assert norm.running_var is not None
        if not norm.training:
            return norm.running_mean.clone(), norm.running_var.clone()
        if not self._moments:
            values = self.values.detach()
            mean = values.mean(dim=0)
            self._moments.append((mean, (values - mean).square_().mean(dim=0)))
            _track(norm, *self._moments[0], len(values))  # once, however often they are used
        return self._moments[0]


@torch.no_grad()
def _track(norm: Any, mean: Tensor, variance: Tensor, count: int) -> None:
    """What `torch.nn.BatchNorm1d` does to its running statistics."""
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (count / max(count - 1, 1)), norm.momentum)


class _NormReluDrop(torch.autograd.Function):
    r"""Rows of :math:`m \max(0, \gamma \hat z + \beta)` with :math:`\hat z = (z - \mu) / \sigma` and a dropout mask m.

    With ``g`` the gradient at :math:`\gamma \hat z + \beta`, zero outside those rows, batch norm's gradient is
    :math:`\frac{\gamma}{\sigma} g` where the statistics are given, and
    :math:`\frac{\gamma}{\sigma} (g - \frac1N \sum g - \frac{\hat z}{N} \sum g \hat z)` where they are the values' own.
    """

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weight: Tensor,
        bias: Tensor,
        rows: Tensor | None,
        mean: Tensor,
        inverse: Tensor,
        scales: Tensor | None,
        factor: float,
        own_statistics: bool,
    ) -> Tensor:
        scale = weight * inverse
        chosen = values if rows is None else values.index_select(0, rows)
        out = torch.addcmul(bias - mean * scale, chosen, scale).relu_()
        if scales is not None:
            out.mul_(scales)
        ctx.save_for_backward(values, chosen, weight, rows, mean, inverse, out)
        ctx.own_statistics, ctx.factor = own_statistics, factor
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, chosen, weight, rows, mean, inverse, out = ctx.saved_tensors
        # What was dropped and what ReLU cut are both zero now; the rest was multiplied by one factor.
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        grad_bias = grad.sum(dim=0) * ctx.factor
        grad_weight = ((grad * chosen).sum(dim=0) * ctx.factor - mean * grad_bias) * inverse
        scale = weight * inverse
        grad_values = grad.mul_(scale * ctx.factor)
        if ctx.own_statistics:
            slope = -scale * inverse * grad_weight / len(values)
            shift = -scale * grad_bias / len(values) - slope * mean
            through_statistics = torch.addcmul(shift, values, slope)
            if rows is None:
                grad_values += through_statistics
            else:
                grad_values = through_statistics.index_add_(0, rows, grad_values)
        elif rows is not None:
            grad_values = torch.zeros_like(values).index_add_(0, rows, grad_values)
        return grad_values, grad_weight, grad_bias, None, None, None, None, None, None


class ReluDropout(torch.autograd.Function):
    """ReLU and dropout of all rows or of some, as one Triton kernel; its masks are those of `dropout_scales`."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, rows: Tensor | None, keys: Tensor, epoch_counter: Tensor, place: int, p: float
    ) -> Tensor:
        values = values.contiguous()
        ctx.save_for_backward(values, rows, keys, epoch_counter)
        ctx.settings = place, p
        return _kernels.relu_dropout(values, rows, keys, epoch_counter, place, p)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, rows, keys, epoch_counter = ctx.saved_tensors
        place, p = ctx.settings
        return _kernels.relu_dropout(values, rows, keys, epoch_counter, place, p, grad), None, None, None, None, None
