"""Explanations of scores, as numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.detector.feature_range import FAR
from oddnode.detector.fitted import Calibration, FittedState
from oddnode.scoring import Comparison, Finding, Names, Outputs, View
from oddnode.scoring.reasons import by_score_alone

#: A kind of evidence is notable if at most a tenth of known nodes are as unusual: its least surprise.
NOTABLE = -math.log(0.1)
# How many kinds of evidence are put into words.
_MOST_KINDS = 2


class Explanation(NamedTuple):
    r"""Explanations of the scores of N nodes: ``score = own_score + neighbour_contribution``."""

    score: Tensor  #: Scores ``[N]``.
    own_score: Tensor  #: Scores ``[N]`` without the neighbours' contribution (`oddnode.Scorer.own_score`).
    #: The contribution of the neighbours' scores ``[N]``. It includes that of a prior, if the scorer has one
    #: (`oddnode.Propagated`).
    neighbour_contribution: Tensor
    nearest_class: Tensor  #: The training class whose mean logits are nearest to the node's ``[N]``.
    #: The strength of each of K kinds of evidence against a node, :math:`-\log p`, ``[N, K]``; K is 0 for a scorer that
    #: does not combine any. Its p-value ``exp(-evidence)`` is the share of known nodes that are as unusual, or the
    #: geometric mean over several networks.
    evidence: Tensor
    kinds: tuple[str, ...]  #: The names of the K kinds.

    def to(self, device: torch.device) -> Explanation:
        return self._replace(**{name: getattr(self, name).to(device) for name in self._fields if name != "kinds"})


def explain(state: FittedState, outputs: Outputs, score: Tensor) -> Explanation:
    """Explain the scores of all nodes of a graph."""
    if state.class_means is None:
        raise ValueError(
            "the nearest training class is unknown: this detector was wrapped without labelled training "
            "nodes of every class; pass Detector.wrap(module, data=...) a graph with train_mask and y"
        )
    own = state.scorer.own_score(outputs).detach()
    means = state.class_means.to(outputs.logits)
    nearest = outputs.graph.empty(None, torch.long)
    for rows in outputs.graph.shards(nearest):
        nearest[rows] = torch.cdist(outputs.logits[rows], means).argmin(dim=1)
    evidence = _mean_surprises(state.scorer.comparisons(outputs), score)
    score, own, nearest, evidence = (outputs.graph.own_copy(values) for values in (score, own, nearest, evidence))
    return Explanation(score, own, score - own, nearest, evidence, state.scorer.kinds)


def node_indices(nodes: Tensor | Sequence[int], num_nodes: int) -> Tensor:
    """Check the indices or the mask of nodes that a user gives, and return indices."""
    given = torch.as_tensor(nodes).cpu()
    if given.dtype == torch.bool and given.shape == (num_nodes,):
        return given.nonzero().squeeze(1)
    if given.dtype == torch.bool or (given.is_floating_point() and given.numel()) or given.dim() != 1:
        raise ValueError(
            f"nodes is {given.dtype} of shape {list(given.shape)}, expected indices [n], or a mask [{num_nodes}]"
        )
    if given.numel() and not 0 <= int(given.min()) <= int(given.max()) < num_nodes:
        raise ValueError(
            f"nodes has indices {int(given.min())}..{int(given.max())}, but the graph has only {num_nodes} nodes "
            f"(0..{num_nodes - 1})"
        )
    return given.long()


def reasons(
    state: FittedState, outputs: Outputs, nodes: Tensor, scores: Tensor, calibration: Calibration | None, names: Names
) -> list[str]:
    """Say in words why nodes have low scores."""
    comparisons = state.scorer.comparisons(outputs)
    far = set() if outputs.far is None else set(outputs.far.tolist())
    near = [node for node in nodes.tolist() if node not in far]
    if comparisons:
        sentences = dict(zip(near, _by_evidence(near, comparisons, state.scorer.kinds, outputs, names), strict=True))
    else:
        own = state.scorer.own_score(outputs).detach() if state.scorer.num_hops_used else None
        sentences = {node: _by_score(node, scores, own, calibration) for node in near}
    beyond = f"It has a feature of more than {FAR:.0f} times the largest magnitude in training."
    return [sentences.get(node, beyond) for node in nodes.tolist()]


def _by_evidence(
    nodes: list[int], comparisons: list[Comparison], kinds: tuple[str, ...], outputs: Outputs, names: Names
) -> Iterator[str]:
    """The sentences of the strongest kinds; for a subject at several ranges, only the shortest range."""
    indices, scorers = torch.tensor(nodes, dtype=torch.long, device=outputs.graph.device), comparisons[0].scorers
    contributions = torch.stack([each.contributions[indices] for each in comparisons]).mean(dim=0)
    strongest = contributions.argsort(dim=1, descending=True, stable=True).cpu()
    surprises = torch.stack([each.surprises[indices] for each in comparisons]).mean(dim=0).cpu()
    for node, ranked, surprise in zip(nodes, strongest.tolist(), surprises, strict=True):
        by_subject: dict[str, list[int]] = {}
        for k in (k for k in ranked if surprise[k] >= NOTABLE):
            by_subject.setdefault(kinds[k].partition(" around")[0], []).append(k)
        sentences = []
        for same in list(by_subject.values())[:_MOST_KINDS]:
            k = min(same, key=lambda k: scorers[k].num_hops_used)
            views = [View(c.scorers[k], c.outputs, float(c.scores[node, k]), c.reference[:, k]) for c in comparisons]
            sentences.append(scorers[k].reason(Finding(kinds[k], node, outputs, tuple(views), names)))
        yield " ".join(sentences) or "No kind of evidence is unusual by itself."


def _mean_surprises(comparisons: list[Comparison], like: Tensor) -> Tensor:
    """The mean over the networks ``[N, K]``; K is 0 without comparisons."""
    if not comparisons:
        return like.new_zeros(len(like), 0, dtype=torch.float64)
    if len(comparisons) == 1:
        return comparisons[0].surprises
    return torch.stack([each.surprises for each in comparisons]).mean(dim=0)


def _by_score(node: int, scores: Tensor, own: Tensor | None, calibration: Calibration | None) -> str:
    score = float(scores[node])
    share = None if calibration is None else float((calibration.scores > score).double().mean())
    return by_score_alone(score, None if own is None else float(own[node]), share)
