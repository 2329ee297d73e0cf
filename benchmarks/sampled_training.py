"""Epochs a second of a network that is trained on sampled neighbourhoods, and on the whole graph.

    python benchmarks/sampled_training.py --edges 1e7 --backbone gat --limit 6GiB --work /data/scale

Each trainer is a process of its own on a graph of ``benchmarks/block_model.py``: mini-batches read a graph folder under
the limit, which counts the page cache; the whole graph is in memory, without a limit. An epoch of mini-batches is the
one that ``oddnode fit --graph`` takes, two batches of 512 labelled nodes, so that the labelled nodes that are learnt
from in a second are printed as well. The first epoch is not timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import big_graph
import torch
from block_model import BlockModel
from common import store, whole_number
from memory_limit import num_bytes, run
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.detector.fitting import new_networks, trainer_for
from oddnode.large import GraphFolder
from oddnode.training import FullBatch, TrainingConfig

GIB = 1 << 30


def as_data(folder: GraphFolder) -> Data:
    """The whole graph in memory."""
    graph = folder.as_graph("cpu")
    edges = torch.cat([torch.stack([source, target]) for source, target, _ in graph.edge_blocks()], dim=1)
    return Data(folder.x.clone(), edges, y=folder.y, train_mask=folder.train_mask, val_mask=folder.val_mask)


def train(folder: Path, backbone: str, samples: bool, epochs: int) -> dict[str, Any]:
    """Train some epochs in this process and time all but the first."""
    detector = Detector.from_recipe("nodesafe", backbone=backbone, device="cpu", epochs=epochs + 1)
    opened = GraphFolder(folder)
    networks = new_networks(detector, opened if samples else as_data(opened), None)
    trainer = trainer_for(detector, [networks]) if samples else FullBatch()
    config = TrainingConfig(epochs + 1, detector.lr, detector.weight_decay, detector.batch_norm)
    ends: list[float] = []
    assert detector.objective is not None
    trainer.start(
        networks.modules,
        detector.objective,
        networks.parts,
        networks.seeds,
        config,
        lambda _: ends.append(time.perf_counter()),
    ).result()
    rate = (len(ends) - 1) / (ends[-1] - ends[0])
    labelled = len(networks.data.train)
    if samples:
        labelled = min(labelled, trainer.batch_size * trainer.batches_per_epoch)  # type: ignore[attr-defined]
    return {"epochs a second": round(rate, 3), "labelled nodes a second": round(rate * labelled)}


def prepared(graph: BlockModel, work: Path) -> Path:
    """The graph as a folder, which is kept for the next time."""
    name = f"{graph.edges}-{graph.nodes}-{graph.features}-{graph.labelled}"
    tables, folder = work / f"tables-{name}", work / f"graph-{name}"
    if not folder.exists():
        big_graph.write(graph, tables)
        inputs = ("--nodes", str(tables / "nodes" / "*.parquet"), "--edges", str(tables / "edges" / "*.parquet"))
        columns = ("--id-column", "id", "--label-column", "label", "--split-column", "split")
        subprocess.run(
            [sys.executable, "-m", "oddnode", "prepare", *inputs, *columns, "--out", str(folder)], check=True
        )
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=whole_number, default=10**7, help="columns of edge_index")
    parser.add_argument("--edges-per-node", type=int, default=10)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--labelled", type=whole_number, default=10**5)
    parser.add_argument("--backbone", default="gat")
    parser.add_argument("--limit", default="6GiB", help="of the memory of mini-batches, with the page cache")
    parser.add_argument("--epochs", type=int, default=20, help="of mini-batches; a tenth as many of the whole graph")
    parser.add_argument("--work", type=Path, required=True, help="folder for graphs; needs disk space")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--trainer", choices=["samples", "whole"], help=argparse.SUPPRESS)  # a process of its own
    options = parser.parse_args()
    graph = BlockModel(options.edges // options.edges_per_node, options.edges, options.features, options.labelled)
    folder = prepared(graph, options.work)
    if options.trainer:
        samples = options.trainer == "samples"
        epochs = options.epochs if samples else max(options.epochs // 10, 1)
        print(json.dumps(train(folder, options.backbone, samples, epochs)))
        return
    rows = []
    for trainer, limit in (("samples", num_bytes(options.limit)), ("whole", None)):
        log = options.work / f"{trainer}.log"
        with log.open("w") as said:
            usage = run((sys.executable, *sys.argv, "--trainer", trainer), limit, stdout=said, stderr=subprocess.STDOUT)
        row = {"trainer": trainer, "backbone": options.backbone, "nodes": graph.nodes, "edges": graph.edges}
        row |= {"status": usage.status, "limit GiB": limit and limit / GIB, "no limit because": usage.no_limit_because}
        row |= {"anonymous GiB": round(usage.peak_anonymous / GIB, 2)}
        said_last = log.read_text().strip().splitlines()[-1:]
        rows.append(row | (json.loads(said_last[0]) if not usage.status else {"said": said_last}))
        print(json.dumps(rows[-1]), flush=True)
    print(store(f"sampled-training-{options.backbone}", "cpu", rows, options.out))
    sys.exit(int(any(row["status"] for row in rows)))


if __name__ == "__main__":
    main()
