"""Rehearsal: reference nodes are altered in many ways, to learn which evidence tells them from unaltered ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.graph.alterations import ALTERATIONS
from oddnode.graph.graph import feature_checksums
from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known

# Larger surprises count as this much, so that a few nodes do not decide.
_MOST_SURPRISE = 12.0
# Squares are about as large as the surprises themselves for a p-value of 0.7 %.
_SQUARES = 0.2
# The ridge penalty of the logistic regression is 1 / (2 C); see docs/measurements/carry-over.md.
_C = 0.03
_STEPS = 25
# With fewer altered nodes in a half, nothing is learnt.
_FEWEST = 8
# Graphs on disk with more edges and features are not read into memory for a rehearsal.
_LARGEST_COPIED = 2**26
#: With fewer reference nodes, nothing is rehearsed.
FEWEST_REHEARSED = 19


class Altered(NamedTuple):
    """A graph in which some reference nodes are altered."""

    graph: Graph
    nodes: Tensor  # The altered nodes `[n]`
    kinds: Tensor  # The index of each one's alteration `[n]`


class Rehearsed(NamedTuple):
    """Known and altered nodes of all networks, by the surprises of K kinds of evidence.

    ``kinds`` has the index of a node's alteration, -1 for unaltered nodes; ``folds`` the half that a node is in.
    """

    surprises: Tensor  # `[n, K]`
    kinds: Tensor  # `[n]`
    folds: Tensor  # `[n]`


class RehearsalEvidence(Scorer):
    """The kind of evidence that rehearsal learns: how far the others, taken together, look like an altered node's."""

    kind = "rehearsal"

    def reason(self, found: Finding) -> str:
        """Say that the other kinds of evidence are like those of altered nodes."""
        share = share_of_known(found.share)
        return f"Taken together, this is more like nodes that were altered in rehearsal than {share} are."


def alterations_for(graph: Graph, num_classes: int, left_out: Sequence[str]) -> list[str]:
    """Name the alterations that can be rehearsed on a graph, given the number of classes that are predicted there.

    There is none for a large graph on disk, which is not copied.
    """
    if graph.is_on_disk and graph.num_edges + graph.x.numel() > _LARGEST_COPIED:
        return []
    return [
        name
        for name, each in ALTERATIONS.items()
        if each.is_rehearsed
        and name not in left_out
        and (graph.is_symmetric or not each.moves_edges)
        and (num_classes > 1 or not each.needs_classes)
    ]


def altered_graphs(outputs: Sequence[Outputs], names: Sequence[str]) -> Iterator[Altered]:
    """Alter one part of all reference nodes of a training graph after another, each node in one of several ways.

    At a time as many as half of one network's: more altered nodes would make unaltered ones around them look unusual.

    Parameters
    ----------
    outputs : sequence of Outputs
        The outputs of every network on the training graph, with reference nodes; classes are those that the first
        network predicts.
    names : sequence of str
        The alterations.
    """
    graph, references = outputs[0].graph, [own.reference for own in outputs if own.reference is not None]
    rng = np.random.default_rng([0, 1])
    order = torch.from_numpy(rng.permutation(torch.cat(references).unique().cpu().numpy()))
    num_parts = 2 * round(len(order) / len(references[0]))
    edge_index, edge_weight = graph.sorted_edges()
    data = SimpleNamespace(
        x=graph.x[:].cpu(),
        edge_index=edge_index,
        edge_weight=edge_weight,
        y=outputs[0].logits.argmax(dim=1).cpu(),
        num_nodes=graph.num_nodes,
    )
    for first in range(num_parts):
        yield _altered(graph, data, order[first::num_parts], names, rng)


def _altered(graph: Graph, data: Any, nodes: Tensor, names: Sequence[str], rng: np.random.Generator) -> Altered:
    kinds, x, changed = torch.arange(len(nodes)) % len(names), data.x.clone(), copy.copy(data)
    for index, name in enumerate(names):
        own = nodes[kinds == index]
        rows, edge_index, edge_weight = ALTERATIONS[name].alter(changed, own, rng) if len(own) else (None,) * 3
        if rows is not None:
            x[own] = rows
        if edge_index is not None:
            changed.edge_index, changed.edge_weight = edge_index, edge_weight
    weight = None if changed.edge_weight is None else changed.edge_weight.to(graph.device)
    altered = Graph(x.to(graph.device), changed.edge_index.to(graph.device), weight)
    return Altered(altered, nodes.to(graph.device), kinds.to(graph.device))


def fold_of(x: Tensor) -> Tensor:
    """Divide nodes into two halves by their features, so that a node is in the same half in every graph.

    Parameters
    ----------
    x : Tensor
        Features ``[n, F]``.
    """
    return ((1e4 * feature_checksums(x)).frac().abs() >= 0.5).long()


def learn(rehearsed: Rehearsed) -> Tensor | None:
    """Learn to tell altered nodes from unaltered ones, each half from the other.

    Parameters
    ----------
    rehearsed : Rehearsed
        The nodes.

    Returns
    -------
    Tensor or None
        The coefficients of two logistic regressions on surprises and their squares ``[2, 2K + 1]``; the first has
        learnt from nodes in the second half only, and is for those in the first. ``None`` if there are too few.
    """
    features, is_altered = _features(rehearsed.surprises), rehearsed.kinds >= 0
    found = []
    for fold in range(2):
        other = rehearsed.folds != fold
        if min(int((other & is_altered).sum()), int((other & ~is_altered).sum())) < _FEWEST:
            return None
        found.append(_logistic_regression(features[other], is_altered[other]))
    return torch.stack(found)


def odds(coefficients: Tensor, surprises: Tensor, folds: Tensor | None = None) -> Tensor:
    """Compute the log-odds that nodes are altered ``[n]``.

    Parameters
    ----------
    coefficients : Tensor
        From `learn`.
    surprises : Tensor
        Surprises ``[n, K]``.
    folds : Tensor, optional
        The half of every node, so that nothing that was learnt from a node is used for it; by default the mean of both.
    """
    both = _features(surprises) @ coefficients.to(surprises).t()
    return both.mean(dim=1) if folds is None else both.gather(1, folds.unsqueeze(1)).squeeze(1)


def _features(surprises: Tensor) -> Tensor:
    limited = surprises.clamp_max(_MOST_SURPRISE)
    return torch.cat([limited, _SQUARES * limited.square(), torch.ones_like(limited[:, :1])], dim=1)


def _logistic_regression(features: Tensor, is_one: Tensor) -> Tensor:
    """Newton's method; both classes have the same weight, and the last feature, the constant, no penalty."""
    y, count = is_one.double(), int((~is_one).sum())
    weight = torch.where(is_one, count / is_one.sum(), torch.ones_like(y))
    penalty = torch.full_like(features[0], 1.0 / _C)
    penalty[-1] = 1e-6
    found = torch.zeros_like(features[0])
    for _ in range(_STEPS):
        p = (features @ found).sigmoid()
        gradient = features.t() @ (weight * (p - y)) + penalty * found
        curvature = (features * (weight * p * (1 - p)).unsqueeze(1)).t() @ features + penalty.diag()
        found = found - torch.linalg.solve(curvature, gradient)
    return found
