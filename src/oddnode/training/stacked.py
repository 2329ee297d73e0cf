"""Several graph convolutional networks that train stacked, in one set of kernels.

Layers of many networks are one wide layer: batch norm, activation and dropout act on every channel alone. Each network
has its own weights, dropout and best epoch, and becomes what it would have become alone, up to the order of
floating-point sums. Values of S networks with C channels are ``[N, S, C]``, so that a product with a matrix that all of
them share is one wide product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode.graph import Graph, TrainingSet
from oddnode.nn import RegularLayers
from oddnode.objectives import Objective, Term, TrainingPass, validation_loss
from oddnode.ops import BlockMatrix, FeatureProducts, ReluDropout, SparseMatrix, dropout_scales, stacked_keys
from oddnode.ops import triton_kernels as _kernels
from oddnode.training.base import is_ours, terms_of
from oddnode.training.loop import Trainee
from oddnode.training.single import EXPOSURE_GRAPH, ID_GRAPH

# Below this share of non-zeros, and from this width on, sparse features are faster than dense ones on a GPU, too.
_SPARSE_BELOW, _WIDE = 0.05, 256


def is_same_graph(a: Graph, b: Graph) -> bool:
    """Whether two graphs have the same features, edges and edge weights."""
    parts = "edge_index", "x", "edge_weight"
    return a is b or all(_is_equal(getattr(a, name), getattr(b, name)) for name in parts)


def _is_equal(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape) or torch.equal(a, b)


class FirstWeight:
    """The first layer's weights within one step, with the products that graphs share in it."""

    def __init__(self, weight: Tensor):
        self.weight = weight
        self.flat = weight.flatten(1).t()  # one object, because products are looked up by identity
        self.products = FeatureProducts()


class SharedGraph:
    """One graph that all networks share."""

    def __init__(self, graph: Graph, width: int):
        self.graph = self.term_view = graph  # the one that terms of the objective see
        on_gpu = graph.device.type == "cuda"
        pays_off = on_gpu and width >= _WIDE and graph.density < _SPARSE_BELOW
        self.sparse_x = graph.sparse_features if pays_off else graph.sparse_x

    def convolve_features(self, weight: FirstWeight) -> Tensor:
        if self.sparse_x is None:
            product = self.graph.smoothed_x @ weight.flat.t()
        else:
            product = self.graph.gcn_matrix @ weight.products.linear(self.sparse_x, weight.flat)
        return product.unflatten(1, weight.weight.shape[1:])

    def convolve(self, values: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
        matrix = self.graph.gcn_matrix if matrix is None else matrix
        return (matrix @ values.flatten(1)).unflatten(1, values.shape[1:])


class GraphPerNetwork:
    """A graph for every network, all of one size."""

    def __init__(self, graphs: Sequence[Graph], id_graph: SharedGraph):
        self._size = len(graphs)
        self._adjacency = BlockMatrix([graph.gcn_matrix for graph in graphs])
        same = id_graph.sparse_x is not None and all(_is_equal(graph.x, id_graph.graph.x) for graph in graphs)
        self._sparse_x = id_graph.sparse_x if same else None
        self._smoothed = None if same else torch.stack([graph.smoothed_x for graph in graphs])
        self.term_view: Graph = _ViewOfMany(graphs)

    def convolve_features(self, weight: FirstWeight) -> Tensor:
        if self._sparse_x is not None:
            product = weight.products.linear(self._sparse_x, weight.flat)
            return self.convolve(product.unflatten(1, weight.weight.shape[1:]))
        assert self._smoothed is not None
        return torch.bmm(self._smoothed, weight.weight.transpose(0, 1)).transpose(0, 1)

    def convolve(self, values: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
        assert matrix is None, "logits of an exposure graph are computed for all nodes"
        stacked = self._adjacency.diagonal @ values.transpose(0, 1).flatten(0, 1)
        return stacked.unflatten(0, (self._size, -1)).transpose(0, 1)


class _ViewOfMany(Graph):
    """What terms see of graphs that differ between stacked networks: only what these have in common."""

    def __init__(self, graphs: Sequence[Graph]):
        self.num_nodes, self.device = graphs[0].num_nodes, graphs[0].device
        self._walk = BlockMatrix([graph.random_walk for graph in graphs])

    @property
    def random_walk(self) -> SparseMatrix:
        return self._walk

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name} of the exposure graph differs between stacked networks; terms can read num_nodes, device and "
            "random_walk"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_nodes} nodes, {self.device})"


@dataclass
class StackedForward:
    """What validation and the training pass of one step share; it lives as long as the step."""

    weight: FirstWeight  # The first layer's weights, with the products that the ID graph and the exposure graph share
    normalised: Tensor  # The first layer of the ID graph after batch norm, `[N, S, H]`


