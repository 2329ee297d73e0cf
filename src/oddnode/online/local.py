"""The neighbourhood of a few nodes as a graph, on which ordinary networks and scorers run.

Rows are ordered by distance: the nodes to score (*targets*), their neighbours, and so on. The edges of all rows up to
`reach` hops away (*inner* rows) are complete. The rows at the rim have no edges, and what a network or a scorer
computes there is replaced by what it computed on the whole graph before the arrivals came.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode._utils.lazy import cached_property
from oddnode.graph import Graph
from oddnode.graph.graph import cached_in
from oddnode.graph.sampling import NodeNumbering
from oddnode.nn import Backbone, embed_with, run_backbone
from oddnode.nn.base import TwoLayers, network_blocker
from oddnode.online.growing import GrowingGraph, Incoming
from oddnode.ops import SparseMatrix, weighted_in_degree, with_self_loops
from oddnode.scoring import Outputs, Propagated, PropagatingScorer, Scorer
from oddnode.scoring.combinations import CombinedScorer
from oddnode.scoring.folder_outputs import RowOutputs

T = TypeVar("T")
#: What a cached value is known by: its owner, with its settings, and its name.
ValueKey = tuple[str, str]
_MOST_NAMES = 1000
#: The name of the column of positions (`oddnode.graph.positions`).
POSITIONS = "positions"


class LocalGraph(Graph):
    """Arrivals (``new``: features; ``added``: their edges) and ``known`` targets, with what is around them."""

    def __init__(
        self,
        whole: GrowingGraph,
        new: Tensor,
        added: Incoming,
        known: Sequence[int],
        reach: int,
        cap: int | None = None,
    ):
        arrivals = np.arange(whole.num_nodes, whole.num_nodes + len(new))
        numbering = NodeNumbering(np.concatenate([arrivals, np.array(known, dtype=np.int64)]))
        self.whole, self.reach, self.num_new = whole, reach, len(new)
        self.num_targets = self.num_inner = len(numbering.nodes)
        first, rows, cols, weights, capped = 0, [], [], [], []
        for _ in range(reach + 1):
            frontier, self.num_inner = numbering.nodes[first:], len(numbering.nodes)
            found = whole.incoming(frontier, added, whole.max_neighbours if cap is None else cap)
            cols.append(first + found.owner)
            rows.append(numbering.number(found.sources))
            if not first:  # nodes with new edges count differently in graph convolutions, however far they are
                numbering.number(np.unique(added.owner[added.owner < whole.num_nodes]))
                self.num_near = len(numbering.nodes)
            weights.append(found.weights)
            capped.append(first + np.flatnonzero(found.capped))
            first = self.num_inner
        # A last row that nothing reads stands for the reference nodes that are not here.
        self.nodes, self.capped = np.append(numbering.nodes, 0), torch.from_numpy(np.concatenate(capped))
        edges = torch.from_numpy(np.stack([np.concatenate(rows), np.concatenate(cols)]))
        x = torch.cat([new, whole.get("x", self.nodes[len(new) :])])
        weight = torch.from_numpy(np.concatenate(weights)).to(x.dtype) if whole.is_weighted else None
        super().__init__(x, edges, weight)
        self.kept: dict[Hashable, Tensor] = {}  # columns of `whole` as they are with the arrivals
        complete = torch.ones(self.num_inner, dtype=torch.bool)
        complete[self.capped] = False
        self.complete = complete.nonzero().squeeze(1)
        #: Whether rows at the rim follow the scales of their neighbours, if the graph is undirected; which `moved`.
        self.follows_scales, self.moved = False, torch.empty(0, dtype=torch.long)

    def _at_rim(self, values: Tensor, key: Hashable) -> Tensor:
        """Replace the values of rows whose edges are not complete by those of the whole graph."""
        values[self.num_inner :] = self.whole.get(key, self.nodes[self.num_inner :]).to(values)
        if len(self.capped):
            values[self.capped] = self.whole.get(key, self.nodes[self.capped.numpy()]).to(values)
        return values

    # --- what depends on edges that are not all here ---

    @property
    def is_symmetric(self) -> bool:
        return self.whole.is_symmetric

    @property
    @cached_in("edges")
    def in_degree(self) -> Tensor:
        return self._at_rim(Graph.in_degree.fget(self), "in_degree")  # type: ignore[attr-defined]

    @property
    @cached_in("edges")
    def effective_degree(self) -> Tensor:
        if self.edge_weight is None:
            return self.in_degree
        return self._at_rim(Graph.effective_degree.fget(self), "effective_degree")  # type: ignore[attr-defined]

    @property
    @cached_in("edges")
    def random_walk(self) -> SparseMatrix:
        source, target = self.edge_index
        counts = torch.bincount(target, minlength=self.num_nodes)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        weight = torch.ones_like(source, dtype=torch.float64) if self.edge_weight is None else self.edge_weight.double()
        total = torch.zeros(self.num_nodes, dtype=torch.float64).index_add_(0, target, weight)
        share = (weight / total[target]).to(self.x.dtype)
        # The edges are sorted by target.
        return SparseMatrix.from_csr(offsets.int(), source.int(), share, (self.num_nodes, self.num_nodes))

    @property
    @cached_in("edges")
    def gcn_matrix(self) -> SparseMatrix:
        weight = self.edge_weight
        weight = torch.ones_like(self.edge_index[0], dtype=self.x.dtype) if weight is None else weight
        edges, weight = with_self_loops(self.edge_index, self.num_nodes, weight)
        scale = weighted_in_degree(edges, self.num_nodes, weight).to(self.x.dtype).pow(-0.5)
        self._scale = scale = self._at_rim(scale, "gcn_scale")
        values = scale[edges[0]] * weight * scale[edges[1]]
        return SparseMatrix(edges[1], edges[0], values, (self.num_nodes, self.num_nodes))

    @property
    def sparse_x(self) -> None:
        return None

    @property
    @cached_in("graph")
    def smoothed_x(self) -> Tensor:
        self.whole.ensure("smoothed_x", lambda base: base.smoothed_x)
        values = self._at_rim(self.gcn_matrix @ self.x, "smoothed_x")
        if self.follows_scales:
            self._follow(values)
        self.kept["smoothed_x"] = values
        return values

    def _follow(self, values: Tensor) -> None:
        """Count known nodes with new edges as they now do in the values of their neighbours at the rim."""
        change, linked = torch.zeros_like(self._scale), slice(self.num_targets, self.num_near)
        change[linked] = self._scale[linked] - self.whole.get("gcn_scale", self.nodes[linked]).to(change)
        edges = ((change[self.edge_index[1]] != 0) & (self.edge_index[0] >= self.num_inner)).nonzero().squeeze(1)
        source, target = self.edge_index[:, edges]
        weight = 1.0 if self.edge_weight is None else self.edge_weight[edges]
        values.index_add_(0, source, (change[target] * self._scale[source] * weight).unsqueeze(1) * self.x[target])
        self.moved = source.unique()

    def support(self, num_hops: int, eta: float) -> Tensor:
        key = ("support", num_hops, eta)
        self.whole.ensure(key, lambda base: base.support(num_hops, eta))
        if key not in self.kept:
            known = self.whole.get(key, self.nodes[self.num_new :]).to(self.x)
            values = torch.cat([self.x.new_ones(self.num_new), known.reciprocal()])
            if 0 < num_hops <= self.reach + 1:
                values[: self.num_targets] = self._squares(num_hops, eta)
            else:  # one over the support is a mean over neighbours if their averages are over the same nodes
                values = self.continued(values, self.x.new_ones(self.num_targets), num_hops, eta)
            self.kept[key] = values.reciprocal()
        return self.kept[key]

    def _squares(self, num_hops: int, eta: float) -> Tensor:
        """The sum of the squares of the weights in every target's average over a few hops."""
        nodes, shares = torch.arange(self.num_nodes), self.random_walk.oriented(transpose=False).values()
        own = torch.where(self.random_walk.row_counts() > 0, eta, 1.0).to(
            shares
        )  # a node without edges keeps its score
        ends = torch.cat([self.edge_index.flip(0), nodes.expand(2, -1)], dim=1)
        values, size = torch.cat([(1.0 - eta) * shares, own]), (len(nodes), len(nodes))
        hop = torch.sparse_coo_tensor(ends, values, size, check_invariants=False).coalesce()
        power = hop.index_select(0, nodes[: self.num_targets])
        for _ in range(num_hops - 1):
            power = torch.sparse.mm(power, hop)
        return power.pow(2).sum(dim=1).to_dense()

    def empty(self, width: int | None, dtype: torch.dtype | None = None, is_factor: bool = False) -> Tensor:
        return super().empty(width, dtype).zero_()

    def neighbour_means(self, *args: Any, **kwargs: Any) -> Any:
        for _, means in super().neighbour_means(*args, **kwargs):
            yield slice(0, self.num_inner), means[: self.num_inner]

    @property
    @cached_in("graph")
    def alone(self) -> Graph:
        """The same nodes without edges."""
        return Graph(self.x, self.edge_index[:, :0])

    @property
    @cached_in("edges")
    def _to_targets(self) -> tuple[SparseMatrix, bool]:
        """The rows of `random_walk` at the targets, and whether one of them is a neighbour of another."""
        target = self.edge_index[1]
        own = target < self.num_targets
        walk = self.random_walk.oriented(transpose=False)
        count = int(own.sum())
        parts = walk.crow_indices()[: self.num_targets + 1], walk.col_indices()[:count], walk.values()[:count]
        matrix = SparseMatrix.from_csr(*parts, (self.num_targets, self.num_nodes))
        return matrix, bool((self.edge_index[0][own] < self.num_targets).any())

    def continued(self, averages: Tensor, own: Tensor, num_hops: int, eta: float, keeps: bool = True) -> Tensor:
        """Propagate the scores of targets over many hops, with the averages of all other nodes as they were.

        After many hops a node's average is the mean of its neighbours', whose averages hardly contain its own score.
        """
        matrix, are_linked = self._to_targets
        values, count = averages.clone(), self.num_targets
        values[:count] = 0.0
        from_others, left = matrix @ values, eta**num_hops
        result = left * own + (1.0 - left) * from_others
        alone = matrix.row_counts() == 0
        if are_linked:
            values[:count] = own
            for _ in range(num_hops):
                values[:count] = eta * values[:count] + (1.0 - eta) * (matrix @ values)
                if keeps:  # others count with it, too
                    values[:count][alone] = own[alone]
            result = values[:count].clone()
        result[alone] = own[alone] if keeps else left * own[alone]
        return torch.cat([result, averages[count:]])


