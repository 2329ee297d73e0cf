"""One network in training, any module: its passes over the graphs, in the right modes.

`oddnode.training.stacked_gcn.Networks` is the same for many; the loop in `oddnode.training.engine` sees either.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import Graph, TrainingSet
from oddnode.nn import Backbone, run_backbone
from oddnode.objectives import Objective, Pass, validation_loss
from oddnode.ops import Beginning, DropoutStream
from oddnode.training.base import BatchNormStatistics

__all__ = ["Network"]


class Network:
    """A network with its data and objective: the passes over the graphs, in the right modes."""

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
        self.from_id_graph = batch_norm == "id-graph"
        self._layers = list(module.modules())
        self.norms = [layer for layer in self._layers if isinstance(layer, _BatchNorm)]
        # Without dropout a training pass over the ID graph *is* the evaluation of the weights it starts from.
        self.pass_evaluates = self.from_id_graph and isinstance(module, Backbone) and module.is_deterministic
        self._beginning: Beginning | None = None
        self._logits: Tensor | None = None
        self.count = torch.zeros(1, dtype=torch.long, device=data.graph.device)
        if isinstance(module, Backbone):
            module.stream = DropoutStream(dropout_seed)
            if self.count.device.type != "cpu":
                module.stream.follow(self.count, epochs, 2 * len(self.norms) + 2)
        if self.from_id_graph:
            for norm in self.norms:
                norm.momentum = 1.0  # the statistics kept are those of the last pass in training mode

    @property
    def hindrance(self) -> str | None:
        """Why a step cannot be recorded and replayed; ``None`` where it can."""
        if not self.objective.is_pure:
            return "a term of the objective changes with the epoch, is random, or does not say that it is not"
        kind = type(self.module)
        if not kind.__module__.startswith("oddnode."):
            return f"{kind.__name__} may do what cannot be recorded"
        if isinstance(self.module, Backbone) and kind.begin_epoch is not Backbone.begin_epoch:  # type: ignore[attr-defined]
            return f"{kind.__name__} learns in stages"
        return None

    def parameters(self) -> list[nn.Parameter]:
        """What is trained."""
        return list(self.module.parameters())

    def state(self) -> list[Tensor]:
        """All that makes up the network at this moment, not copied."""
        tensors = self.module.state_dict(keep_vars=True).values()
        return [tensor.detach() for tensor in tensors if isinstance(tensor, Tensor)]

    def keep(self, better: Tensor, state: list[Tensor]) -> None:
        """Take the present weights into ``state`` where they are better (``[1]``)."""
        for kept, now in zip(state, self.state(), strict=True):
            kept.copy_(torch.where(better[0], now, kept))

    def look(self, epoch: int) -> None:
        """Compute what the evaluation of the present weights and the training pass from them have in common."""
        self._set_training(epoch, graph=0)
        self._beginning = self._logits = None
        if isinstance(self.module, Backbone) and not self.objective.needs_hidden:
            self._beginning = self.module.begin(self.data.graph)
            if self._beginning is None and self.pass_evaluates:
                self._logits = self.module.run(self.data.graph)

    def forget(self) -> None:
        """Let go of what `look` computed; a pass that is kept alive would tie the next to its stream."""
        self._beginning = self._logits = None
        for graph in (self.data.graph, self.data.exposure):
            if graph is not None:
                graph.forget_product()

    @torch.no_grad()
    def judge(self) -> Tensor:
        """The validation loss of the present weights, ``[1]``."""
        data = self.data
        self._set_mode(training=False, norms=self.from_id_graph)
        if self._beginning is not None:
            assert isinstance(self.module, Backbone)
            logits = self.module.finish(self._beginning.detached(), data.graph, data.val)
        elif self._logits is not None:
            logits = self._logits[data.val]
        else:
            logits = run_backbone(self.module, data.graph)[data.val]
        positions = torch.arange(len(data.val), device=logits.device)
        view = Pass(0, data.num_classes, data.graph, logits, positions, data.y_val, has_all_logits=False)
        return validation_loss(view).reshape(1)

    def loss(self, epoch: int) -> Tensor:
        """The loss of a training pass, ``[1]``."""
        return self.objective(self._pass(epoch)).reshape(1)

    def _pass(self, epoch: int) -> Pass:
        """A training pass over the ID graph and, where the objective asks for it, over the exposure graph."""
        data, everything = self.data, self.objective.needs_all_logits or self._beginning is None
        self._set_training(epoch, graph=0)
        hidden, logits = self._run(everything)
        train = data.train if everything else torch.arange(len(data.train), device=logits.device)
        step = Pass(epoch, data.num_classes, data.graph, logits, train, data.y_train, has_all_logits=everything)
        if hidden is not None:
            step.hidden, step.head = hidden, self._head
        if self.objective.needs_exposure and data.exposure is not None:
            assert data.exposed is not None
            # Exposed nodes are normalised as every later OOD node will be: by the ID graph's statistics.
            self._set_training(epoch, graph=1, norms=not self.from_id_graph)
            logits = self._run_exposure(data.exposure, None if everything else data.exposed)
            step.exposure_graph, step.exposure_logits = data.exposure, logits
            step.exposed = data.exposed if everything else torch.arange(len(data.exposed), device=logits.device)
        return step

    def _run(self, everything: bool) -> tuple[Tensor | None, Tensor]:
        """Hidden features, where the objective asks for them, and logits of the ID graph."""
        graph = self.data.graph
        if self._logits is not None:
            return None, self._logits
        if self._beginning is not None:
            assert isinstance(self.module, Backbone)
            return None, self.module.finish(self._beginning, graph, None if everything else self.data.train)
        if not self.objective.needs_hidden:
            return None, run_backbone(self.module, graph)
        if not isinstance(self.module, Backbone):
            raise TypeError(
                f"the objective works on hidden features, but {type(self.module).__name__} is not a Backbone; "
                "use one of oddnode's, or subclass oddnode.nn.base.Backbone with embed and head"
            )
        hidden = self.module.embed(graph)
        return hidden, self.module.head(hidden, graph)

    def _run_exposure(self, graph: Graph, nodes: Tensor | None) -> Tensor:
        if nodes is None:
            return run_backbone(self.module, graph)
        assert isinstance(self.module, Backbone)
        beginning = self.module.begin(graph)
        assert beginning is not None
        return self.module.finish(beginning, graph, None if len(nodes) == graph.num_nodes else nodes)

    def _head(self, hidden: Tensor) -> Tensor:
        """Logits of lone nodes with these hidden features."""
        assert isinstance(self.module, Backbone)
        no_edges = torch.empty(2, 0, dtype=torch.long, device=hidden.device)
        return self.module.head(hidden, Graph(hidden, no_edges))

    def restore(self, state: list[Tensor]) -> None:
        """Take weights over that `state` gave earlier, and be ready to score."""
        with torch.no_grad():
            for tensor, kept in zip(self.state(), state, strict=True):
                tensor.copy_(kept)
            if self.from_id_graph:
                # Batch norm's statistics come from one pass over the ID graph, dropout off.
                self._set_mode(training=False, norms=True)
                run_backbone(self.module, self.data.graph)
        if isinstance(self.module, Backbone):
            self.module.stream = None
        self.module.eval()

    def _set_training(self, epoch: int, graph: int, norms: bool = True) -> None:
        self._set_mode(training=True, norms=norms)
        if isinstance(self.module, Backbone):
            self.module.begin_epoch(epoch)
            assert self.module.stream is not None
            self.module.stream.at(epoch, graph)

    def _set_mode(self, training: bool, norms: bool) -> None:
        """The mode of the network, and that of its batch norm."""
        if type(self.module).train is nn.Module.train:
            # What nn.Module.train does, without asking every layer for its children several times an epoch.
            for layer in self._layers:
                layer.__dict__["training"] = training
        else:
            self.module.train(training)
        if norms != training:
            for norm in self.norms:
                norm.train(norms)
