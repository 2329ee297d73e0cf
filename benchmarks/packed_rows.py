"""Training on packed rows against full batches, for graphs in memory: seconds for an epoch.

    python benchmarks/packed_rows.py --nodes 1e5,1e6 --labelled 1e3,1e4,1e5

Graphs come from ``benchmarks/block_model.py``, with 10 edges a node. Both trainers train the same network, in turn and
in the same process, for a few epochs and for some more: the difference of the times is that of the epochs, the rest
prepares what does not change. The largest difference of losses shows that the training is the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from block_model import BlockModel
from common import store, whole_number

from oddnode import Detector
from oddnode.detector.fitting import packing_pays
from oddnode.graph import training_set
from oddnode.training import FullBatch, PackedRows, Trainer

_FEW, _MORE = 2, 42


def timed(trainer: Trainer, data: Any, epochs: int) -> tuple[float, list[float]]:
    """Seconds of a training, and its losses."""
    before = time.perf_counter()
    detector = Detector(epochs=epochs, device="cpu", trainer=trainer).fit(data)
    return time.perf_counter() - before, [row["loss"] for row in detector.history_]


def compared(graph: BlockModel) -> dict[str, Any]:
    """One size: seconds for an epoch by both trainers, and before the first."""
    data = graph.data()
    row: dict[str, Any] = {"nodes": graph.nodes, "edges": graph.edges, "labelled": graph.labelled}
    row["is chosen"] = packing_pays(training_set(data, None, torch.device("cpu"), 0, 0.0, 0))
    losses = {}
    for name, trainer in (("full batches", FullBatch()), ("packed rows", PackedRows())):
        few, _ = timed(trainer, data, _FEW)
        more, losses[name] = timed(trainer, data, _MORE)
        row[f"{name}: seconds an epoch"] = (more - few) / (_MORE - _FEW)
        row[f"{name}: seconds beside"] = few - _FEW * row[f"{name}: seconds an epoch"]
    row["ratio"] = row["full batches: seconds an epoch"] / row["packed rows: seconds an epoch"]
    pairs = zip(*losses.values(), strict=True)
    row["largest difference of losses"] = max(abs(one - other) for one, other in pairs)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="1e5,1e6")
    parser.add_argument("--labelled", default="1e3,1e4,1e5")
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args()
    rows = []
    for nodes in map(whole_number, options.nodes.split(",")):
        for labelled in map(whole_number, options.labelled.split(",")):
            if labelled <= nodes // 2:
                rows.append(compared(BlockModel(nodes, 10 * nodes, options.features, labelled)))
                print(rows[-1], flush=True)
    print(store("packed_rows", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
