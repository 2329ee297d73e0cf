"""The statistics of batch norm over all nodes, from some rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["ColumnMoments", "batch_norms"]


class ColumnMoments:
    """Mean and variance of every column, in double precision, merged from chunks of rows (Chan et al., 1979)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def update(self, rows: Tensor) -> None:
        """Add some rows.

        Parameters
        ----------
        rows : Tensor
            Shape ``[n, C]``.
        """
        variance, mean = torch.var_mean(rows.double(), dim=0, correction=0)
        total = self.count + len(rows)
        step = mean - self.mean
        self._squares = self._squares + variance * len(rows) + step.square() * (self.count * len(rows) / total)
        self.mean = self.mean + step * (len(rows) / total)
        self.count = total

    def set_to(self, norm: _BatchNorm) -> None:
        """Make them the statistics that batch norm evaluates with; the variance is divided by the number of rows.

        Parameters
        ----------
        norm : torch.nn.BatchNorm1d
            The layer, which is changed in place.
        """
        if self.count and norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean.copy_(torch.as_tensor(self.mean))
            norm.running_var.copy_(torch.as_tensor(self._squares) / self.count)


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Find the batch norms of a network.

    Parameters
    ----------
    module : torch.nn.Module
        The network.
    """
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
