"""The cost of arrivals and of a restart against the size of the graph, beside scoring the whole graph in the same run.

    OMP_NUM_THREADS=1 python benchmarks/online.py --nodes 1e4 1e5 1e6 --errors 60
    OMP_NUM_THREADS=1 python benchmarks/online.py --nodes 1e4 --method energy --changes 20000

Every graph is a degree-corrected block model with hubs (``benchmarks/block_model.py``), 16 edges a node and 64 dense
features. The default method is fitted with its four networks on the first nodes, which are part of all that is scored.
An arrival has the features of a random block and ten edges to nodes that are drawn by degree, so that hubs are among
them. ``cpu`` is the time that the processor spent, which other work on the machine inflates less than that of the wall
clock. ``ready`` is making the live graph, which scores the whole graph once; ``open`` is a restart from files.
``memory`` is what a `LiveGraph` adds to the graph. With ``--changes``, nodes come and go, and ``rss`` is the memory of
the process after a quarter of the changes, and after all of them.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
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


def cpu_of(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result, and the processor time that it took in seconds."""
    start = time.process_time()
    return work(), time.process_time() - start


def rates(live: LiveGraph, graph: Data, model: BlockModel, count: int) -> dict[str, int]:
    """Rows and ids per second of processor time."""
    rng = np.random.default_rng(1)
    rows = model.means[rng.integers(len(model.means), size=count)] + rng.normal(size=(count, FEATURES))
    x, ids = torch.from_numpy(rows).float(), [f"new {row}" for row in range(count)]
    known = rng.integers(graph.num_nodes, size=(20, count))
    links = list(zip(ids, known[0].tolist(), strict=True))
    ways: dict[str, Callable[[], Any]] = {
        "isolated rows/s": lambda: live.score(x, ids=ids),
        "linked rows/s": lambda: live.score(x, links, ids=ids),
        "known ids/s": lambda: live.scores_of(known.flatten().tolist()),
    }
    sizes = count, count, known.size
    return {name: round(size / cpu_of(way)[1]) for (name, way), size in zip(ways.items(), sizes, strict=True)}


def changed(live: LiveGraph, graph: Data, model: BlockModel, count: int) -> dict[str, Any]:
    """Memory while nodes and edges come and go."""
    rss, taken = [], []
    for number, (x, edges) in enumerate(arrivals(graph, model, count)):
        own = f"new {number}"
        links = [(own, node) for _, node in edges]
        gone = [f"new {number - 100}"] if number >= 100 else []
        change: dict[str, Any] = {
            "ids": [own],
            "change_nodes": x,
            "changed_ids": [number % graph.num_nodes],
            "remove_nodes": gone,
        }
        taken.append(cpu_of(lambda: live.change(x, links, **change))[1])  # noqa: B023
        if number + 1 in (count // 4, count):
            rss.append(round(resident()))
    return {"changes": count, "change cpu p50 ms": round(1e3 * float(np.median(taken)), 1), "rss MB": rss}


def measured(nodes: int, options: argparse.Namespace) -> dict[str, Any]:
    model = BlockModel(nodes, EDGES_PER_NODE * nodes, features=FEATURES, labelled=0)
    graph = model.data()
    detector = fitted(graph, options.method, options.epochs)
    whole = cpu_of(lambda: detector.score_samples(graph))[1] if nodes <= options.whole else None
    before = resident()
    live, ready = cpu_of(lambda: LiveGraph(detector, graph))
    memory = resident() - before
    with tempfile.TemporaryDirectory() as folder:
        live.save(folder)
        start = time.perf_counter()
        live, opened = cpu_of(lambda: LiveGraph.open(detector, folder))
        wall_of_open = time.perf_counter() - start
        wall, cpu = [], []
        for x, edges in arrivals(graph, model, options.arrivals):
            start = time.perf_counter()
            cpu.append(1e3 * cpu_of(lambda: live.score(x, edges, ids=["new"]))[1])  # noqa: B023
            wall.append(1e3 * (time.perf_counter() - start))
        row = {
            "nodes": nodes,
            "edges": graph.num_edges,
            "largest degree": int(torch.bincount(graph.edge_index[1]).max()),
            "networks": len(detector.state_.references) or 1,
            **{f"cpu p{part} ms": round(float(np.percentile(cpu, part)), 1) for part in (50, 99)},
            **{f"p{part} ms": round(float(np.percentile(wall, part)), 1) for part in (50, 99)},
            "whole graph cpu s": None if whole is None else round(whole, 2),
            "ratio": round(1e3 * (ready if whole is None else whole) / float(np.percentile(cpu, 50))),
            "ready cpu s": round(ready, 1),
            "open cpu s": round(opened, 2),
            "open s": round(wall_of_open, 2),
            "memory MB": round(memory),
            **rates(live, graph, model, min(nodes // 2, 5000)),
        }
        if options.errors:
            found = live.measure_error(options.errors)
            row |= {
                "mean error": round(found.mean, 4),
                "largest error": round(found.largest, 3),
                "rank correlation": round(found.rank_correlation, 4),
                "other decisions": found.num_other_decisions,
            }
        if options.changes:
            row |= changed(live, graph, model, options.changes)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=whole_number, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--arrivals", type=int, default=200)
    parser.add_argument("--errors", type=int, default=0, help="compare this many arrivals with the whole graph")
    parser.add_argument("--changes", type=int, default=0, help="measure memory over this many changes")
    parser.add_argument("--whole", type=whole_number, default=10**6, help="score whole graphs of up to this many nodes")
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
