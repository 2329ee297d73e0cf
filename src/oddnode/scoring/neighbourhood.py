"""Scorers that compare a node's features and neighbourhood with those of the training graph, and with each other."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.functional import propagate
from oddnode.graph import Graph
from oddnode.scoring.base import Scorer
from oddnode.scoring.feature_space import FeatureSpace, transposed_features
from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import of_neighbours, share_of_known, told_apart

# Number of nodes that are compared with the training graph at a time, so that their similarities fit into the CPU
# cache, and the factor by which it is larger on a GPU.
_CHUNK, _MORE_ON_GPU = 1024, 64
# Number of columns that are averaged for a few nodes at a time.
_COLUMNS_AT_ONCE = 16
# The share of its own features that a node keeps in every hop.
_ETA = 0.5
# Smoothing: this many rows of average features are added to every class, so that no feature has probability 0.
_AVERAGE_ROWS = 10.0


@dataclass
class FeatureLikelihood(Scorer):
    r"""How well a node's features fit the class that they fit best.

    Features are taken as counts of words: :math:`\max_c \sum_j x_{vj} \log \pi_{cj} / \sum_j x_{vj}`, where
    :math:`\pi_{cj}` is the share of feature :math:`j` in the features of class :math:`c` in the training graph, mixed
    with a little of its share in all of them. Nodes without a label count for the class that the network predicts.
    A negative value counts as another word.

    Attributes
    ----------
    log_shares_ : Tensor
        The logarithms of the shares :math:`\pi`, ``[C, 2F]``: of positive values, then of negative ones.
    """

    uses_network = False
    is_row_wise = True

    log_shares_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        fitted = copy.copy(self)
        graph, classes = outputs.graph, outputs.logits.argmax(dim=1)
        classes[train] = y
        counts = torch.zeros(outputs.num_classes, 2 * graph.x.shape[1], dtype=torch.float64, device=graph.device)
        for rows in graph.row_slices():
            members = F.one_hot(classes[rows], outputs.num_classes).to(graph.x.dtype)
            if _are_counts(graph):
                counts[:, : graph.x.shape[1]] += transposed_features(graph, rows, members).t().double()
                continue
            x = graph.x[rows]
            counts += torch.cat([members.t() @ part for part in (x.clamp_min(0), (-x).clamp_min(0))], dim=1).double()
        average = counts.sum(dim=0) / graph.num_nodes
        smallest = average.sum().clamp_min(1e-12) / (1e3 * counts.shape[1])
        mixed = counts + _AVERAGE_ROWS * (average + smallest)
        fitted.log_shares_ = (mixed / mixed.sum(dim=1, keepdim=True)).log().to(graph.x.dtype)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        positive, negative = self.log_shares_.to(graph.x).chunk(2, dim=1)
        if _are_counts(graph):
            fit = graph.times_features(positive)
            size = graph.cached("feature_sums", lambda: graph.x.sum(dim=1), "features")
        else:
            fit = graph.x.clamp_min(0) @ positive.t() + (-graph.x).clamp_min(0) @ negative.t()
            size = graph.x.abs().sum(dim=1)
        # The best mean over a node's words; a node without any gets 0, the best of all.
        return fit.amax(dim=1) / size.clamp_min(torch.finfo(size.dtype).tiny).where(size > 0, torch.ones_like(size))

    def reason(self, found: Finding) -> str:
        whose, of = ("The features around it", "those around") if found.around else ("Its features", "those of")
        if len(self.log_shares_) == 1:
            return f"{whose} are uncommon: {of} {share_of_known(found.share)} are more common."
        return f"{whose} fit no class well: {of} {share_of_known(found.share)} fit one better."


def _are_counts(graph: Graph) -> bool:
    """Whether the features of a graph in memory have no negative value."""
    return not graph.is_on_disk and graph.cached("are_counts", lambda: bool(graph.x.amin() >= 0), "features")


@dataclass
class NeighbourhoodFeatures(Scorer):
    r"""How similar the features around a node are to those around nodes of the training graph.

    Features are coordinates in a space of ``dimensions`` (`oddnode.scoring.feature_space`), averaged over ``num_hops``
    hops as scores are, :math:`z \leftarrow \tfrac12 z + \tfrac12 D^{-1} A z`. The score is the mean cosine to the most
    similar of ``bank_size`` random nodes of the training graph, from the second to the ``k``-th: the first may be the
    node itself.

    Parameters
    ----------
    num_hops : int
        Number of hops; 0 for the node's own features.
    dimensions : int
        Number of dimensions of the space.
    k : int
        How many similar nodes to compare with, 2 or more.
    bank_size : int
        The number of nodes of the training graph to compare with, at most.

    Attributes
    ----------
    centre_, basis_ : Tensor
        The feature space, ``[F]`` and ``[F, D]``.
    bank_ : Tensor
        Averaged coordinates of nodes of the training graph, of unit length ``[n, D]``.
    """

    uses_network = False
    num_hops_used = 0
    kind = "neighbourhood"
    supports_folders = True
    is_shared = True

    num_hops: int = 2
    dimensions: int = 64
    k: int = 4
    bank_size: int = 512
    centre_: Tensor = field(init=False, repr=False, compare=False)
    basis_: Tensor = field(init=False, repr=False, compare=False)
    bank_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if self.k < 2 or self.bank_size < 2 or self.num_hops < 0:
            raise ValueError(
                f"k is {self.k}, bank_size {self.bank_size} and num_hops {self.num_hops}, expected 2, 2 and 0 or more"
            )
        graph = outputs.graph
        fitted = copy.copy(self)
        fitted.centre_, fitted.basis_ = FeatureSpace.of(graph, self.dimensions)
        order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
        chosen = order[: self.bank_size].to(graph.device)
        width, found = fitted.basis_.shape[1], []
        step = _COLUMNS_AT_ONCE if graph.is_on_disk else width  # averages of other nodes are discarded
        for first in range(0, width, step):
            space = FeatureSpace(fitted.centre_, fitted.basis_[:, first : first + step])
            coordinates = space.all_coordinates(graph, is_factor=True)
            found.append(propagate(coordinates, graph.random_walk, self.num_hops, _ETA)[chosen])
        fitted.bank_ = F.normalize(torch.cat(found, dim=1), dim=1)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        walk = graph.random_walk.with_self_loops_where_empty
        scores, bank = graph.empty(None), self.bank_.to(graph.x)
        coordinates = FeatureSpace(self.centre_, self.basis_).all_coordinates(graph, is_factor=True)
        step = _CHUNK if graph.device.type == "cpu" else _CHUNK * _MORE_ON_GPU
        means = graph.neighbour_means(coordinates, scores, walk, self.num_hops, _ETA, in_place=True)
        for rows, averages in means:
            found = []
            for chunk in averages.split(step):
                nearest = (F.normalize(chunk, dim=1) @ bank.t()).topk(min(self.k, len(bank)), dim=1).values
                found.append(nearest[:, min(1, len(bank) - 1) :].mean(dim=1))
            scores[rows] = torch.cat(found)
        return scores

    def reason(self, found: Finding) -> str:
        value, median = told_apart(found.value, found.median, fewest=2)
        where = "in the region around it" if found.around else "around it"
        return (
            f"The features {where} are unlike those in training: their cosine to the most similar ones there is "
            f"{value}, for known nodes {median} in the median."
        )


@dataclass
class ClassAgreement(Scorer):
    r"""How far a node's features and its neighbours suggest the same class.

    :math:`\frac{1}{d_v + 1} \left(m + \sum_{u \in N(v)} \sum_c p_v(c)\, q_u(c)\right)`, where :math:`q_u` are the
    network's probabilities for a neighbour and :math:`p_v` those for the node without its edges; :math:`m` is the mean
    over the edges of the training graph. With edge weights, the mean over a node's edges is weighted, and :math:`d_v`
    is the effective number of edges (`oddnode.graph.Graph.effective_degree`).

    Attributes
    ----------
    mean_ : Tensor
        The mean agreement over the edges of the training graph, a scalar.
    """

    supports_folders = True

    mean_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        fitted = copy.copy(self)
        total, degree = _agreement(outputs)
        fitted.mean_ = total.sum() / degree.sum().clamp_min(1)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        total, degree = _agreement(outputs)
        return (total + self.mean_.to(total)) / (degree + 1)

    def reason(self, found: Finding) -> str:
        own = int(found.outputs.without_edges.logits[found.node].argmax())
        classes = found.outputs.logits[found.links[0]].argmax(dim=1)
        other, name = classes != own, found.names.of_class
        if found.around or not len(classes):
            return super().reason(found)
        if not bool(other.any()):
            return f"Its features and its neighbours agree less on a class than those of {share_of_known(found.share)}."
        differing = classes[other].unique().tolist()
        predicted = name(differing[0]) if len(differing) == 1 else "other classes"
        return f"Its own features suggest {name(own)}, but {of_neighbours(found, other)} predicted as {predicted}."


def _agreement(outputs: Outputs) -> tuple[Tensor, Tensor]:
    """The agreement summed over every node's incoming edges ``[N]``, and their effective number ``[N]``."""
    graph = outputs.graph
    alone, num_classes = outputs.without_edges.all_logits, outputs.num_classes
    logits = outputs.all_logits
    around, agreement = graph.empty(num_classes, is_factor=True), graph.empty(None)
    for rows in graph.shards(around):
        around[rows] = _probabilities(logits[rows])[:, :num_classes]
    degree = graph.effective_degree.to(graph.x.dtype)
    for rows, near in graph.neighbour_means(around, agreement):
        own = _probabilities(alone[rows])[:, :num_classes]
        agreement[rows] = (own * near).sum(dim=1)
    return agreement * degree, degree


def _probabilities(logits: Tensor) -> Tensor:
    """The softmax ``[n, C]``, which for few classes is a quarter of the time of torch's on a CPU."""
    return (logits - logits.logsumexp(dim=1, keepdim=True)).exp()
