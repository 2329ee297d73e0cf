"""The detector of a training, and which methods share a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode._utils.random import new_weights, seeded
from oddnode.detector import Detector
from oddnode.graph import Graph
from oddnode.nn import GAT, Backbone
from oddnode.protocols import get_protocol
from oddnode.runner.work import PLANAR, Training
from oddnode.tasks import ScoredNodes, Task


def build_detector(training: Training, method: str, task: Task, device: str = "auto") -> Detector:
    """Build the unfitted detector of a method with the settings of a training.

    Parameters
    ----------
    training : Training
        Gives protocol, backbone, seed, settings and epochs.
    method : str
        One of the methods that score the training.
    task : Task
        The task it will be fitted on.
    device : str
        As for `Detector`.
    """
    backbone: str | nn.Module = training.backbone
    if backbone == PLANAR:
        with seeded(training.seed), new_weights():
            backbone = PlanarGAT(task.train.x.shape[1], 64, task.num_classes, dropout=0.5)
    general: dict[str, Any] = {} if training.epochs is None else {"epochs": training.epochs}
    protocol = get_protocol(training.protocol)
    return protocol.detector(method, task, backbone, training.seed, device, **dict(training.settings), **general)


@cache
def training_key(training: Training, method: str) -> str:
    """Describe a method's training in full; methods with equal keys train the same network if their seeds are equal."""
    return repr(outlined_detector(replace(training, seed=0, methods=(method,))).training_key(include_seed=False))


def distinct_trainings(
    task: str,
    protocol: str,
    backbone: str,
    methods: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Training]:
    """List the trainings of seed 0 that methods need on a task: one per network, with all methods that score it.

    Parameters
    ----------
    task, protocol, backbone : str
        Names.
    methods : sequence of str
        The methods.
    settings : dict, optional
        For each method, the settings to override; methods with different ones share no training.
    """
    by_key: dict[Training, list[str]] = {}
    for method in methods:
        own = tuple((settings or {}).get(method, {}).items())
        training = Training(task, protocol, backbone, 0, (), own)
        key = training_key(replace(training, methods=(method,)), method)
        by_key.setdefault(replace(training, parameters=key), []).append(method)
    return [replace(training, methods=tuple(sharing)) for training, sharing in by_key.items()]


def may_stack(training: Training) -> bool:
    """Guess, without loading data, whether the seeds of a training can be stacked.

    The trainer decides. A wrong guess only makes the grouping less efficient.
    """
    detector = outlined_detector(replace(training, seed=0, methods=training.methods[:1]))
    return detector.backbone == "gcn" and detector.batch_norm == "id-graph"


@cache
def outlined_detector(training: Training) -> Detector:
    """The detector of a training's first method, built without data."""
    # The planar network depends on the data; its detector otherwise equals that of a GAT.
    named = replace(training, backbone="gat") if training.backbone == PLANAR else training
    return build_detector(named, training.methods[0], _outline(training.task, training.protocol), "cpu")


def _outline(name: str, protocol: str) -> Task:
    """A task with a single node instead of its data, which is enough to ask a protocol for a method's settings.

    Protocols choose settings by the name of a task. The few values that they read from its data (the published prior
    of GKDE, the number of left-out classes) are those of the single node: wrong for training, but enough to tell
    whether methods share a training.
    """
    node = Data(x=torch.zeros(1, 1), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.zeros(1, dtype=torch.long))
    node.train_mask = torch.ones(1, dtype=torch.bool)
    return Task(name, node, ScoredNodes(node, node.train_mask), {}, 1, protocol=protocol)


class PlanarGAT(Backbone):
    r"""A GAT with a two-dimensional bottleneck before the logits, :math:`R^D \to R^2 \to R^C`; ``embed`` returns it."""

    supports_capture = True

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, dropout: float = 0.0):
        super().__init__()
        self.body = GAT(in_channels, hidden_channels, hidden_channels, dropout=dropout)
        self.dropout = dropout
        self.to_plane = nn.Linear(hidden_channels, 2)
        self.to_logits = nn.Linear(2, out_channels)

    def embed(self, graph: Graph) -> Tensor:
        """Run all layers but the last."""
        return self.to_plane(self.body.run(graph))

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        """Turn points into logits."""
        return self.to_logits(hidden)
