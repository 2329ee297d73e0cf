"""`LiveGraph`: nodes are scored when they arrive, from what their arrival can change."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from oddnode.detector import Detector
from oddnode.detector.explanation import reasons
from oddnode.detector.feature_range import clip_far_features, lower_far_scores
from oddnode.detector.fitted import gradients_enabled, members_of
from oddnode.graph import Graph, GraphError, as_source
from oddnode.large import FolderError, FolderGraph, GraphFolder
from oddnode.large.arrays import map_array
from oddnode.large.folder import ID_ARRAYS
from oddnode.nn import Ensemble, check_hops, receptive_hops
from oddnode.nn.blocks import tried_nodes
from oddnode.online.answers import ErrorReport, Judgement, KeptScores, KindOfEvidence, Neighbourhood, strongest
from oddnode.online.growing import NO_INCOMING, Edge, Edges, GrowingGraph, Id, Incoming, Row, checked_ids
from oddnode.online.local import POSITIONS, Known, LocalGraph, LocalOutputs, Networks, SideBySide, is_close, not_local
from oddnode.online.rebasing import PATH, as_data, path_graph, write_graph
from oddnode.online.rows import Arrivals, decoded, read_arrivals, read_edges, read_known_edges, read_rows
from oddnode.online.saved import (
    BaseFacts,
    ChangeFacts,
    NetworkFacts,
    check_fact,
    key_of_column,
    mixed_ids,
    model_key,
    read,
    read_fact,
    read_ids,
    saved_fact,
    saved_ids,
    write,
)
from oddnode.scoring import Evidence, Names, Outputs, Scorer
from oddnode.scoring.evidence import Judged, judge_together
from oddnode.tables import TableGraph, TableModel
from oddnode.tables.scores import fitting_outputs
from oddnode.tables.used_rows import arrow_ids
from oddnode.tables.values import pc

T = TypeVar("T")
# The edges of nodes up to this many hops away are read for one arrival, at most.
_MOST_REACH = 4
# Neighbours of a removed node whose values are computed again at a time.
_AT_ONCE = 256


def _quick(method: Callable[..., T]) -> Callable[..., T]:
    """Compute without gradients, which takes a tenth less, unless a scorer needs them."""

    @wraps(method)
    def run(self: LiveGraph, *args: Any, **kwargs: Any) -> T:
        with torch.inference_mode(not self._needs_gradients):
            return method(self, *args, **kwargs)

    return run


class LiveGraph:
    """A graph that grows and shrinks while its nodes are scored, each from what its arrival can change.

    What the networks and the scorers compute for the known nodes is computed once and kept. An arrival is scored by the
    same networks and scorers in its own neighbourhood: its edges and those of its neighbours are read, and known nodes
    further away count as they were. So the cost does not depend on the size of the graph.

    A score is exact (`Judgement.exact`) if the method looks no further than the network does, or if there are no edges.
    Three things make it inexact: averages over many hops, in which neighbours count with the averages that they had
    before; reference nodes near an arrival or a change, which keep the scores that they had; and hubs, of whose edges
    at most ``max_neighbours`` are read, evenly spaced. `measure_error` says by how much.

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
        if isinstance(max_neighbours, bool) or not isinstance(max_neighbours, (int, np.integer)) or max_neighbours < 1:
            raise ValueError(f"max_neighbours is {max_neighbours!r}, expected an integer of 1 or more")
        self._start(model, max_neighbours)
        source, ids = self._opened(graph)
        outputs = self._base_outputs(source)
        given = getattr(source, "directed", None)
        if given is not None and not isinstance(given, (bool, np.bool_)):
            raise GraphError(f"graph.directed is {given!r}, expected True or False")
        directed = not outputs.graph.is_symmetric if self._schema is None else self._schema.directed
        self.directed = directed or bool(given)
        self._prepare(outputs, ids)

    def _start(self, model: Detector | TableModel, max_neighbours: int) -> None:
        self._model = model
        self._detector = _on_cpu(model.detector if isinstance(model, TableModel) else model)
        self._schema = model.schema if isinstance(model, TableModel) else None
        self._max_neighbours = max_neighbours
        self._lock = threading.RLock()
        self.version = 0
        self.base_key: str | None = None
        self._reach, self._reach_of_logits, self._needs_gradients = 0, 0, False
        _check_local(self._detector.scorer_)

    # --- the base ---

    def _opened(self, graph: Any) -> tuple[Any, Any]:
        """The graph, and the ids of its nodes; ``None`` if these are the indices."""
        if isinstance(graph, (str, os.PathLike)):
            graph = GraphFolder(graph)
        if isinstance(graph, GraphFolder):
            arrays = graph.id_arrays()
            ids = arrow_ids(arrays, 0, graph.num_nodes) if arrays else None
            if ids is not None and pc.count_distinct(ids).as_py() < len(ids):
                counts = pc.value_counts(ids)
                again = counts.field("values")[int(np.argmax(counts.field("counts")))]
                raise FolderError(f"{graph.path} has the id {again.as_py()!r} more than once; give each node its own")
            return graph, ids
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

    def _prepare(self, outputs: Outputs, ids: Any, is_tried: bool = True) -> None:
        """Compute everything that is known of the base."""
        detector, base = self._detector, outputs.graph
        scores = detector.score_samples(outputs)
        known = None if detector.calibration_ is None else detector.calibration_.scores
        lowest = scores.min().reshape(1)
        self._lowest = lowest if known is None else torch.cat([lowest, known.to(lowest)])
        self._spread = float(scores.double().std()) if len(scores) > 1 else 0.0
        self._references = [nodes.cpu().numpy() for nodes in outputs.references]
        whole = GrowingGraph(Edges.of(base), ids, self.directed, base.is_symmetric, self._max_neighbours)
        self._whole, whole.base = whole, base
        self._folder = GraphFolder(base.folder.path) if isinstance(base, FolderGraph) else None
        self._has_features_of_folder = isinstance(base, FolderGraph) and base.x is base.folder.x
        whole.add_column("x", _features_of(self._folder) if self._has_features_of_folder else base.x.clone())
        far, unseen = torch.zeros(2, base.num_nodes, dtype=torch.bool)
        if outputs.far is not None:
            far[outputs.far] = True
        whole.add_column("far", far)
        confidence, predicted = outputs.logits.softmax(dim=-1).max(dim=1)
        for name, column in (("score", scores), ("confidence", confidence), ("predicted", predicted)):
            whole.add_column(name, column.detach().cpu().clone())
        whole.add_column("seen", unseen if outputs.seen is None else outputs.seen)
        for name in ("gcn_scale", "in_degree", "effective_degree"):
            whole.add_column(name, getattr(base, name).clone())
        if outputs.has_cached(base.x, POSITIONS) and outputs.positions is not None:
            whole.add_column(POSITIONS, outputs.positions)
        self._known = []
        for number, each in enumerate(outputs.members or [outputs]):
            check_hops(each.module, base)
            self._known.append(Known(number, each.module, each.num_classes, whole))
            self._known[-1].learn(each)
        self._layers = SideBySide.of([known.module for known in self._known])
        self._tried = tried_nodes(base).tolist()
        self._find_reach(self._on_paths() if is_tried else None)
        self._base_version, self.base_key, whole.base = self.version, None, None
        for cache in base.caches.values():
            cache.clear()

    def _find_reach(self, paths: LiveGraph | None) -> None:
        """Try on known nodes from how many hops the network can be computed, and what else is right there.

        On ``paths`` first: known nodes may have nothing around them that is far enough away.
        """
        self._has_changed, wrong = False, [set[Any]()]
        first, of_logits = max(1, max(receptive_hops(known.module) for known in self._known) - 1), 0
        if paths is not None:
            first, of_logits = paths._reach, paths._reach_of_logits
            wrong = [{None, *own.places} - own.reaches_neighbours for own in paths._known]
            self._is_exact, self._is_exact_around = paths._try_arrivals()
        for self._reach in range(first, _MOST_REACH + 1):
            graph = self._tried_graph(self._reach)
            if self._has_right_logits(graph):
                break
        else:
            raise ValueError(
                f"{type(self._known[0].module).__name__} reads nodes that are more than {_MOST_REACH} hops away, so an "
                "arrival would have to be scored with most of the graph; add it to the graph and call "
                "Detector.score_samples, or choose another backbone"
            )
        # With what is kept of neighbours, fewer hops may do; scores need the neighbours' edges, too.
        fewer = range(of_logits, self._reach)
        right = (hops for hops in fewer if self._has_right_logits(self._tried_graph(hops)))
        self._reach_of_logits = next(right, self._reach)
        try:
            with torch.inference_mode():
                self._check(graph, set.union(*wrong))
        except RuntimeError:  # a scorer that differentiates
            self._needs_gradients = True
            self._check(graph, set.union(*wrong))

    def _tried_graph(self, reach: int) -> LocalGraph:
        return LocalGraph(self._whole, self._like, NO_INCOMING, self._tried, reach, cap=2**40)

    def _has_right_logits(self, graph: LocalGraph) -> bool:
        """Whether the targets get the same logits here as in the whole graph."""
        tried = np.array(self._tried)
        logits = ((self._member(known, graph).all_logits, known.logits_key) for known in self._known)
        return all(is_close(own[: len(tried)], self._whole.get(key, tried)) for own, key in logits)

    def _on_paths(self) -> LiveGraph:
        """A live graph of paths with the same model."""
        paths = LiveGraph.__new__(LiveGraph)
        paths._start(self._detector, max_neighbours=PATH)
        paths.directed = self.directed
        paths._prepare(self._detector.outputs(path_graph(self._whole), False), None, is_tried=False)
        return paths

    def _try_arrivals(self) -> tuple[bool, bool]:
        """Try on paths whether scores of linked arrivals are exact, and whether all is exact around them, too."""
        whole, first, scorers = self._whole, self._whole.num_nodes, members_of(self._detector.scorer_)
        if self._detector.scorer_.needs_reference:
            return False, False
        ends = np.arange(0, first, PATH)
        pairs = [(end, first + place, first + (place + 1) % len(ends)) for place, end in enumerate(ends.tolist())]
        links = [Edge(*pair) for end, new, next_one in pairs for pair in ((end, new), (new, end + 3), (new, next_one))]
        x, added = whole.get("x", ends + 5), whole.with_ways(links)
        expected, outputs = self._detector.outputs(as_data(whole, [], x, added), False), self._outputs(x, added, [])
        graph, outputs.graph.follows_scales = outputs.graph, not self.directed
        near = graph.complete[graph.complete < graph.num_near]
        around = is_close(outputs.logits[near], expected.logits[torch.from_numpy(graph.nodes)[near]])
        for key, values in whole.columns.items():  # no other value that is kept may count
            if isinstance(key, tuple) or key == "smoothed_x":
                whole.put(key, np.arange(first), 1.0 - 3.0 * values)
        found = self._target_scores(self._outputs(x, added, []))
        is_exact = is_close(found, self._detector.score_samples(expected)[first:])
        return is_exact, is_exact and around and not self.directed and all(each.is_row_wise for each in scorers)

    def _check(self, graph: LocalGraph, wrong_on_paths: set[Any]) -> None:
        for number, (known, scorer) in enumerate(zip(self._known, members_of(self._detector.scorer_), strict=True)):
            known.reaches_neighbours, before = {None, *known.places} - wrong_on_paths, -1
            while len(known.reaches_neighbours) != before:
                before = len(known.reaches_neighbours)
                outputs = self._member(known, graph, number)
                outputs.scores_of(scorer)
                if (wrong := known.check(outputs)) is None:
                    break
            else:
                raise not_local(wrong)

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
        return type(node) in (int, str) and self._whole.ids.find(node) is not None  # type: ignore[arg-type]

    def contains(self, ids: Sequence[Id]) -> np.ndarray:
        """Say of many ids whether there are nodes with them ``[n]``.

        Parameters
        ----------
        ids : sequence of int or str
            The ids.
        """
        with self._lock:
            return self._whole.ids.find_all(checked_ids(ids, "ids")) >= 0

    @property
    def num_nodes(self) -> int:
        """Number of nodes in the graph."""
        return self._whole.num_present

    @property
    def id_type(self) -> str:
        """``"int"`` or ``"str"``: what the ids of the base are."""
        return type(self._whole.ids[0]).__name__

    @property
    def next_id(self) -> int:
        """The id of the first arrival, if none are given; it never falls."""
        return self._whole.ids.next_id

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
            arrivals = read_arrivals(rows, edges, ids, self._whole, self._schema, self._like)
            outputs = self._outputs(arrivals.x, self._whole.with_ways(arrivals.edges), [])
            return self._judged(outputs, arrivals.ids, arrivals.unseen, bool(arrivals.edges), explain)

    def commit(
        self, rows: Any, edges: Any = (), *, ids: Sequence[Id] | None = None, explain: bool = False
    ) -> list[Judgement]:
        """Score arrivals, and add them with their edges to the graph.

        Parameters
        ----------
        rows, edges, ids, explain
            As for `score`, whose result it returns; edges may also join nodes of the graph.
        """
        return self.change(rows, edges, ids=ids, explain=explain)

    def add_edges(self, edges: Any) -> None:
        """Add edges between nodes of the graph.

        Parameters
        ----------
        edges : list, or table
            As for `score`; none of them may be in the graph already.
        """
        self.change(add_edges=edges)

    def remove_edges(self, edges: Any) -> None:
        """Remove edges between nodes of the graph; both directions, unless it is `directed`.

        Parameters
        ----------
        edges : list
            ``(source, target)`` by id; a weight, if there is one, is not looked at.
        """
        self.change(remove_edges=edges)

    def update(self, rows: Any, *, ids: Sequence[Id] | None = None, explain: bool = False) -> list[Judgement]:
        """Give other features to nodes of the graph, whose edges stay as they are.

        Parameters
        ----------
        rows : Tensor, array, or table
            As for `score`, whole rows.
        ids : sequence of int or str, optional
            The ids of the nodes ``[k]``, for rows that are given as features.
        explain : bool
            Whether to say why in words (`Judgement.why`).

        Returns
        -------
        list of Judgement
            One for every node, with its new features.
        """
        return self.change(change_nodes=rows, changed_ids=ids, explain=explain)

    def remove(self, ids: Sequence[Id]) -> None:
        """Remove nodes with their edges; they may be those of the base.

        Parameters
        ----------
        ids : sequence of int or str
            Their ids.
        """
        self.change(remove_nodes=ids)

    @gradients_enabled()
    def change(
        self,
        add_nodes: Any = None,
        add_edges: Any = (),
        *,
        change_nodes: Any = None,
        remove_nodes: Sequence[Id] = (),
        remove_edges: Any = (),
        ids: Sequence[Id] | None = None,
        changed_ids: Sequence[Id] | None = None,
        explain: bool = False,
    ) -> list[Judgement]:
        """Change the graph in several ways at once; all is checked first, and nothing changes if something is wrong.

        Edges and nodes are removed first, then features change, then nodes and edges are added. What is kept of a node
        with other edges or features is computed again, and what the networks say of its neighbours and of those of a
        removed node (of a hub, ``max_neighbours`` of them); their scores, too, if the method's scores are exact. All
        else keeps what is known of it until `rebase`.

        Parameters
        ----------
        add_nodes : Tensor, array, or table, optional
            Arrivals, as for `score`.
        add_edges : list, or table
            Edges as for `score`, but also between nodes of the graph.
        change_nodes : Tensor, array, or table, optional
            New rows of nodes of the graph, as for `update`.
        remove_nodes : sequence of int or str
            The ids of nodes to remove.
        remove_edges : list
            Edges to remove, as for `remove_edges`.
        ids, changed_ids : sequence of int or str, optional
            The ids of ``add_nodes`` and of ``change_nodes``, if these are given as features.
        explain : bool
            Whether to say why in words (`Judgement.why`).

        Returns
        -------
        list of Judgement
            One for every added node, then one for every changed node.
        """
        with self._lock:
            whole, like, version = self._whole, self._like, self.version
            new = like if add_nodes is None and self._schema is None else add_nodes
            arrivals = (
                Arrivals([], like, read_edges(add_edges, {}, whole, self._schema, True), [])
                if new is None
                else read_arrivals(new, add_edges, ids, whole, self._schema, like, joins_known=True)
            )
            changed_rows: tuple[list[Id], Tensor, list[dict[str, str]]] = [], like, []
            if change_nodes is not None or changed_ids is not None:
                changed_rows = read_rows(change_nodes, changed_ids, self._schema, like)
            changed, gone = self._found(changed_rows[0]), self._found(remove_nodes)
            lost = read_known_edges(remove_edges, whole, self._schema)
            used = {*changed, *(end for edge in arrivals.edges for end in edge[:2])}
            if not used.isdisjoint(gone):
                node = whole.ids[used.intersection(gone).pop()]
                raise GraphError(f"the node {node!r} is removed, but the same change gives it features or edges")
            known = [edge for edge in arrivals.edges if max(edge[:2]) < whole.num_nodes]
            self._has_changed |= bool(changed or gone or lost or known)
            touched, near = self._apply(changed, changed_rows[1], gone, lost, known)
            if not self._is_exact:  # their scores hardly change, but for those that are left without an edge
                around = np.array(sorted(near), dtype=np.int64)
                near = set(around[whole.get("in_degree", around).numpy() == 0].tolist())
                self._keep_inputs(set(around.tolist()) - touched - near)
            touched |= near
            self._keep_anew(touched)
            found: list[Judgement] = []
            if arrivals.ids:
                edges = [edge for edge in arrivals.edges if max(edge[:2]) >= whole.num_nodes]
                found = self._arrive(replace(arrivals, edges=edges), touched, explain)
            if changed:
                outputs = self._outputs(like, NO_INCOMING, changed)
                found += self._judged(outputs, *changed_rows[::2], has_edges=True, explain=explain)
            self.version = version + bool(arrivals.ids or arrivals.edges or changed or gone or lost)
            return found

    def _apply(
        self, changed: list[int], x: Tensor, gone: list[int], lost: list[Edge], known: list[Edge]
    ) -> tuple[set[int], set[int]]:
        """Change features and edges of known nodes; returns these nodes, and those that have other neighbours."""
        whole = self._whole
        touched: set[int] = set()
        for rows, apply in ((whole.rows_with(lost), whole.remove_edges), (whole.rows_with(known), whole.add_edges)):
            apply(rows)
            touched |= rows.keys()
        near = set[int]().union(*(whole.remove(node) for node in gone)).difference(gone)
        touched.difference_update(gone)
        self._keep_degrees(sorted(touched | near))
        if changed:
            index = np.array(changed)
            clipped, far = self._clipped(x)
            whole.put("x", index, clipped)
            whole.put("far", index, far)
            touched.update(changed)
            for node in changed:
                targets = whole.outgoing(node)
                near.update(targets[:: 1 + len(targets) // self._max_neighbours])
        return touched, near

    def _keep_anew(self, nodes: set[int]) -> None:
        """Compute what is kept of nodes again."""
        for outputs in self._outputs_of(nodes, self._reach):
            self._keep(outputs, self._target_scores(outputs))

    def _keep_inputs(self, nodes: set[int]) -> None:
        """Compute again what networks read of nodes and what they say of them, but not the scores."""
        for outputs in self._outputs_of(nodes, self._reach_of_logits):
            self._keep_rows(outputs)

    def _outputs_of(self, nodes: set[int], reach: int) -> Iterator[Any]:
        """The outputs on nodes of the graph, some at a time."""
        near = sorted(nodes)
        for first in range(0, len(near), _AT_ONCE):
            yield self._outputs(self._like, NO_INCOMING, near[first : first + _AT_ONCE], reach)

    def _arrive(self, arrivals: Arrivals, touched: set[int], explain: bool) -> list[Judgement]:
        whole = self._whole
        outputs = self._outputs(arrivals.x, whole.with_ways(arrivals.edges), [])
        outputs.graph.follows_scales = self._is_exact_around
        found = self._judged(outputs, arrivals.ids, arrivals.unseen, bool(arrivals.edges), explain)
        new, added = whole.add(arrivals.ids, arrivals.edges)
        outputs.graph.nodes[: len(new)] = new
        whole.put("x", new, outputs.graph.x[: len(new)])
        whole.put("far", new, torch.tensor([each.is_far for each in found]))
        self._keep_degrees(sorted({*new.tolist(), *added}))
        self._keep(outputs, self._target_scores(outputs), around=self._is_exact_around)
        self._has_changed = True
        if self._is_exact and added:  # others keep averages, which hardly change
            self._keep_anew(touched if self._is_exact_around else touched.union(added).difference(new.tolist()))
        return found

    # --- what is known of nodes ---

    def explain(self, ids: Sequence[Id]) -> list[Judgement]:
        """Score nodes of the graph as it is now, and say why in words.

        Parameters
        ----------
        ids : sequence of int or str
            Their ids.
        """
        return self.rescore(ids, explain=True)

    @gradients_enabled()
    def rescore(self, ids: Sequence[Id], *, explain: bool = False) -> list[Judgement]:
        """Score nodes of the graph as it is now.

        Parameters
        ----------
        ids : sequence of int or str
            Their ids.
        explain : bool
            Whether to say why in words (`Judgement.why`).
        """
        with self._lock:
            nodes = self._found(ids)
            if not nodes:
                return []
            outputs = self._outputs(self._like, NO_INCOMING, nodes)
            return self._judged(outputs, checked_ids(ids, "ids"), [{} for _ in nodes], True, explain)

    def scores_of(self, ids: Sequence[Id]) -> KeptScores:
        """Return what is kept of nodes of the graph; nothing is computed.

        The score of a node is that of the base, or of the last change of its features or edges.

        Parameters
        ----------
        ids : sequence of int or str
            Their ids.
        """
        with self._lock:
            return self._kept_scores(self._found_all(ids), checked_ids(ids, "ids"))

    def _kept_scores(self, nodes: np.ndarray, ids: list[Id]) -> KeptScores:
        whole, calibration = self._whole, self._detector.calibration_
        nothing: list[Any] = [None] * len(nodes)
        scores, confidence = whole.get("score", nodes), whole.get("confidence", nodes)
        is_judged = self._are_judged(nodes)
        p_values = nothing if calibration is None else calibration.p_values(scores).tolist()
        labels = range(self._detector.state_.num_classes) if self._schema is None else self._schema.classes
        return KeptScores(
            ids=ids,
            score=scores.tolist(),
            p_value=[p if judged else None for p, judged in zip(p_values, is_judged.tolist(), strict=True)],
            is_ood=nothing if calibration is None else (calibration.detect(scores) & is_judged).tolist(),
            predicted=[labels[number] for number in whole.get("predicted", nodes).tolist()],
            confidence=confidence.tolist(),
            exact=[self.version == self._base_version] * len(nodes),
            is_new=(nodes >= whole.num_base).tolist(),
            version=self.version,
        )

    def row(self, node: Id) -> dict[str, Any]:
        """Return the row of a node: its id, and its columns or, without tables, its features ``x``.

        Values of columns are as the model reads them: numbers far out are clipped, unseen categories missing.

        Parameters
        ----------
        node : int or str
            Its id.
        """
        with self._lock:
            x = self._whole.get("x", np.array(self._found([node])))[0].numpy()
            if self._schema is None:
                return {"id": node, "x": x.tolist()}
            return {self._schema.id_column: node, **decoded(x, self._schema)}

    def neighbours(self, node: Id, limit: int | None = None) -> list[tuple[Id, float]]:
        """Return the ids and the weights of the edges that lead to a node.

        Parameters
        ----------
        node : int or str
            Its id.
        limit : int, optional
            The most edges; of more, evenly spaced ones.
        """
        with self._lock:
            row = self._whole.row(self._found([node])[0])
            step = 1 if limit is None else 1 + max(0, len(row.sources) - 1) // max(limit, 1)
            pairs = zip(row.sources[::step].tolist(), row.weights[::step].tolist(), strict=True)
            return [(self._whole.ids[source], weight) for source, weight in pairs]

    def neighbourhood(self, ids: Sequence[Id], *, hops: int = 2, limit: int = 60) -> Neighbourhood:
        """Return nodes around others with the edges between them, for a picture; nothing is computed.

        Parameters
        ----------
        ids : sequence of int or str
            The ids of the nodes in the middle.
        hops : int
            How many edges away nodes may be, against the direction of edges.
        limit : int
            The most nodes, besides those in the middle; of a node with more neighbours, evenly spaced ones.
        """
        with self._lock:
            whole, nodes = self._whole, self._found_all(ids)
            far = dict.fromkeys(nodes.tolist(), 0)
            frontier, truncated = nodes, False
            for hop in range(1, hops + 1):
                if not len(frontier):
                    break
                found = whole.incoming(frontier, NO_INCOMING, max(limit, 1))
                fresh = [node for node in dict.fromkeys(found.sources.tolist()) if node not in far]
                room = len(nodes) + limit - len(far)
                truncated |= len(fresh) > room or bool(found.capped.any())
                far |= dict.fromkeys(fresh[:room], hop)
                frontier = np.array(fresh[:room], dtype=np.int64)
            chosen = np.array([*far], dtype=np.int64)
            edges: dict[tuple[int, int], float] = {}
            for node in chosen.tolist():
                row = whole.row(node)
                inside = np.isin(row.sources, chosen)
                for source, weight in zip(row.sources[inside].tolist(), row.weights[inside].tolist(), strict=True):
                    if self.directed or (node, source) not in edges:
                        edges[source, node] = weight
            names = [whole.ids[node] for node in chosen.tolist()]
            name = dict(zip(chosen.tolist(), names, strict=True))
            return Neighbourhood(
                hops=[*far.values()],
                edges=[(name[a], name[b], weight) for (a, b), weight in edges.items()],
                truncated=truncated,
                nodes=self._kept_scores(chosen, names),
            )

    # --- on disk ---

    def save(self, folder: str | os.PathLike) -> None:
        """Save the base with all that was computed of it, so that `open` need not compute it again.

        A base that is a `GraphFolder` stays there; others are saved with their features, edges and ids.

        Parameters
        ----------
        folder : path
            Where to: a new or an empty folder, or one with a live graph, which is replaced atomically.
        """
        with self._lock:
            if self.version != self._base_version:
                raise ValueError(
                    "the graph has changed since its base was prepared; save it right after it was made, opened or "
                    "rebased, and what has changed since with save_changes"
                )
            facts, arrays = self._saved_base()
            self.base_key = write(Path(folder), model_key(self._model), facts, arrays)

    def _saved_base(self) -> tuple[BaseFacts, dict[str, np.ndarray]]:
        whole = self._whole
        arrays = {f"column-{number}": each.numpy() for number, each in enumerate(whole.columns.values())}
        kind, ids = saved_ids(whole.ids.base)
        graph = "" if self._folder is None else _graph_key(self._folder)
        if self._folder is None:
            arrays |= whole.edges.arrays | ids
        elif self._has_features_of_folder:
            del arrays["column-0"]
        arrays |= {f"references-{number}": each for number, each in enumerate(self._references)}
        arrays["lowest"] = self._lowest.cpu().numpy()
        networks = []
        for number, known in enumerate(self._known):
            networks.append(NetworkFacts([*known.places], [*known.facts]))
            for place, ((owner, _), value) in enumerate(known.facts.items()):
                check_fact(value, owner)
                arrays |= dict(saved_fact(value, f"fact-{number}-{place}"))
        facts = BaseFacts(
            graph=graph,
            version=self.version,
            next_id=whole.ids.next_id,
            directed=self.directed,
            is_symmetric=whole.is_symmetric,
            max_neighbours=self._max_neighbours,
            reach=self._reach,
            tried=self._tried,
            spread=self._spread,
            ids=kind,
            columns=[[*key] if isinstance(key, tuple) else [key] for key in whole.columns],  # type: ignore[list-item]
            networks=networks,
        )
        return facts, arrays

    @classmethod
    @gradients_enabled()
    def open(cls, model: Detector | TableModel, folder: str | os.PathLike, *, graph: Any = None) -> Self:
        """Open what `save` has written; columns are mapped into memory, so that this takes seconds.

        Everything is checked: a `oddnode.large.FolderError` says what is damaged or does not belong to the model or to
        the graph. Then compute it again: ``LiveGraph(model, graph)``.

        Parameters
        ----------
        model : Detector or TableModel
            The same fitted model.
        folder : path
            What `save` has written.
        graph : GraphFolder or path, optional
            The base, if it is a graph folder; others are in ``folder``.
        """
        facts, arrays, key = read(Path(folder), model_key(model), BaseFacts)
        live = cls.__new__(cls)
        live._start(model, facts.max_neighbours)
        live._restore_base(facts, arrays, graph)
        live.base_key = key
        return live

    def _restore_base(self, facts: BaseFacts, arrays: dict[str, Tensor], graph: Any) -> None:
        self._folder = None if graph is None else graph if isinstance(graph, GraphFolder) else GraphFolder(graph)
        if (self._folder is not None) != bool(facts.graph):
            needed = (
                "a base in a graph folder; give it as graph" if facts.graph else "a base of its own; leave out graph"
            )
            raise FolderError(f"the saved live graph has {needed}")
        if self._folder is None:
            names = ("offsets", "sources", "weights")
            edges = Edges(*(arrays[name].numpy() if name in arrays else None for name in names))  # type: ignore[arg-type]
            ids = read_ids(facts.ids, arrays, len(arrays["offsets"]) - 1)
        else:
            if _graph_key(self._folder) != facts.graph:
                raise FolderError(f"the saved live graph belongs to another graph than {self._folder.path}")
            source, ids = self._opened(self._folder)
            edges = Edges.of(source.as_graph())
        self.directed, self._references, self._spread = facts.directed, [], facts.spread
        while (name := f"references-{len(self._references)}") in arrays:
            self._references.append(arrays[name].numpy())
        self._lowest, self._tried = arrays["lowest"], facts.tried
        whole = self._whole = GrowingGraph(edges, ids, facts.directed, facts.is_symmetric, facts.max_neighbours)
        whole.ids.next_id = facts.next_id
        self._has_features_of_folder = "column-0" not in arrays
        for number, key in enumerate(facts.columns):
            column = arrays.get(f"column-{number}")
            whole.add_column(key_of_column(key), _features_of(self._folder) if column is None else column)
        module, self._known = self._detector.state_.module, []
        for number, each in enumerate(module.members if isinstance(module, Ensemble) else [module]):
            known, own = Known(number, each, self._detector.state_.num_classes, whole), facts.networks[number]
            known.places = {key: place for place, key in enumerate(own.values)}
            known.facts = {key: read_fact(arrays, f"fact-{number}-{place}") for place, key in enumerate(own.facts)}
            self._known.append(known)
        self._layers = SideBySide.of([known.module for known in self._known])
        self.version = self._base_version = facts.version
        try:
            self._find_reach(self._on_paths())
        except ValueError:
            self._reach = 0
        if self._reach != facts.reach:
            raise FolderError("what was saved is not what the model computes; delete it, and make the live graph anew")

    def save_changes(self, folder: str | os.PathLike) -> None:
        """Save what has changed since the base, which was saved before; as much as has changed.

        Parameters
        ----------
        folder : path
            Where to: a new or an empty folder, or one with changes, which are replaced atomically.
        """
        with self._lock:
            if self.base_key is None:
                raise ValueError("the base is not saved; call save before the graph changes")
            whole = self._whole
            facts = ChangeFacts(self.base_key, self.version, whole.num_nodes, whole.ids.next_id)
            _, added = saved_ids([*whole.ids.added, 0, ""])  # a mixture in any case
            arrays = whole.changes() | added
        write(Path(folder), model_key(self._model), facts, arrays)  # copies, so that others need not wait

    def load_changes(self, folder: str | os.PathLike) -> None:
        """Apply what `save_changes` has written to the base; scores are then the same, bit for bit.

        Parameters
        ----------
        folder : path
            What `save_changes` has written, for a live graph with the same base.
        """
        with self._lock:
            if self.version != self._base_version:
                raise ValueError("the graph has changed already; load changes right after open")
            facts, arrays, _ = read(Path(folder), model_key(self._model), ChangeFacts)
            if facts.base != self.base_key:
                raise FolderError(f"{folder} has changes of another base; delete it")
            found = {name: values.numpy() for name, values in arrays.items()}
            self._whole.restore(found, facts.num_nodes, mixed_ids(found.pop("ids"))[:-2], facts.next_id)
            self._has_changed, self.version = facts.version != self.version, facts.version

    # --- the whole graph anew ---

    @gradients_enabled()
    def rebase(self) -> None:
        """Compute everything anew for the graph as it is now, which then is the base, in memory."""
        with self._lock:
            other = copy.copy(self)  # so that nothing has changed if this fails
            other._rebase(self._whole, None)
            version = self.version + 1
            vars(self).update(vars(other), version=version, _base_version=version)

    @gradients_enabled()
    def rebased(self, folder: str | os.PathLike | None = None) -> LiveGraph:
        """Compute everything anew for the graph as it is now, beside this one, which answers in the meantime.

        Only the features and what has changed are copied under the lock. Changes that are made in the meantime are not
        in the result; apply them to it before it takes the place of this one.

        Parameters
        ----------
        folder : path, optional
            Where to write the new base, if this one is a graph folder: a new or an empty folder. By default it is in
            memory.

        Returns
        -------
        LiveGraph
            The new one, with the version of this one.
        """
        if folder is not None and self._folder is None:
            raise ValueError("folder is for a base that is a graph folder; save writes a base that is in memory")
        with self._lock:
            other, first = copy.copy(self), _features_of(self._folder) if self._has_features_of_folder else None
            whole = self._whole.snapshot({"x": first, "seen": None, "far": None})
        other._lock = threading.RLock()
        other._rebase(whole, folder)
        return other

    def _rebase(self, whole: GrowingGraph, folder: str | os.PathLike | None) -> None:
        nodes = whole.present
        if folder is None or self._folder is None:
            source: Any = as_data(whole, self._references, self._like, NO_INCOMING)
        else:
            source = write_graph(whole, self._references, self._folder, folder)
        far, outputs = whole.get("far", nodes), self._base_outputs(source)
        if bool(far.any()):  # they are clipped already
            outputs.far = far.nonzero().squeeze(1)
        next_id = whole.ids.next_id
        self._prepare(outputs, whole.ids.take(nodes))
        self._whole.ids.next_id = next_id

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
        if min(num_arrivals, self.num_nodes) < 1:
            raise ValueError(f"{num_arrivals} copies of {self.num_nodes} nodes, expected 1 or more of both")
        with self._lock:
            whole = self._whole
            order = np.random.default_rng(seed).permutation(whole.present)
            linked = [node for node in order[: 20 * num_arrivals].tolist() if len(whole.row(node).sources)]
            nodes = np.array((linked or order.tolist())[:num_arrivals])
            rows = [(whole.num_nodes + place, whole.row(node)) for place, node in enumerate(nodes.tolist())]
            links = {(int(a), b): float(w) for b, row in rows for a, w in zip(*row, strict=True)}
            added = whole.with_ways([Edge(*ends, weight) for ends, weight in links.items()])
            new = whole.get("x", nodes)
            found = self._judged(self._outputs(new, added, []), nodes.tolist(), [{} for _ in nodes], True, False)
            outputs = self._base_outputs(as_data(whole, self._references, new, added))
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

    def _found(self, ids: Sequence[Id]) -> list[int]:
        nodes = self._found_all(ids).tolist()
        if len(set(nodes)) < len(nodes):
            node = next(node for node, index in zip(ids, nodes, strict=True) if nodes.count(index) > 1)
            raise GraphError(f"the id {node!r} is given twice")
        return nodes

    def _found_all(self, ids: Sequence[Id]) -> np.ndarray:
        """The indices of nodes, some of which may be given twice ``[n]``."""
        if isinstance(ids, (int, str)):
            raise TypeError(f"ids is {ids!r}, expected a list of ids")
        checked = checked_ids(ids, "ids")
        nodes = self._whole.ids.find_all(checked)
        if (nodes < 0).any():
            raise GraphError(f"there is no node with the id {checked[int((nodes < 0).argmax())]!r}")
        return nodes

    @_quick
    def _outputs(self, new: Tensor, added: Incoming, known: Sequence[int], reach: int | None = None) -> Any:
        state, is_far = self._detector.state_, self._whole.get("far", np.array(known, dtype=np.int64))
        if len(new):
            new, is_new_far = self._clipped(new)
            is_far = torch.cat([is_new_far, is_far])
        graph = LocalGraph(self._whole, new, added, known, self._reach if reach is None else reach)
        members = [self._member(known, graph, number) for number, known in enumerate(self._known)]
        outputs: Outputs = members[0]
        if len(members) > 1:
            together = None if self._layers is None else Networks(self._layers, graph)
            for number, each in enumerate(members):
                each.networks, each.number = together, number
            members[0]._sharing_with([*members])
            references = [each.references[0] for each in members if each.references]
            outputs = Outputs(state.module, graph, state.num_classes, references=references)
            outputs.members = [*members]
            outputs.without_edges = Outputs(state.module, graph.alone, state.num_classes)
        outputs.far = is_far.nonzero().squeeze(1) if bool(is_far.any()) else None
        return outputs

    def _clipped(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features within the range of training, and which rows are far outside it."""
        graph = Graph(x, torch.empty(2, 0, dtype=torch.long))
        clipped, far = clip_far_features(graph, self._detector.state_.max_abs_feature)
        is_far = torch.zeros(len(x), dtype=torch.bool)
        is_far[[] if far is None else far] = True
        return clipped.x, is_far

    @_quick
    def _target_scores(self, outputs: Any) -> Tensor:
        count, judged = outputs.graph.num_targets, self._judged_together(outputs)
        scores = outputs.scores_of(self._detector.scorer_)[:count] if judged is None else judged.scores.mean(dim=1)
        targets = lower_far_scores(scores.detach(), outputs.far, self._lowest)
        if not bool(targets.isfinite().all()):
            raise ValueError("a score is not finite: the network's outputs overflow; check the scale of the features")
        return targets

    def _judged_together(self, outputs: Any) -> Judged | None:
        """What several kinds of evidence say of the targets; ``None`` if the method does not combine any."""
        scorers = [each for each in members_of(self._detector.scorer_) if type(each) is Evidence]
        if len(scorers) < len(self._known):
            return None
        own = partial(judge_together, scorers, outputs.members or [outputs], outputs.graph.num_targets)
        return Outputs.cached(outputs, self, "judged", own)

    def _are_judged(self, nodes: np.ndarray, x: Tensor | None = None) -> Tensor:
        """Whether the threshold applies to nodes: it says nothing about types of nodes without labels."""
        if self._schema is None or self._schema.features.types is None:
            return torch.ones(len(nodes), dtype=torch.bool)
        x = self._whole.get("x", nodes) if x is None else x
        return torch.from_numpy(self._schema.features.of_labelled_type(x.numpy(), len(nodes)))

    @_quick
    def _judged(
        self, outputs: Any, ids: Sequence[Id], unseen: list[dict[str, str]], has_edges: bool, explain: bool
    ) -> list[Judgement]:
        state, graph, count = self._detector.state_, outputs.graph, outputs.graph.num_targets
        targets = self._target_scores(outputs)
        confidence, predicted = outputs.logits[:count].softmax(dim=-1).max(dim=1)
        calibration, nothing = self._detector.calibration_, [None] * count
        is_judged = self._are_judged(graph.nodes[:count], graph.x[:count])
        labels = range(state.num_classes) if self._schema is None else self._schema.classes
        num_edges = torch.bincount(graph.edge_index[1], minlength=count)[:count].tolist()
        kinds, why = self._kinds(outputs, count), nothing
        if explain:
            names = [*ids, *(self._whole.ids[node] for node in graph.nodes[count:].tolist())]
            all_scores = torch.cat([targets, outputs.scores_of(state.scorer).detach()[count:]])
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
        needs_reference = self._detector.scorer_.needs_reference
        if not has_edges or (self._is_exact and not len(graph.capped)):
            # Reference nodes keep the scores that they had in the base.
            return [not (needs_reference and self._has_changed)] * len(num_edges)
        return [not count and not needs_reference for count in num_edges]

    def _kinds(self, outputs: Outputs, count: int) -> list[tuple[KindOfEvidence, ...]]:
        """Every kind of evidence against the targets."""
        scorer, judged = self._detector.scorer_, self._judged_together(outputs)
        if judged is not None:
            surprises, contributions = (each.mean(dim=1).tolist() for each in judged[1:])
        elif found := scorer.comparisons(outputs):
            surprises, contributions = (
                torch.stack([getattr(each, name)[:count] for each in found]).mean(dim=0).tolist()
                for name in ("surprises", "contributions")
            )
        else:
            return [()] * count
        rows = zip(surprises, contributions, strict=True)
        kinds = scorer.kinds
        return [tuple(map(KindOfEvidence, kinds, *row)) for row in rows]

    def _keep_degrees(self, nodes: list[int]) -> None:
        """Update what depends on the number and the weights of a node's edges."""
        if not nodes:
            return
        whole, index = self._whole, np.array(nodes)
        found = np.array([_degrees(whole.row(node), node) for node in nodes])
        for name, values in zip(("in_degree", "effective_degree", "gcn_scale"), found.T, strict=True):
            whole.put(name, index, torch.from_numpy(np.ascontiguousarray(values)))

    @_quick
    def _keep(self, outputs: Any, scores: Tensor, around: bool = False) -> None:
        """Update what is known of targets and of their neighbours; their scores, too, if these are exact ``around``."""
        graph, whole = outputs.graph, self._whole
        chosen, rows, nodes = torch.arange(graph.num_targets), graph.complete, graph.nodes[graph.complete.numpy()]
        if around:
            near = rows[(rows >= graph.num_targets) & (rows < graph.num_near)]
            far = whole.get("far", graph.nodes[near.numpy()]).nonzero().squeeze(1)
            own = outputs.scores_of(self._detector.scorer_)[near]
            chosen, scores = torch.cat([chosen, near]), torch.cat([scores, lower_far_scores(own, far, self._lowest)])
        confidence, predicted = outputs.logits[chosen].softmax(dim=-1).max(dim=1)
        for name, own in (("score", scores), ("confidence", confidence), ("predicted", predicted)):
            whole.put(name, graph.nodes[chosen.numpy()], own)
        self._keep_rows(outputs)
        members = outputs.members or [outputs]
        for scorer, member in zip(members_of(self._detector.scorer_), members, strict=True):
            if isinstance(scorer, Evidence) and scorer.around_hops:  # it counts for others, if not for the targets
                scorer.scores_around(member)
        shared = {key: own for each in members for key, own in each.values.items() if each.is_shared(key)}
        for member in members:
            values = whole.get(member.known.values_key, nodes)
            for key, own in (shared | member.values).items():
                values[:, member.known.places[key]] = own[rows]
            whole.put(member.known.values_key, nodes, values)

    @_quick
    def _keep_rows(self, outputs: Any) -> None:
        """Update what networks read of rows whose edges are complete, and their logits."""
        graph, whole = outputs.graph, self._whole
        rows, nodes = graph.complete, graph.nodes[graph.complete.numpy()]
        for member in outputs.members or [outputs]:
            whole.put(member.known.logits_key, nodes, member.all_logits[rows])
        for key, values in graph.kept.items():
            whole.put(key, nodes, values[rows])
        if len(graph.moved):
            whole.put("smoothed_x", graph.nodes[graph.moved.numpy()], graph.kept["smoothed_x"][graph.moved])


def _on_cpu(detector: Detector) -> Detector:
    state, other = detector.state_, copy.copy(detector)
    other.device = "cpu"
    if any(parameter.device.type != "cpu" for parameter in state.module.parameters()):
        module = copy.deepcopy(state.module).cpu()
        other._with_state(replace(state, module=module), detector.calibration_)
    return other


def _features_of(folder: GraphFolder | None) -> Tensor:
    """The features of a folder, mapped once more, so that they can be changed in memory."""
    assert folder is not None
    return map_array(folder.path / "x.bin", folder.manifest.arrays["x"])


def _graph_key(folder: GraphFolder) -> str:
    """A hash of the features, edges and ids of a folder."""
    arrays = folder.manifest.arrays
    ids = {name: arrays[name].crc32 for name in ID_ARRAYS if name in arrays}
    return f"{folder.manifest.graph_key} {ids}"


def _check_local(scorer: Scorer) -> None:
    if scorer.is_local:
        return
    for inner in getattr(scorer, "scorers", ()):
        _check_local(inner)
    raise not_local(scorer)


def _degrees(row: Row, node: int) -> tuple[float, float, float]:
    """The in-degree, the effective degree and the scale of a graph convolution, as `oddnode.graph.Graph` has them."""
    weights, is_loop = row.weights, row.sources == node
    total, squares = weights.sum(), np.square(weights).sum()
    loop = weights[is_loop].mean() if is_loop.any() else 1.0
    return total, total**2 / squares if squares > 0 else 0.0, (weights[~is_loop].sum() + loop) ** -0.5