class Known:
    """What one network and its scorers computed on the whole graph, and how far that can be computed locally."""

    def __init__(self, number: int, module: nn.Module, num_classes: int, whole: GrowingGraph):
        self.module, self.num_classes, self.whole = copy.deepcopy(module).requires_grad_(False), num_classes, whole
        self._names: dict[int, tuple[object, str]] = {}
        self.logits_key, self.values_key = ("logits", number), ("values", number)
        self.places: dict[ValueKey, int] = {}  # the columns of values
        self.facts: dict[ValueKey, Any] = {}  # about the whole graph, not about a node
        #: Values, and ``None`` for the logits, that are right at the neighbours of targets as well.
        self.reaches_neighbours: set[ValueKey | None] = set()

    def learn(self, outputs: Outputs) -> None:
        """Keep what was computed on the whole graph."""
        whole, logits = self.whole, outputs.all_logits.detach().cpu()
        whole.add_column(self.logits_key, logits)
        columns: list[Tensor] = []
        for owner, name, value in outputs.cached_values():
            key, shape = self.key(owner, name), value.shape if isinstance(value, Tensor) else ()
            if name == "known":
                self.facts[key] = value
            elif shape == (whole.num_base,) and key not in self.places:
                self.places[key] = len(columns)
                columns.append(value.detach().to(outputs.graph.x.dtype).cpu())
        whole.add_column(self.values_key, torch.stack(columns, dim=1) if columns else logits.new_empty(len(logits), 0))

    def key(self, owner: object, name: str) -> ValueKey:
        """What a value is known by: scorers with the same settings that were fitted together are equal."""
        known = self._names.get(id(owner))
        if known is None:
            if len(self._names) >= _MOST_NAMES:  # scorers may be copied whenever they are used
                self._names.clear()
            known = self._names[id(owner)] = owner, repr(owner)
        return known[1], name

    def check(self, outputs: LocalOutputs) -> object | None:
        """Compare what was computed around known nodes with what is known, which decides what can be used there.

        Returns a scorer whose scores are wrong, perhaps because another one was used where it cannot be.
        """
        graph, wrong = outputs.graph, None
        neighbours = graph.complete[graph.complete >= graph.num_targets]
        logits = self.whole.get(self.logits_key, graph.nodes[neighbours.numpy()])
        if not is_close(outputs.all_logits[neighbours], logits):
            self.reaches_neighbours.discard(None)
        expected = self.whole.get(self.values_key, graph.nodes)
        for key, place in self.places.items():
            found, owner = outputs.values.get(key), outputs.owners.get(key)
            # Long averages are continued, which is not exact; of other propagating scorers nothing is known.
            is_known = isinstance(owner, Propagated) or not isinstance(owner, PropagatingScorer)
            is_long = isinstance(owner, CombinedScorer) and owner.num_hops_used > graph.reach + 1 and is_known
            # With a prior, the number of nodes in an average is estimated on the whole graph.
            is_long |= isinstance(owner, Propagated) and owner.prior_nodes > 0 and key[1] == "score"
            if found is None or is_long or (isinstance(owner, Scorer) and owner.needs_reference):
                self.reaches_neighbours.discard(key)
                continue
            own = expected[:, place]
            if wrong is None and not is_close(found[: graph.num_targets], own[: graph.num_targets]):
                wrong = owner
            if not is_close(found[neighbours], own[neighbours]):
                self.reaches_neighbours.discard(key)
        return wrong


