"""`LiveGraph`: nodes are scored when they arrive, from what their arrival can change."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oddnode.detector import Detector
from oddnode.detector.explanation import reasons
from oddnode.detector.feature_range import clip_far_features, lower_far_scores
from oddnode.detector.fitted import gradients_enabled, members_of
from oddnode.graph import Graph, GraphError, as_source
from oddnode.large import GraphFolder
from oddnode.nn import check_hops, receptive_hops
from oddnode.nn.blocks import tried_nodes
from oddnode.online.answers import ErrorReport, Judgement, KindOfEvidence, strongest
from oddnode.online.growing import Edge, GrowingGraph, Id, Row, checked_ids
from oddnode.online.local import Known, LocalGraph, LocalOutputs, is_close, not_local
from oddnode.online.rows import Arrivals, read_arrivals
from oddnode.scoring import Names, Outputs, Scorer
from oddnode.tables import TableGraph, TableModel
from oddnode.tables.scores import fitting_outputs
from oddnode.tables.used_rows import arrow_ids

# The edges of nodes up to this many hops away are read for one arrival, at most.
_MOST_REACH = 4
# Neighbours of a removed node whose values are computed again at a time.
_AT_ONCE = 256


class LiveGraph:
    """A graph that grows and shrinks while its nodes are scored, each from what its arrival can change.

    What the networks and the scorers compute for the known nodes is computed once and kept. An arrival is scored by the
    same networks and scorers in its own neighbourhood: its edges and those of its neighbours are read, and known nodes
    further away count as they were. So the cost does not depend on the size of the graph.

    A score is exact (`Judgement.exact`) if the method looks no further than the network does, or if there are no edges.
    Three things make it inexact: averages over many hops, in which neighbours count with the averages that they had
    before; reference nodes near the arrival, which keep the scores that they had; and hubs, of whose edges at most
    ``max_neighbours`` are read, evenly spaced. `measure_error` says by how much.

    Methods whose scores depend on the whole graph in other ways are refused: ``grasp``, ``odin``, ``neighbour-cosine``,
    ``gpn`` and ``gebm``. Everything runs on the CPU. A lock makes all methods safe to call from several threads.

    Parameters
    ----------
    model : Detector or TableModel
        A fitted model.
    graph : GraphSource, GraphFolder, path or TableGraph
        The known graph: the training graph, or one that has grown. For a `TableModel`, what `TableModel.read` returns,
        or a folder that was prepared with the model; arrivals are then rows with the columns of the table. Features
        are copied; a folder stays on disk and is not changed.
    max_neighbours : int
        The number of a node's edges that are read, at most, apart from those of the arrivals themselves.

    Attributes
    ----------
    version : int
        0 at first; every change adds one.
    directed : bool
        Whether edges lead one way: as the tables say, or if those of the graph do. If not, every edge of an arrival
        stands for both directions.

    Examples
    --------
    >>> from oddnode import Detector, LiveGraph, load_task
    >>> graph = load_task("digits/arrivals/label-scattered").train
    >>> live = LiveGraph(Detector.from_recipe("nodesafe-evidence", epochs=50).fit(graph), graph)
    >>> [found] = live.score(graph.x[:1], [("new", 1), ("new", 2)], ids=["new"])
    >>> found.id, 0 < found.p_value <= 1
    ('new', True)
    >>> _ = live.commit(graph.x[:1], [("new", 1), ("new", 2)], ids=["new"])
    >>> "new" in live
    True
    """

    @gradients_enabled()
    def __init__(self, model: Detector | TableModel, graph: Any, *, max_neighbours: int = 256):
        if max_neighbours < 1:
            raise ValueError(f"max_neighbours is {max_neighbours}, expected 1 or more")
        self._model = model
        self._detector = _on_cpu(model.detector if isinstance(model, TableModel) else model)
        self._schema = model.schema if isinstance(model, TableModel) else None
        self._max_neighbours = max_neighbours
        self._lock = threading.RLock()
        self.version = 0
        _check_local(self._detector.scorer_)
        source, ids = self._opened(graph)
        outputs = self._base_outputs(source)
        directed = not outputs.graph.is_symmetric if self._schema is None else self._schema.directed
        self.directed = directed or bool(getattr(source, "directed", False))
        self._prepare(outputs, ids)

    # --- the base ---

    def _opened(self, graph: Any) -> tuple[Any, Any]:
        """The graph, and the ids of its nodes; ``None`` if these are the indices."""
        if isinstance(graph, (str, os.PathLike)):
            graph = GraphFolder(graph)
        if isinstance(graph, GraphFolder):
            arrays = graph.id_arrays()
            return graph, arrow_ids(arrays, 0, graph.num_nodes) if arrays else None
        if self._schema is not None and not isinstance(graph, TableGraph):
            raise TypeError(
                f"graph is {type(graph).__name__}; with a model of tables, give model.read(nodes, edges), or a folder "
                "that was prepared with the model"
            )
        return (graph, graph.ids) if isinstance(graph, TableGraph) else (as_source(graph), None)

    def _base_outputs(self, source: Any) -> Outputs:
        if isinstance(self._model, TableModel) and isinstance(source, (TableGraph, GraphFolder)):
            return replace(self._model, detector=self._detector).outputs(source, False)[0]
        outputs = self._detector.outputs(source, False)  # arrivals are judged alone
        if isinstance(self._model, TableModel):  # a graph that has grown, with its reference nodes marked
            return fitting_outputs(self._detector, outputs, "", self._model.basis)[0]
        return outputs

    def _prepare(self, outputs: Outputs, ids: Any) -> None:
        """Compute everything that is known of the base."""
        detector, base = self._detector, outputs.graph
        scores = detector.score_samples(outputs)
        known = None if detector.calibration_ is None else detector.calibration_.scores
        lowest = scores.min().reshape(1)
        self._lowest = lowest if known is None else torch.cat([lowest, known.to(lowest)])
        self._spread = float(scores.double().std()) if len(scores) > 1 else 0.0
        self._references = [nodes.cpu().numpy() for nodes in outputs.references]
        whole = self._whole = GrowingGraph(base, ids, self.directed, self._max_neighbours)
        whole.add_column("x", base.x if base.is_on_disk else base.x.clone())
        far, unseen = torch.zeros(2, base.num_nodes, dtype=torch.bool)
        if outputs.far is not None:
            far[outputs.far] = True
        whole.add_column("far", far)
        whole.add_column("seen", unseen if outputs.seen is None else outputs.seen)
        for name in ("gcn_scale", "in_degree", "effective_degree"):
            whole.add_column(name, getattr(base, name).clone())
        self._known = [Known(number, each, whole) for number, each in enumerate(outputs.members or [outputs])]
        self._find_reach()
        for cache in base.caches.values():
            cache.clear()

    def _find_reach(self) -> None:
        """Try on known nodes from how many hops the network can be computed, and what else is right there."""
        tried = tried_nodes(self._whole.base).tolist()
        for known in self._known:
            check_hops(known.module, self._whole.base)
        first = max(1, max(receptive_hops(known.module) for known in self._known) - 1)
        for self._reach in range(first, _MOST_REACH + 1):
            graph = LocalGraph(self._whole, self._like, {}, tried, self._reach, cap=2**40)
            if all(_agrees(known, self._member(known, graph)) for known in self._known):
                break
        else:
            raise ValueError(
                f"{type(self._known[0].module).__name__} reads nodes that are more than {_MOST_REACH} hops away, so an "
                "arrival would have to be scored with most of the graph; add it to the graph and call "
                "Detector.score_samples, or choose another backbone"
            )
        for number, (known, scorer) in enumerate(zip(self._known, members_of(self._detector.scorer_), strict=True)):
            known.reaches_neighbours = {None, *known.places}
            outputs = self._member(known, graph, number)
            outputs.scores_of(scorer)
            known.check(outputs)

    @property
    def _like(self) -> Tensor:
        """No rows with the number and dtype of features."""
        return self._whole.get("x", np.empty(0, dtype=np.int64))

    def _member(self, known: Known, graph: LocalGraph, number: int | None = None) -> LocalOutputs:
        """The outputs of a network, with the seen and the reference nodes of the graph."""
        if number is None or not self._references:
            return LocalOutputs(known, graph, (), None, None)
        targets, own = graph.nodes[graph.num_new : graph.num_targets], self._references[number]
        seen = torch.zeros(graph.num_nodes, dtype=torch.bool)
        seen[graph.num_new : graph.num_targets] = self._whole.get("seen", targets)
        places = torch.full((len(own),), graph.num_nodes - 1)  # of those that are not among the targets
        for place, node in enumerate(targets.tolist(), graph.num_new):
            places[own == node] = place
        return LocalOutputs(known, graph, (places,), None, seen)

    # --- scores ---

    def __contains__(self, node: object) -> bool:
        return isinstance(node, (int, str)) and self._whole.ids.find(node) is not None

    @property
    def num_nodes(self) -> int:
        """Number of nodes in the graph."""
        return len(self._whole.present)

    @property
    def next_id(self) -> int:
        """The id of the first arrival, if none are given."""
        return self._whole.num_nodes

    @gradients_enabled()
    def score(
        self, rows: Any, edges: Any = (), *, ids: Sequence[Id] | None = None, explain: bool = False
    ) -> list[Judgement]:
        """Score arrivals, as if all of them were in the graph; the graph does not change.

        Parameters
        ----------
        rows : Tensor, array, or table
            The arrivals: features ``[k, F]``; or, for a model of tables, a list of mappings from columns to values, or
            a table as for `oddnode.tables.open_table`, with an id in every row.
        edges : list, or table
            Edges between arrivals, and between arrivals and nodes of the graph: ``(source, target)`` or ``(source,
            target, weight)`` by id; for a model of tables, a table as well. They lead from source to target if the
            graph is `directed`; otherwise each stands for both directions.
        ids : sequence of int or str, optional
            The ids of arrivals ``[k]`` that are given as features; by default integers from `next_id`.
        explain : bool
            Whether to say why in words (`Judgement.why`).

        Returns
        -------
        list of Judgement
            One for every arrival.
        """
        with self._lock:
            return self._scored(rows, edges, ids, explain)[2]

    @gradients_enabled()
    def commit(
        self, rows: Any, edges: Any = (), *, ids: Sequence[Id] | None = None, explain: bool = False
    ) -> list[Judgement]:
        """Score arrivals, and add them with their edges to the graph.

        Parameters
        ----------
        rows, edges, ids, explain
            As for `score`, whose result it returns.
        """
        with self._lock:
            arrivals, outputs, found = self._scored(rows, edges, ids, explain)
            whole, graph = self._whole, outputs.graph
            added = whole.rows_with(arrivals.edges)
            first = whole.num_nodes
            whole.add(arrivals.ids, added)
            new = np.arange(first, whole.num_nodes)
            whole.put("x", new, graph.x[: len(new)])
            whole.put("far", new, torch.tensor([each.is_far for each in found]))
            self._keep_degrees(sorted({*new.tolist(), *added}))
            self._keep(outputs)
            self.version += 1
            return found

    @gradients_enabled()
    def explain(self, ids: Sequence[Id]) -> list[Judgement]:
        """Score nodes of the graph as it is now, and say why in words.

        Parameters
        ----------
        ids : sequence of int or str
            Their ids.
        """
        with self._lock:
            nodes = self._found(ids)
            if not nodes:
                return []
            outputs = self._outputs(self._like, {}, nodes)
            return self._judged(outputs, list(ids), [{} for _ in nodes], has_edges=True, explain=True)

    @gradients_enabled()
    def remove(self, ids: Sequence[Id]) -> None:
        """Remove nodes with their edges; they may be those of the base.

        Parameters
        ----------
        ids : sequence of int or str
            Their ids.
        """
        with self._lock:
            whole, nodes = self._whole, self._found(ids)
            targets = {target for node in nodes for target in whole.remove(node)} - set(nodes)
            self._keep_degrees(sorted(targets))
            near = sorted(targets)
            for first in range(0, len(near), _AT_ONCE):
                outputs = self._outputs(self._like, {}, near[first : first + _AT_ONCE])
                outputs.scores_of(self._detector.scorer_)
                self._keep(outputs)
            self.version += bool(nodes)

    @gradients_enabled()
    def rebase(self) -> None:
        """Compute everything anew for the graph as it is now, which then is the base, in memory."""
        with self._lock:
            ids: Any = [self._whole.ids[node] for node in self._whole.present.tolist()]
            other = copy.copy(self)  # so that nothing has changed if this fails
            other._prepare(self._base_outputs(self._as_data(self._like, {})), ids)
            vars(self).update(vars(other), version=self.version + 1)

    @gradients_enabled()
    def measure_error(self, num_arrivals: int = 32, seed: int = 0) -> ErrorReport:
        """Measure how far scores are from those of the whole graph, which is scored for that, in memory.

        Copies of known nodes arrive, all at once, with the edges of the originals; the graph does not change.

        Parameters
        ----------
        num_arrivals : int
            Number of copies, of nodes with edges as far as there are any.
        seed : int
            Which nodes are copied.
        """
        with self._lock:
            whole = self._whole
            order = np.random.default_rng(seed).permutation(whole.present)
            linked = [node for node in order[: 20 * num_arrivals].tolist() if len(whole.row(node).sources)]
            nodes = np.array((linked or order.tolist())[:num_arrivals])
            rows = [(whole.num_nodes + place, whole.row(node)) for place, node in enumerate(nodes.tolist())]
            links = {(int(a), b): float(w) for b, row in rows for a, w in zip(*row, strict=True)}
            added = whole.rows_with(Edge(*ends, weight) for ends, weight in links.items())
            new = whole.get("x", nodes)
            found = self._judged(self._outputs(new, added, []), nodes.tolist(), [{} for _ in nodes], True, False)
            outputs = self._base_outputs(self._as_data(new, added))
            return self._compared(found, self._detector.score_samples(outputs)[-len(nodes) :].double())

    def _compared(self, found: list[Judgement], expected: Tensor) -> ErrorReport:
        scores = torch.tensor([each.score for each in found], dtype=torch.float64)
        apart, calibration = (scores - expected).abs(), self._detector.calibration_
        ranks = torch.stack([scores.argsort().argsort(), expected.argsort().argsort()]).double()
        correlation = float(torch.corrcoef(ranks)[0, 1]) if len(found) > 1 else 1.0
        others = None if calibration is None else calibration.detect(scores) != calibration.detect(expected)
        return ErrorReport(
            num_arrivals=len(found),
            num_exact=sum(each.exact for each in found),
            largest=float(apart.max()),
            mean=float(apart.mean()),
            spread=self._spread,
            rank_correlation=correlation,
            num_other_decisions=None if others is None else int(others.sum()),
        )

    # --- parts of the above ---

    def _scored(
        self, rows: Any, edges: Any, ids: Sequence[Id] | None, explain: bool
    ) -> tuple[Arrivals, LocalOutputs, list[Judgement]]:
        arrivals = read_arrivals(rows, edges, ids, self._whole, self._schema, self._like)
        outputs = self._outputs(arrivals.x, self._whole.rows_with(arrivals.edges), [])
        found = self._judged(outputs, arrivals.ids, arrivals.unseen, bool(arrivals.edges), explain)
        return arrivals, outputs, found

    def _found(self, ids: Sequence[Id]) -> list[int]:
        if isinstance(ids, (int, str)):
            raise TypeError(f"ids is {ids!r}, expected a list of ids")
        nodes = [(node, self._whole.ids.find(node)) for node in checked_ids(ids, "ids")]
        for node, index in nodes:
            if index is None or nodes.count((node, index)) > 1:
                fault = f"there is no node with the id {node!r}" if index is None else f"the id {node!r} is given twice"
                raise GraphError(fault)
        return [index for _, index in nodes if index is not None]

    def _outputs(self, new: Tensor, added: dict[int, Row], known: Sequence[int]) -> Any:
        state, is_far = self._detector.state_, self._whole.get("far", np.array(known, dtype=np.int64))
        if len(new):
            clipped, far = clip_far_features(Graph(new, torch.empty(2, 0, dtype=torch.long)), state.max_abs_feature)
            new, is_new_far = clipped.x, torch.zeros(len(new), dtype=torch.bool)
            is_new_far[[] if far is None else far] = True
            is_far = torch.cat([is_new_far, is_far])
        graph = LocalGraph(self._whole, new, added, known, self._reach)
        members = [self._member(known, graph, number) for number, known in enumerate(self._known)]
        outputs: Outputs = members[0]
        if len(members) > 1:
            references = [each.references[0] for each in members if each.references]
            outputs = Outputs(state.module, graph, state.num_classes, references=references)
            outputs.members = [*members]
            outputs.without_edges = Outputs(state.module, graph.alone, state.num_classes)
        outputs.far = is_far.nonzero().squeeze(1) if bool(is_far.any()) else None
        return outputs

    def _judged(
        self, outputs: Any, ids: Sequence[Id], unseen: list[dict[str, str]], has_edges: bool, explain: bool
    ) -> list[Judgement]:
        state, graph, count = self._detector.state_, outputs.graph, outputs.graph.num_targets
        scores = outputs.scores_of(state.scorer).detach()
        targets = lower_far_scores(scores[:count], outputs.far, self._lowest)
        if not bool(targets.isfinite().all()):
            raise ValueError("a score is not finite: the network's outputs overflow; check the scale of the features")
        confidence, predicted = outputs.logits[:count].softmax(dim=-1).max(dim=1)
        calibration, nothing = self._detector.calibration_, [None] * count
        is_judged = torch.ones(count, dtype=torch.bool)
        if self._schema is not None:  # the threshold says nothing about types of nodes without labels
            is_judged = torch.from_numpy(self._schema.features.of_labelled_type(graph.x[:count].numpy(), count))
        labels = range(state.num_classes) if self._schema is None else self._schema.classes
        num_edges = torch.bincount(graph.edge_index[1], minlength=count)[:count].tolist()
        kinds, why = self._kinds(outputs, count), nothing
        if explain:
            names = [*ids, *(self._whole.ids[node] for node in graph.nodes[count:].tolist())]
            all_scores = torch.cat([targets, scores[count:]])
            words = Names(names, None if self._schema is None else labels)
            why = reasons(state, outputs, torch.arange(count), all_scores, calibration, words)  # type: ignore[assignment]
        p_values = nothing if calibration is None else calibration.p_values(targets).tolist()
        far = set() if outputs.far is None else set(outputs.far.tolist())
        columns = {
            "id": ids,
            "score": targets.tolist(),
            "p_value": [p if judged else None for p, judged in zip(p_values, is_judged.tolist(), strict=True)],
            "is_ood": nothing if calibration is None else (calibration.detect(targets) & is_judged).tolist(),
            "predicted": [labels[number] for number in predicted.tolist()],
            "confidence": confidence.tolist(),
            "evidence": kinds,
            "reason": list(map(strongest, kinds)),
            "exact": self._are_exact(graph, num_edges, has_edges),
            "num_neighbours": num_edges,
            "is_far": [row in far for row in range(count)],
            "unseen": unseen,
            "why": why,
        }
        rows = zip(*columns.values(), strict=True)
        return [Judgement(**dict(zip(columns, row, strict=True)), version=self.version) for row in rows]

    def _are_exact(self, graph: LocalGraph, num_edges: list[int], has_edges: bool) -> list[bool]:
        scorer = self._detector.scorer_
        if not has_edges or (not len(graph.capped) and not scorer.needs_reference and not scorer.num_hops_used):
            return [True] * len(num_edges)
        return [not count and not scorer.needs_reference for count in num_edges]

    def _kinds(self, outputs: Outputs, count: int) -> list[tuple[KindOfEvidence, ...]]:
        """Every kind of evidence against the targets."""
        scorer = self._detector.scorer_
        found = scorer.comparisons(outputs)
        if not found:
            return [()] * count
        surprises, contributions = (
            torch.stack([getattr(each, name)[:count] for each in found]).mean(dim=0).tolist()
            for name in ("surprises", "contributions")
        )
        rows = zip(surprises, contributions, strict=True)
        return [tuple(map(KindOfEvidence, scorer.kinds, *row)) for row in rows]

    def _keep_degrees(self, nodes: list[int]) -> None:
        """Update what depends on the number and the weights of a node's edges."""
        if not nodes:
            return
        whole, index = self._whole, np.array(nodes)
        found = np.array([_degrees(whole.row(node), node) for node in nodes])
        for name, values in zip(("in_degree", "effective_degree", "gcn_scale"), found.T, strict=True):
            whole.put(name, index, torch.from_numpy(np.ascontiguousarray(values)))

    def _keep(self, outputs: Any) -> None:
        """Update what is known of targets and of their neighbours, as far as these have been touched."""
        graph, whole = outputs.graph, self._whole
        rows = graph.complete[torch.from_numpy(whole.is_touched(graph.nodes[graph.complete.numpy()]))]
        nodes = graph.nodes[rows.numpy()]
        for key, values in graph.kept.items():
            whole.put(key, nodes, values[rows])
        for member in outputs.members or [outputs]:
            whole.put(member.known.logits_key, nodes, member.all_logits[rows])
            values = whole.get(member.known.values_key, nodes)
            for key, own in member.values.items():
                values[:, member.known.places[key]] = own[rows]
            whole.put(member.known.values_key, nodes, values)

    def _as_data(self, new: Tensor, added: dict[int, Row]) -> Any:
        """The graph as it is now, perhaps with arrivals, in memory; its seen and reference nodes are marked."""
        from torch_geometric.data import Data

        whole, nodes = self._whole, self._whole.present
        edges, weights = whole.all_edges()
        index = np.full(whole.num_nodes + len(new), -1)
        index[nodes] = np.arange(len(nodes))
        index[whole.num_nodes :] = np.arange(len(nodes), len(nodes) + len(new))
        more = [np.stack([row.sources, np.full_like(row.sources, node)]) for node, row in added.items()]
        edges = np.concatenate([edges, *more], axis=1)
        weights = np.concatenate([weights, *(row.weights for row in added.values())])
        x = torch.cat([whole.get("x", nodes), new])
        data = Data(x=x, edge_index=torch.from_numpy(index[edges]))
        if whole.is_weighted:
            data.edge_weight = torch.from_numpy(weights).to(x.dtype)
        if self._references:
            marked = torch.zeros(2, len(x), dtype=torch.bool)
            kept = index[np.concatenate(self._references)]
            marked[0, torch.from_numpy(kept[kept >= 0])] = True
            marked[1, : len(nodes)] = whole.get("seen", nodes)
            data.reference_mask, data.seen_mask = marked
        return data


