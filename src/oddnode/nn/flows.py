"""Normalising flows: densities with parameters, as invertible maps onto a standard normal distribution."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["RadialFlows"]

# Keeps the slope of a square root finite for a point that lies on a centre.
_TINY = 1e-12


class RadialFlows(nn.Module):
    r"""Several radial flows (Rezende and Mohamed, ICML 2015, equation 14), all in one computation.

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
        self.centre = nn.Parameter(torch.empty(num_layers, num_flows, dim))
        self.raw_a = nn.Parameter(torch.empty(num_layers, num_flows, 1))
        self.raw_b = nn.Parameter(torch.empty(num_layers, num_flows, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew: ``a`` and ``b`` about equal, so that the maps start near the identity."""
        bound = 1.0 / math.sqrt(self.dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, z: Tensor) -> Tensor:
        """Compute log-densities; see `log_prob`.

        Parameters
        ----------
        z : Tensor
            Points ``[N, d]``.

        Returns
        -------
        Tensor
            Shape ``[N, flows]``.
        """
        return self.log_prob(z)

    def log_prob(self, z: Tensor) -> Tensor:
        r"""Compute log-densities of points under every flow.

        Where a point goes in the end does not matter, only its distances do. A layer keeps it on the line through the
        centre, :math:`z' = (1-s) z_0 + s z`, so by Stewart's theorem its squared distance to any place :math:`p`
        becomes :math:`(1-s) |z_0 - p|^2 + s |z - p|^2 - s (1-s) |z - z_0|^2`. Following those to the later centres and
        to the origin costs a few numbers per point instead of ``d``.

        Parameters
        ----------
        z : Tensor
            Points ``[N, d]``.

        Returns
        -------
        Tensor
            Shape ``[N, flows]``.
        """
        places = torch.cat([self.centre, self.centre.new_zeros(1, *self.centre.shape[1:])])
        apart = (places.unsqueeze(1) - places.unsqueeze(0)).square().sum(dim=-1, keepdim=True)
        squares = _squared_distances(places, z)
        log_det = z.new_zeros(())
        for layer, (a, b) in enumerate(zip(F.softplus(self.raw_a), F.softplus(self.raw_b), strict=True)):
            r = squares[0].clamp_min(_TINY).sqrt()
            stretch = (r + b) / (r + a)
            slope = (r * (r + 2 * a) + a * b) / (r + a).square()
            log_det = log_det + (self.dim - 1) * stretch.log() + slope.log()
            rest = apart[layer, layer + 1 :]
            squares = rest + stretch * (squares[1:] - rest - (1 - stretch) * squares[0])
        return (log_det - 0.5 * (squares[0] + self.dim * math.log(2 * math.pi))).t()

    def __repr__(self) -> str:
        layers, flows = self.centre.shape[:2]
        return f"RadialFlows({flows} flows, dim={self.dim}, num_layers={layers})"


def _squared_distances(places: Tensor, z: Tensor) -> Tensor:
    """From places ``[..., d]`` to points ``[N, d]``: ``[..., N]``."""
    flat = places.flatten(0, -2)
    squares = flat.square().sum(dim=1, keepdim=True) + z.square().sum(dim=1) - 2.0 * (flat @ z.t())
    return squares.view(*places.shape[:-1], -1)
