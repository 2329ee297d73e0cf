"""Scores of single nodes that arrive in a known graph, from their neighbourhood alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oddnode.detector.detector import Detector
from oddnode.detector.feature_range import clip_far_features, lower_far_scores
from oddnode.detector.fitted import gradients_enabled, members_of
from oddnode.graph import Graph, GraphError, GraphSource
from oddnode.graph.graph import CSR
from oddnode.nn import check_hops, receptive_hops
from oddnode.ops import check_edge_weight
from oddnode.scoring import Evidence, NeighbourCosine, Outputs, PropagatingScorer, Scorer, ScorerWrapper
from oddnode.scoring.rehearsal import fold_of

# Scores that are averaged over at most this many hops are computed exactly, from that neighbourhood.
_SHORT = 2


class ArrivalScorer:
    r"""Scores nodes one by one as they arrive in a known graph, without scoring the whole graph again.

    The long-range averages of the known nodes are computed once. The score of an arrival is computed from the nodes
    within a few hops. It equals that of the whole graph with the arrival in it, up to rounding, if the arrival has no
    neighbours, or if the scorer looks no further than two hops beyond the network's receptive field. A longer average
    is extrapolated from the neighbours' averages, :math:`\eta s_v + (1 - \eta)` times their mean, as if the
    arrival had not changed them. Arrivals do not affect each other. Scorers that depend on the whole graph in other
    ways are refused: `GRASP` and `NeighbourCosine`.

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
    def __init__(self, detector: Detector, data: GraphSource):
        self._detector = detector
        scorers = members_of(detector.scorer_)
        for part in (part for scorer in scorers for part in _parts_of(scorer)):
            _check_local(part)
        outputs = detector.outputs(data)
        self._networks = [
            _Network(scorer, own) for scorer, own in zip(scorers, outputs.members or [outputs], strict=True)
        ]
        self._graph = outputs.graph
        source, target = self._graph.edge_index
        order, counts = target.argsort(stable=True), torch.bincount(target, minlength=self._graph.num_nodes)
        weights = None if self._graph.edge_weight is None else self._graph.edge_weight[order]
        # In the order of `edge_index`, which `Graph.csr` changes: floating-point sums depend on it.
        self._incoming = CSR(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), source[order], weights)
        # Number of hops around the neighbours that matter: receptive field, averages, and degrees.
        for network in self._networks:
            check_hops(network.outputs.module, self._graph)
        self._reach = max(receptive_hops(network.outputs.module) for network in self._networks) + _SHORT

    @gradients_enabled()
    def score(
        self, x: Any, neighbours: Sequence[int] | Tensor, edge_weight: Sequence[float] | Tensor | None = None
    ) -> float:
        """Score one arrival.

        If its features are far outside the range of training, it scores below all calibration nodes; without
        these, it is an error.

        Parameters
        ----------
        x : Tensor or array
            Its features ``[F]``.
        neighbours : sequence of int or Tensor
            Indices of its neighbours in the known graph ``[d]``; it may have none.
        edge_weight : sequence of float or Tensor, optional
            The weights of its edges to them ``[d]``, 0 or more; required if the edges of the known graph have weights.

        Returns
        -------
        float
            Higher = more like the training distribution, as `oddnode.Detector.score_samples`.
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
        return float(self._detector._calibrated().p_values(torch.tensor([score]))[0])

    def is_ood(self, score: float) -> bool:
        """Decide at the calibrated false-alarm rate.

        Parameters
        ----------
        score : float
            From `score`.
        """
        return bool(self._detector._calibrated().detect(torch.tensor([score]))[0])

    def _links(self, neighbours: Sequence[int] | Tensor, edge_weight: Sequence[float] | Tensor | None) -> _Links:
        """The distinct neighbours of the arrival, ascending, with the weights of its edges to them."""
        known = self._graph
        given = _as_indices(neighbours, known.num_nodes).to(known.device)
        near = given.unique()
        if edge_weight is None:
            if known.edge_weight is not None and len(near):
                raise GraphError("the edges of the known graph have weights; give those of the arrival as edge_weight")
            return _Links(near, None)
        if len(near) < len(given):
            raise GraphError(
                f"the neighbours {given.tolist()} have weights and contain duplicates; add up their weights"
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
        nodes, edges, weight = self._within_reach(links.near)
        near = torch.searchsorted(nodes, links.near) + 1
        own = torch.stack([torch.zeros_like(near), near])
        edge_index = torch.cat([own, own.flip(0), edges + 1], dim=1)
        if weight is not None or links.weight is not None:
            to_near = torch.ones_like(near, dtype=known.x.dtype) if links.weight is None else links.weight
            between = torch.ones_like(edges[0], dtype=known.x.dtype) if weight is None else weight
            weight = torch.cat([to_near, to_near, between])
        return Graph(torch.cat([features, known.x[nodes]]), edge_index, weight)

    def _within_reach(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The known nodes around some nodes, sorted, and the edges between them as indices into these, with weights."""
        incoming = self._incoming
        for _ in range(self._reach):
            nodes = torch.cat([nodes, incoming.sources[incoming.edges_to(nodes)[0]]]).unique()
        edges, target = incoming.edges_to(nodes)
        source = incoming.sources[edges]
        index = torch.searchsorted(nodes, source).clamp_max(len(nodes) - 1)
        inside = nodes[index] == source
        between = torch.stack([index[inside], target[inside]])
        return nodes, between, None if incoming.weights is None else incoming.weights[edges[inside]]


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
        self.parts = [_Part(part, outputs) for part in _parts_of(scorer)]
        if isinstance(scorer, Evidence) and not bool((scorer.weights_ > 0).any()):
            raise ValueError("this method judges batches of new nodes, not single ones; choose another")
        if outputs.reference is not None and isinstance(scorer, Evidence):
            self.reference = scorer.scores(outputs)[outputs.reference]
            self.folds = fold_of(outputs.graph.x[outputs.reference])

    def score(self, graph: Graph, links: _Links) -> float:
        outputs = Outputs(self.outputs.module, graph, self.outputs.num_classes)
        scores = [part.score(outputs, links) for part in self.parts]
        if not isinstance(self.scorer, Evidence):
            return float(scores[0])
        row = torch.stack([score.double() for score in scores]).unsqueeze(0)
        return float(self.scorer.combined(row, self.reference, self.folds)[0])


