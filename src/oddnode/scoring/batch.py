"""The batch: what sets the new nodes of a graph apart from the known ones is evidence about each of them.

A classifier tells nodes of the training graph from reference nodes and new nodes *together* (AdaDetect, Marandon et
al. 2022). Reference nodes and known new nodes are on the same side, so they stay exchangeable, and ranks among the
reference nodes are honest although the new nodes were used. Unknown new nodes gather where the classifier finds more
nodes than the training graph has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.scoring.feature_space import FeatureSpace, row_sizes
from oddnode.scoring.outputs import Outputs

# At most this many nodes of the training graph, and of the new ones, are learnt from.
_MOST_OLD, _MOST_NEW = 4000, 20_000
# The ridge penalty, and the limit of standardised features; see docs/measurements/carry-over.md.
_PENALTY, _FARTHEST = 100.0, 5.0
# Larger surprises count as this much when the kinds of evidence are weighted by what they see in the batch.
_MOST_SURPRISE = 5.0
# What a kind of evidence keeps of its weight if it sees nothing, and how much it may see by chance.
_KEPT, _BY_CHANCE = 0.1, 0.3
#: With novelty, many new nodes still look known; with drift, fewer than this share is in the upper half of the ranks.
FEWEST_KNOWN = 0.2
#: The same where drift is to be expected. Half of all known new nodes are there, so that one in five may be unknown.
FEWEST_KNOWN_OVER_TIME = 0.4

#: Number of dimensions of the features that the classifier sees.
DIMENSIONS = 32
#: With fewer new nodes, a batch says too little.
FEWEST_NEW = 100


class Batch(NamedTuple):
    """The new nodes of a graph, and the nodes they are compared with."""

    old: Tensor  # Nodes of the training graph that are not reference nodes, a sample, `[o]`
    reference: Tensor  # `[r]`
    new: Tensor  # All new nodes `[n]`
    learnt_from: Tensor  # Whether a new node takes part in learning `[n]`

    @classmethod
    def of(cls, outputs: Outputs) -> Batch | None:
        """Find the batch in a graph; ``None`` if it has too few new nodes, or not the training graph."""
        reference, seen = outputs.reference, outputs.seen
        if reference is None or seen is None or not outputs.uses_batch:
            return None
        is_old = seen.clone()
        is_old[reference] = False
        new = ~seen
        new[reference] = False
        new, old = new.nonzero().squeeze(1), is_old.nonzero().squeeze(1)
        if len(new) < FEWEST_NEW or len(old) < FEWEST_NEW:
            return None
        generator = torch.Generator().manual_seed(0)
        chosen = torch.randperm(len(old), generator=generator)[:_MOST_OLD].to(old.device)
        order = torch.randperm(len(new), generator=generator).to(new.device)
        return cls(old[chosen], reference, new, order < _MOST_NEW)

    @property
    def judged(self) -> Tensor:
        """The reference nodes and the new nodes ``[r + n]``."""
        return torch.cat([self.reference, self.new])

    def scores(self, columns: Callable[[Tensor], Tensor], out: Tensor) -> Tensor:
        """Score all nodes of a graph, higher = more like the training graph.

        Every reference node and new node is judged by what was learnt from the others.

        Parameters
        ----------
        columns : callable
            The columns of some nodes ``[n, D]``, by their indices.
        out : Tensor
            Where the scores of reference nodes and new nodes are written ``[N]``.
        """
        is_learnt_from = torch.cat([torch.ones_like(self.reference, dtype=torch.bool), self.learnt_from])
        out[self.judged] = -_odds(columns(self.old).double(), columns(self.judged).double(), is_learnt_from)
        return out


def _odds(old: Tensor, judged: Tensor, is_learnt_from: Tensor) -> Tensor:
    """Ridge regression of -1 (old) and 1 (judged): leave-one-out predictions in closed form ``[n]``."""
    learnt = learn_batch(old, judged[is_learnt_from])
    judged = _standardised(judged, learnt.centre, learnt.scale)
    predicted, used = judged @ learnt.coefficients, judged[is_learnt_from]
    leverage = torch.linalg.solve_triangular(learnt.factor, used.t(), upper=False).square().sum(dim=0) * learnt.weight
    predicted[is_learnt_from] = (predicted[is_learnt_from] - leverage) / (1 - leverage)
    return predicted


class LearntBatch(NamedTuple):
    """A ridge regression on columns that are standardised by those of the old nodes."""

    centre: Tensor  # `[D]`
    scale: Tensor  # `[D]`
    coefficients: Tensor  # The last is the constant `[D + 1]`
    factor: Tensor  # The Cholesky factor of the penalised Gram matrix `[D + 1, D + 1]`
    weight: float  # That of a node that is not old


def learn_batch(old: Tensor, used: Tensor) -> LearntBatch:
    """Learn to tell old nodes ``[o, D]`` from others ``[n, D]``."""
    centre, scale = old.mean(dim=0), old.std(dim=0).clamp_min(1e-6)
    old, used = (_standardised(each, centre, scale) for each in (old, used))
    rows = torch.cat([old, used])
    y = torch.cat([-torch.ones_like(old[:, 0]), torch.ones_like(used[:, 0])])
    # Both sides have the same weight in total.
    weight = torch.where(y > 0, y.new_tensor(len(y) / (2 * len(used))), y.new_tensor(len(y) / (2 * len(old))))
    gram = (rows * weight.unsqueeze(1)).t() @ rows
    gram.diagonal().add_(_PENALTY)
    factor = torch.linalg.cholesky(gram)
    coefficients = torch.cholesky_solve((rows.t() @ (weight * y)).unsqueeze(1), factor).squeeze(1)
    return LearntBatch(centre, scale, coefficients, factor, float(weight[-1]))


def _standardised(rows: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    rows = ((rows - centre) / scale).clamp(-_FARTHEST, _FARTHEST)
    return torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)


def feature_columns(graph: Graph, space: FeatureSpace) -> Callable[[Tensor], Tensor]:
    """Columns of the features of nodes, of their neighbours and of those around them, and their sizes."""
    parts = [space.all_coordinates(graph, is_factor=True)]
    for _ in range(2):
        parts.append(means_around(graph, parts[-1]))

    def columns(nodes: Tensor) -> Tensor:
        squared, count = row_sizes(graph)[nodes].unbind(dim=1)
        sizes = torch.stack([graph.effective_degree[nodes].log1p().to(count), count.log1p(), squared.sqrt()], dim=1)
        return torch.cat([*(part[nodes] for part in parts), sizes.to(graph.x.dtype)], dim=1)

    return columns


def means_around(graph: Graph, values: Tensor) -> Tensor:
    """The means of some values over every node's neighbours ``[N, D]``."""
    means = graph.empty(values.shape[1], is_factor=True)
    for rows, near in graph.neighbour_means(values, means):
        means[rows] = near
    return means


