"""What the recommended method costs, as ratios to NODESAFE's time on the same graph, in turns within one process.

    OMP_NUM_THREADS=2 python benchmarks/cost.py
    OMP_NUM_THREADS=1 python benchmarks/cost.py --threads 1 --graphs cora --repeats 3
    OMP_NUM_THREADS=2 python benchmarks/cost.py --nodesafe-of 50599ea      # and its NODESAFE against today's

The tasks are arrivals of kind structure. Ratios are those of medians, of processor time and of wall time; on a machine
with other work, processor time is the steadier one, and one thread, since waiting threads spin. Scoring starts from the
user's graph, *alone* without the evidence of the batch.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import store

#: The limits of `fit`, by graph; that of a score alone, and that of a score with the batch against one alone.
FIT_LIMITS = {"cora": 6.0, "pubmed": 6.0, "photo": 6.0, "citations-wide": 8.0}
SCORE_LIMIT, BATCH_LIMIT = 4.0, 2.0


def timed(work: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """What a call returns, and its processor time and wall time."""
    start = time.process_time(), time.perf_counter()
    result = work()
    return result, (time.process_time() - start[0], time.perf_counter() - start[1])


def score(detector: Any, data: Any, kind: str) -> Any:
    """Score a graph with the evidence of the batch, or each node alone."""
    return detector.score_samples(detector.outputs(data, batch=False) if kind == "alone" else data)


def measure(graph: str, methods: list[str], repeats: int, scores: int) -> dict[str, list[float]]:
    """Median processor and wall seconds of each method's fit and scores, in turns after one that does not count."""
    from oddnode import Detector, load_task

    task = load_task(f"{graph}/arrivals/structure-scattered")
    data = task.id_test.data
    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(repeats + 1):
        for method in methods:
            detector, spent = timed(partial(Detector.from_recipe(method, device="cpu", seed=0).fit, task.train))
            taken = {f"fit {method}": [spent]}
            for _ in range(scores):
                for kind in ("score",) if method == "nodesafe" else ("score", "alone"):
                    _, spent = timed(partial(score, detector, data, kind))
                    taken.setdefault(f"{kind} {method}", []).append(spent)
            if turn:
                for name, times in taken.items():
                    found.setdefault(name, []).extend(times)
    return {name: [median(column) for column in zip(*times, strict=True)] for name, times in found.items()}


def nodesafe_of(commit: str, graph: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """NODESAFE's times with the source of another commit, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit, "src"], check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)
        paths = os.pathsep.join([f"{folder}/src", str(Path(__file__).parent)])
        given = ["--only-nodesafe", "--graphs", graph, "--threads", str(options.threads)]
        counts = ["--repeats", str(options.repeats), "--scores", str(options.scores)]
        asked = [sys.executable, __file__, *given, *counts]
        answer = subprocess.run(
            asked, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}
        )
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print the ratios and store them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=list(FIT_LIMITS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="fits of each method")
    parser.add_argument("--scores", type=int, default=5, help="scores after each fit")
    parser.add_argument("--nodesafe-of", help="a commit whose NODESAFE is measured, too")
    parser.add_argument("--only-nodesafe", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    if options.only_nodesafe:
        print(json.dumps(measure(options.graphs[0], ["nodesafe"], options.repeats, options.scores)))
        return
    rows = []
    for graph in options.graphs:
        times = measure(graph, ["nodesafe", "nodesafe-evidence"], options.repeats, options.scores)
        row: dict[str, Any] = {"graph": graph, "threads": options.threads, "repeats": options.repeats}
        row["seconds"] = {name: [round(value, 4) for value in pair] for name, pair in times.items()}
        own = "nodesafe-evidence"
        for name, above, below, limit in (
            ("fit", f"fit {own}", "fit nodesafe", FIT_LIMITS.get(graph)),
            ("score alone", f"alone {own}", "score nodesafe", SCORE_LIMIT),
            ("batch", f"score {own}", f"alone {own}", BATCH_LIMIT),
        ):
            ratio, wall = (round(a / b, 2) for a, b in zip(times[above], times[below], strict=True))
            row[name] = {"processor": ratio, "wall": wall, "limit": limit}
            print(f"{graph:16}{name:12} {ratio:6.2f} (wall {wall:.2f}), limit {limit}", flush=True)
        if options.nodesafe_of:
            before = nodesafe_of(options.nodesafe_of, graph, options)
            for name in ("fit nodesafe", "score nodesafe"):
                row[f"{name} of {options.nodesafe_of} / today"] = round(before[name][0] / times[name][0], 2)
                print(f"{graph:16}{name} of {options.nodesafe_of} / today: {before[name][0] / times[name][0]:.2f}")
        rows.append(row)
    print(store("cost", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
