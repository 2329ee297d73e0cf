"""Model-free scores, the baselines in every table: a method that loses to them has learnt nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.scoring.base import Scorer
from oddnode.scoring.feature_space import row_sizes
from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs

# With fewer values among the reference nodes, the smallest difference, such as an empty cell, would look rare.
_FEWEST_VALUES = 5


@dataclass
class _OfFeatures(Scorer):
    """Base of scorers that count or add up a node's features.

    They are evidence only if they have at least five values among the reference nodes.

    Parameters
    ----------
    features : tuple of bool, optional
        Which features to use ``[F]``; by default all.
    """

    uses_network = False
    features: tuple[bool, ...] | None = None

    def _used(self, outputs: Outputs) -> Tensor:
        x = outputs.graph.x
        return x if self.features is None else x[:, torch.tensor(self.features, device=x.device)]

    def informativeness(self, outputs: Outputs) -> float:
        known = outputs.scores_of(self)
        known = known if outputs.reference is None else known[outputs.reference]
        return float(len(known.unique()) >= _FEWEST_VALUES)


@dataclass
class NonZeros(_OfFeatures):
    """Minus the number of a node's non-zero features: a mixture of two bags of words has more words than either.

    Parameters
    ----------
    features : tuple of bool, optional
        Which features to count ``[F]``; by default all.
    """

    is_row_wise = True
    is_shared = True
    kind = "number of features"

    def score(self, outputs: Outputs) -> Tensor:
        x = self._used(outputs)
        if self.features is None:
            return -row_sizes(outputs.graph)[:, 1].to(x.dtype)
        return -torch.linalg.vector_norm(x, ord=0, dim=1)

    def reading(self, counts: tuple[bool, ...], numbers: tuple[bool, ...]) -> Self:
        return replace(self, features=counts)

    def reason(self, found: Finding) -> str:
        if found.around:
            return super().reason(found)
        low, high = found.known_range()
        return f"It has {-found.value:.0f} non-zero features; 95 % of known nodes have {-high:.0f} to {-low:.0f}."


@dataclass
class FeatureSum(_OfFeatures):
    """The sum of a node's features: the number of words in a bag of words.

    Parameters
    ----------
    features : tuple of bool, optional
        Which features to add up ``[F]``; by default all.
    """

    is_row_wise = True
    is_shared = True
    kind = "sum of features"

    def score(self, outputs: Outputs) -> Tensor:
        return self._used(outputs).sum(dim=1)

    def reading(self, counts: tuple[bool, ...], numbers: tuple[bool, ...]) -> Self:
        return replace(self, features=numbers)

    def reason(self, found: Finding) -> str:
        if found.around:
            return super().reason(found)
        low, high = found.known_range()
        known = f"those of 95 % of known nodes to between {low:.4g} and {high:.4g}"
        return f"Its features sum to {found.value:.4g}; {known}."


@dataclass
class Degree(Scorer):
    """The number of edges that lead to a node, or the sum of their weights."""

    uses_network = False
    supports_folders = True
    is_shared = True

    def score(self, outputs: Outputs) -> Tensor:
        return outputs.graph.in_degree.to(outputs.graph.x.dtype)

    def reason(self, found: Finding) -> str:
        if found.around:
            return super().reason(found)
        low, high = found.known_range()
        links = "link" if found.value == 1 else "links"
        return f"It has {found.value:g} {links}; 95 % of known nodes have {low:g} to {high:g}."


@dataclass
class NeighbourCosine(Scorer):
    r"""The cosine of a node's features to its neighbours' mean, :math:`\cos(x_v, \mathrm{mean}_{u \in N(v)}\, x_u)`.

    A node without neighbours gets the mean score of the other nodes (0 if no node has neighbours). A zero vector has
    cosine 0 to everything.
    """

    uses_network = False
    supports_folders = True
    is_shared = True
    is_local = False

    def score(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        cosine = graph.empty(None)
        for rows, near in graph.neighbour_means(graph.x, cosine):
            cosine[rows] = F.cosine_similarity(graph.x[rows], near, dim=1)
        alone = graph.random_walk.row_counts() == 0
        company = cosine[~alone].mean() if bool((~alone).any()) else cosine.new_zeros(())
        return torch.where(alone, company, cosine)
