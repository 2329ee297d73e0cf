"""Does one training and everything that is read off it: the thin layer between the plan and the library."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode._utils.random import seeded
from oddnode._version import __version__
from oddnode.detector import Detector
from oddnode.evaluation import TaskOutputs, evaluate
from oddnode.graph import Graph
from oddnode.nn import GAT, Backbone
from oddnode.paper.experiments import PLANAR
from oddnode.paper.record import Training
from oddnode.protocols import get_protocol
from oddnode.scoring import Outputs, Scorer
from oddnode.tasks import ScoredNodes, Task, load_task
from oddnode.training import TrainingError

__all__ = ["Outcome", "PlanarGAT", "build", "execute", "outline", "parameters_of"]


@dataclass
class Outcome:
    """What a training leaves behind, for `Store.save` and `Store.save_graphs`."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]
    graph_facts: dict[str, Any]
    graph_arrays: dict[str, np.ndarray]


def execute(
    training: Training,
    data_dir: str | None = None,
    device: str = "auto",
    on_epoch: Callable[[int], None] | None = None,
) -> Outcome:
    """Train, score with every method that shares the training, and measure.

    A training that fails is an outcome too: its ``facts`` have an ``error``, and say whether it is worth to ``retry``
    (not where the loss becomes infinite: it would again; where memory ran out, another machine may have more).
    """
    where = (training.task, data_dir, training.seed, training.protocol)
    graph_facts, graph_arrays = _described(*where)
    facts: dict[str, Any] = {"data": graph_facts["data"], "graphs": graph_facts["graphs"], "made_on": _made_on(device)}
    try:
        results, arrays = _train_and_score(training, _task(*where), graph_facts["graphs"], device, on_epoch)
    except TrainingError as error:
        results, arrays = {"error": str(error), "retry": False, "methods": {}}, {}
    except Exception as error:
        results, arrays = {"error": f"{type(error).__name__}: {error}", "retry": True, "methods": {}}, {}
    return Outcome(facts | results, arrays, graph_facts, graph_arrays)