class StackedGCNs(Trainee[StackedForward]):
    """Graph convolutional networks that train stacked; a `Trainee`.

    Parameters
    ----------
    modules : sequence of GCN
        Of one shape, with their initial weights; they end with the trained ones.
    objective : Objective
        What each of them minimises on its own data.
    data : sequence of TrainingSet
        One each, on the same graph; training nodes and exposure graphs may differ.
    seeds : sequence of int
        Seeds of their dropout.
    epochs : int
        Maximum number of steps.
    """

    capture_blocker: str | None = None

    def __init__(
        self,
        modules: Sequence[Any],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        epochs: int,
    ):
        self.modules = modules
        self.objective, self.starts = objective, objective.starts
        self.data = data[0]
        self.all_data = data
        self.size = len(modules)
        self.step_counter = torch.zeros(1, dtype=torch.long, device=self.data.graph.device)
        parts = [part for part in map(RegularLayers.of, modules) if part is not None]
        if len(parts) < self.size:
            raise ValueError("networks cannot be stacked; stacking_blocker says why")
        # By layer, and then by network.
        convs, norms = (list(zip(*each, strict=True)) for each in ([p.layers for p in parts], [p.norms for p in parts]))
        own = [[conv.weight.t().detach() for conv in layer] for layer in convs]
        biases = [[conv.bias.detach() for conv in layer] for layer in convs]
        scales, shifts = (
            [[getattr(n, name).detach() for n in layer] for layer in norms] for name in ("weight", "bias")
        )
        self._own, self._norms = [*own, *biases, *scales, *shifts], norms
        # The first layer's weights share their input, `[F, S, H]`; later ones do not, `[S, H, C]`.
        self._weights = [nn.Parameter(torch.stack(tensors, dim=0 if layer else 1)) for layer, tensors in enumerate(own)]
        self._biases = [nn.Parameter(torch.stack(tensors)) for tensors in biases]
        self._scales, self._shifts = ([nn.Parameter(torch.cat(t)) for t in each] for each in (scales, shifts))
        self._statistics = [(torch.zeros_like(p.detach()), torch.ones_like(p.detach())) for p in self._scales]
        self._eps = norms[0][0].eps
        self._dropout = modules[0].dropout
        self._keys = stacked_keys(seeds, epochs + 1, 2, len(norms)).flatten(1, 2).to(self.step_counter.device)
        self._take_data()

    def _take_data(self) -> None:
        self._graph = SharedGraph(self.data.graph, self._scales[0].numel())
        self._exposure = self._exposure_graph()
        self._train, self._y_train = self._nodes("train"), torch.stack([d.y_train for d in self.all_data])
        self._val, self._y_val = self._nodes("val"), torch.stack([d.y_val for d in self.all_data])
        exposed = [d.exposed for d in self.all_data if d.exposed is not None]
        self._exposed = torch.stack(exposed) if exposed else None
        self._needs_all = self.objective.needs_all_logits or self._train.dim() == 2
        # Captured steps refer to these subgraphs, so they are held here.
        self._train_subset = None if self._needs_all else self._subset(self._train)
        self._val_subset = None if self._val.dim() == 2 else self._subset(self._val)

    def _subset(self, nodes: Tensor) -> tuple[Tensor, SparseMatrix]:
        rows, part = self.data.graph.one_hop_subgraph(nodes)
        return rows, part.gcn_matrix

    def _exposure_graph(self) -> SharedGraph | GraphPerNetwork | None:
        if not self.objective.needs_exposure or self.data.exposure is None:
            return None
        graphs = [d.exposure for d in self.all_data if d.exposure is not None]
        shared = all(is_same_graph(graphs[0], graph) for graph in graphs[1:])
        return SharedGraph(graphs[0], self._scales[0].numel()) if shared else GraphPerNetwork(graphs, self._graph)

    def _nodes(self, name: str) -> Tensor:
        """Indices of all networks' nodes: ``[n]`` where they are the same, else ``[S, n]``."""
        nodes = [getattr(d, name) for d in self.all_data]
        return nodes[0] if all(torch.equal(nodes[0], other) for other in nodes[1:]) else torch.stack(nodes)

    def parameters(self) -> list[nn.Parameter]:
        return [*self._weights, *self._biases, *self._scales, *self._shifts]

    def tensors(self) -> list[Tensor]:
        # Batch norm's statistics follow from them.
        return [parameter.detach() for parameter in self.parameters()]

    def update_best(self, better: Tensor, best: list[Tensor]) -> None:
        for kept, now in zip(self._by_network(best), self._by_network(self.tensors()), strict=True):
            choice = better.view(-1, *[1] * (kept.dim() - 1))
            kept.copy_(torch.where(choice, now, kept))

    def _by_network(self, tensors: list[Tensor]) -> list[Tensor]:
        """Views with the networks first."""
        first, *rest = tensors
        return [first.transpose(0, 1), *(t if t.dim() > 1 else t.view(self.size, -1) for t in rest)]

    def shared_forward(self, epoch: int) -> StackedForward:
        # The first layer up to its batch norm.
        weight = FirstWeight(self._weights[0])
        return StackedForward(weight, self._first_layer(self._graph, weight))

    def _first_layer(self, graph: SharedGraph | GraphPerNetwork, weight: FirstWeight) -> Tensor:
        values = graph.convolve_features(weight) + self._biases[0]
        return self._normalised(values, 0, graph is self._graph)

    @torch.no_grad()
    def validation_loss(self, shared: StackedForward) -> Tensor:
        everything = self._val_subset is None
        logits = self._logits(shared.normalised.detach(), self._graph, None, self._val_subset)
        positions = self._val if everything else torch.arange(logits.shape[1], device=logits.device)

        def one(logits: Tensor, positions: Tensor, y: Tensor) -> Tensor:
            data = self.data
            view = TrainingPass(0, data.num_classes, data.graph, logits, positions, y, has_all_logits=everything)
            return validation_loss(view)

        return torch.vmap(one, in_dims=(0, 0 if everything else None, 0))(logits, positions, self._y_val)

    def loss(self, shared: StackedForward, epoch: int) -> Tensor:
        logits = self._logits(shared.normalised, self._graph, ID_GRAPH, self._train_subset)
        exposure_logits = self._exposure_logits(shared.weight)
        everything, data = self._needs_all, self.data
        train = self._train if everything else torch.arange(logits.shape[1], device=logits.device)

        def one(logits: Tensor, train: Tensor, y: Tensor, outside: Tensor | None, exposed: Tensor | None) -> Tensor:
            step = TrainingPass(epoch, data.num_classes, data.graph, logits, train, y, has_all_logits=everything)
            if self._exposure is not None:
                step.exposure_graph = self._exposure.term_view
                step.exposure_logits, step.exposed = outside, exposed
            return self.objective(step)

        inputs = (logits, train, self._y_train, exposure_logits, self._exposed)
        dims = tuple(None if i is None or (i is train and train.dim() == 1) else 0 for i in inputs)
        return torch.vmap(one, in_dims=dims)(*inputs)

    def _exposure_logits(self, weight: FirstWeight) -> Tensor | None:
        if self._exposure is None:
            return None
        assert self._exposed is not None
        logits = self._logits(self._first_layer(self._exposure, weight), self._exposure, EXPOSURE_GRAPH, None)
        if self._needs_all or self._exposed.shape[1] == logits.shape[1]:
            return logits
        return logits.take_along_dim(self._exposed.unsqueeze(2), dim=1)

    def _logits(
        self,
        first: Tensor,
        graph: SharedGraph | GraphPerNetwork,
        dropped: int | None,
        subset: tuple[Tensor, SparseMatrix] | None,
    ) -> Tensor:
        """Logits ``[S, n, C]`` of all nodes or of a subset; ``dropped`` is the graph whose dropout to apply."""
        matrix, rows, normalised = None, None, first
        last = len(self._scales) - 1
        for layer in range(last + 1):
            if layer == last and subset is not None:
                rows, matrix = subset
            hidden = self._activated(normalised, layer, dropped, rows)
            product = torch.bmm(hidden.transpose(0, 1), self._weights[layer + 1]).transpose(0, 1)
            values = graph.convolve(product, matrix) + self._biases[layer + 1]
            if layer < last:
                normalised = self._normalised(values, layer + 1, graph is self._graph)
        return values.transpose(0, 1)

    def _activated(self, values: Tensor, layer: int, dropped: int | None, rows: Tensor | None) -> Tensor:
        """ReLU and dropout, of all rows or of some."""
        if dropped is None or self._dropout == 0:
            return (values if rows is None else values.index_select(0, rows)).relu()
        if _kernels.can_run(values.device) and (values.dtype == torch.float32 or self._dropout == 0.5):
            place = dropped * len(self._scales) + layer
            return ReluDropout.apply(values, rows, self._keys, self.step_counter, place, self._dropout)
        hidden = (values if rows is None else values.index_select(0, rows)).relu()
        keys = self._keys.index_select(0, self.step_counter)[0, dropped * len(self._scales) + layer]
        nodes = torch.arange(hidden.shape[0], device=hidden.device) if rows is None else rows
        return hidden * dropout_scales(keys, nodes, hidden.shape[-1], self._dropout, hidden.dtype)

    def _normalised(self, values: Tensor, layer: int, is_id_graph: bool) -> Tensor:
        """Batch norm; whatever is not the ID graph is normalised by the ID graph's statistics."""
        flat = values.flatten(1)
        mean, variance = self._statistics[layer]
        flat = F.batch_norm(
            flat, mean, variance, self._scales[layer], self._shifts[layer], is_id_graph, momentum=1.0, eps=self._eps
        )
        return flat.view(values.shape)

    @torch.no_grad()
    def load_best(self, best: list[Tensor]) -> None:
        for now, kept in zip(self.tensors(), best, strict=True):
            now.copy_(kept)
        # One pass without dropout leaves batch norm's statistics of the ID graph.
        self._logits(self._first_layer(self._graph, FirstWeight(self._weights[0])), self._graph, None, None)
        for trained, own in zip(self._by_network(best), self._own, strict=True):
            for tensor, of_network in zip(own, trained, strict=True):
                tensor.copy_(of_network)
        for norms, statistics in zip(self._norms, self._statistics, strict=True):
            means, variances = (each.view(self.size, -1) for each in statistics)
            for norm, mean, variance in zip(norms, means, variances, strict=True):
                norm.running_mean.copy_(mean)
                norm.running_var.copy_(variance)
                norm.num_batches_tracked.fill_(1)
        for module in self.modules:
            module.eval()


