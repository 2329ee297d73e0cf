"""Scores of single nodes that arrive in a known graph, from their neighbourhood alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oddnode._utils.modes import gradients_enabled
from oddnode.detector.calibration import Calibration
from oddnode.detector.feature_range import clip_far_features, lower_far_scores
from oddnode.detector.inference import FittedEstimator
from oddnode.functional import CalibrationError
from oddnode.graph import Graph, GraphError, GraphSource
from oddnode.ops import check_edge_weight
from oddnode.scoring import EnsembleMean, Evidence, Outputs, PropagatingScorer, Scorer, ScorerWrapper

__all__ = ["ArrivalScorer"]

# Scores that are averaged over at most this many hops are computed exactly, from that neighbourhood.
_SHORT = 2


class ArrivalScorer:
    r"""Scores nodes one by one as they arrive in a known graph, without scoring the whole graph again.

    The long-range averages of the known nodes are computed once. The score of an arrival is computed from the nodes
    within a few hops: exactly for everything that looks no further than two hops beyond the network's own receptive
    field. A longer average is continued from those of the neighbours, :math:`\eta s_v + (1 - \eta)` times their
    mean, as if the arrival had not changed them. Arrivals do not see each other.

    Parameters
    ----------
    detector : Detector
        A fitted detector.
    data : GraphSource
        The known graph, undirected: the training graph, or one that has grown.

    Examples
    --------
    >>> from oddnode import ArrivalScorer, Detector, load_task
    >>> task = load_task("digits/arrivals/label-scattered")
    >>> detector = Detector.from_recipe("nodesafe-evidence", epochs=50).fit(task.train)
    >>> arrivals = ArrivalScorer(detector, task.train)
    >>> score = arrivals.score(task.train.x[0], neighbours=[1, 2])
    >>> 0 < arrivals.p_value(score) <= 1
    True
    """

    @gradients_enabled()
    def __init__(self, detector: FittedEstimator, data: GraphSource):
        self._detector = detector
        outputs = detector.outputs(data)
        self._networks = [
            _Network(scorer, own)
            for scorer, own in zip(_scorers_of(detector.scorer_), outputs.members or [outputs], strict=True)
        ]
        self._graph = outputs.graph
        self._neighbours = _Neighbours(self._graph)

    @gradients_enabled()
    def score(
        self, x: Any, neighbours: Sequence[int] | Tensor, edge_weight: Sequence[float] | Tensor | None = None
    ) -> float:
        """Score one arrival.

        If its features are far beyond those of training, it scores below all calibration nodes, and a detector without
        these refuses it.

        Parameters
        ----------
        x : Tensor or array
            Its features ``[F]``.
        neighbours : sequence of int or Tensor
            Positions of its neighbours in the known graph ``[d]``; it may have none.
        edge_weight : sequence of float or Tensor, optional
            The weights of its edges to them ``[d]``, 0 or more; required if the edges of the known graph have weights.

        Returns
        -------
        float
            Higher = more like the training distribution; comparable with `oddnode.Detector.score_samples`.
        """
        links = self._links(neighbours, edge_weight)
        graph, far = clip_far_features(self._around(x, links), self._detector.state_.max_abs_feature)
        scores = [network.score(graph, links) for network in self._networks]
        mean = sum(scores) / len(scores)
        if far is None:
            return mean
        known = None if self._detector.calibration_ is None else self._detector.calibration_.scores
        return float(lower_far_scores(torch.tensor([mean]), far, known)[0])

    def p_value(self, score: float) -> float:
        """Compute the share of calibration nodes that score as low, or lower.

        Parameters
        ----------
        score : float
            From `score`.
        """
        return float(self._calibration().p_values(torch.tensor([score]))[0])

    def is_ood(self, score: float) -> bool:
        """Decide at the calibrated false-alarm rate.

        Parameters
        ----------
        score : float
            From `score`.
        """
        return bool(self._calibration().detect(torch.tensor([score]))[0])

    def _calibration(self) -> Calibration:
        if self._detector.calibration_ is None:
            raise CalibrationError("the detector has no threshold yet: call calibrate(...) with known nodes first")
        return self._detector.calibration_

    def _links(self, neighbours: Sequence[int] | Tensor, edge_weight: Sequence[float] | Tensor | None) -> _Links:
        """The different neighbours of the arrival, ascending, with the weights of its edges to them."""
        known = self._graph
        given = torch.as_tensor(neighbours, dtype=torch.long, device=known.device)
        near = given.unique()
        if len(near) and not 0 <= int(near.min()) <= int(near.max()) < known.num_nodes:
            raise GraphError(f"the neighbours are {near.tolist()}, expected positions in 0..{known.num_nodes - 1}")
        if edge_weight is None:
            if known.edge_weight is not None and len(near):
                raise GraphError("the edges of the known graph have weights; give those of the arrival as edge_weight")
            return _Links(near, None)
        if len(near) < len(given):
            raise GraphError(
                f"the neighbours {given.tolist()} have weights and are not all different; add the weights up"
            )
        weight = torch.as_tensor(edge_weight, dtype=known.x.dtype, device=known.device)
        try:
            check_edge_weight(weight, len(given))
        except ValueError as error:
            raise GraphError(str(error)) from None
        weight = weight[given.argsort()]
        return _Links(near[weight > 0], weight[weight > 0])

    def _around(self, x: Any, links: _Links) -> Graph:
        """The graph of the arrival (node 0) and the known nodes around it."""
        known = self._graph
        features = torch.as_tensor(x, dtype=known.x.dtype, device=known.device).reshape(1, -1)
        if features.shape[1] != known.x.shape[1] or not bool(torch.isfinite(features).all()):
            raise GraphError(f"x has {features.shape[1]} features, expected {known.x.shape[1]} finite numbers")
        nodes, edges, weight = self._neighbours.within(links.near, self._reach)
        place = torch.searchsorted(nodes, links.near) + 1
        own = torch.stack([torch.zeros_like(place), place])
        edge_index = torch.cat([own, own.flip(0), edges + 1], dim=1)
        if weight is not None or links.weight is not None:
            to_near = torch.ones_like(place, dtype=known.x.dtype) if links.weight is None else links.weight
            between = torch.ones_like(edges[0], dtype=known.x.dtype) if weight is None else weight
            weight = torch.cat([to_near, to_near, between])
        return Graph(torch.cat([features, known.x[nodes]]), edge_index, weight)

    @property
    def _reach(self) -> int:
        """Number of hops from the neighbours within which nodes matter: receptive fields, averages, and degrees."""
        return self._detector.num_layers + _SHORT


class _Links(NamedTuple):
    """The neighbours of an arrival ``[d]``, and the weights of the edges to them ``[d]``, if they have any."""

    near: Tensor
    weight: Tensor | None

    def mean(self, values: Tensor) -> Tensor:
        """The mean of the known nodes' values ``[N]`` over the neighbours, by the weights."""
        if self.weight is None:
            return values[self.near].mean()
        return (values[self.near] * self.weight).sum() / self.weight.sum()


