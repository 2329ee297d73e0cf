"""The training engine: full batch, and the epoch with the lowest validation loss wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.backbones import Backbone, run_backbone
from oddnode.graph import Graph
from oddnode.objectives import Objective, Pass, Term
from oddnode.training_set import TrainingSet

__all__ = ["BatchNormStatistics", "Trained", "TrainingError", "seeded", "train"]

#: Where batch norm takes the statistics for everything but a training pass over the ID graph from: that graph in
#: one pass, or a running average over all passes, which lags behind and mixes in whatever went through the network.
BatchNormStatistics = Literal["id-graph", "running"]


class TrainingError(RuntimeError):
    """Training went wrong in a way that more epochs cannot mend."""


@dataclass
class Trained:
    """The outcome of a training: which epoch won, and the losses on the way."""

    best_epoch: int
    best_val_loss: float
    history: list[dict[str, float]] = field(default_factory=list)


def train(
    module: nn.Module,
    objective: Objective,
    data: TrainingSet,
    *,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 0.01,
    batch_norm: BatchNormStatistics = "id-graph",
    on_epoch: Callable[[int], None] | None = None,
) -> Trained:
    """Train ``module`` in place and leave it with the weights of its best epoch, in evaluation mode.

    After every step the weights are judged by the cross-entropy of the validation nodes.
    """
    if isinstance(objective, Term):
        objective = 1.0 * objective  # a sum minds when its terms start
    objective = objective.prepare(data)
    if isinstance(module, Backbone):
        module.prepare(data)
    engine = _Engine(module, objective, data, batch_norm)
    optimiser = torch.optim.Adam(module.parameters(), lr=lr, weight_decay=weight_decay)
    best = Trained(0, float("inf"))
    weights = _snapshot(module)
    step = engine.forward(epoch=0)
    for epoch in range(1, epochs + 1):
        loss = objective(step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if engine.pass_evaluates:
            step = engine.forward(epoch)
            logits = step.logits.detach()
        else:
            logits = engine.evaluate()
        val_loss = F.cross_entropy(logits[data.val], data.y_val).item()
        best.history.append({"epoch": epoch, "loss": _finite(loss, epoch, epochs), "val_loss": val_loss})
        if val_loss < best.best_val_loss:
            best.best_epoch, best.best_val_loss, weights = epoch, val_loss, _snapshot(module)
        if not engine.pass_evaluates and epoch < epochs:
            step = engine.forward(epoch)
        if on_epoch:
            on_epoch(epoch)
    module.load_state_dict(weights)
    if batch_norm == "id-graph":
        engine.refresh()
    module.eval()
    return best


class _Engine:
    """Passes over the graphs in the right modes."""

    def __init__(self, module: nn.Module, objective: Objective, data: TrainingSet, batch_norm: BatchNormStatistics):
        self.module = module
        self.data = data
        self.from_id_graph = batch_norm == "id-graph"
        self.with_exposure = objective.needs_exposure
        self.with_hidden = objective.needs_hidden
        self.norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
        # Without dropout a training pass over the ID graph *is* the evaluation of the weights it starts from.
        self.pass_evaluates = self.from_id_graph and isinstance(module, Backbone) and module.is_deterministic
        if self.from_id_graph:
            for norm in self.norms:
                norm.momentum = 1.0  # the statistics kept are those of the last pass in training mode

    def forward(self, epoch: int) -> Pass:
        """A training pass over the ID graph and, where the objective asks for it, over the exposure graph."""
        data = self.data
        self.module.train()
        if isinstance(self.module, Backbone):
            self.module.begin_epoch(epoch)
        hidden, logits = self._run()
        step = Pass(epoch, data.num_classes, data.graph, logits, data.train, data.y_train)
        if hidden is not None:
            step.hidden, step.head = hidden, self._head
        if self.with_exposure and data.exposure is not None:
            if self.from_id_graph:
                # Exposed nodes are normalised as every later OOD node will be: by the ID graph's statistics.
                self._set_norms(training=False)
            step.exposure_graph, step.exposed = data.exposure, data.exposed
            step.exposure_logits = run_backbone(self.module, data.exposure)
        return step

    def _run(self) -> tuple[Tensor | None, Tensor]:
        """Hidden features, where the objective asks for them, and logits of the ID graph."""
        if not self.with_hidden:
            return None, run_backbone(self.module, self.data.graph)
        if not isinstance(self.module, Backbone):
            raise TypeError(
                f"the objective works on hidden features, but {type(self.module).__name__} is not a Backbone; "
                "use one of oddnode's, or subclass oddnode.backbones.Backbone with embed and head"
            )
        hidden = self.module.embed(self.data.graph)
        return hidden, self.module.head(hidden, self.data.graph)

    def _head(self, hidden: Tensor) -> Tensor:
        """Logits of lone nodes with these hidden features."""
        assert isinstance(self.module, Backbone)
        no_edges = torch.empty(2, 0, dtype=torch.long, device=hidden.device)
        return self.module.head(hidden, Graph(hidden, no_edges))

    def evaluate(self) -> Tensor:
        """Logits of the ID graph, as they would be scored."""
        if self.from_id_graph:
            return self.refresh()
        self.module.eval()
        with torch.no_grad():
            return run_backbone(self.module, self.data.graph)

    @torch.no_grad()
    def refresh(self) -> Tensor:
        """Take batch norm's statistics from one pass over the ID graph, dropout off; returns its logits."""
        self.module.eval()
        self._set_norms(training=True)
        return run_backbone(self.module, self.data.graph)

    def _set_norms(self, training: bool) -> None:
        for norm in self.norms:
            norm.train(training)


def _finite(loss: Tensor, epoch: int, epochs: int) -> float:
    value = loss.item()
    if value != value or value in (float("inf"), float("-inf")):
        raise TrainingError(
            f"the loss became {value} in epoch {epoch} of {epochs}; "
            "lower the learning rate or the weights of the objective, or check the scale of the features"
        )
    return value


def _snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """A random stream of its own for the block: the caller's is neither used nor moved."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