def stacking_blocker(
    modules: Sequence[nn.Module], objective: Objective, data: Sequence[TrainingSet], batch_norm: str
) -> str | None:
    """Say why networks cannot be trained stacked; ``None`` if they can.

    Parameters
    ----------
    modules : sequence of torch.nn.Module
        The networks.
    objective : Objective
        What they minimise. Terms from outside this library are tried out.
    data : sequence of TrainingSet
        One for each network.
    batch_norm : {"id-graph", "running"}
        Where batch norm takes its evaluation statistics from.
    """
    first, shapes = data[0], {_shape_of(module) for module in modules}
    if None in shapes:
        return f"{type(modules[0]).__name__} does not consist of graph convolutions with batch norm and ReLU"
    if len(shapes) > 1:
        return "their shapes, dropout or batch norm differ"
    if batch_norm != "id-graph":
        return "batch norm keeps running statistics"
    if not objective.supports_capture or objective.needs_hidden:
        return "a term of the objective does not declare supports_capture = True"
    if any(not is_same_graph(first.graph, other.graph) for other in data[1:]):
        return "their training graphs differ"
    if len({(len(d.train), len(d.val), d.num_logits) for d in data}) > 1:
        return "their numbers of training nodes, validation nodes or classes differ"
    if len({d.exposure.num_nodes if d.exposure else None for d in data}) > 1:
        return "their exposure graphs have different sizes"
    if len({len(d.exposed) if d.exposed is not None else None for d in data}) > 1:
        return "their numbers of exposed nodes differ"
    return _objective_blocker(modules, objective, data)