class _Network:
    """One network with its scorer, and the long-range scores of all known nodes."""

    def __init__(self, scorer: Scorer, outputs: Outputs):
        self.scorer = scorer
        self.outputs = outputs
        self.known = [_long_range(each) for each in _parts_of(scorer)]
        self.averages = [None if each is None else each.score(outputs) for each in self.known]
        reference = outputs.reference
        self.reference = (
            None if reference is None or not isinstance(scorer, Evidence) else scorer.scores(outputs)[reference]
        )

    def score(self, graph: Graph, links: _Links) -> float:
        outputs = Outputs(self.outputs.module, graph, self.outputs.num_classes)
        parts = zip(_parts_of(self.scorer), self.known, self.averages, strict=True)
        scores = [
            part.score(outputs)[0] if long is None else _continued(long, averages, outputs, links)
            for part, long, averages in parts
        ]
        if not isinstance(self.scorer, Evidence):
            return float(scores[0])
        row = torch.stack([each.double() for each in scores]).unsqueeze(0)
        return float(self.scorer.combined(row, self.reference)[0])


def _continued(scorer: PropagatingScorer, averages: Tensor | None, outputs: Outputs, links: _Links) -> Tensor:
    """The average at the arrival, continued from those of its neighbours; its own score if it has none."""
    own = scorer.scorer.score(outputs)[0]
    if averages is None or not len(links.near):
        return own
    eta = getattr(scorer, "eta", 0.0)
    return eta * own + (1 - eta) * links.mean(averages)


class _Neighbours:
    """The edges of a graph, sorted by their target, to walk from node to node."""

    def __init__(self, graph: Graph):
        order = graph.edge_index[1].argsort(stable=True)
        counts = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes)
        self.sources = graph.edge_index[0, order]
        self.starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self.weights = None if graph.edge_weight is None else graph.edge_weight[order]

    def within(self, nodes: Tensor, num_hops: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """The nodes within some hops, sorted, and the edges between them by their positions there, with weights."""
        for _ in range(num_hops):
            nodes = torch.cat([nodes, self.sources[self._edges_to(nodes)[0]]]).unique()
        edges, target = self._edges_to(nodes)
        source = self.sources[edges]
        place = torch.searchsorted(nodes, source).clamp_max(max(len(nodes) - 1, 0))
        inside = nodes[place] == source if len(nodes) else torch.zeros_like(source, dtype=torch.bool)
        between = torch.stack([place[inside], torch.searchsorted(nodes, target[inside])])
        return nodes, between, None if self.weights is None else self.weights[edges[inside]]

    def _edges_to(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The places of the edges that lead to some nodes, and their targets."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        target = nodes.repeat_interleave(counts)
        offset = torch.arange(len(target), device=nodes.device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        return self.starts[target] + offset, target


def _scorers_of(scorer: Scorer) -> Sequence[Scorer]:
    return scorer.scorers if isinstance(scorer, EnsembleMean) else [scorer]


def _parts_of(scorer: Scorer) -> Sequence[Scorer]:
    return scorer.scorers if isinstance(scorer, Evidence) else [scorer]


def _long_range(scorer: Scorer) -> PropagatingScorer | None:
    """The scorer that averages over more hops than are computed exactly; ``None`` if there is none."""
    if isinstance(scorer, PropagatingScorer) and scorer.num_hops > _SHORT:
        return scorer
    return _long_range(scorer.scorer) if isinstance(scorer, ScorerWrapper) else None
