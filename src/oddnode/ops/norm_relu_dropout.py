"""Batch norm, ReLU and dropout of a layer, for all nodes or for some, with the statistics of all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.ops.triton_dropout import relu_dropout

__all__ = ["PreNormActivations", "ReluDropout"]


class PreNormActivations:
    """A layer's values before batch norm; with the values' own statistics they are normalised once.

    Parameters
    ----------
    values : Tensor
        Shape ``[N, C]``.
    """

    def __init__(self, values: Tensor):
        self.values = values
        self._normalised: Tensor | None = None

    def activated(self, norm: nn.Module, rows: Tensor | None = None, scales: Tensor | None = None) -> Tensor:
        """Compute ``relu(norm(values)) * scales``, of all rows or of some.

        Parameters
        ----------
        norm : torch.nn.Module
            Batch norm, or a module in its place.
        rows : Tensor, optional
            Positions ``[n]`` of the rows to compute; the statistics are those of all rows in any case.
        scales : Tensor, optional
            Shape ``[n, C]``: what every feature is multiplied by, 0 where it is dropped.

        Returns
        -------
        Tensor
            Shape ``[n, C]``.
        """
        if isinstance(norm, _BatchNorm) and norm.training:
            hidden = _chosen(self._by_own_statistics(norm), rows)
        else:
            hidden = norm(_chosen(self.values, rows))
        hidden = hidden.relu()
        return hidden if scales is None else hidden * scales

    def _by_own_statistics(self, norm: _BatchNorm) -> Tensor:
        """All rows after batch norm, which keeps track of their statistics once, however often they are used."""
        if self._normalised is None:
            with torch.enable_grad():  # an evaluation without gradients may come before the training pass
                self._normalised = norm(self.values)
        return self._normalised


def _chosen(values: Tensor, rows: Tensor | None) -> Tensor:
    return values if rows is None else values.index_select(0, rows)


class ReluDropout(torch.autograd.Function):
    """ReLU and dropout of all rows or of some, as one Triton kernel; its masks are those of `dropout_scales`."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, rows: Tensor | None, keys: Tensor, epoch_counter: Tensor, place: int, p: float
    ) -> Tensor:
        values = values.contiguous()
        ctx.save_for_backward(values, rows, keys, epoch_counter)
        ctx.settings = place, p
        return relu_dropout(values, rows, keys, epoch_counter, place, p)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, rows, keys, epoch_counter = ctx.saved_tensors
        place, p = ctx.settings
        return relu_dropout(values, rows, keys, epoch_counter, place, p, grad), None, None, None, None, None
