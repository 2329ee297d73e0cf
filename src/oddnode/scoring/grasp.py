"""GRASP: score propagation over a graph with extra edges among trusted nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.scoring.base import Scorer
from oddnode.scoring.combinations import PropagatingScorer, all_of
from oddnode.scoring.logits import MaxSoftmax
from oddnode.scoring.outputs import Outputs

# The weight of an added edge between two trusted nodes in the published method; edges of the graph have weight 1.
_EXTRA_EDGE = 1.001


@dataclass
class GRASP(PropagatingScorer):
    r"""Scores propagated with extra edges among trusted labelled nodes (Ma et al., NeurIPS 2024).

    Let :math:`S_{id}` and :math:`S_{ood}` be the ``share`` of unlabelled nodes with the highest and lowest base
    scores. A labelled node is trusted by :math:`h(i) = |N(i) \cap S_{id}| / (|N(i) \cap S_{ood}| + 1)`; the upper
    half of them by h is G, and every two nodes of G are joined. Then, K times,
    :math:`s \leftarrow (A s + 1.001 \cdot 1_G \sum_{u \in G} s_u) / d'` with degrees :math:`d' = d + |G|` on G, while
    labelled nodes are held at 1 or more.

    The labelled nodes are those in ``train_mask`` and ``val_mask`` of the *scored* graph. Without them there are no
    anchors, and the method is a plain average over neighbours. A node without edges keeps its score.

    With edge weights, :math:`A` has the weights divided by their mean, so that an extra edge weighs as much as an edge
    of the graph does on average, and :math:`|N(i) \cap S|` and :math:`d` are sums of these.

    Parameters
    ----------
    scorer : Scorer
        The scorer of the base scores. Anchors are held at 1, so its highest score should be 1, as for `MaxSoftmax`.
    num_hops : int
        Number of hops (K).
    share : float
        The share of the unlabelled nodes in each of the two sets, above 0 and at most 0.5.
    """

    needs_labelled_nodes = True
    is_local = False

    scorer: Scorer = field(default_factory=MaxSoftmax)
    num_hops: int = 8
    share: float = 0.05
    supports_folders = all_of("supports_folders")

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        self._check_share()
        return super().fit(outputs, train, y)

    @property
    def learns_from_training_graph(self) -> bool:
        """Whether the inner scorer does; `fit` itself only checks the settings."""
        return self.scorer.learns_from_training_graph

    def score(self, outputs: Outputs) -> Tensor:
        self._check_share()
        graph, scores = outputs.graph, outputs.scores_of(self.scorer)
        labelled = torch.zeros(graph.num_nodes, dtype=torch.bool, device=scores.device)
        if outputs.labelled is not None:
            labelled[outputs.labelled] = True
        trusted = self._trusted(scores, labelled, graph)
        degree = graph.in_degree.to(scores.dtype) / graph.mean_edge_weight  # in units of an average edge
        new_degree = degree + trusted.sum() * trusted
        for _ in range(self.num_hops):
            scores = torch.where(labelled, scores.clamp_min(1.0), scores)
            # A boolean times a number would have the caller's default precision.
            extra = _EXTRA_EDGE * trusted.float() * scores[trusted].sum()
            summed = degree * (graph.random_walk @ scores) + extra
            scores = torch.where(new_degree > 0, summed / new_degree, scores)
        return torch.where(labelled, scores.clamp_min(1.0), scores)

    def _check_share(self) -> None:
        if not 0.0 < self.share <= 0.5:
            raise ValueError(f"share is {self.share}, expected a share above 0 and at most 0.5")

    def _trusted(self, scores: Tensor, labelled: Tensor, graph: Graph) -> Tensor:
        """A mask of the half of the labelled nodes whose neighbours have the most in-distribution scores."""
        unlabelled = (~labelled).nonzero().squeeze(1)
        anchors = labelled.nonzero().squeeze(1)
        ranked = unlabelled[scores[unlabelled].argsort()]
        size = max(1, round(self.share * len(ranked)))
        high, low = _neighbours_in(ranked[-size:], graph, scores), _neighbours_in(ranked[:size], graph, scores)
        trust = high[anchors] / (low[anchors] + 1)
        trusted = torch.zeros_like(labelled)
        trusted[anchors[trust.argsort(descending=True, stable=True)[: len(anchors) // 2]]] = True
        return trusted


def _neighbours_in(nodes: Tensor, graph: Graph, like: Tensor) -> Tensor:
    """The number of neighbours of each node that are among ``nodes``."""
    chosen = torch.zeros_like(like)
    chosen[nodes] = 1.0
    return graph.neighbour_sums(chosen) / graph.mean_edge_weight