class _Part:
    """A scorer with the scores of all known nodes, if it averages over more hops than are computed exactly."""

    def __init__(self, scorer: Scorer, outputs: Outputs):
        self.scorer = scorer
        self.long_range = _long_range(scorer)
        self.averages = None if self.long_range is None else self.long_range.score(outputs)

    def score(self, outputs: Outputs, links: _Links) -> Tensor:
        """The score of the arrival; a long average is continued from those of its neighbours, if it has any."""
        if self.long_range is None or self.averages is None or not len(links.near):
            return self.scorer.score(outputs)[0]
        eta = getattr(self.long_range, "eta", 0.0)
        return eta * self.long_range.scorer.score(outputs)[0] + (1 - eta) * links.mean(self.averages)


def _parts_of(scorer: Scorer) -> Sequence[Scorer]:
    return scorer.scorers if isinstance(scorer, Evidence) else [scorer]


def _long_range(scorer: Scorer) -> PropagatingScorer | None:
    """The scorer that averages over more hops than are computed exactly; ``None`` if there is none."""
    if isinstance(scorer, PropagatingScorer) and scorer.num_hops > _SHORT:
        return scorer
    return _long_range(scorer.scorer) if isinstance(scorer, ScorerWrapper) else None


def _check_local(scorer: Scorer) -> None:
    """Raise an error for a scorer whose scores depend on the whole graph."""
    inner = scorer
    while isinstance(inner, ScorerWrapper) and not inner.needs_labelled_nodes:
        inner = inner.scorer
    if inner.needs_labelled_nodes or isinstance(inner, NeighbourCosine):
        raise ValueError(
            f"{type(inner).__name__} scores a node by the whole graph, so single arrivals cannot be scored from "
            "their neighbourhoods; add them to the graph and call Detector.score_samples, or choose another scorer"
        )


def _as_indices(neighbours: Sequence[int] | Tensor, num_nodes: int) -> Tensor:
    """Check the neighbours that a user gives; a cast would hide the mistake of giving a mask or floats."""
    try:
        given = torch.as_tensor(neighbours)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise GraphError(f"the neighbours cannot be read as indices: {error}") from None
    is_integer = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    if given.dim() != 1 or not (is_integer or not len(given)):
        raise GraphError(f"the neighbours are {given.dtype} of shape {list(given.shape)}, expected indices [d]")
    given = given.long()  # large unsigned integers become negative
    if len(given) and not 0 <= int(given.min()) <= int(given.max()) < num_nodes:
        raise GraphError(f"the neighbours are {given.tolist()}, expected indices in 0..{num_nodes - 1}")
    return given
