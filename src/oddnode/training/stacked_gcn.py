"""Several networks that train side by side, in one set of kernels.

Layers of many graph convolutional networks are one wide layer: batch norm, activation and dropout act on every channel
alone. `Networks` is `oddnode.training.single.Network` for many: each network has its own weights, dropout and best
epoch, and becomes what it would have become alone, up to the order of floating-point sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode.graph import Graph, TrainingSet
from oddnode.nn import GCN
from oddnode.objectives import Objective, Pass, validation_loss
from oddnode.ops import BlockMatrix, SparseMatrix, dropout_scales, stacked_keys
from oddnode.ops import triton_kernels as _kernels

__all__ = ["Networks", "why_not_side_by_side"]

_ID, _EXPOSURE = 0, 1


def why_not_side_by_side(
    modules: Sequence[nn.Module], objective: Objective, data: Sequence[TrainingSet], batch_norm: str
) -> str | None:
    """What keeps networks from training side by side; ``None`` where nothing does."""
    first = data[0]
    if any(type(m) is not GCN or not isinstance(m.norms[0], nn.BatchNorm1d) for m in modules):
        return f"{type(modules[0]).__name__} is not a GCN with batch norm"
    if batch_norm != "id-graph":
        return "batch norm keeps running statistics"
    if not objective.is_pure or objective.needs_hidden:
        return "a term of the objective changes with the epoch, is random, or does not say that it is not"
    if any(not _same_graph(first.graph, other.graph) for other in data[1:]):
        return "their training graphs differ"
    if len({(len(d.train), len(d.val), d.num_logits) for d in data}) > 1:
        return "their numbers of training nodes, validation nodes or classes differ"
    if len({d.exposure.num_nodes if d.exposure else None for d in data}) > 1:
        return "their exposure graphs have different sizes"
    if len({len(d.exposed) if d.exposed is not None else None for d in data}) > 1:
        return "their numbers of exposed nodes differ"
    return None


def _same_graph(a: Graph | None, b: Graph | None) -> bool:
    if a is None or b is None:
        return a is b
    return a is b or (_equal(a.edge_index, b.edge_index) and _equal(a.x, b.x))


def _equal(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape) or torch.equal(a, b)


# Below this share of non-zeros, and from this width on, a GPU too multiplies sparse features faster than dense ones.
_SPARSE_BELOW, _WIDE = 0.05, 256


def _sparse_features(graph: Graph, width: int) -> SparseMatrix | None:
    on_gpu = graph.device.type == "cuda"
    return graph.without_zeros if on_gpu and width >= _WIDE and graph.density < _SPARSE_BELOW else None


class _SharedGraph:
    """One graph under all networks: their channels stand side by side, ``[N, S, C]``; ``width`` is S times H."""

    def __init__(self, graph: Graph, width: int):
        self.graph = graph
        self.sparse_x = _sparse_features(graph, width)

    def convolve_features(self, weight: Tensor) -> Tensor:
        """The first product; ``weight`` is ``[F, S, H]``."""
        if self.sparse_x is not None:
            product = self.graph.gcn_matrix @ self.sparse_x.product_once(weight.flatten(1))
        else:
            product = self.graph.convolve_features(weight.flatten(1))
        return product.unflatten(1, weight.shape[1:])

    def convolve(self, values: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
        """The adjacency's product with ``[N, S, C]``."""
        matrix = self.graph.gcn_matrix if matrix is None else matrix
        return (matrix @ values.flatten(1)).unflatten(1, values.shape[1:])

    @property
    def walk(self) -> SparseMatrix:
        """The matrix that energies are propagated by."""
        return self.graph.random_walk


