"""What membership is worth: the paper's ten cells with ID test nodes in the training graph, and kept out of it.

In the cells, the ID test nodes are part of the training graph (without their labels), and the OOD nodes are not: a
method could tell the two apart by what it has seen. Here the same method is also trained on the graph without the ID
test nodes and scores the same nodes in the same graphs.

    python benchmarks/membership.py --seeds 3 --methods nodesafe-evidence,nodesafe-msp
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import store

from oddnode import Detector, evaluate, load_task
from oddnode.tasks import PAPER_TASKS, Task, induced


def without_members(task: Task) -> Task:
    """The task with a training graph that lacks the ID test nodes."""
    return replace(task, train=induced(task.train, ~task.train.test_mask))


def job(name: str, method: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    task = load_task(name, seed=seed)
    row: dict[str, Any] = {"task": name, "method": method, "seed": seed}
    for kind, own in (("members", task), ("newcomers", without_members(task))):
        result = evaluate(Detector.from_recipe(method, seed=seed, device="cpu").fit(own.train), own)
        row[kind] = {metric: round(result[metric], 3) for metric in ("auroc", "fpr95", "id_acc", "false_alarms")}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(PAPER_TASKS))
    parser.add_argument("--methods", default="nodesafe-evidence,nodesafe-msp")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    tasks, methods = options.tasks.split(","), options.methods.split(",")
    cells = [(t, m, s) for t in tasks for m in methods for s in range(options.seeds)]
    rows = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
        for done, finished in enumerate(as_completed([pool.submit(job, *cell) for cell in cells]), 1):
            rows.append(finished.result())
            print(f"\r{done}/{len(cells)}", end="", flush=True)
    print()
    rows.sort(key=lambda row: (row["method"], PAPER_TASKS.index(row["task"]), row["seed"]))
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        for kind in ("members", "newcomers"):
            means = {m: round(float(np.mean([row[kind][m] for row in own])), 1) for m in own[0][kind]}
            print(f"{method:20} {kind:10} {means}")
    print(store("membership", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
