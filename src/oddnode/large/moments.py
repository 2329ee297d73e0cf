r"""Batch norm in closed form: the statistics of :math:`M W^\top + b` over all rows, from those of :math:`M`.

The first layer of a network is linear in a matrix :math:`M` that never changes (:math:`A X` for a GCN, :math:`X` for
an MLP). With the mean :math:`\mu` and the covariance :math:`\Sigma` of its rows, the mean of a channel with the weights
:math:`w` is :math:`\mu^\top w + b`, and its variance is :math:`w^\top \Sigma w`. Both are exact and differentiable, and
no row has to be read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.large.arrays import at_once, row_chunks

_BYTES_AT_ONCE = 2**25


class Moments(NamedTuple):
    """Mean and covariance of the rows of a matrix, in double precision."""

    num_rows: int  # The number of rows
    mean: Tensor
    covariance: Tensor  # Divided by the number of rows, `[F, F]`

    @classmethod
    def of(cls, rows: Tensor) -> Moments:
        """Read a matrix once, in chunks whose moments are merged (Chan et al., 1979)."""
        width = rows.shape[1]
        count, mean = 0, rows.new_zeros(width, dtype=torch.float64)
        scatter = rows.new_zeros(width, width, dtype=torch.float64)
        for start, stop in row_chunks(len(rows), 8 * width, at_once(_BYTES_AT_ONCE, rows.device)):
            part = rows[start:stop].double()
            own = part.mean(dim=0)
            part = part - own
            step = own - mean
            total = count + stop - start
            scatter += part.t() @ part + torch.outer(step, step) * (count * (stop - start) / total)
            mean = mean + step * ((stop - start) / total)
            count = total
        return cls(count, mean, scatter / count)

    @property
    def packed(self) -> Tensor:
        """The mean above the covariance, ``[F + 1, F]``."""
        return torch.cat([self.mean.unsqueeze(0), self.covariance])

    def of_product(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the mean and the variance of ``M W^T`` over all rows."""
        wide = weight.double()
        mean = wide @ self.mean
        variance = (wide @ self.covariance * wide).sum(dim=1).clamp_min(0.0)
        return mean.to(weight.dtype), variance.to(weight.dtype)