def _on_cpu(detector: Detector) -> Detector:
    state, other = detector.state_, copy.copy(detector)
    other.device = "cpu"
    if any(parameter.device.type != "cpu" for parameter in state.module.parameters()):
        module = copy.deepcopy(state.module).cpu()
        other._with_state(replace(state, module=module), detector.calibration_)
    return other


def _check_local(scorer: Scorer) -> None:
    if scorer.is_local:
        return
    for inner in getattr(scorer, "scorers", ()):
        _check_local(inner)
    raise not_local(scorer)


def _agrees(known: Known, outputs: LocalOutputs) -> bool:
    """Whether the logits of the targets are those in the whole graph."""
    expected = known.whole.get(known.logits_key, outputs.graph.nodes[: outputs.graph.num_targets])
    return is_close(outputs.all_logits[: outputs.graph.num_targets], expected)


def _degrees(row: Row, node: int) -> tuple[float, float, float]:
    """The in-degree, the effective degree and the scale of a graph convolution, as `oddnode.graph.Graph` has them."""
    weights, is_loop = row.weights, row.sources == node
    total, squares = weights.sum(), np.square(weights).sum()
    loop = weights[is_loop].mean() if is_loop.any() else 1.0
    return total, total**2 / squares if squares > 0 else 0.0, (weights[~is_loop].sum() + loop) ** -0.5
