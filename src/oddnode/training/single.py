"""One network in training, any module: its passes over the graphs, in the right modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oddnode.graph import Graph, TrainingSet
from oddnode.nn import Backbone, batch_norms, rest_of, run_backbone, shared_layer
from oddnode.objectives import Objective, TrainingPass, validation_loss
from oddnode.ops import DropoutStream, FeatureProducts, PreNormActivations
from oddnode.training.base import BatchNormStatistics
from oddnode.training.loop import S, Trainee

# The graphs that pass through a network in one step; dropout differs between them.
ID_GRAPH, EXPOSURE_GRAPH = 0, 1


@contextmanager
def last_pass_statistics(module: nn.Module) -> Iterator[None]:
    """Within the block, batch norm's running statistics are those of the last pass in training mode."""
    norms = batch_norms(module)
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 1.0
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


class NetworkTrainee(Trainee[S]):
    """The base of trainees of one network: its tensors, its modes and its dropout."""

    size = 1

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        data: TrainingSet,
        batch_norm: BatchNormStatistics,
        dropout_seed: int,
        epochs: int,
    ):
        self.module: Any = module
        self.objective, self.data = objective, data
        self.starts = objective.starts
        self.step_counter = torch.zeros(1, dtype=torch.long, device=data.graph.device)
        self._from_id_graph = batch_norm == "id-graph"
        self._norms = batch_norms(module)
        self._subsets: dict[str, tuple[Tensor, Graph]] = {}
        self._backbones = [layer for layer in module.modules() if isinstance(layer, Backbone)]
        self._stream = DropoutStream(dropout_seed)
        if self._backbones and self.step_counter.device.type != "cpu":
            places = max(backbone.num_dropout_places for backbone in self._backbones)
            self._stream.follow(self.step_counter, epochs * self.num_batches, places)
        for backbone in self._backbones:
            backbone.stream = self._stream

    def parameters(self) -> list[nn.Parameter]:
        return list(self.module.parameters())

    def tensors(self) -> list[Tensor]:
        tensors = self.module.state_dict(keep_vars=True).values()
        return [tensor.detach() for tensor in tensors if isinstance(tensor, Tensor)]

    def update_best(self, better: Tensor, best: list[Tensor]) -> None:
        for kept, now in zip(best, self.tensors(), strict=True):
            kept.copy_(torch.where(better[0], now, kept))

    @torch.no_grad()
    def load_best(self, best: list[Tensor]) -> None:
        for tensor, kept in zip(self.tensors(), best, strict=True):
            tensor.copy_(kept)
        self.module.eval()
        if self._from_id_graph:
            self._fit_norms()
        for backbone in self._backbones:
            backbone.stream = None
        self.module.eval()

    def _fit_norms(self) -> None:
        """Take batch norm's statistics from one pass over the ID graph, dropout off."""
        self._set_mode(training=False, norms=True)
        run_backbone(self.module, self.data.graph)

    def _set_training(self, epoch: int, step: int, graph: int, norms: bool = True) -> None:
        self._set_mode(training=True, norms=norms)
        self._stream.at(step, graph)
        if isinstance(self.module, Backbone):
            self.module.begin_epoch(epoch)

    def _set_mode(self, training: bool, norms: bool) -> None:
        self.module.train(training)
        if norms != training:
            for norm in self._norms:
                norm.train(norms)

    def _pass(self, epoch: int, logits: Tensor, y: Tensor, nodes: Tensor | None = None) -> TrainingPass:
        """A pass with the logits of all nodes, or, without ``nodes``, with those of the labelled ones alone."""
        data, has_all = self.data, nodes is not None
        nodes = torch.arange(len(logits), device=logits.device) if nodes is None else nodes
        return TrainingPass(epoch, data.num_classes, data.graph, logits, nodes, y, has_all_logits=has_all)


@dataclass
class SingleForward:
    """What validation and the training pass of one step share; it lives as long as the step."""

    graph: Graph  # The ID graph, viewed for this step
    products: FeatureProducts  # Products that the ID graph and the exposure graph share
    pre_norm: PreNormActivations | None = None  # The first layer, where the backbone can go on from there
    logits: Tensor | None = None  # Logits `[N, C]` of a whole training pass, where that evaluates the weights too