def _train_and_score(
    training: Training, task: Task, graphs: dict[str, str], device: str, on_epoch: Callable[[int], None] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    detector = build(training, training.methods[0], task, device)
    exposed = detector.objective is not None and detector.objective.needs_exposure
    began = time.perf_counter()
    detector.fit(task.train, task.exposure if exposed else None, on_epoch=on_epoch)
    fit_seconds = time.perf_counter() - began
    began = time.perf_counter()
    outputs = TaskOutputs(detector, task)
    for graph in (outputs.id_test, *outputs.tests.values()):
        _wait_for(graph.all_logits)
    forward_seconds = time.perf_counter() - began
    facts: dict[str, Any] = {
        "best_epoch": detector.best_epoch_,
        "epochs": detector.epochs,
        "history": {name: [h[name] for h in detector.history_] for name in ("loss", "val_loss")},
        "seconds": {"fit": fit_seconds, "forward": forward_seconds},
        "methods": {},
    }
    arrays = _per_graph(graphs, "predicted", outputs, _predicted)
    if training.backbone == PLANAR:
        arrays |= _per_graph(graphs, "plane", outputs, lambda o: o.hidden.cpu().numpy())
    for method in training.methods:
        numbers, scores = _score(training, method, task, detector, outputs, device)
        facts["methods"][method] = numbers
        arrays |= _per_graph(graphs, f"scores/{method}", outputs, scores)
    return facts, arrays


@lru_cache(maxsize=1)
def _task(name: str, data_dir: str | None, seed: int, protocol: str) -> Task:
    return load_task(name, data_dir, seed, protocol)


@lru_cache(maxsize=64)
def _described(
    name: str, data_dir: str | None, seed: int, protocol: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return _describe(_task(name, data_dir, seed, protocol))


def _score(
    training: Training, method: str, task: Task, fitted: Detector, outputs: TaskOutputs, device: str
) -> tuple[dict[str, Any], Callable[[Outputs], np.ndarray]]:
    scorer = build(training, method, task, device).scorer
    assert scorer is not None
    remembered = _Remembered(scorer)
    began = time.perf_counter()
    scored = fitted.with_scorer(remembered)
    for graph in (outputs.id_test, *outputs.tests.values()):
        _wait_for(scored.score_samples(graph))
    seconds = time.perf_counter() - began
    numbers = evaluate(scored, task, outputs)
    numbers["score_seconds"] = seconds
    return numbers, lambda graph: scored.score_samples(graph).float().cpu().numpy()


@dataclass
class _Remembered(Scorer):
    """A scorer that scores every graph once, however often it is asked."""

    scorer: Scorer
    known: dict[int, Tensor] = field(default_factory=dict)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> _Remembered:
        return _Remembered(self.scorer.fit(outputs, train, y))

    def score(self, outputs: Outputs) -> Tensor:
        if id(outputs) not in self.known:
            self.known[id(outputs)] = self.scorer.score(outputs)
        return self.known[id(outputs)]


def _predicted(outputs: Outputs) -> np.ndarray:
    return outputs.logits.argmax(dim=-1).cpu().numpy().astype(np.int16)


def _per_graph(
    names: dict[str, str], prefix: str, outputs: TaskOutputs, value: Callable[[Outputs], np.ndarray]
) -> dict[str, np.ndarray]:
    by_name = {"id": outputs.id_test, **outputs.tests}
    return {f"{prefix}/{stored}": value(by_name[stored]) for stored in dict.fromkeys(names.values())}


def _wait_for(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def _describe(task: Task) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Names, masks, classes and degrees of a task's graphs."""
    tests = dict(task.tests)
    same = [name for name, data in tests.items() if data is task.id_test.data]
    names = {"id": same[0] if same else "id", **{name: name for name in tests}}
    graphs = {"id": task.id_test.data, **tests}
    arrays = {"id_mask": task.id_test.mask.cpu().numpy()}
    arrays |= {f"ood_mask/{name}": data.ood_mask.cpu().numpy() for name, data in tests.items()}
    for stored in dict.fromkeys(names.values()):
        data = graphs[stored]
        arrays[f"y/{stored}"] = _classes(data)
        arrays[f"degree/{stored}"] = np.bincount(data.edge_index[1].cpu().numpy(), minlength=data.num_nodes).astype(
            np.int32
        )
    facts = {
        "graphs": names,
        "nodes": {name: int(data.num_nodes) for name, data in graphs.items()},
        "edges": {name: int(data.edge_index.shape[1]) for name, data in graphs.items()},
        "num_classes": task.num_classes,
        "data": _fingerprint(task),
    }
    return facts, arrays


def _classes(data: Data) -> np.ndarray:
    """Classes of a graph's nodes, -1 where it says none (a shifted copy of a graph)."""
    y = data.y if isinstance(data.get("y"), Tensor) else torch.full((data.num_nodes,), -1)
    return y.cpu().numpy().astype(np.int16)


def _fingerprint(task: Task) -> str:
    """A hash of the numbers that training and scoring read."""
    digest = hashlib.blake2b(digest_size=8)
    graphs = [task.train, *([] if task.exposure is None else [task.exposure]), task.id_test.data, *task.tests.values()]
    for data in {id(g): g for g in graphs}.values():
        for name in sorted(data.keys()):
            if isinstance(data[name], Tensor):
                digest.update(np.ascontiguousarray(data[name].cpu().numpy()).view(np.uint8).data)
    return digest.hexdigest()


def _made_on(device: str) -> dict[str, Any]:
    cuda = device != "cpu" and torch.cuda.is_available()
    return {
        "oddnode": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name() if cuda else "CPU",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


# Detectors


def build(training: Training, method: str, task: Task, device: str = "auto") -> Detector:
    """The detector of a method with the settings of a training."""
    backbone: str | nn.Module = training.backbone
    if backbone == PLANAR:
        backbone = _planar(task, training.seed)
    general: dict[str, Any] = {} if training.epochs is None else {"epochs": training.epochs}
    protocol = get_protocol(training.protocol)
    return protocol.detector(method, task, backbone, training.seed, device, **dict(training.settings), **general)


def parameters_of(detector: Detector) -> str:
    """Equal for detectors that train the same network: everything but the scorer, seed, device and network."""
    apart = ("scorer", "seed", "device", "backbone")
    return repr(sorted((k, repr(v)) for k, v in detector.get_params(deep=False).items() if k not in apart))


def outline(name: str, protocol: str) -> Task:
    """A task by name with next to nothing in it: enough to ask a method for its objective without reading data."""
    node = Data(x=torch.zeros(1, 1), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.zeros(1, dtype=torch.long))
    node.train_mask = torch.ones(1, dtype=torch.bool)
    return Task(name, node, ScoredNodes(node, node.train_mask), {}, 1, protocol=protocol)


class PlanarGAT(Backbone):
    r"""A GAT whose last linear map goes through a plane, :math:`R^D \to R^2 \to R^C`; ``embed`` gives the plane."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, dropout: float = 0.0):
        super().__init__()
        self.body = GAT(in_channels, hidden_channels, hidden_channels, dropout=dropout)
        self.dropout = dropout
        self.to_plane = nn.Linear(hidden_channels, 2)
        self.to_logits = nn.Linear(2, out_channels)

    def embed(self, graph: Graph) -> Tensor:
        return self.to_plane(self.body.run(graph))

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.to_logits(hidden)


def _planar(task: Task, seed: int) -> PlanarGAT:
    with seeded(seed, torch.device("cpu")):
        return PlanarGAT(task.train.x.shape[1], 64, task.num_classes, dropout=0.5)
