r"""Dirichlet distributions over a node's class probabilities, as functions of a network's logits.

Logits are read as :math:`z = \log \alpha`, so that their softmax is the Dirichlet's mean :math:`\alpha_c / \alpha_0`
and their negative energy is :math:`\log \alpha_0`, the logarithm of the total evidence
:math:`\alpha_0 = \sum_c \alpha_c`.

The functions are pure and return one number per node. Evidence spans many orders of magnitude, and log-gamma functions
of large numbers cancel, so computations are in double precision.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def expected_squared_error(logits: Tensor, y: Tensor) -> Tensor:
    r"""The Bayes risk of the squared error (Sensoy et al., NeurIPS 2018, equation 5), per node.

    .. math:: E_{p \sim Dir(\alpha)} \lVert y - p \rVert^2
        = \sum_c (y_c - \bar p_c)^2 + \frac{\bar p_c (1 - \bar p_c)}{\alpha_0 + 1}

    Parameters
    ----------
    logits : Tensor
        Logarithms of the Dirichlet's parameters ``[N, C]``.
    y : Tensor
        Classes ``[N]``.

    Examples
    --------
    >>> expected_squared_error(torch.zeros(1, 2), torch.tensor([0]))  # Dir(1, 1): 2 / 4 + (2 / 4) / 3
    tensor([0.6667], dtype=torch.float64)
    """
    logits = logits.double()
    mean = logits.softmax(dim=-1)
    one_hot = F.one_hot(y, logits.shape[-1])
    spread = torch.sigmoid(-logits.logsumexp(dim=-1))  # 1 / (alpha_0 + 1) without overflow
    return (one_hot - mean).square().sum(dim=-1) + spread * (mean * (1 - mean)).sum(dim=-1)


def expected_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    r"""The uncertain cross-entropy (Charpentier et al., NeurIPS 2020, equation 9), per node.

    .. math:: E_{p \sim Dir(\alpha)} [-\log p_y] = \psi(\alpha_0) - \psi(\alpha_y)

    Parameters
    ----------
    logits : Tensor
        Logarithms of the Dirichlet's parameters ``[N, C]``.
    y : Tensor
        Classes ``[N]``.

    Examples
    --------
    >>> expected_cross_entropy(torch.zeros(1, 2), torch.tensor([0]))  # Dir(1, 1): psi(2) - psi(1) = 1
    tensor([1.0000], dtype=torch.float64)
    """
    alpha = logits.double().exp()
    labelled = alpha.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    return torch.digamma(alpha.sum(dim=-1)) - torch.digamma(labelled)


def dirichlet_entropy(logits: Tensor) -> Tensor:
    r"""The entropy of :math:`Dir(\alpha)`, per node.

    .. math:: \log B(\alpha) + (\alpha_0 - C) \psi(\alpha_0) - \sum_c (\alpha_c - 1) \psi(\alpha_c)

    Parameters
    ----------
    logits : Tensor
        Logarithms of the Dirichlet's parameters ``[N, C]``.
    """
    alpha = logits.double().exp()
    total = alpha.sum(dim=-1)
    concentration = (total - alpha.shape[-1]) * torch.digamma(total)
    return _log_beta(alpha) + concentration - ((alpha - 1) * torch.digamma(alpha)).sum(dim=-1)


def dirichlet_kl(logits: Tensor, prior: Tensor) -> Tensor:
    r"""The divergence :math:`KL(Dir(\alpha) \,\Vert\, Dir(\beta))` from a prior's parameters ``beta``, per node.

    .. math:: \log B(\beta) - \log B(\alpha) + \sum_c (\alpha_c - \beta_c) (\psi(\alpha_c) - \psi(\alpha_0))

    Parameters
    ----------
    logits : Tensor
        Logarithms of the Dirichlet's parameters ``[N, C]``.
    prior : Tensor
        The prior's parameters themselves, ``[N, C]`` or ``[C]``.
    """
    alpha, prior = logits.double().exp(), prior.double()
    surprise = torch.digamma(alpha) - torch.digamma(alpha.sum(dim=-1, keepdim=True))
    return _log_beta(prior) - _log_beta(alpha) + ((alpha - prior) * surprise).sum(dim=-1)


def _log_beta(alpha: Tensor) -> Tensor:
    return torch.lgamma(alpha).sum(dim=-1) - torch.lgamma(alpha.sum(dim=-1))
