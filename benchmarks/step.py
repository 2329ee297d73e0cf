"""One training step of NODESAFE: the reference-style loop, oddnode step by step, and as a CUDA graph.

    python benchmarks/step.py --device cpu
    python benchmarks/step.py --device cuda --graphs cora,pubmed,twitch,arxiv-size

Times are medians in milliseconds over steps of one training. oddnode's step is given twice: forward, losses, backward
and optimiser alone, and with what an epoch also does, the judgement of the weights and keeping the best ones.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import random_graph, store, wait
from reference import Run

from oddnode.graph import training_set
from oddnode.nn import GCN
from oddnode.objectives import BoundUniform, CrossEntropy
from oddnode.tasks import ScoredNodes, Task, load_task
from oddnode.training import CapturedSteps, SingleTrainee, StackedGCNs, TrainingConfig, TrainingLoop

OBJECTIVE = CrossEntropy() + 1.0 * BoundUniform(0.001)
TASKS = {"cora": "cora/structure", "citeseer": "citeseer/structure", "pubmed": "pubmed/structure", "twitch": "twitch"}


def load(graph: str) -> Task:
    if graph in TASKS:
        return load_task(TASKS[graph])
    # As many nodes, edges, features and classes as ogbn-arxiv.
    data = random_graph(169_343, 2_315_598, 128, 40)
    exposure = random_graph(169_343, 2_315_598, 128, 40, seed=1)
    exposure.ood_mask = torch.ones(exposure.num_nodes, dtype=torch.bool)
    return Task(graph, data, ScoredNodes(data, data.test_mask), {"random": exposure}, 40, exposure)


def reference_step(task: Task, device: str, steps: int) -> float:
    run = Run(task, "nodesafe", device)
    return _median(lambda _: run.step(), device, steps)


def our_step(task: Task, device: str, steps: int, networks: int, kind: str, validate: bool) -> float:
    """``kind``: one network, several stacked ones ("stacked"), or these captured as a CUDA graph ("graph")."""
    data = training_set(task.train, None, torch.device(device), num_spare_logits=1)
    modules = [GCN(data.graph.x.shape[1], 64, data.num_logits, dropout=0.5).to(device) for _ in range(networks)]
    warm, epochs = 6, 6 + steps
    if kind == "plain":
        trainee: Any = SingleTrainee(modules[0], OBJECTIVE, data, "id-graph", 0, epochs)
    else:
        trainee = StackedGCNs(modules, OBJECTIVE, [data] * networks, list(range(networks)), epochs)
    loop = TrainingLoop(trainee, TrainingConfig(epochs))
    if not validate:
        loop._validate = lambda shared: None  # type: ignore[method-assign]
    step = CapturedSteps(loop).step if kind == "graph" else loop.step
    for epoch in range(warm):
        step(epoch)
    return _median(lambda n: step(warm + n), device, steps)


def _median(step: Callable[[int], Any], device: str, steps: int) -> float:
    """On a CPU the median of single steps; on a GPU, where steps queue up, of runs of steps."""
    run = 1 if device == "cpu" else max(steps // 10, 1)
    times = []
    for first in range(0, steps, run):
        wait(device)
        start = time.perf_counter()
        for n in range(first, min(first + run, steps)):
            step(n)
        wait(device)
        times.append((time.perf_counter() - start) / run)
    return 1000 * sorted(times)[len(times) // 2]


def plan(task: Task, device: str, steps: int) -> dict[str, Callable[[], float]]:
    """What is timed on one graph."""
    ours = partial(our_step, task, device, steps)
    timed: dict[str, Callable[[], float]] = {"reference": partial(reference_step, task, device, steps)}
    timed["plain"] = partial(ours, 1, "plain", False)
    if device == "cpu":
        return timed | {"plain with judgement": partial(ours, 1, "plain", True)}
    for count in (1, 10):
        timed[f"graph x{count}"] = partial(ours, count, "graph", False)
        timed[f"graph x{count} with judgement"] = partial(ours, count, "graph", True)
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--graphs", default="cora,pubmed,twitch,arxiv-size")
    parser.add_argument("--steps", type=int, default=None, help="30 on a CPU, 200 on a GPU")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    on_gpu = options.device.startswith("cuda")
    steps = options.steps or (200 if on_gpu else 30)
    rows = []
    for name in options.graphs.split(","):
        task = load(name)
        row: dict[str, Any] = {"graph": name}
        for key, work in plan(task, options.device, steps).items():
            try:
                row[key] = round(work(), 4)
            except Exception:  # one figure that fails must not cost the others
                traceback.print_exc()
                row[key] = None
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(store("step", "cuda" if on_gpu else "cpu", rows, options.out))


if __name__ == "__main__":
    main()
