"""Time of a training epoch and peak memory as a graph grows; every size runs in a process of its own.

    python benchmarks/scaling.py --edges 1000,10000,100000,1000000,10000000

Uniformly random graphs with ten edges a node (both directions counted), 32 features and 5 classes; the last row has the
size of ogbn-arxiv (169,343 nodes, 2.3 million edges, 128 features, 40 classes). The method is NODESAFE.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from common import random_graph, store, wait

from oddnode import Detector

ARXIV = (169_343, 2_315_598, 128, 40)
EPOCHS = 25


def one(nodes: int, edges: int, features: int, classes: int, device: str) -> dict[str, Any]:
    """One training: what was in memory before, the median epoch, and the most memory there ever was."""
    graph = random_graph(nodes, edges, features, classes)
    before = _peak(device)
    times: list[float] = []

    def note(_: int) -> None:
        wait(device)
        times.append(time.perf_counter())

    # Random labels have no homophily; left to itself the detector would not propagate at all.
    detector = Detector.from_recipe("nodesafe", epochs=EPOCHS, start=0, device=device, propagation="as-given")
    detector.fit(graph, on_epoch=note)
    gaps = sorted(b - a for a, b in pairwise(times[2:]))
    start = time.perf_counter()
    detector.score_samples(graph)
    wait(device)
    return {
        "nodes": nodes,
        "edges": edges,
        "features": features,
        "epoch ms": round(1e3 * gaps[len(gaps) // 2], 3),
        "score ms": round(1e3 * (time.perf_counter() - start), 2),
        "peak GB": round(_peak(device), 3),
        "peak before training GB": round(before, 3),
    }


def _peak(device: str) -> float:
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def slope(rows: list[dict[str, Any]], least_edges: int = 100_000) -> float:
    """Of the logarithm of an epoch's time against that of the edges, by least squares."""
    points = [(math.log(r["edges"]), math.log(r["epoch ms"])) for r in rows if r["edges"] >= least_edges]
    x0, y0 = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - x0) * (y - y0) for x, y in points) / sum((x - x0) ** 2 for x, _ in points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", default="1000,10000,100000,1000000,10000000")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        nodes, edges, features, classes = (int(part) for part in options.one.split(","))
        print(json.dumps(one(nodes, edges, features, classes, options.device)))
        return
    sizes = [(int(e) // 10, int(e), 32, 5) for e in options.edges.split(",")]
    rows = []
    for size in [*sizes, ARXIV]:
        command = [sys.executable, __file__, "--device", options.device, "--one", ",".join(map(str, size))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(rows[-1]), flush=True)
    rows.append({"slope from 100000 edges": round(slope(rows[: len(sizes)]), 3)})
    print(rows[-1])
    print(store("scaling", options.device, rows, options.out))


if __name__ == "__main__":
    main()
