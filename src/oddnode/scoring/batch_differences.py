r"""What sets the new nodes of a batch apart, as its classifier sees it: features, classes of neighbours, and sizes.

The classifier is linear in projected features, so its weights can be turned back. With :math:`a` its weights of a
node's own features, feature :math:`j` makes up :math:`a_j (\\bar u_j^{new} - \\bar u_j^{known})` of the mean difference
between its predictions for new and for known nodes, where :math:`u` are the centred rows of unit length. What it sees
around a node is a mean over the neighbours; how much of that the classes of the neighbours make up follows from the
mean value of a neighbour of each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.graph import Graph
from oddnode.scoring.base import Scorer
from oddnode.scoring.batch import Batch, feature_columns, learn_batch, means_around
from oddnode.scoring.feature_space import FeatureSpace
from oddnode.scoring.findings import Comparison, Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known

# So many differences are told, if new and known nodes differ by this many standard errors.
_MOST, _ERRORS = 3, 3.0
# Rows that are made dense at a time.
_ROWS = 1024


@dataclass(frozen=True)
class BatchDifference:
    """One way in which the new nodes of a graph differ from the known ones."""

    #: What differs: a feature, the share of a node's neighbours that are predicted as a class, the number of edges, or
    #: the number of features that are not 0.
    kind: Literal["feature", "class", "edges", "features"]
    number: int  #: The feature or the class; 0 for the numbers of edges and features.
    #: `new`, `known`: its mean over the new nodes, and over the known ones: nodes of the training graph that are not
    #: reference nodes.
    new: float
    known: float
    #: How much of the difference between new and known nodes that the batch's classifier sees it makes up.
    share: float

    def has(self, value: float) -> bool:
        """Whether a node differs from the known ones in the same direction.

        Parameters
        ----------
        value : float
            What the node has of it.
        """
        return value > self.known if self.new > self.known else value < self.known


@dataclass(eq=False)
class FeatureBatchEvidence(Scorer):
    """The kind of evidence that the features of a batch are."""

    kind = "batch"
    space: FeatureSpace | None = None

    def reason(self, found: Finding) -> str:
        """Say that the node is where new nodes gather, and what sets these apart."""
        text = "Its features and those around it are more common among the new nodes than those of "
        text += share_of_known(found.share)
        told = found.outputs.cached(found.outputs.module, "batch differences", partial(_of_views, found))
        if not told.differences:
            return f"{text}."
        names = [found.names.of_difference(each.kind, each.number, each.new > each.known) for each in told.differences]
        has = [each.has(told.value(each, found.node)) for each in told.differences]
        every = ("so does this node", "this node has both", "this node has all three")[len(names) - 1]
        own = _listed([name for name, own in zip(names, has, strict=True) if own]) or "none of this by itself"
        return f"{text}. The new nodes have {_listed(names)}; {every if all(has) else f'this node has {own}'}."


class KindBatchEvidence(Scorer):
    """The kind of evidence that the other kinds are, compared over a batch."""

    kind = "batch evidence"

    def reason(self, found: Finding) -> str:
        """Say that what is unusual about the node is unusual about many new nodes."""
        share = share_of_known(found.share)
        return f"What is unusual about it is more common among the new nodes than what is unusual about {share}."


class ToldDifferences(NamedTuple):
    """The differences of a batch that are told, and what is needed to say which of them a node has."""

    differences: tuple[BatchDifference, ...]
    graph: Graph
    class_shares: Tensor  # The shares of every node's neighbours by predicted class `[N, C]`

    def value(self, difference: BatchDifference, node: int) -> float:
        """What a node has of something that differs."""
        if difference.kind == "class":
            return float(self.class_shares[node, difference.number])
        row = self.graph.x[torch.tensor([node], device=self.graph.device)][0]
        if difference.kind == "edges":
            return float(self.graph.effective_degree[node])
        return float(row[difference.number] if difference.kind == "feature" else torch.count_nonzero(row))


def batch_differences(comparisons: Sequence[Comparison], outputs: Outputs) -> tuple[BatchDifference, ...]:
    """Find what sets the new nodes of a graph apart, the most telling first; nothing if there is no batch.

    Parameters
    ----------
    comparisons : sequence of Comparison
        All kinds of evidence, for each network.
    outputs : Outputs
        The outputs of the network, or of the ensemble.
    """
    members = [(each.outputs, own) for each in comparisons for own in each.scorers]
    return _told([(own, each) for own, each in members if isinstance(each, FeatureBatchEvidence)], outputs).differences


def _of_views(found: Finding) -> ToldDifferences:
    return _told([(view.outputs, view.scorer) for view in found.views], found.outputs)


class _Sides(NamedTuple):
    """Means over new and known nodes, their standard error, and the shares that they make up, ``[F + C + 2]`` each."""

    new: Tensor
    known: Tensor
    error: Tensor
    share: Tensor


def _told(members: Sequence[tuple[Outputs, FeatureBatchEvidence]], outputs: Outputs) -> ToldDifferences:
    """The mean over the networks, whose known nodes differ."""
    graph, classes = outputs.graph, outputs.logits.argmax(dim=1)
    one_hot = F.one_hot(classes, outputs.num_classes).to(graph.x.dtype)
    class_shares = means_around(graph, one_hot)
    sides = []
    for own, scorer in members:
        batch = Batch.of(own)
        if batch is not None and scorer.space is not None:
            sides.append(_sides(graph, scorer.space, batch, classes, class_shares))
    if not sides:
        return ToldDifferences((), graph, class_shares)
    new, known, error, share = (torch.stack(each).mean(dim=0) for each in zip(*sides, strict=True))
    is_clear = (new - known).abs() > _ERRORS * error
    chosen = (share * is_clear).argsort(descending=True, stable=True)[:_MOST].tolist()
    width = graph.x.shape[1]
    made = []
    for place in chosen:
        if share[place] > 0 and is_clear[place]:
            kind, number = ("feature", place) if place < width else ("class", place - width)
            if place >= width + outputs.num_classes:
                kind, number = ("edges", "features")[place - width - outputs.num_classes], 0
            numbers = float(new[place]), float(known[place]), float(share[place])
            made.append(BatchDifference(kind, number, *numbers))  # type: ignore[arg-type]
    return ToldDifferences(tuple(made), graph, class_shares)


def _sides(graph: Graph, space: FeatureSpace, batch: Batch, classes: Tensor, class_shares: Tensor) -> _Sides:
    columns, chosen = feature_columns(graph, space), batch.new[batch.learnt_from]
    old, new = columns(batch.old).double(), columns(chosen).double()
    learnt = learn_batch(old, torch.cat([columns(batch.reference).double(), new]))
    weights, moved = learnt.coefficients[:-1] / learnt.scale, new.mean(dim=0) - old.mean(dim=0)
    parts = weights[:-3].chunk(3)  # of the node's own coordinates, of those of its neighbours, and of those around
    rows, before = (_Moments.of(lambda nodes: _rows(graph, space, nodes), each) for each in (chosen, batch.old))
    width = graph.x.shape[1]
    by_feature = (space.basis.to(weights) @ parts[0]) * (rows.mean - before.mean)[width:]
    # What the classifier sees around a node is the mean of this over its neighbours.
    value = old[:, : len(parts[0])] @ parts[1] + old[:, len(parts[0]) : 2 * len(parts[0])] @ parts[2]
    shares = [_Moments.of(lambda nodes: class_shares[nodes].double(), each) for each in (chosen, batch.old)]
    count = torch.bincount(classes[batch.old], minlength=class_shares.shape[1]).to(value)
    by_class = torch.zeros_like(count).index_add_(0, classes[batch.old], value) / count.clamp_min(1)
    usual = value.mean()
    by_class = torch.where(count > 0, by_class - usual, 0.0) * (shares[0].mean - shares[1].mean)
    sizes = [_Moments.of(lambda nodes: _sizes(graph, nodes), each) for each in (chosen, batch.old)]
    share = torch.cat([by_feature, by_class, (weights * moved)[-3:-1]]) / (weights @ moved)
    means = [torch.cat([x.mean[:width], s.mean, z.mean]) for x, s, z in zip((rows, before), shares, sizes, strict=True)]
    errors = [
        torch.cat([x.error[:width], s.error, z.error]) for x, s, z in zip((rows, before), shares, sizes, strict=True)
    ]
    # A feature can be larger on average and yet take a smaller part of the rows; that is no difference to tell.
    is_same = torch.ones_like(share, dtype=torch.bool)
    is_same[:width] = (rows.mean - before.mean)[:width].sign() == (rows.mean - before.mean)[width:].sign()
    return _Sides(means[0], means[1], errors[0] + errors[1], share * is_same)


class _Moments(NamedTuple):
    """The means of some values over nodes, and their standard errors ``[D]``."""

    mean: Tensor
    error: Tensor

    @classmethod
    def of(cls, values: object, nodes: Tensor) -> _Moments:
        total = squares = torch.zeros((), dtype=torch.float64)
        for part in nodes.split(_ROWS):
            found = values(part)  # type: ignore[operator]
            total, squares = total + found.sum(dim=0), squares + found.square().sum(dim=0)
        mean = total / len(nodes)
        return cls(mean, ((squares / len(nodes) - mean.square()).clamp_min(0) / len(nodes)).sqrt())


def _rows(graph: Graph, space: FeatureSpace, nodes: Tensor) -> Tensor:
    """Features as they are, and as the classifier sees them ``[n, 2F]``."""
    return torch.cat([graph.x[nodes].double(), space.centred(graph, nodes)], dim=1)


def _sizes(graph: Graph, nodes: Tensor) -> Tensor:
    return torch.stack([graph.effective_degree[nodes], torch.count_nonzero(graph.x[nodes], dim=1)], dim=1).double()


def _listed(names: Sequence[str]) -> str:
    """Such as "more of `price` and fewer links to kitchen"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
