"""A whole benchmark cell, methods x seeds: oddnode against the reference-style loop, wall time.

    python benchmarks/train.py --task cora/structure --device cpu
    python benchmarks/train.py --task cora/structure,twitch,pubmed/structure --seeds 10

Both may use every core. oddnode's time is that of `oddnode.benchmark`, from loading the data to the last metric. The
reference-style loop is timed for a few epochs of every method, half of them before oddnode runs and half after, and its
time for all epochs and seeds is extrapolated: so many epochs, one run after another per method and seed. On a CPU it is
timed with all threads and with one; if one process per core would be faster, that time counts.

The first time that a process uses a kernel of a GPU, it is loaded or even compiled. The loop takes a step and measures
once per method before it is timed, and oddnode runs the cell once; how long that took is given too.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from common import machine, store, wait
from reference import METHODS, Run

from oddnode import benchmark
from oddnode.evaluation import Result
from oddnode.tasks import Task, load_task

EPOCHS = 200


def reference_seconds(task: Task, methods: list[str], device: str, epochs: int) -> dict[str, float]:
    """Seconds per epoch (a step and the evaluation of everything) of every method."""
    found = {}
    for method in methods:
        run = Run(task, method, device)
        run.step()
        run.evaluate()
        wait(device)
        start = time.perf_counter()
        for _ in range(epochs):
            run.step()
            run.evaluate()
        wait(device)
        found[method] = (time.perf_counter() - start) / epochs
    return found


def reference_epochs(task: Task, methods: list[str], device: str, epochs: int) -> dict[str, dict[str, float]]:
    """The same for the ways to use the machine; ``one process per core`` shares the time of one thread."""
    if device != "cpu":
        return {"gpu": reference_seconds(task, methods, device, epochs)}
    cores = machine()["cores"]
    torch.set_num_threads(cores)
    ways = {"all threads": reference_seconds(task, methods, device, epochs)}
    torch.set_num_threads(1)
    alone = reference_seconds(task, methods, device, epochs)
    torch.set_num_threads(cores)
    return ways | {"one process per core": {method: each / cores for method, each in alone.items()}}


def our_seconds(name: str, methods: list[str], options: argparse.Namespace) -> tuple[float, list[Result]]:
    start = time.perf_counter()
    results = benchmark(name, methods, seeds=options.seeds, device=options.device)
    wait(options.device)
    return time.perf_counter() - start, results


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    methods = options.methods.split(",")
    load_task(name)
    start = time.perf_counter()
    task = load_task(name)
    loading = time.perf_counter() - start
    half = max(options.reference_epochs // 2, 1)
    before = reference_epochs(task, methods, options.device, half)
    first = our_seconds(name, methods, options)[0] if options.device == "cuda" else None
    ours, results = our_seconds(name, methods, options)
    after = reference_epochs(task, methods, options.device, half)
    ways = {
        way: sum((before[way][m] + after[way][m]) / 2 * EPOCHS + loading for m in methods) * options.seeds
        for way in before
    }
    theirs = min(ways.values())
    return {
        "task": name,
        "methods": methods,
        "seeds": options.seeds,
        "epochs": EPOCHS,
        "oddnode s": round(ours, 2),
        "oddnode s, first time in the process": None if first is None else round(first, 2),
        "reference s, extrapolated": round(theirs, 1),
        "reference, timed epochs per method": 2 * half,
        "reference by way s": {way: round(value, 1) for way, value in ways.items()},
        "reference ms per epoch": {m: round(1e3 * before[min(ways, key=lambda w: ways[w])][m], 1) for m in methods},
        "ratio": round(theirs / ours, 1),
        "auroc": {r.method: round(r.mean("auroc"), 2) for r in results},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="cora/structure", help="tasks, separated by commas")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--reference-epochs", type=int, default=20, help="epochs per method that are timed")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for name in options.task.split(","):
        rows.append(measure(name, options))
        print(json.dumps(rows[-1]), flush=True)
    print(store("train", options.device, rows, options.out))


if __name__ == "__main__":
    main()
