"""Normalising flows: densities with parameters, as invertible maps onto a standard normal distribution."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["RadialFlows"]


class RadialFlows(nn.Module):
    r"""Several radial flows side by side (Rezende and Mohamed, ICML 2015, equation 14), all in one computation.

    A layer moves points along the rays from its centre :math:`z_0`. With :math:`r = \lVert z - z_0 \rVert`, and with
    :math:`a > 0` and :math:`b = a + \beta > 0`, which keeps it invertible, the paper's
    :math:`z' = z + \frac{\beta}{a + r} (z - z_0)` is

    .. math:: z' = z_0 + \frac{r + b}{r + a} (z - z_0), \qquad
        \left|\det \frac{\partial z'}{\partial z}\right|
        = \left(\frac{r + b}{r + a}\right)^{d-1} \frac{r^2 + 2 a r + a b}{(r + a)^2}

    where every factor is positive, so that the logarithms need no care.

    Parameters
    ----------
    num_flows : int
        How many densities.
    dim : int
        Dimension of the points.
    num_layers : int
        Radial layers of each flow.
    """

    def __init__(self, num_flows: int, dim: int, num_layers: int = 10):
        super().__init__()
        self.dim = dim
        self.centre = nn.Parameter(torch.empty(num_layers, num_flows, 1, dim))
        self.raw_a = nn.Parameter(torch.empty(num_layers, num_flows, 1))
        self.raw_b = nn.Parameter(torch.empty(num_layers, num_flows, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew: ``a`` and ``b`` about equal, so that the maps start near the identity."""
        bound = 1.0 / math.sqrt(self.dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Points ``[N, d]`` under every flow, ``[flows, N, d]``, and the log-determinants, ``[flows, N]``."""
        z = z.unsqueeze(0)
        log_det = z.new_zeros(())
        for centre, a, b in zip(self.centre, F.softplus(self.raw_a), F.softplus(self.raw_b), strict=True):
            ray = z - centre
            r = torch.linalg.vector_norm(ray, dim=-1)
            stretch = (r + b) / (r + a)
            slope = (r * (r + 2 * a) + a * b) / (r + a).square()
            log_det = log_det + (self.dim - 1) * stretch.log() + slope.log()
            z = torch.addcmul(centre, ray, stretch.unsqueeze(-1))
        return z, log_det

    def log_prob(self, z: Tensor) -> Tensor:
        """Log-densities of points ``[N, d]`` under every flow, ``[N, flows]``."""
        mapped, log_det = self.forward(z)
        log_normal = -0.5 * (mapped.square().sum(dim=-1) + self.dim * math.log(2 * math.pi))
        return (log_normal + log_det).t()

    def __repr__(self) -> str:
        layers, flows = self.centre.shape[:2]
        return f"RadialFlows({flows} flows, dim={self.dim}, num_layers={layers})"
