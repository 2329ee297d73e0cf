"""The cost of one arrival against the size of the graph, and against scoring the whole graph in the same run.

    OMP_NUM_THREADS=1 python benchmarks/online.py --nodes 1e4 1e5 1e6

Every graph is a degree-corrected block model with hubs (``benchmarks/block_model.py``), 16 edges a node and 64 dense
features. The default method is fitted with its four networks on the first nodes, which are part of all that is scored.
An arrival has the features of a random block and ten edges to nodes that are drawn by degree, so that hubs are among
them. Times are of the wall clock; ``cpu`` is the time that the processor spent, which other work on the machine
inflates less. ``memory`` is what a `LiveGraph` adds to the graph.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from block_model import BlockModel
from common import store, whole_number
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from oddnode import Detector, LiveGraph

EDGES_PER_NODE, FEATURES, EDGES_OF_ARRIVAL = 16, 64, 10
LEARNT_FROM = 6000


def fitted(graph: Data, method: str, epochs: int) -> Detector:
    """A detector that has learnt from the first nodes."""
    count = min(LEARNT_FROM, graph.num_nodes)
    edges, _ = subgraph(torch.arange(count), graph.edge_index, num_nodes=graph.num_nodes)
    part = Data(x=graph.x[:count], edge_index=edges, y=graph.y[:count])
    known = (part.y < 5).nonzero().squeeze(1)
    part.train_mask, part.val_mask = torch.zeros(2, count, dtype=torch.bool)
    part.train_mask[known[:500]] = part.val_mask[known[500:800]] = True  # fewer than 400: four networks
    return Detector.from_recipe(method, epochs=epochs, device="cpu").fit(part)


def arrivals(graph: Data, model: BlockModel, count: int) -> list[tuple[torch.Tensor, list[tuple[str, int]]]]:
    rng = np.random.default_rng(0)
    x = model.means[rng.integers(len(model.means), size=count)] + rng.normal(size=(count, FEATURES))
    ends = graph.edge_index[0, torch.from_numpy(rng.integers(graph.num_edges, size=(count, EDGES_OF_ARRIVAL)))]
    return [
        (torch.from_numpy(row[None]).float(), [("new", node) for node in sorted(set(own.tolist()))])
        for row, own in zip(x, ends, strict=True)
    ]


def resident() -> float:
    """Memory of this process in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def measured(nodes: int, options: argparse.Namespace) -> dict[str, Any]:
    model = BlockModel(nodes, EDGES_PER_NODE * nodes, features=FEATURES, labelled=0)
    graph = model.data()
    detector = fitted(graph, options.method, options.epochs)
    start = time.perf_counter()
    detector.score_samples(graph)
    whole = time.perf_counter() - start
    before, start = resident(), time.perf_counter()
    live = LiveGraph(detector, graph)
    ready, memory = time.perf_counter() - start, resident() - before
    wall, cpu = [], []
    for x, edges in arrivals(graph, model, options.arrivals):
        start, own = time.perf_counter(), time.thread_time()
        live.score(x, edges, ids=["new"])
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.thread_time() - own))
    row = {
        "nodes": nodes,
        "edges": graph.num_edges,
        "largest degree": int(torch.bincount(graph.edge_index[1]).max()),
        "networks": len(detector.state_.references) or 1,
        "p50 ms": round(float(np.percentile(wall, 50)), 1),
        "p99 ms": round(float(np.percentile(wall, 99)), 1),
        "cpu p50 ms": round(float(np.percentile(cpu, 50)), 1),
        "whole graph s": round(whole, 2),
        "ratio": round(1e3 * whole / float(np.percentile(wall, 50))),
        "ready s": round(ready, 1),
        "memory MB": round(memory),
    }
    if options.errors:
        found = live.measure_error(options.errors)
        row |= {"mean error": found.mean, "largest error": found.largest, "rank correlation": found.rank_correlation}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=whole_number, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--arrivals", type=int, default=200)
    parser.add_argument("--errors", type=int, default=0, help="compare this many arrivals with the whole graph")
    parser.add_argument("--method", default="nodesafe-evidence")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for nodes in options.nodes:
        rows.append(measured(nodes, options))
        print(rows[-1], flush=True)
    print(store("online", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