def not_local(scorer: object) -> ValueError:
    """The error for a scorer that reads more than the neighbourhood of a node."""
    return ValueError(
        f"{type(scorer).__name__} scores a node by more than its neighbourhood, so arrivals cannot be scored from "
        "theirs; add them to the graph and call Detector.score_samples, or choose another method"
    )


def is_close(found: Tensor, expected: Tensor) -> bool:
    """Whether two tensors are equal up to rounding."""
    size = float(expected.abs().max()) if expected.numel() else 0.0
    return torch.allclose(found.to(expected), expected, rtol=1e-4, atol=1e-5 * max(size, 1e-3))


class SideBySide(NamedTuple):
    """The layers of several networks of two layers, of the same size, side by side: one product serves them all."""

    weight: Tensor  # of the first layers `[M H, F]`
    bias: Tensor  # `[M H]`
    norm: list[Tensor]  # of all batch norms: mean, variance, weight and bias `[M H]`; empty without them
    eps: float
    last: list[TwoLayers]

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> SideBySide | None:
        """Take networks apart; ``None`` for a single one, or for others."""
        if len(modules) < 2 or any(network_blocker(module) is not None for module in modules):
            return None
        layers = [TwoLayers.of(module) for module in modules]
        norms: list[Any] = [each.norm for each in layers]
        if len({(type(norm), getattr(norm, "eps", 0.0), layers[0].uses_edges) for norm in norms}) > 1:
            return None
        names = ("running_mean", "running_var", "weight", "bias") if isinstance(norms[0], nn.BatchNorm1d) else ()
        joined = [torch.cat([getattr(norm, name) for norm in norms]) for name in names]
        weight, bias = torch.cat([each.weight for each in layers]), torch.cat([each.bias for each in layers])
        return cls(weight, bias, joined, getattr(norms[0], "eps", 0.0), layers)

    def hidden(self, inputs: Tensor) -> list[Tensor]:
        """The hidden features of each network."""
        values = torch.addmm(self.bias, inputs, self.weight.t())
        if self.norm:
            mean, variance, weight, bias = self.norm
            values = F.batch_norm(values, mean, variance, weight, bias, eps=self.eps)
        return list(values.relu_().chunk(len(self.last), dim=1))

    def logits(self, hidden: list[Tensor], graph: Graph | None) -> list[Tensor]:
        """The logits of each network, with the edges of a graph or without any."""
        bias = torch.cat([each.last_bias for each in self.last])
        products = torch.cat([own @ each.last_weight.t() for own, each in zip(hidden, self.last, strict=True)], dim=1)
        logits = (products if graph is None else graph.gcn_matrix @ products) + bias
        return list(logits.chunk(len(self.last), dim=1))


