"""Several graph convolutional networks that train stacked, in one set of kernels.

Layers of many networks are one wide layer: batch norm, activation and dropout act on every channel alone. Each network
has its own weights, dropout and best epoch, and becomes what it would have become alone, up to the order of
floating-point sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode.graph import TrainingSet
from oddnode.objectives import Objective, TrainingPass, validation_loss
from oddnode.ops import ReluDropout, SparseMatrix, dropout_scales, stacked_keys
from oddnode.ops import triton_kernels as _kernels
from oddnode.training.stacked_graphs import FirstWeight, GraphPerNetwork, SharedGraph, is_same_graph

__all__ = ["StackedForward", "StackedGCNs"]

_ID, _EXPOSURE = 0, 1


@dataclass
class StackedForward:
    """What validation and the training pass of one step share; it lives as long as the step.

    Parameters
    ----------
    weight : FirstWeight
        The first layer's weights, with the products that the ID graph and the exposure graph share.
    normalised : Tensor
        The first layer of the ID graph after batch norm, ``[N, S, H]``.
    """

    weight: FirstWeight
    normalised: Tensor


class StackedGCNs:
    """Graph convolutional networks that train stacked; a `Trainee`.

    Parameters
    ----------
    modules : sequence of GCN
        Of one shape, with their initial weights; they get the trained ones in the end.
    objective : Objective
        What each of them minimises on its own data.
    data : sequence of TrainingSet
        One each, on the same graph; training nodes and exposure graphs may differ.
    seeds : sequence of int
        Seeds of their dropout.
    epochs : int
        How many steps there will be at most.
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
        self.objective = objective
        self.data = data[0]
        self.all_data = data
        self.size = len(modules)
        self.epoch_counter = torch.zeros(1, dtype=torch.long, device=self.data.graph.device)
        self._weights = [
            nn.Parameter(self._stack([m.convs[i].lin.weight.t() for m in modules], i)) for i in self._layers
        ]
        self._biases = [nn.Parameter(torch.stack([m.convs[i].bias.detach() for m in modules])) for i in self._layers]
        norms = [[m.norms[i] for m in modules] for i in self._layers[:-1]]
        self._scales = [nn.Parameter(torch.cat([n.weight.detach() for n in layer])) for layer in norms]
        self._shifts = [nn.Parameter(torch.cat([n.bias.detach() for n in layer])) for layer in norms]
        self._statistics = [(torch.zeros_like(p.detach()), torch.ones_like(p.detach())) for p in self._scales]
        self._eps = norms[0][0].eps
        self._dropout = modules[0].dropout
        self._keys = stacked_keys(seeds, epochs + 1, 2, len(norms)).flatten(1, 2).to(self.epoch_counter.device)
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

    @property
    def _layers(self) -> range:
        return range(len(self.modules[0].convs))

    @staticmethod
    def _stack(weights: list[Tensor], layer: int) -> Tensor:
        """The first layer's weights share their input, ``[F, S, H]``; later ones do not, ``[S, H, C]``."""
        return torch.stack([w.detach() for w in weights], dim=1 if layer == 0 else 0).contiguous()

    def _exposure_graph(self) -> SharedGraph | GraphPerNetwork | None:
        if not self.objective.needs_exposure or self.data.exposure is None:
            return None
        graphs = [d.exposure for d in self.all_data if d.exposure is not None]
        shared = all(is_same_graph(graphs[0], graph) for graph in graphs[1:])
        return SharedGraph(graphs[0], self._scales[0].numel()) if shared else GraphPerNetwork(graphs, self._graph)

    def _nodes(self, name: str) -> Tensor:
        """Positions of all networks' nodes: ``[n]`` where they are the same, else ``[S, n]``."""
        nodes = [getattr(d, name) for d in self.all_data]
        return nodes[0] if all(torch.equal(nodes[0], other) for other in nodes[1:]) else torch.stack(nodes)

    @property
    def starts(self) -> frozenset[int]:
        """Epochs in which a term of the objective begins to count."""
        return self.objective.starts

    def parameters(self) -> list[nn.Parameter]:
        """The parameters to train."""
        return [*self._weights, *self._biases, *self._scales, *self._shifts]

    def tensors(self) -> list[Tensor]:
        """The parameters, not copied; batch norm's statistics follow from them."""
        return [parameter.detach() for parameter in self.parameters()]

    def update_best(self, better: Tensor, best: list[Tensor]) -> None:
        """Copy the present weights of the networks that got better, as `Trainee.update_best` says.

        Parameters
        ----------
        better : Tensor
            Whether each network did, ``[S]``.
        best : list of Tensor
            Copies of `tensors`, updated in place.
        """
        for kept, now in zip(self._by_network(best), self._by_network(self.tensors()), strict=True):
            choice = better.view(-1, *[1] * (kept.dim() - 1))
            kept.copy_(torch.where(choice, now, kept))

    def _by_network(self, tensors: list[Tensor]) -> list[Tensor]:
        """Views with the networks first."""
        first, *rest = tensors
        layers = len(self._layers)
        middle, norms = rest[: 2 * layers - 1], rest[2 * layers - 1 :]
        return [first.transpose(0, 1), *middle, *(p.view(self.size, -1) for p in norms)]

    def shared_forward(self, epoch: int) -> StackedForward:
        """Compute the first layer up to its batch norm.

        Parameters
        ----------
        epoch : int
            The number of steps taken.

        Returns
        -------
        StackedForward
            For `validation_loss` and `loss`.
        """
        weight = FirstWeight(self._weights[0])
        return StackedForward(weight, self._first_layer(self._graph, weight))

    def _first_layer(self, graph: SharedGraph | GraphPerNetwork, weight: FirstWeight) -> Tensor:
        values = graph.convolve_features(weight) + self._biases[0]
        return self._normalised(values, 0, graph is self._graph)

    @torch.no_grad()
    def validation_loss(self, shared: StackedForward) -> Tensor:
        """Evaluate every network's present weights on its validation nodes.

        Parameters
        ----------
        shared : StackedForward
            From `shared_forward`.

        Returns
        -------
        Tensor
            Shape ``[S]``.
        """
        everything = self._val_subset is None
        logits = self._logits(shared.normalised.detach(), self._graph, None, self._val_subset)
        positions = self._val if everything else torch.arange(logits.shape[1], device=logits.device)

        def one(logits: Tensor, positions: Tensor, y: Tensor) -> Tensor:
            data = self.data
            view = TrainingPass(0, data.num_classes, data.graph, logits, positions, y, has_all_logits=everything)
            return validation_loss(view)

        return torch.vmap(one, in_dims=(0, 0 if everything else None, 0))(logits, positions, self._y_val)

    def loss(self, shared: StackedForward, epoch: int) -> Tensor:
        """Compute the loss of every network's training pass.

        Parameters
        ----------
        shared : StackedForward
            From `shared_forward`.
        epoch : int
            The number of steps taken.

        Returns
        -------
        Tensor
            Shape ``[S]``.
        """
        logits = self._logits(shared.normalised, self._graph, _ID, self._train_subset)
        return self.objective_losses(logits, self._exposure_logits(shared.weight), epoch)

    def objective_losses(self, logits: Tensor, exposure_logits: Tensor | None, epoch: int) -> Tensor:
        """Compute the objective of every network under `torch.vmap`.

        Parameters
        ----------
        logits : Tensor
            Logits ``[S, N, C]`` of all nodes, or of the labelled ones where the objective reads no others.
        exposure_logits : Tensor, optional
            Likewise of the exposure graph, where there is one.
        epoch : int
            The number of steps taken.

        Returns
        -------
        Tensor
            Shape ``[S]``.
        """
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

    def logits_shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int] | None]:
        """Shapes of the logits that `objective_losses` takes."""
        classes = self.data.num_logits
        inside = self.data.graph.num_nodes if self._needs_all else self._train.shape[-1]
        if self._exposure is None or self._exposed is None:
            return (self.size, inside, classes), None
        outside = self._exposure.term_view.num_nodes if self._needs_all else self._exposed.shape[1]
        return (self.size, inside, classes), (self.size, outside, classes)

    def _exposure_logits(self, weight: FirstWeight) -> Tensor | None:
        if self._exposure is None:
            return None
        assert self._exposed is not None
        logits = self._logits(self._first_layer(self._exposure, weight), self._exposure, _EXPOSURE, None)
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
            return ReluDropout.apply(values, rows, self._keys, self.epoch_counter, place, self._dropout)
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
        keys = self._keys.index_select(0, self.epoch_counter)[0, graph * len(self._scales) + layer]
        nodes = torch.arange(hidden.shape[0], device=hidden.device) if rows is None else rows
        return dropout_scales(keys, nodes, hidden.shape[-1], self._dropout, hidden.dtype)

    @torch.no_grad()
    def load_best(self, best: list[Tensor]) -> None:
        """Give every module its best weights, ready to score.

        Parameters
        ----------
        best : list of Tensor
            Copies of `tensors`.
        """
        for now, kept in zip(self.tensors(), best, strict=True):
            now.copy_(kept)
        # One pass without dropout leaves batch norm's statistics of the ID graph.
        self._logits(self._first_layer(self._graph, FirstWeight(self._weights[0])), self._graph, None, None)
        weights, biases, scales, shifts = self._parts(self._by_network(best))
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
            module.eval()

    def _parts(self, tensors: list[Tensor]) -> list[list[Tensor]]:
        layers = len(self._layers)
        cuts = [0, layers, 2 * layers, 3 * layers - 1, 4 * layers - 2]
        return [tensors[a:b] for a, b in pairwise(cuts)]