def kind_columns(scores: Tensor, batch: Batch) -> Callable[[Tensor], Tensor]:
    """Columns of the scores by every kind ``[n, 2K]``: how far from usual, and how far on either side."""
    if not scores.shape[1]:
        return lambda nodes: scores.new_zeros(len(nodes), 1)
    judged = scores[torch.cat([batch.reference, batch.new[batch.learnt_from]])]
    low, middle, high = judged.quantile(judged.new_tensor([0.16, 0.5, 0.84]), dim=0)
    scale = ((high - low) / 2).clamp_min(1e-9)

    def columns(nodes: Tensor) -> Tensor:
        scaled = ((scores[nodes] - middle) / scale).clamp(-6.0, 6.0)
        return torch.cat([scaled, scaled.abs()], dim=1)

    return columns


def seen_in_batch(surprises: Tensor, reference: Tensor) -> Tensor:
    """How much every kind of evidence should weigh, by what it sees in a batch ``[K]``.

    Parameters
    ----------
    surprises : Tensor
        Of new nodes ``[n, K]``.
    reference : Tensor
        Of reference nodes ``[r, K]``.
    """
    seen, usual = (each.clamp_max(_MOST_SURPRISE).square().mean(dim=0) for each in (surprises, reference))
    return _KEPT + (seen / usual.clamp_min(1e-3) - 1 - _BY_CHANCE).clamp_min(0.0)


def looks_like_drift(surprises: Tensor, fewest: float) -> bool:
    """Whether too few new nodes look like a known one, by how unusual new nodes are ``[n]``."""
    return float((surprises < torch.tensor(2.0).log()).double().mean()) < fewest
