"""Scorers that compare a node and its surroundings with those of the training graph, and with each other."""

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
from oddnode.scoring.feature_space import FeatureSpace
from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import of_neighbours, share_of_known, told_apart

# Number of nodes that are compared with the training graph at a time, so that their similarities stay in the cache of a
# processor; on a GPU so many times more.
_CHUNK, _MORE_ON_GPU = 1024, 64
# Number of columns that are averaged for a few nodes at a time.
_COLUMNS_AT_ONCE = 16
# The share of its own features that a node keeps in every hop.
_ETA = 0.5


@dataclass
class NeighbourhoodFeatures(Scorer):
    r"""How alike the features around a node are to those around nodes of the training graph.

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

    num_hops_used = 0
    kind = "neighbourhood"
    supports_folders = True

    num_hops: int = 2
    dimensions: int = 128
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
        fitted.bank_ = F.normalize(fitted._averages_at(graph, chosen), dim=1)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        walk = graph.random_walk.with_self_loops_where_empty
        scores, coordinates = graph.empty(None), self._coordinates(graph)
        means = graph.neighbour_means(coordinates, scores, walk, self.num_hops, _ETA, in_place=True)
        for rows, averages in means:
            scores[rows] = self._similarities(averages)
        return scores

    def reason(self, found: Finding) -> str:
        value, median = told_apart(found.value, found.median, fewest=2)
        where = "in the region around it" if found.around else "around it"
        return (
            f"The features {where} are unlike those in training: their cosine to the most similar ones there is "
            f"{value}, for known nodes {median} in the median."
        )

    def _coordinates(self, graph: Graph, columns: slice = slice(None)) -> Tensor:
        space = FeatureSpace(self.centre_, self.basis_[:, columns])
        return space.all_coordinates(graph, is_factor=True)

    def _averages(self, graph: Graph, columns: slice = slice(None)) -> Tensor:
        return propagate(self._coordinates(graph, columns), graph.random_walk, self.num_hops, _ETA)

    def _averages_at(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Those of a few nodes ``[n, D]``."""
        if not graph.is_on_disk:
            return self._averages(graph)[nodes]
        found = []  # averages of other nodes are not kept, which takes less memory
        for first in range(0, self.basis_.shape[1], _COLUMNS_AT_ONCE):
            found.append(self._averages(graph, slice(first, first + _COLUMNS_AT_ONCE))[nodes])
        return torch.cat(found, dim=1)

    def _similarities(self, averages: Tensor) -> Tensor:
        step = _CHUNK if averages.device.type == "cpu" else _CHUNK * _MORE_ON_GPU
        return torch.cat([self._similarity(chunk) for chunk in averages.split(step)])

    def _similarity(self, averages: Tensor) -> Tensor:
        bank = self.bank_.to(averages)
        nearest = (F.normalize(averages, dim=1) @ bank.t()).topk(min(self.k, len(bank)), dim=1).values
        return nearest[:, min(1, len(bank) - 1) :].mean(dim=1)


@dataclass
class ClassAgreement(Scorer):
    r"""How far a node's own features and its neighbours speak for the same class.

    :math:`\frac{1}{d_v + 1} \left(m + \sum_{u \in N(v)} \sum_c p_v(c)\, q_u(c)\right)`, where :math:`q_u` are the
    network's probabilities at a neighbour and :math:`p_v` those at the node if it had no edges; :math:`m` is the mean
    over the edges of the training graph. With edge weights, the mean over a node's edges is weighted, and :math:`d_v`
    is how many equal edges it is worth (`oddnode.graph.Graph.effective_degree`).

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
    around = graph.by_rows(num_classes, lambda rows: logits[rows].softmax(dim=-1)[:, :num_classes], factor=True)
    agreement = graph.empty(None)
    degree = graph.effective_degree.to(graph.x.dtype)
    for rows, near in graph.neighbour_means(around, agreement):
        own = alone[rows].softmax(dim=-1)[:, :num_classes]
        agreement[rows] = (own * near).sum(dim=1)
    return agreement * degree, degree