class Networks:
    """What several networks compute on a local graph, all of them together."""

    def __init__(self, layers: SideBySide, graph: LocalGraph):
        self._layers, self._graph, self._uses_edges = layers, graph, layers.last[0].uses_edges

    @cached_property
    def hidden(self) -> list[Tensor]:
        return self._layers.hidden(self._graph.smoothed_x if self._uses_edges else self._graph.x)

    @cached_property
    def logits(self) -> list[Tensor]:
        return self._layers.logits(self.hidden, self._graph if self._uses_edges else None)

    @cached_property
    def alone(self) -> list[Tensor]:
        """The logits of the same nodes without edges."""
        return self._layers.logits(self._layers.hidden(self._graph.alone.x), None)


class LocalOutputs(Outputs):
    """The outputs of one network around some nodes; only those of the targets are sure to be right."""

    graph: LocalGraph
    averages_together = False
    networks: Networks | None = None  # all networks together, of which this is one
    number = 0

    def __init__(
        self, known: Known, graph: LocalGraph, references: Sequence[Tensor], far: Tensor | None, seen: Tensor | None
    ):
        super().__init__(known.module, graph, known.num_classes, None, references, far, seen, uses_batch=False)
        self.known = known
        self.values: dict[ValueKey, Tensor] = {}
        self.owners: dict[ValueKey, object] = {}

    def is_shared(self, key: ValueKey) -> bool:
        """Whether a value is that of all networks."""
        return bool(getattr(self.owners[key], "is_shared", False))

    @cached_property
    def _of_known(self) -> Tensor:
        """The values of all nodes before arrivals came, by name; those of arrivals mean nothing."""
        graph = self.graph
        nodes = graph.nodes.copy()
        nodes[: graph.num_new] = 0
        return self.known.whole.get(self.known.values_key, nodes).t().contiguous()

    def _filled(self, value: Tensor, known: Tensor, reaches_neighbours: bool) -> Tensor:
        """Take what is computed here at targets, and perhaps at their neighbours; elsewhere what was known before."""
        graph = self.graph
        last = graph.num_inner if reaches_neighbours else graph.num_targets
        known = known.to(value.dtype)
        capped = graph.capped[graph.capped >= graph.num_targets] if reaches_neighbours and len(graph.capped) else None
        before = known[[] if capped is None else capped]
        known[:last] = value[:last]  # a copy of what is kept
        if capped is not None:
            known[capped] = before
        return known

    @cached_property
    def all_logits(self) -> Tensor:
        module = self.module
        if self.networks is not None:
            logits = self.networks.logits[self.number]
        elif isinstance(module, Backbone) and type(module).run is Backbone.run:
            logits = module.head(self.hidden, self.graph)
        else:
            logits = run_backbone(module, self.graph)
        nodes = self.graph.nodes.copy()
        nodes[: self.graph.num_new] = 0
        known = self.known.whole.get(self.known.logits_key, nodes)
        return self._filled(logits, known, None in self.known.reaches_neighbours)

    @cached_property
    def hidden(self) -> Tensor:
        return embed_with(self.module, self.graph) if self.networks is None else self.networks.hidden[self.number]

    @cached_property
    def without_edges(self) -> Outputs:
        alone = Outputs(self.module, self.graph.alone, self.num_classes)
        if self.networks is not None:
            vars(alone)["all_logits"] = self.networks.alone[self.number]
        return alone

    @property
    def positions(self) -> Tensor | None:
        graph = self.graph
        if POSITIONS not in graph.whole.columns:
            return None
        nodes = graph.nodes.copy()
        nodes[: graph.num_new] = 0
        values = graph.whole.get(POSITIONS, nodes)
        values[: graph.num_new] = values[-1] = 0.0  # new nodes have no position, nor has the row that nothing reads
        return values

    def shards(self, out: Tensor) -> Iterator[slice]:
        yield slice(0, self.graph.num_targets)

    def cached(self, owner: object, name: str, make: Callable[[], T]) -> T:
        return super().cached(owner, name, partial(self._made, owner, name, make))

    def _made(self, owner: object, name: str, make: Callable[[], Any]) -> Any:
        known = self.known
        key = known.key(owner, name)
        if name == "averages" and isinstance(owner, Propagated) and owner.num_hops > self.graph.reach + 1:
            make = partial(self._long_average, owner, key)
        if name == "known" and key in known.facts:
            return known.facts[key]
        place = known.places.get(key)
        if place is None:
            return make()
        if key not in self.values:
            value = make()
            self.values[key] = self._filled(value, self._of_known[place], key in known.reaches_neighbours)
            self.owners[key] = owner
        return self.values[key]

    def _long_average(self, scorer: Propagated, key: ValueKey) -> Tensor:
        own = self.scores_of(scorer.scorer)
        before = self._of_known[self.known.places[key]].to(own.dtype)
        before[: self.graph.num_new] = own[: self.graph.num_new]
        targets, keeps = own[: self.graph.num_targets], scorer.isolated == "keep"
        return self.graph.continued(before, targets, scorer.num_hops, scorer.eta, keeps)

    def scores_of(self, scorer: Scorer) -> Tensor:
        if not scorer.is_row_wise:
            return super().scores_of(scorer)
        return self.cached(scorer, "score", lambda: scorer.score(self._inner))

    @cached_property
    def _inner(self) -> Outputs:
        return RowOutputs(self, slice(0, self.graph.num_inner))
