"""Detection after training in mini-batches against training on the whole graph.

Both train the same networks from the same weights with the same settings, so that their runs are paired by the seed;
AUROC and FPR95 are those of `oddnode bench`.

    python benchmarks/mini_batches.py --tasks pubmed/structure,pubmed/feature,pubmed/label --seeds 10
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import store

from oddnode import Detector, evaluate, load_task
from oddnode.training import FullBatch, MiniBatch


def measured(name: str, method: str, backbone: str, seed: int, trainer: Any, epochs: int) -> dict[str, Any]:
    task = load_task(name, seed=seed)
    start = time.perf_counter()
    detector = Detector.from_recipe(method, backbone=backbone, seed=seed, device="cpu", epochs=epochs, trainer=trainer)
    result = evaluate(detector.fit(task.train), task)
    row = {"method": method, "task": name, "backbone": backbone, "seed": seed, "trainer": repr(trainer)}
    facts = {metric: round(result[metric], 2) for metric in ("auroc", "fpr95", "id_acc")}
    return row | facts | {"best_epoch": detector.best_epoch_, "seconds": round(time.perf_counter() - start, 1)}


def spread(values: np.ndarray) -> str:
    return f"{values.mean():6.2f} +- {values.std(ddof=1):5.2f}" if len(values) > 1 else f"{values.mean():6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="pubmed/structure,pubmed/feature,pubmed/label")
    parser.add_argument("--methods", default="msp,nodesafe")
    parser.add_argument("--backbones", default="gcn,gat,jknet,mixhop")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--random", type=int, default=512)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time, with one thread each")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    trainers = FullBatch(), MiniBatch(options.neighbours, options.batch_size, options.random)
    cells = list(product(options.tasks.split(","), options.methods.split(","), options.backbones.split(",")))
    rows: list[dict[str, Any]] = []
    print("AUROC: mean and standard deviation over seeds; of differences, the mean and its standard error")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, spawn, torch.set_num_threads, (1,)) as pool:
        started = {
            cell: [
                [pool.submit(measured, *cell, seed, trainer, options.epochs) for trainer in trainers]
                for seed in range(options.seeds)
            ]
            for cell in cells
        }
        for (task, method, backbone), pairs in started.items():
            found = [[each.result() for each in pair] for pair in pairs]
            rows += [row for pair in found for row in pair]
            full, mini = np.array([[row["auroc"] for row in pair] for pair in found]).T
            error = (mini - full).std(ddof=1) / len(found) ** 0.5 if len(found) > 1 else float("nan")
            difference = f"{(mini - full).mean():+6.2f} +- {error:.2f}"
            print(f"{task:<18} {method:<9} {backbone:<7} {spread(full)}  {spread(mini)}  {difference}", flush=True)
            print(store("mini_batches", "cpu", rows, options.out), flush=True)


if __name__ == "__main__":
    main()