class SingleTrainee(NetworkTrainee[SingleForward]):
    """A network with its data and objective; a `Trainee`.

    With ``batch_norm="id-graph"`` it must be trained within `last_pass_statistics`.

    Parameters
    ----------
    module : torch.nn.Module
        The network, with its initial weights; it ends with the best ones.
    objective : Objective
        What it minimises, prepared.
    data : TrainingSet
        What it is trained on.
    batch_norm : {"id-graph", "running"}
        Where batch norm takes its evaluation statistics from.
    dropout_seed : int
        The seed of its dropout.
    epochs : int
        Maximum number of steps.
    """

    @property
    def capture_blocker(self) -> str | None:
        if not self.objective.supports_capture:
            return "a term of the objective does not declare supports_capture = True"
        if not getattr(self.module, "supports_capture", False):
            return f"{type(self.module).__name__} does not declare supports_capture = True"
        return None

    @property
    def _pass_evaluates(self) -> bool:
        """Without dropout a training pass over the ID graph *is* the evaluation of the weights it starts from."""
        return self._from_id_graph and isinstance(self.module, Backbone) and self.module.is_deterministic

    def shared_forward(self, epoch: int) -> SingleForward:
        # The first layer, or a whole pass where that evaluates the weights too.
        self._set_training(epoch, epoch, ID_GRAPH)
        products = FeatureProducts()
        shared = SingleForward(self.data.graph.sharing_products(products), products)
        if not self.objective.needs_hidden:
            shared.pre_norm = shared_layer(self.module, shared.graph)
            if shared.pre_norm is None and self._pass_evaluates:
                shared.logits = run_backbone(self.module, shared.graph)
        return shared

    @torch.no_grad()
    def validation_loss(self, shared: SingleForward) -> Tensor:
        data = self.data
        self._set_mode(training=False, norms=self._from_id_graph)
        if shared.pre_norm is not None:
            subset = self._subset("validation", data.val, data.graph)
            logits = rest_of(self.module, shared.pre_norm, shared.graph, subset)
        elif shared.logits is not None:
            logits = shared.logits[data.val]
        else:
            logits = run_backbone(self.module, shared.graph)[data.val]
        return validation_loss(self._pass(0, logits, data.y_val)).reshape(1)

    def loss(self, shared: SingleForward, epoch: int) -> Tensor:
        # A pass over the ID graph and, where the objective needs it, over the exposure graph.
        data, everything = self.data, self.objective.needs_all_logits or shared.pre_norm is None
        self._set_training(epoch, epoch, ID_GRAPH)
        hidden, logits = self._run(shared, everything)
        step = self._pass(epoch, logits, data.y_train, data.train if everything else None)
        if hidden is not None:
            step.hidden, step.head = hidden, self._head
        if self.objective.needs_exposure and data.exposure is not None:
            assert data.exposed is not None
            # Exposed nodes are normalised as every later OOD node will be: by the ID graph's statistics.
            self._set_training(epoch, epoch, EXPOSURE_GRAPH, norms=not self._from_id_graph)
            logits = self._run_exposure(data.exposure, None if everything else data.exposed, shared.products)
            step.exposure_graph, step.exposure_logits = data.exposure, logits
            step.exposed = data.exposed if everything else torch.arange(len(data.exposed), device=logits.device)
        return self.objective(step).reshape(1)

    def _run(self, shared: SingleForward, everything: bool) -> tuple[Tensor | None, Tensor]:
        """Hidden features, where the objective needs them, and logits of the ID graph."""
        if shared.logits is not None:
            return None, shared.logits
        if shared.pre_norm is not None:
            subset = None if everything else self._subset("training", self.data.train, self.data.graph)
            return None, rest_of(self.module, shared.pre_norm, shared.graph, subset)
        if not self.objective.needs_hidden:
            return None, run_backbone(self.module, shared.graph)
        if not isinstance(self.module, Backbone):
            raise TypeError(
                f"the objective works on hidden features, but {type(self.module).__name__} is not a Backbone; "
                "use one of oddnode's, or subclass oddnode.nn.base.Backbone with embed and head"
            )
        hidden = self.module.embed(shared.graph)
        return hidden, self.module.head(hidden, shared.graph)

    def _run_exposure(self, graph: Graph, nodes: Tensor | None, products: FeatureProducts) -> Tensor:
        view = graph.sharing_products(products)
        if nodes is None:
            return run_backbone(self.module, view)
        pre_norm = shared_layer(self.module, view)
        assert pre_norm is not None
        subset = None if len(nodes) == graph.num_nodes else self._subset("exposure", nodes, graph)
        return rest_of(self.module, pre_norm, view, subset)

    def _subset(self, role: str, nodes: Tensor, graph: Graph) -> tuple[Tensor, Graph]:
        """What `rest_of` needs for the logits of some nodes, computed once; captured steps refer to it."""
        if role not in self._subsets:
            has_edges = any(stage.num_hops for stage in self.module.stages().head)
            self._subsets[role] = graph.one_hop_subgraph(nodes) if has_edges else (nodes, graph)
        return self._subsets[role]

    def _head(self, hidden: Tensor) -> Tensor:
        """Logits of isolated nodes with these hidden features."""
        no_edges = torch.empty(2, 0, dtype=torch.long, device=hidden.device)
        return self.module.head(hidden, Graph(hidden, no_edges))
