"""The losses of the methods, as pure functions of logits or energies.

Every function returns a scalar, is differentiable, and keeps the precision of its input.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_SMALLEST_SCALE = 1e-6


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    r"""Mean of :math:`\log \sum_c e^{z_{v,c}} - z_{v,y_v}` over the nodes.

    Like `torch.nn.functional.cross_entropy`, which launches many more kernels under ``torch.vmap`` on a GPU.

    Parameters
    ----------
    logits : Tensor
        Shape ``[N, C]``.
    y : Tensor
        Classes ``[N]``.
    """
    return -logits.log_softmax(dim=-1).gather(-1, y.unsqueeze(-1)).mean()


def dispersion(values: Tensor) -> Tensor:
    r"""Variance over absolute mean, :math:`\mathrm{var}(v) / |\mathrm{mean}(v)|`.

    The variance is unbiased. The mean only sets the scale: it has no gradient and is clamped at 1e-6. The absolute
    value is needed because a negative mean would turn the penalty into a reward.

    Parameters
    ----------
    values : Tensor
        One value per node ``[N]``, at least two.
    """
    if values.numel() < 2:
        raise ValueError(f"a variance needs at least two nodes, got {values.numel()}")
    variance, mean = torch.var_mean(values)
    return variance / mean.detach().abs().clamp_min(_SMALLEST_SCALE)


def bound_loss(logits: Tensor) -> Tensor:
    r"""The bound term: dispersion of the logit norms :math:`\lVert z_v \rVert_2` over the nodes.

    Equal norms put every negative energy between
    :math:`\log C - M/\sqrt{C}` and :math:`\log C + M`, so no node can be extreme.

    Parameters
    ----------
    logits : Tensor
        Shape ``[N, C]``.

    Examples
    --------
    >>> bound_loss(torch.tensor([[3.0, 4.0], [0.0, 5.0]]))  # both of norm 5
    tensor(0.)
    """
    return dispersion(torch.linalg.vector_norm(logits, dim=-1))


def uniform_loss(logits: Tensor) -> Tensor:
    r"""The uniform term: dispersion of the logit sums :math:`\sum_c z_{v,c}` over the nodes.

    It penalises a shift of all logits of a node by a constant, to which classification losses are invariant.

    Parameters
    ----------
    logits : Tensor
        Shape ``[N, C]``.

    Examples
    --------
    >>> uniform_loss(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))  # sums 3 and 5: variance 2, mean 4
    tensor(0.5000)
    """
    return dispersion(logits.sum(dim=-1))


def energy_hinge_loss(energy_in: Tensor, energy_out: Tensor, m_in: float | Tensor, m_out: float | Tensor) -> Tensor:
    r"""Squared hinges that pull ID energies below ``m_in`` and push OOD energies above ``m_out``.

    :math:`\mathrm{mean}\,\max(0, E_{in} - m_{in})^2 + \mathrm{mean}\,\max(0, m_{out} - E_{out})^2`, two separate
    means. Energies, not negative energies.

    Parameters
    ----------
    energy_in, energy_out : Tensor
        Energies of the ID nodes ``[N]`` and of the OOD nodes ``[M]``.
    m_in, m_out : float or Tensor
        The margins.

    Examples
    --------
    >>> energy_hinge_loss(torch.tensor([-4.0, -6.0]), torch.tensor([-3.0]), m_in=-5, m_out=-1)
    tensor(4.5000)
    """
    inside = F.relu(energy_in - m_in).square().mean()
    outside = F.relu(m_out - energy_out).square().mean()
    return inside + outside


def logit_norm_loss(logits: Tensor, y: Tensor, tau: float) -> Tensor:
    r"""Cross-entropy of :math:`z / (\tau \lVert z \rVert_2)` (LogitNorm, Wei et al., ICML 2022).

    Parameters
    ----------
    logits : Tensor
        Shape ``[N, C]``.
    y : Tensor
        Classes ``[N]``.
    tau : float
        The temperature, positive.
    """
    if tau <= 0:
        raise ValueError(f"tau is {tau}, expected a positive number")
    norm = torch.linalg.vector_norm(logits, dim=-1, keepdim=True).clamp_min(1e-7)
    return cross_entropy(logits / (tau * norm), y)


def outlier_exposure_loss(logits_out: Tensor) -> Tensor:
    r"""Cross-entropy of OOD nodes against the uniform distribution (Hendrycks et al., ICLR 2019).

    :math:`\mathrm{mean}_v (\log \sum_c e^{z_{v,c}} - \mathrm{mean}_c z_{v,c})`.

    Parameters
    ----------
    logits_out : Tensor
        Logits of the OOD nodes ``[M, C]``.
    """
    return (torch.logsumexp(logits_out, dim=-1) - logits_out.mean(dim=-1)).mean()
