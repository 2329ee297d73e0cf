"""Time to score a large random graph with the recommended method, as a ratio to NODESAFE's in the same process.

    OMP_NUM_THREADS=2 python benchmarks/scoring_cost.py --edges 10000000

The graph is that of ``benchmarks/scaling.py``: ten edges a node, 32 features, 5 classes. Each detector is trained for
two epochs; scoring starts from the user's graph, so that all matrices are made anew.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from common import random_graph, store, wait

from oddnode import Detector

METHODS = ("nodesafe", "nodesafe-evidence")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, default=1e7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    edges = int(options.edges)
    graph = random_graph(edges // 10, edges, 32, 5)
    # Random labels have no homophily; left to itself the detector would not propagate at all.
    detectors = {
        name: Detector.from_recipe(name, epochs=2, device=options.device, propagation="as-given").fit(graph)
        for name in METHODS
    }
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(options.rounds):
        for name, detector in detectors.items():
            start = time.perf_counter()
            detector.score_samples(graph)
            wait(options.device)
            times[name].append(time.perf_counter() - start)
    medians = {name: sorted(own)[len(own) // 2] for name, own in times.items()}
    row = {
        "edges": edges,
        "threads": torch.get_num_threads(),
        "seconds": {name: round(value, 2) for name, value in medians.items()},
        "ratio": round(medians["nodesafe-evidence"] / medians["nodesafe"], 3),
    }
    print(row)
    print(store("scoring_cost", options.device, [row], options.out))


if __name__ == "__main__":
    main()