def _shape_of(module: Any) -> tuple[object, ...] | None:
    """What stacked networks have in common; ``None`` for a network that cannot be stacked."""
    part = RegularLayers.of(module)
    norms: list[Any] = [] if part is None or not part.uses_edges else part.norms
    plain = all(type(norm) is nn.BatchNorm1d and norm.affine and norm.track_running_stats for norm in norms)
    if not plain or len({norm.eps for norm in norms}) != 1:
        return None
    return module.dropout, norms[0].eps, tuple(parameter.shape for parameter in module.parameters())


def _objective_blocker(modules: Sequence[nn.Module], objective: Objective, data: Sequence[TrainingSet]) -> str | None:
    """Why an objective cannot be computed for all networks at once, determined by trying."""
    parts = terms_of(objective)
    for part in parts:
        if type(part).prepare not in (Objective.prepare, Term.prepare):
            return f"{type(part).__name__} is prepared on the data of each network"
    if all(is_ours(part) for part in parts):
        return None  # tested with this library
    try:
        _try_out(StackedGCNs(modules, objective, data, [0] * len(modules), epochs=1))
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return f"the objective fails under torch.vmap: {type(error).__name__}: {lines[0]}"
    return None


def _try_out(stack: StackedGCNs) -> None:
    """Compute the losses of a training pass with all terms, and their gradients; no network is changed."""
    losses = stack.loss(stack.shared_forward(0), max(stack.starts, default=0))
    if losses.shape != (stack.size,):
        raise ValueError(f"it returns shape {list(losses.shape[1:])} for a network, expected a scalar")
    losses.sum().backward()
