"""Scorers that compare a node's hidden features with those of the labelled training nodes."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known

# Number of nodes that are compared with the training nodes at a time; limits the memory of the distances.
_CHUNK = 4096
# Squared distances up to this are zero but for rounding.
_ROUNDING = 1e-14


@dataclass
class Mahalanobis(Scorer):
    r"""Minus the squared distance to the nearest class mean (Lee et al., NeurIPS 2018).

    :math:`-\min_c (h_v - \mu_c)^\top \Sigma^{-1} (h_v - \mu_c)`, with class means :math:`\mu_c` and one covariance
    :math:`\Sigma` of the training nodes' deviations from their class's mean.

    Parameters
    ----------
    shrinkage : float
        Share of the covariance replaced by a multiple of the identity with the same trace, from 0 to 1. With fewer
        training nodes than channels, which is common, the covariance is singular, and its pseudo-inverse (used at 0)
        ignores all directions in which the training nodes do not vary.

    Attributes
    ----------
    means_ : Tensor
        Class means ``[C, H]``, in double precision.
    precision_ : Tensor
        The inverse of the covariance ``[H, H]``.
    """

    is_row_wise = True
    kind = "hidden distance"

    shrinkage: float = 0.01
    means_: Tensor = field(init=False, repr=False, compare=False)
    precision_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if not 0.0 <= self.shrinkage <= 1.0:
            raise ValueError(f"shrinkage is {self.shrinkage}, expected a share from 0 to 1")
        fitted = copy.copy(self)
        hidden = outputs.hidden_of(train).double()
        fitted.means_ = torch.stack([hidden[y == c].mean(dim=0) for c in range(outputs.num_classes)])
        deviations = hidden - fitted.means_[y]
        covariance = deviations.T @ deviations / len(hidden)
        scale = covariance.diagonal().mean()
        identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
        covariance = (1 - self.shrinkage) * covariance + self.shrinkage * scale * identity
        fitted.precision_ = torch.linalg.pinv(covariance, hermitian=True)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        device, chunks = outputs.hidden.device, []
        precision, means = self.precision_.to(device), self.means_.to(device)
        of_means = (means @ precision * means).sum(dim=1)
        for hidden in outputs.hidden.split(_CHUNK):
            # (h - m)^T P (h - m) = h^T P h - 2 m^T P h + m^T P m: one product with P for all classes.
            rows = hidden.double()
            weighted = rows @ precision
            nearest = torch.addmm(of_means, weighted, means.t(), alpha=-2).amin(dim=1)
            chunks.append(-((weighted * rows).sum(dim=1) + nearest))
        return torch.cat(chunks).to(outputs.hidden.dtype)

    def reason(self, found: Finding) -> str:
        if found.around or found.median >= 0.0:
            return super().reason(found)
        ratio = math.sqrt(max(0.0, found.value / found.median))
        only = "only " if found.is_high else ""
        return (
            f"Its hidden features are {only}{ratio:.3g} times as far from the nearest class as those of known nodes in "
            "the median."
        )


@dataclass
class KNN(Scorer):
    r"""Minus the distance to the k-th nearest training node (Sun et al., ICML 2022).

    :math:`-\lVert \hat h_v - \hat h_{(k)} \rVert_2` between hidden features of unit length,
    :math:`\hat h = h / \lVert h \rVert_2`.

    Parameters
    ----------
    k : int
        Which neighbour; at most the number of training nodes.

    Attributes
    ----------
    bank_ : Tensor
        Features of the training nodes, of unit length ``[n, H]``.
    """

    is_row_wise = True

    k: int = 1
    bank_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if not 1 <= self.k <= len(train):
            raise ValueError(f"k is {self.k}, expected 1..{len(train)} (the number of training nodes)")
        fitted = copy.copy(self)
        fitted.bank_ = F.normalize(outputs.hidden_of(train), dim=1)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        bank, chunks = self.bank_.to(outputs.hidden.device).double(), []
        of_bank = bank.square().sum(dim=1)
        for hidden in outputs.hidden.split(_CHUNK):
            # In double precision, because single precision loses small distances, which matter most.
            unit = F.normalize(hidden, dim=1).double()
            rest = torch.addmm(of_bank, unit, bank.t(), alpha=-2)  # squared distances but for the unit row
            rest = rest.amin(dim=1) if self.k == 1 else rest.kthvalue(self.k, dim=1).values
            squares = unit.square().sum(dim=1) + rest
            chunks.append(-squares.where(squares > _ROUNDING, 0.0).sqrt())
        return torch.cat(chunks).to(outputs.hidden.dtype)

    def reason(self, found: Finding) -> str:
        if found.around:
            return super().reason(found)
        return f"Its hidden features are farther from any training node than those of {share_of_known(found.share)}."
