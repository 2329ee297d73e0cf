"""A training of our GAT against one of PyG's layers as they are, side by side in one process.

Both are trained by `Detector` with the same objective, optimiser and epochs; they take turns in several rounds, so that
whatever else the machine does meets both.

    python benchmarks/attention.py --task cora/structure,pubmed/structure,twitch
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from common import store, wait
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from oddnode import Detector, load_task
from oddnode.tasks import Task

HIDDEN, HEADS, DROPOUT = 64, 2, 0.5


class PlainGAT(nn.Module):
    """The same network as ``gat`` of PyG's layers."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.first = GATConv(in_channels, HIDDEN, HEADS, dropout=DROPOUT)
        self.norm = nn.BatchNorm1d(HEADS * HIDDEN)
        self.last = GATConv(HEADS * HIDDEN, out_channels, heads=1, concat=False, dropout=DROPOUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.first(F.dropout(x, DROPOUT, self.training), edge_index)
        hidden = F.dropout(F.elu(self.norm(hidden)), DROPOUT, self.training)
        return self.last(hidden, edge_index)


def seconds(task: Task, backbone: str | nn.Module, device: str, epochs: int) -> float:
    """Of one training."""
    detector = Detector.from_recipe("nodesafe", backbone, epochs=epochs, device=device)
    wait(device)
    start = time.perf_counter()
    detector.fit(task.train)
    wait(device)
    return time.perf_counter() - start


def compare(name: str, device: str, rounds: int, epochs: int) -> dict[str, Any]:
    """Milliseconds of an epoch, the median over the rounds."""
    task = load_task(name)
    spare = 1  # as every recipe has
    plain = PlainGAT(task.train.x.shape[1], task.num_classes + spare)
    times = [[seconds(task, each, device, epochs) for each in (plain, "gat")] for _ in range(rounds)]
    layers, ours = (1e3 * median(column) / epochs for column in zip(*times, strict=True))
    return {"graph": name, "PyG's layers": layers, "oddnode": ours, "times faster": layers / ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="cora/structure,pubmed/structure,twitch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=None, help="20 on a CPU, 200 on a GPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    epochs = options.epochs or (20 if options.device == "cpu" else 200)
    rows = []
    for name in options.task.split(","):
        rows.append(compare(name, options.device, options.rounds, epochs))
        print({key: value if key == "graph" else round(value, 1) for key, value in rows[-1].items()}, flush=True)
    print(store("attention", options.device, rows, options.out))


if __name__ == "__main__":
    main()