class _GraphEach:
    """A graph for every network, all of one size; ``like`` is the ID graph, which may have the same features."""

    def __init__(self, graphs: Sequence[Graph], like: _SharedGraph):
        self.graphs = graphs
        self.matrix = BlockMatrix([graph.gcn_matrix for graph in graphs])
        same = like.sparse_x is not None and all(_equal(graph.x, like.graph.x) for graph in graphs)
        self.sparse_x = like.sparse_x if same else None
        self.smoothed = None if same else torch.stack([graph.smoothed_x for graph in graphs])

    def convolve_features(self, weight: Tensor) -> Tensor:
        if self.sparse_x is not None:
            return self.convolve(self.sparse_x.product_once(weight.flatten(1)).unflatten(1, weight.shape[1:]))
        assert self.smoothed is not None
        return torch.bmm(self.smoothed, weight.transpose(0, 1)).transpose(0, 1)

    def convolve(self, values: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
        assert matrix is None, "of an exposure graph all nodes are computed"
        stacked = self.matrix.diagonal @ values.transpose(0, 1).flatten(0, 1)
        return stacked.unflatten(0, (len(self.graphs), -1)).transpose(0, 1)

    @cached_property
    def walk(self) -> SparseMatrix:
        return BlockMatrix([graph.random_walk for graph in self.graphs])


class _View:
    """What a term sees of a graph when networks train side by side: its propagation."""

    def __init__(self, walk: SparseMatrix):
        self.random_walk = walk


class _ReluDropout(torch.autograd.Function):
    """ReLU and dropout of some rows as one kernel."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, rows: Tensor | None, keys: Tensor, count: Tensor, place: int, p: float
    ) -> Tensor:
        values = values.contiguous()
        ctx.save_for_backward(values, rows, keys, count)
        ctx.settings = place, p
        return _kernels.relu_dropout(values, rows, keys, count, place, p)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, rows, keys, count = ctx.saved_tensors
        place, p = ctx.settings
        return _kernels.relu_dropout(values, rows, keys, count, place, p, grad), None, None, None, None, None


class Networks:
    """Graph convolutional networks that train side by side; to the training loop they look like one.

    Parameters
    ----------
    modules : list of GCN
        Of one shape, with their initial weights; they get the trained ones in the end.
    objective : Objective
        What each of them minimises on its own data.
    data : list of TrainingSet
        One each, on the same graph; training nodes and exposure graphs may differ.
    seeds : list of int
        Seeds of their dropout.
    epochs : int
        How many steps there will be at most.
    """

    hindrance: str | None = None

    def __init__(
        self,
        modules: Sequence[Any],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        epochs: int,
    ):
        self.modules = modules
        self.objective = objective
        self.data = data[0]
        self.all_data = data
        self.size = len(modules)
        self.count = torch.zeros(1, dtype=torch.long, device=self.data.graph.device)
        self._weights = [
            nn.Parameter(self._beside([m.convs[i].lin.weight.t() for m in modules], i)) for i in self._layers
        ]
        self._biases = [nn.Parameter(torch.stack([m.convs[i].bias.detach() for m in modules])) for i in self._layers]
        norms = [[m.norms[i] for m in modules] for i in self._layers[:-1]]
        self._scales = [nn.Parameter(torch.cat([n.weight.detach() for n in layer])) for layer in norms]
        self._shifts = [nn.Parameter(torch.cat([n.bias.detach() for n in layer])) for layer in norms]
        self._statistics = [(torch.zeros_like(p.detach()), torch.ones_like(p.detach())) for p in self._scales]
        self._eps = norms[0][0].eps
        self.dropout = modules[0].dropout
        self._keys = stacked_keys(seeds, epochs + 1, 2, len(norms)).flatten(1, 2).to(self.count.device)
        self._graph = _SharedGraph(self.data.graph, self._scales[0].numel())
        self._exposure = self._exposure_graph()
        self._train, self._y_train = self._nodes("train"), torch.stack([d.y_train for d in data])
        self._val, self._y_val = self._nodes("val"), torch.stack([d.y_val for d in data])
        exposed = [d.exposed for d in data if d.exposed is not None]
        self._exposed = torch.stack(exposed) if exposed else None
        self._first: Tensor | None = None
        self._surroundings: dict[int, tuple[Tensor, SparseMatrix]] = {}

    @property
    def _layers(self) -> range:
        return range(len(self.modules[0].convs))

    @staticmethod
    def _beside(weights: list[Tensor], layer: int) -> Tensor:
        """The first layer's weights share their input, ``[F, S, H]``; later ones do not, ``[S, H, C]``."""
        return torch.stack([w.detach() for w in weights], dim=1 if layer == 0 else 0).contiguous()

    def _exposure_graph(self) -> Any:
        if not self.objective.needs_exposure or self.data.exposure is None:
            return None
        graphs = [d.exposure for d in self.all_data if d.exposure is not None]
        shared = all(_same_graph(graphs[0], graph) for graph in graphs[1:])
        return _SharedGraph(graphs[0], self._scales[0].numel()) if shared else _GraphEach(graphs, self._graph)

    def _nodes(self, name: str) -> Tensor:
        """Positions of all networks' nodes: ``[n]`` where they are the same, else ``[S, n]``."""
        nodes = [getattr(d, name) for d in self.all_data]
        return nodes[0] if all(torch.equal(nodes[0], other) for other in nodes[1:]) else torch.stack(nodes)

    def parameters(self) -> list[nn.Parameter]:
        """What is trained."""
        return [*self._weights, *self._biases, *self._scales, *self._shifts]

    def state(self) -> list[Tensor]:
        """All that makes up the networks at this moment, not copied."""
        return [parameter.detach() for parameter in self.parameters()]

    def keep(self, better: Tensor, state: list[Tensor]) -> None:
        """Take the present weights into ``state`` for those networks for which they are better (``[S]``)."""
        for kept, now in zip(self._by_network(state), self._by_network(self.state()), strict=True):
            choice = better.view(-1, *[1] * (kept.dim() - 1))
            kept.copy_(torch.where(choice, now, kept))

    def _by_network(self, state: list[Tensor]) -> list[Tensor]:
        """Views with the networks first."""
        first, *rest = state
        layers = len(self._layers)
        middle, norms = rest[: 2 * layers - 1], rest[2 * layers - 1 :]
        return [first.transpose(0, 1), *middle, *(p.view(self.size, -1) for p in norms)]

    def look(self, epoch: int) -> None:
        """Compute what the evaluation of the present weights and the training pass from them have in common."""
        self._first = self._begin(self._graph)

    def _begin(self, graph: Any) -> Tensor:
        """The first layer up to its batch norm."""
        values = graph.convolve_features(self._weights[0]) + self._biases[0]
        return self._normalised(values, 0, graph is self._graph)

    def forget(self) -> None:
        """Let go of what `look` computed; a pass that is kept alive would tie the next to its stream."""
        self._first = None
        for graph in (self._graph, self._exposure):
            if graph is not None and graph.sparse_x is not None:
                graph.sparse_x.forget_product()

    @torch.no_grad()
    def judge(self) -> Tensor:
        """The validation loss of every network's present weights, ``[S]``."""
        assert self._first is not None
        everything = self._val.dim() == 2
        logits = self._logits(self._first.detach(), self._graph, None, None if everything else self._val)
        positions = self._val if everything else torch.arange(logits.shape[1], device=logits.device)

        def one(logits: Tensor, positions: Tensor, y: Tensor) -> Tensor:
            data = self.data
            view = Pass(0, data.num_classes, data.graph, logits, positions, y, has_all_logits=everything)
            return validation_loss(view)

        return torch.vmap(one, in_dims=(0, 0 if everything else None, 0))(logits, positions, self._y_val)

    def loss(self, epoch: int) -> Tensor:
        """The loss of every network's training pass, ``[S]``."""
        assert self._first is not None
        everything = self.objective.needs_all_logits or self._train.dim() == 2
        logits = self._logits(self._first, self._graph, _ID, None if everything else self._train)
        train = self._train if everything else torch.arange(logits.shape[1], device=logits.device)
        outside = None if self._exposure is None else self._exposure_logits(everything)

        def one(logits: Tensor, train: Tensor, y: Tensor, outside: Tensor | None, exposed: Tensor | None) -> Tensor:
            step = Pass(epoch, self.data.num_classes, self.data.graph, logits, train, y, has_all_logits=everything)
            if self._exposure is not None:
                step.graph = _View(self._graph.walk)  # type: ignore[assignment]
                step.exposure_graph = _View(self._exposure.walk)  # type: ignore[assignment]
                step.exposure_logits, step.exposed = outside, exposed
            return self.objective(step)

        inputs = (logits, train, self._y_train, outside, self._exposed)
        dims = tuple(None if i is None or (i is train and train.dim() == 1) else 0 for i in inputs)
        return torch.vmap(one, in_dims=dims)(*inputs)

    def _exposure_logits(self, everything: bool) -> Tensor:
        assert self._exposed is not None
        logits = self._logits(self._begin(self._exposure), self._exposure, _EXPOSURE, None)
        if everything or self._exposed.shape[1] == logits.shape[1]:
            return logits
        return logits.take_along_dim(self._exposed.unsqueeze(2), dim=1)

    def _logits(self, first: Tensor, graph: Any, dropped: int | None, nodes: Tensor | None) -> Tensor:
        """Logits ``[S, n, C]`` of all nodes, or of those named; ``dropped`` is the graph whose dropout to apply."""
        assert nodes is None or graph is self._graph
        matrix, rows, normalised = None, None, first
        last = len(self._scales) - 1
        for layer in range(last + 1):
            if layer == last and nodes is not None:
                rows, matrix = self._around(nodes)
            hidden = self._activated(normalised, layer, dropped, rows)
            product = torch.bmm(hidden.transpose(0, 1), self._weights[layer + 1]).transpose(0, 1)
            values = graph.convolve(product, matrix) + self._biases[layer + 1]
            if layer < last:
                normalised = self._normalised(values, layer + 1, graph is self._graph)
        return values.transpose(0, 1)

    def _around(self, nodes: Tensor) -> tuple[Tensor, SparseMatrix]:
        """`Graph.around`, held on to: a recording refers to it, and a graph keeps but the last few."""
        if id(nodes) not in self._surroundings:
            rows, part = self.data.graph.around(nodes)
            self._surroundings[id(nodes)] = rows, part.gcn_matrix
        return self._surroundings[id(nodes)]

    def _activated(self, values: Tensor, layer: int, dropped: int | None, rows: Tensor | None) -> Tensor:
        """ReLU and dropout, of all rows or of those named."""
        if dropped is None or self.dropout == 0:
            return (values if rows is None else values.index_select(0, rows)).relu()
        if _kernels.can_run(values.device) and (values.dtype == torch.float32 or self.dropout == 0.5):
            place = dropped * len(self._scales) + layer
            return _ReluDropout.apply(values, rows, self._keys, self.count, place, self.dropout)
        hidden = (values if rows is None else values.index_select(0, rows)).relu()
        return hidden * self._dropout_scales(hidden, layer, dropped, rows)

    def _normalised(self, values: Tensor, layer: int, is_id_graph: bool) -> Tensor:
        """Batch norm; whatever is not the ID graph is normalised by the ID graph's statistics."""
        flat = values.flatten(1)
        mean, variance = self._statistics[layer]
        flat = F.batch_norm(
            flat, mean, variance, self._scales[layer], self._shifts[layer], is_id_graph, momentum=1.0, eps=self._eps
        )
        return flat.view(values.shape)

    def _dropout_scales(self, hidden: Tensor, layer: int, graph: int, rows: Tensor | None) -> Tensor:
        keys = self._keys.index_select(0, self.count)[0, graph * len(self._scales) + layer]
        nodes = torch.arange(hidden.shape[0], device=hidden.device) if rows is None else rows
        return dropout_scales(keys, nodes, hidden.shape[-1], self.dropout, hidden.dtype)

    @torch.no_grad()
    def restore(self, state: list[Tensor]) -> None:
        """Give every module its weights out of ``state``, ready to score."""
        for now, kept in zip(self.state(), state, strict=True):
            now.copy_(kept)
        self._logits(self._begin(self._graph), self._graph, None, None)  # for batch norm's statistics of the ID graph
        weights, biases, scales, shifts = self._parts(self._by_network(state))
        means, variances = ([kept.view(self.size, -1) for kept in each] for each in zip(*self._statistics, strict=True))
        for place, module in enumerate(self.modules):
            for conv, weight, bias in zip(module.convs, weights, biases, strict=True):
                conv.lin.weight.copy_(weight[place].t())
                conv.bias.copy_(bias[place])
            for layer, norm in enumerate(module.norms):
                norm.weight.copy_(scales[layer][place])
                norm.bias.copy_(shifts[layer][place])
                norm.running_mean.copy_(means[layer][place])
                norm.running_var.copy_(variances[layer][place])
                norm.num_batches_tracked.fill_(1)
                norm.momentum = 1.0
            module.eval()

    def _parts(self, tensors: list[Tensor]) -> list[list[Tensor]]:
        layers = len(self._layers)
        cuts = [0, layers, 2 * layers, 3 * layers - 1, 4 * layers - 2]
        return [tensors[a:b] for a, b in pairwise(cuts)]
