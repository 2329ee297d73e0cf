"""Detection after training in mini-batches against training on the whole graph, for every backbone.

Both train the same networks from the same weights with the same settings; AUROC and FPR95 are those of `oddnode bench`.

    python benchmarks/mini_batches.py --tasks pubmed/structure,pubmed/feature,pubmed/label --seeds 3
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import store

from oddnode import Detector, evaluate, load_task
from oddnode.training import FullBatch, MiniBatch


def measured(name: str, backbone: str, seed: int, trainer: FullBatch | MiniBatch, epochs: int) -> dict[str, Any]:
    task = load_task(name, seed=seed)
    start = time.perf_counter()
    detector = Detector.from_recipe(
        "nodesafe", backbone=backbone, seed=seed, device="cpu", epochs=epochs, trainer=trainer
    )
    result = evaluate(detector.fit(task.train), task)
    row = {"task": name, "backbone": backbone, "seed": seed, "trainer": repr(trainer)}
    facts = {metric: round(result[metric], 2) for metric in ("auroc", "fpr95", "id_acc")}
    return row | facts | {"seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="pubmed/structure,pubmed/feature,pubmed/label")
    parser.add_argument("--backbones", default="gcn,gat,jknet,mixhop")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    trainers = FullBatch(), MiniBatch(options.neighbours, options.batch_size)
    rows = []
    print(f"{'task':<18} {'backbone':<8} {'full batch':>12} {'mini-batches':>14} {'difference':>11}   (AUROC)")
    for backbone in options.backbones.split(","):
        for task in options.tasks.split(","):
            cells = []
            for trainer in trainers:
                found = [measured(task, backbone, seed, trainer, options.epochs) for seed in range(options.seeds)]
                rows += found
                cells.append(float(np.mean([row["auroc"] for row in found])))
            full, mini = cells
            print(f"{task:<18} {backbone:<8} {full:>12.2f} {mini:>14.2f} {mini - full:>+11.2f}", flush=True)
    print(store("mini_batches", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
