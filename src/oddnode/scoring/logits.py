"""Scorers that read the logits: the highest probability or logit, ODIN, and the energy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oddnode.functional import negative_energy
from oddnode.nn import run_backbone
from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known, told_apart


@dataclass
class MaxSoftmax(Scorer):
    """The highest class probability (MSP; Hendrycks and Gimpel, ICLR 2017).

    Spare logits are part of the softmax, but are never predicted. Without them, a single ID class would have
    probability one everywhere.
    """

    is_row_wise = True
    supports_export = True
    kind = "confidence"

    def score(self, outputs: Outputs) -> Tensor:
        return _confidence(outputs.all_logits, outputs.num_classes).exp()

    def reason(self, found: Finding) -> str:
        value, median = told_apart(100 * found.value, 100 * found.median)
        sure = "unusually sure" if found.is_high else "unsure"
        if found.around:
            return (
                f"Around it the classifier is {sure}: the highest probability is {value} % on average, around known "
                f"nodes {median} % in the median."
            )
        return (
            f"The classifier is {sure} of it: its highest probability is {value} %, that of known nodes {median} % in "
            "the median."
        )


@dataclass
class MaxLogit(Scorer):
    """The highest logit of an ID class (Hendrycks et al., ICML 2022)."""

    supports_export = True
    is_row_wise = True

    def score(self, outputs: Outputs) -> Tensor:
        return outputs.logits.amax(dim=-1)


@dataclass
class ODIN(Scorer):
    r"""Temperature scaling and a small step on the input (Liang et al., ICLR 2018).

    :math:`\max_c \mathrm{softmax}_c(z(\tilde x) / T)` with
    :math:`\tilde x = x - \varepsilon\, \mathrm{sign}(-\nabla_x \sum_v \log \max_c \mathrm{softmax}_c(z_v(x) / T))`:
    every feature takes a step that makes the predictions more confident, which affects ID nodes more than OOD nodes.

    In a graph, the features of a node also affect the predictions of its neighbours, so one joint step is taken for
    all nodes. Spare logits are part of the softmax as in `MaxSoftmax`.

    Parameters
    ----------
    temperature : float
        T, above 0. At high temperatures all logits matter, not only the two highest.
    epsilon : float
        Size of the step on every feature; 0 for none.
    """

    is_local = False

    temperature: float = 5.0
    epsilon: float = 0.0001

    def score(self, outputs: Outputs) -> Tensor:
        if self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature}, expected a number above 0")
        if self.epsilon == 0:
            return _confidence(outputs.all_logits / self.temperature, outputs.num_classes).exp()
        graph = outputs.graph
        moved = graph.with_features(graph.x + self.epsilon * self._gradient(outputs).sign())
        with torch.no_grad():
            logits = run_backbone(outputs.module, moved)
        return _confidence(logits / self.temperature, outputs.num_classes).exp()

    def _gradient(self, outputs: Outputs) -> Tensor:
        """The gradient of the summed log confidence of all nodes with respect to the features."""
        x = outputs.graph.x.detach().clone().requires_grad_()
        with torch.enable_grad():
            logits = run_backbone(outputs.module, outputs.graph.with_features(x))
            confidence = _confidence(logits / self.temperature, outputs.num_classes)
            [gradient] = torch.autograd.grad(confidence.sum(), x)
        return gradient


def _confidence(logits: Tensor, num_classes: int) -> Tensor:
    """The log of the highest probability of an ID class; spare logits are part of the softmax."""
    return logits[:, :num_classes].amax(dim=-1) - logits.logsumexp(dim=-1)


@dataclass
class Energy(Scorer):
    r"""The negative energy over the ID classes (Liu et al., NeurIPS 2020).

    With ``centred``, the mean logit of a node is subtracted first, :math:`\log \sum_{c \in ID} e^{z_c - \bar z}`. A
    shift of all logits, to which classification losses are invariant, then does not change the score: what NODESAFE's
    uniform term encourages at the training nodes holds at every scored node.

    Parameters
    ----------
    centred : bool
        Whether to subtract the mean logit.
    """

    supports_export = True
    is_row_wise = True

    centred: bool = False

    @property
    def needs_raw_logits(self) -> bool:  # type: ignore[override]
        """True unless centred: the energy of log-probabilities is 0 at every node."""
        return not self.centred

    def score(self, outputs: Outputs) -> Tensor:
        score = negative_energy(outputs.logits)
        return score - outputs.all_logits.mean(dim=-1) if self.centred else score

    def reason(self, found: Finding) -> str:
        if found.around:
            return super().reason(found)
        how = "more" if found.is_high else "less"
        return f"The network responds to it {how} strongly than to {share_of_known(found.share)}."
