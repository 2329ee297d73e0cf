"""One network in training, any module: its passes over the graphs, in the right modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import Graph, TrainingSet
from oddnode.nn import Backbone, run_backbone
from oddnode.objectives import Objective, TrainingPass, validation_loss
from oddnode.ops import DropoutStream, FeatureProducts, PreNormActivations
from oddnode.training.base import BatchNormStatistics

__all__ = ["SingleForward", "SingleTrainee", "last_pass_statistics"]

_ID, _EXPOSURE = 0, 1


@dataclass
class SingleForward:
    """What validation and the training pass of one step share; it lives as long as the step.

    Parameters
    ----------
    graph : Graph
        The ID graph, viewed for this step.
    products : FeatureProducts
        Products that the ID graph and the exposure graph share.
    pre_norm : PreNormActivations, optional
        The first layer, where the backbone can go on from there.
    logits : Tensor, optional
        Logits ``[N, C]`` of a whole training pass, where that evaluates the weights too.
    """

    graph: Graph
    products: FeatureProducts
    pre_norm: PreNormActivations | None = None
    logits: Tensor | None = None


@contextmanager
def last_pass_statistics(module: nn.Module) -> Iterator[None]:
    """Within the block, batch norm's running statistics are those of the last pass in training mode.

    Parameters
    ----------
    module : torch.nn.Module
        The network; its momenta are what they were when the block is left.
    """
    norms = _batch_norms(module)
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 1.0
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def _batch_norms(module: nn.Module) -> list[_BatchNorm]:
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]


class SingleTrainee:
    """A network with its data and objective; a `Trainee`.

    With ``batch_norm="id-graph"`` it must be trained within `last_pass_statistics`.

    Parameters
    ----------
    module : torch.nn.Module
        The network, with its initial weights; it has the best ones in the end.
    objective : Objective
        What it minimises, prepared.
    data : TrainingSet
        What it is trained on.
    batch_norm : {"id-graph", "running"}
        Where batch norm takes its evaluation statistics from.
    dropout_seed : int
        The seed of its dropout.
    epochs : int
        How many steps there will be at most.
    """

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
        self.module = module
        self.objective = objective
        self.data = data
        self.epoch_counter = torch.zeros(1, dtype=torch.long, device=data.graph.device)
        self._from_id_graph = batch_norm == "id-graph"
        self._layers = list(module.modules())
        self._norms = _batch_norms(module)
        # Without dropout a training pass over the ID graph *is* the evaluation of the weights it starts from.
        self._pass_evaluates = self._from_id_graph and isinstance(module, Backbone) and module.is_deterministic
        self._subsets: dict[str, tuple[Tensor, Graph]] = {}
        self._backbones = [layer for layer in self._layers if isinstance(layer, Backbone)]
        self._stream = DropoutStream(dropout_seed)
        if self._backbones and self.epoch_counter.device.type != "cpu":
            places = max(backbone.num_dropout_places for backbone in self._backbones)
            self._stream.follow(self.epoch_counter, epochs, places)
        for backbone in self._backbones:
            backbone.stream = self._stream

    @property
    def starts(self) -> frozenset[int]:
        """Epochs in which a term of the objective begins to count."""
        return self.objective.starts

    @property
    def capture_blocker(self) -> str | None:
        """Why a step cannot be captured as a CUDA graph; ``None`` where it can."""
        if not self.objective.supports_capture:
            return "a term of the objective does not declare supports_capture = True"
        if not getattr(self.module, "supports_capture", False):
            return f"{type(self.module).__name__} does not declare supports_capture = True"
        return None

    def parameters(self) -> list[nn.Parameter]:
        """The parameters to train."""
        return list(self.module.parameters())

    def tensors(self) -> list[Tensor]:
        """Parameters and buffers, not copied."""
        tensors = self.module.state_dict(keep_vars=True).values()
        return [tensor.detach() for tensor in tensors if isinstance(tensor, Tensor)]

    def update_best(self, better: Tensor, best: list[Tensor]) -> None:
        """Copy the present tensors where they are better, as `Trainee.update_best` says.

        Parameters
        ----------
        better : Tensor
            Whether they are, ``[1]``.
        best : list of Tensor
            Copies of `tensors`, updated in place.
        """
        for kept, now in zip(best, self.tensors(), strict=True):
            kept.copy_(torch.where(better[0], now, kept))

    def shared_forward(self, epoch: int) -> SingleForward:
        """Compute the first layer, or a whole pass where that evaluates the weights too.

        Parameters
        ----------
        epoch : int
            The number of steps taken.

        Returns
        -------
        SingleForward
            For `validation_loss` and `loss`.
        """
        self._set_training(epoch, _ID)
        products = FeatureProducts()
        shared = SingleForward(self.data.graph.sharing_products(products), products)
        if isinstance(self.module, Backbone) and not self.objective.needs_hidden:
            shared.pre_norm = self.module.forward_shared(shared.graph)
            if shared.pre_norm is None and self._pass_evaluates:
                shared.logits = self.module.run(shared.graph)
        return shared

    @torch.no_grad()
    def validation_loss(self, shared: SingleForward) -> Tensor:
        """Evaluate the present weights on the validation nodes.

        Parameters
        ----------
        shared : SingleForward
            From `shared_forward`.

        Returns
        -------
        Tensor
            The loss, ``[1]``.
        """
        data = self.data
        self._set_mode(training=False, norms=self._from_id_graph)
        if shared.pre_norm is not None:
            assert isinstance(self.module, Backbone)
            subset = self._subset("validation", data.val, data.graph)
            logits = self.module.forward_rest(shared.pre_norm, shared.graph, subset)
        elif shared.logits is not None:
            logits = shared.logits[data.val]
        else:
            logits = run_backbone(self.module, shared.graph)[data.val]
        positions = torch.arange(len(data.val), device=logits.device)
        view = TrainingPass(0, data.num_classes, data.graph, logits, positions, data.y_val, has_all_logits=False)
        return validation_loss(view).reshape(1)

    def loss(self, shared: SingleForward, epoch: int) -> Tensor:
        """Compute the loss of a training pass.

        Parameters
        ----------
        shared : SingleForward
            From `shared_forward`.
        epoch : int
            The number of steps taken.

        Returns
        -------
        Tensor
            The loss, ``[1]``.
        """
        return self.objective(self._training_pass(shared, epoch)).reshape(1)

    def _training_pass(self, shared: SingleForward, epoch: int) -> TrainingPass:
        """A pass over the ID graph and, where the objective asks for it, over the exposure graph."""
        data, everything = self.data, self.objective.needs_all_logits or shared.pre_norm is None
        self._set_training(epoch, _ID)
        hidden, logits = self._run(shared, everything)
        train = data.train if everything else torch.arange(len(data.train), device=logits.device)
        step = TrainingPass(epoch, data.num_classes, data.graph, logits, train, data.y_train, has_all_logits=everything)
        if hidden is not None:
            step.hidden, step.head = hidden, self._head
        if self.objective.needs_exposure and data.exposure is not None:
            assert data.exposed is not None
            # Exposed nodes are normalised as every later OOD node will be: by the ID graph's statistics.
            self._set_training(epoch, _EXPOSURE, norms=not self._from_id_graph)
            logits = self._run_exposure(data.exposure, None if everything else data.exposed, shared.products)
            step.exposure_graph, step.exposure_logits = data.exposure, logits
            step.exposed = data.exposed if everything else torch.arange(len(data.exposed), device=logits.device)
        return step

    def _run(self, shared: SingleForward, everything: bool) -> tuple[Tensor | None, Tensor]:
        """Hidden features, where the objective asks for them, and logits of the ID graph."""
        if shared.logits is not None:
            return None, shared.logits
        if shared.pre_norm is not None:
            assert isinstance(self.module, Backbone)
            subset = None if everything else self._subset("training", self.data.train, self.data.graph)
            return None, self.module.forward_rest(shared.pre_norm, shared.graph, subset)
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
        assert isinstance(self.module, Backbone)
        pre_norm = self.module.forward_shared(view)
        assert pre_norm is not None
        subset = None if len(nodes) == graph.num_nodes else self._subset("exposure", nodes, graph)
        return self.module.forward_rest(pre_norm, view, subset)

    def _subset(self, role: str, nodes: Tensor, graph: Graph) -> tuple[Tensor, Graph]:
        """`Backbone.receptive_field`, computed once; captured steps refer to it."""
        if role not in self._subsets:
            assert isinstance(self.module, Backbone)
            self._subsets[role] = self.module.receptive_field(nodes, graph)
        return self._subsets[role]

    def _head(self, hidden: Tensor) -> Tensor:
        """Logits of isolated nodes with these hidden features."""
        assert isinstance(self.module, Backbone)
        no_edges = torch.empty(2, 0, dtype=torch.long, device=hidden.device)
        return self.module.head(hidden, Graph(hidden, no_edges))

    def load_best(self, best: list[Tensor]) -> None:
        """Take the best tensors over, and be ready to score.

        Parameters
        ----------
        best : list of Tensor
            Copies of `tensors`.
        """
        with torch.no_grad():
            for tensor, kept in zip(self.tensors(), best, strict=True):
                tensor.copy_(kept)
            if self._from_id_graph:
                # Batch norm's statistics come from one pass over the ID graph, dropout off.
                self._set_mode(training=False, norms=True)
                run_backbone(self.module, self.data.graph)
        for backbone in self._backbones:
            backbone.stream = None
        self.module.eval()

    def _set_training(self, epoch: int, graph: int, norms: bool = True) -> None:
        self._set_mode(training=True, norms=norms)
        self._stream.at(epoch, graph)
        if isinstance(self.module, Backbone):
            self.module.begin_epoch(epoch)

    def _set_mode(self, training: bool, norms: bool) -> None:
        """Set the mode of the network, and that of its batch norm."""
        if type(self.module).train is nn.Module.train:
            # What nn.Module.train does, several times an epoch: without asking every layer for its children, and
            # without nn.Module.__setattr__, which looks for parameters and modules to register.
            for layer in self._layers:
                object.__setattr__(layer, "training", training)
        else:
            self.module.train(training)
        if norms != training:
            for norm in self._norms:
                norm.train(norms)
