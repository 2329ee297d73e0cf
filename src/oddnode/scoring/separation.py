"""Weights of kinds of evidence, learnt from exposed nodes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["separating_weights"]

# How strongly the logarithms of learnt weights are drawn to zero.
_DRAWN = 0.05
_STEPS = 300


@torch.enable_grad()
def separating_weights(known: Tensor, exposed: Tensor) -> Tensor:
    """Find positive weights by which exposed nodes have more evidence against them than known nodes.

    They come from a logistic regression. Logarithms of the weights are drawn to zero, so that without a reason all
    kinds keep their weight.

    Parameters
    ----------
    known, exposed : Tensor
        The evidence of every kind against the nodes, ``[n, K]`` and ``[m, K]``.

    Returns
    -------
    Tensor
        Shape ``[K]``, in double precision.
    """
    scale = torch.cat([known, exposed]).mean().clamp_min(1e-9)
    logs = torch.zeros(known.shape[1], dtype=torch.float64, device=known.device, requires_grad=True)
    line = torch.tensor([0.0, 0.0], dtype=torch.float64, device=known.device, requires_grad=True)
    optimiser = torch.optim.Adam([logs, line], lr=0.05)
    for _ in range(_STEPS):
        odds = [line[0].exp() * (each / scale) @ logs.exp() / len(logs) + line[1] for each in (known, exposed)]
        loss = F.softplus(odds[0]).mean() + F.softplus(-odds[1]).mean() + _DRAWN * logs.square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return logs.detach().exp()
