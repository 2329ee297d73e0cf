"""Executes a group of trainings: load the data, fit, score with every method that shares a training, evaluate.

Protocols and data readers, otherwise imported on first use, are imported here once, before processes are forked.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oddnode._version import __version__
from oddnode.detector import Detector, as_scorer
from oddnode.evaluation import TaskOutputs, evaluate
from oddnode.graph import graph_cache
from oddnode.protocols import clean, published  # noqa: F401
from oddnode.runner.detectors import build_detector
from oddnode.runner.fitting import Fitted, fit_stacks
from oddnode.runner.work import PLANAR, Group, Outcome, Training
from oddnode.scoring import Outputs, ScorerWrapper
from oddnode.tasks import Task, arrivals, arxiv, digits, load_tasks, planetoid, twitch  # noqa: F401
from oddnode.training import TrainingError

# The report shows the nodes of these tasks as images, with the reasons why they are flagged.
_WITH_REASONS = "digits/"


@dataclass(frozen=True)
class Setup:
    """Where and how trainings are executed."""

    device: str = "auto"  #: As for `Detector`.
    data_dir: str | None = None  #: As for `load_task`.
    #: Whether outcomes include the scores and predictions of every node, and the description of the task's graphs.
    node_scores: bool = False
    gpu_share: float = 1.0  #: The share of the GPU's memory that a process may use; less than 1 if several share it.


def execute_group(group: Group, setup: Setup) -> Iterator[Outcome]:
    """Execute the trainings of a group and yield the outcome of each as soon as it is available.

    A training that fails has an outcome too, and does not affect the others.

    Parameters
    ----------
    group : Group
        Trainings on one task, or on tasks with the same training graph.
    setup : Setup
        Where and how.
    """
    by_task: dict[str, list[tuple[Training, ...]]] = {}
    for stack in group.stacks:
        by_task.setdefault(stack[0].task, []).append(stack)
    fits: dict[Any, Detector] = {}
    for task, stacks in by_task.items():
        yield from _execute_task(task, stacks, setup, fits)


def _execute_task(
    name: str, stacks: list[tuple[Training, ...]], setup: Setup, fits: dict[Any, Detector]
) -> Iterator[Outcome]:
    """Execute the trainings on one task; ``fits`` has the detectors that were fitted on the same training graph."""
    began = time.perf_counter()
    trainings = [training for stack in stacks for training in stack]
    seeds = tuple(dict.fromkeys(training.seed for training in trainings))
    loaded = dict(zip(seeds, loaded_tasks(name, trainings[0].protocol, setup, seeds), strict=True))
    tasks = {seed: task for seed, (task, _) in loaded.items()}
    load_seconds = (time.perf_counter() - began) / len(trainings)
    new = [stack for stack in stacks if not all(_fit_key(training) in fits for training in stack)]
    with graph_cache():
        known = [training for stack in stacks if stack not in new for training in stack]
        reused = (Fitted(training, fits[_fit_key(training)], 0.0) for training in known)
        for fitted in chain(reused, fit_stacks(new, tasks, setup.device, setup.gpu_share)):
            if fitted.detector is not None and not fitted.detector.needs_exposure:
                fits[_fit_key(fitted.training)] = fitted.detector
            yield _outcome(fitted, *loaded[fitted.training.seed], setup, load_seconds)


def _fit_key(training: Training) -> tuple[Any, ...]:
    """Equal for trainings that give the same network on the same training graph."""
    return training.parameters, training.backbone, training.seed, training.settings, training.epochs


#: Facts and arrays that describe the graphs of a task.
_Description = tuple[dict[str, Any], dict[str, np.ndarray]]


_loaded: dict[tuple[Any, ...], list[tuple[Task, _Description]]] = {}


def loaded_tasks(name: str, protocol: str, setup: Setup, seeds: tuple[int, ...]) -> list[tuple[Task, _Description]]:
    """Load and describe the tasks of several seeds; they are kept for the next group on the same data."""
    key = name, protocol, setup, seeds
    if key not in _loaded:
        forget_tasks()  # first, because two large graphs may not fit into memory
        tasks = load_tasks(name, setup.data_dir, seeds, protocol)
        _loaded[key] = [(task, describe_graphs(task) if setup.node_scores else ({}, {})) for task in tasks]
    return _loaded[key]


def forget_tasks() -> None:
    """Let go of what `loaded_tasks` has kept."""
    _loaded.clear()


def _outcome(fitted: Fitted, task: Task, description: _Description, setup: Setup, load_seconds: float) -> Outcome:
    outcome = Outcome(fitted.training, error=fitted.error)
    outcome.facts = {
        "made_on": _made_on(setup.device),
        "seconds": {"load": load_seconds, "fit": fitted.seconds},
        "methods": {},
    }
    if setup.node_scores:
        outcome.graph_facts, outcome.graph_arrays = description
        outcome.facts |= {name: outcome.graph_facts[name] for name in ("data", "graphs")}
    if fitted.detector is not None:
        try:
            _Scoring(fitted.detector, task, setup, outcome).run()
        except Exception as error:
            outcome.error, outcome.metrics, outcome.arrays, outcome.facts["methods"] = error, {}, {}, {}
    if outcome.error is not None:
        # A loss that becomes infinite would do so again; if memory ran out, another attempt may succeed.
        diverged, text = isinstance(outcome.error, TrainingError), str(outcome.error)
        message = text if diverged else f"{type(outcome.error).__name__}: {text}"
        outcome.facts |= {"error": message, "retry": not diverged}
    return outcome


class _Scoring:
    """Scores a fitted detector with all methods of its training and fills in the outcome."""

    def __init__(self, detector: Detector, task: Task, setup: Setup, outcome: Outcome):
        self.detector = detector
        self.task = task
        self.setup = setup
        self.outcome = outcome
        self.training = outcome.training

    def run(self) -> None:
        seconds: dict[str, float] = self.outcome.facts["seconds"]
        began = time.perf_counter()
        self.outputs = TaskOutputs(self.detector, self.task)
        self.graphs = [self.outputs.id_test, *self.outputs.tests.values()]
        for graph in self.graphs:
            _wait_for(graph.all_logits)
        seconds["forward"] = time.perf_counter() - began
        self.outcome.facts |= {
            "best_epoch": self.detector.best_epoch_,
            "epochs": self.detector.epochs,
            "history": {name: [h[name] for h in self.detector.history_] for name in ("loss", "val_loss")},
        }
        self._keep("predicted", lambda graph: graph.logits.argmax(dim=-1).cpu().numpy().astype(np.int16))
        if self.training.backbone == PLANAR:
            self._keep("plane", lambda graph: graph.hidden.cpu().numpy())
        began = time.perf_counter()
        for method in self.training.methods:
            self._score(method)
        seconds["score"] = time.perf_counter() - began

    def _score(self, method: str) -> None:
        scorer = as_scorer(build_detector(self.training, method, self.task, self.setup.device).scorer)
        began = time.perf_counter()
        scored = self.detector.with_scorer(_CachedScorer(scorer))
        for graph in self.graphs:
            _wait_for(scored.score_samples(graph))
        seconds = time.perf_counter() - began
        numbers = self.outcome.metrics[method] = evaluate(scored, self.task, self.outputs)
        self.outcome.facts["methods"][method] = numbers | {"score_seconds": seconds}
        self._keep(f"scores/{method}", lambda graph: scored.score_samples(graph).float().cpu().numpy())
        if scored.scorer_.kinds and scored.calibration_ is not None and self.training.task.startswith(_WITH_REASONS):
            self._keep_reasons(method, scored)

    def _keep_reasons(self, method: str, scored: Detector) -> None:
        """Add to the facts why nodes are flagged, if node scores are wanted."""
        for name, graph in self._stored_graphs().items():
            assert scored.calibration_ is not None
            nodes = scored.calibration_.detect(scored.score_samples(graph)).nonzero().squeeze(1).tolist()
            reasons = {str(node): text for node, text in zip(nodes, scored.reasons(graph, nodes), strict=True)}
            self.outcome.facts.setdefault("reasons", {}).setdefault(method, {})[name] = reasons

    def _keep(self, prefix: str, value: Callable[[Outputs], np.ndarray]) -> None:
        """Add an array of every graph to the outcome, if node scores are wanted."""
        self.outcome.arrays |= {f"{prefix}/{name}": value(graph) for name, graph in self._stored_graphs().items()}

    def _stored_graphs(self) -> dict[str, Outputs]:
        """The distinct graphs to keep arrays for; none unless node scores are wanted."""
        if not self.setup.node_scores:
            return {}
        by_name = {"id": self.outputs.id_test, **self.outputs.tests}
        return {name: by_name[name] for name in dict.fromkeys(self.outcome.graph_facts["graphs"].values())}


@dataclass
class _CachedScorer(ScorerWrapper):
    """A scorer that scores every graph once and returns the same scores afterwards."""

    known: dict[int, Tensor] = field(default_factory=dict)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> _CachedScorer:
        return _CachedScorer(self.scorer.fit(outputs, train, y))

    def score(self, outputs: Outputs) -> Tensor:
        if id(outputs) not in self.known:
            self.known[id(outputs)] = self.scorer.score(outputs)
        return self.known[id(outputs)]


def _wait_for(tensor: Tensor) -> None:
    """Wait until a tensor is computed, without waiting for the trainings on other streams."""
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()


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


def describe_graphs(task: Task) -> _Description:
    """Describe the graphs that a task's detectors are scored on."""
    tests = dict(task.tests)
    same = [name for name, data in tests.items() if data is task.id_test.data]
    names = {"id": same[0] if same else "id", **{name: name for name in tests}}
    graphs = {"id": task.id_test.data, **tests}
    arrays = {"id_mask": task.id_test.mask.cpu().numpy()}
    arrays |= {f"ood_mask/{name}": data.ood_mask.cpu().numpy() for name, data in tests.items()}
    for stored in dict.fromkeys(names.values()):
        data = graphs[stored]
        targets = data.edge_index[1].cpu().numpy()
        # A shifted copy of a graph has no labels.
        y = data.y if isinstance(data.get("y"), Tensor) else torch.full((data.num_nodes,), -1)
        arrays[f"y/{stored}"] = y.cpu().numpy().astype(np.int16)
        arrays[f"degree/{stored}"] = np.bincount(targets, minlength=data.num_nodes).astype(np.int32)
    facts = {
        "graphs": names,
        "nodes": {name: int(data.num_nodes) for name, data in graphs.items()},
        "edges": {name: int(data.edge_index.shape[1]) for name, data in graphs.items()},
        "num_classes": task.num_classes,
        "data": _fingerprint(task),
    }
    return facts, arrays


def _fingerprint(task: Task) -> str:
    """A hash of all tensors that training and scoring read."""
    digest = hashlib.blake2b(digest_size=8)
    graphs = [task.train, *([] if task.exposure is None else [task.exposure]), task.id_test.data, *task.tests.values()]
    for data in {id(g): g for g in graphs}.values():
        for name in sorted(data.keys()):
            if isinstance(data[name], Tensor):
                digest.update(np.ascontiguousarray(data[name].cpu().numpy()).view(np.uint8).data)
    return digest.hexdigest()
