"""What comparing checksums adds to scoring a graph folder with text ids, as a share of the time without it.

    OMP_NUM_THREADS=1 python benchmarks/folder_checks.py --nodes 1000000

The tables have text ids, eight columns of numbers and five edges a node. The method is ``nodesafe``, whose scoring is
the quickest that uses edges, so that the share is an upper bound for the default. Every round starts as a new process
would: nothing is known to be checked.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from common import store

from oddnode.large import GraphFolder, arrays, folder, manifest
from oddnode.tables import TableOptions, TrainingTables, fit_tables, score_folder


def tables(num_nodes: int) -> tuple[pa.Table, pa.Table]:
    """Random nodes in five classes, 2 % of them labelled, and random edges."""
    rng = np.random.default_rng(0)
    kind = rng.integers(5, size=num_nodes)
    ids = pa.array(np.char.mod("customer-%09d", np.arange(num_nodes)))
    label = pa.array(np.char.mod("class %d", kind), mask=rng.random(num_nodes) > 0.02)
    columns = {f"f{i}": rng.standard_normal(num_nodes) + (kind == i) for i in range(8)}
    ends = rng.integers(num_nodes, size=(2, 5 * num_nodes))
    edges = {name: ids.take(pa.array(own)) for name, own in zip(("source", "target"), ends, strict=True)}
    return pa.table({"id": ids, "label": label} | columns), pa.table(edges)


class Timed:
    """A function that adds up the seconds it takes, not counting calls within calls."""

    seconds = 0.0
    depth = 0

    def __init__(self, call: Callable[..., Any]):
        self.call = call

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        start, Timed.depth = time.perf_counter(), Timed.depth + 1
        try:
            return self.call(*arguments, **named)
        finally:
            Timed.depth -= 1
            if not Timed.depth:
                Timed.seconds += time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    check_edges, read_manifest = GraphFolder._check_edges, Timed(manifest.read_manifest)
    folder.check_once, folder.read_manifest = Timed(folder.check_once), read_manifest
    GraphFolder._check_edges = lambda self: Timed(check_edges)(self)  # type: ignore[method-assign]
    shares, seconds = [], []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        nodes, edges = tables(options.nodes)
        TrainingTables(nodes, edges, TableOptions(id_column="id", label_column="label")).prepare(place / "graph")
        model, _ = fit_tables(GraphFolder(place / "graph"), method="nodesafe", epochs=2, propagation="as-given")
        for _ in range(options.rounds):
            arrays._checked.clear()
            folder._checked_edges.clear()
            Timed.seconds = 0.0
            start = time.perf_counter()
            score_folder(model, GraphFolder(place / "graph"), place / "scores.parquet")
            seconds.append(time.perf_counter() - start)
            shares.append(Timed.seconds / (seconds[-1] - Timed.seconds))
    row = {
        "nodes": options.nodes,
        "threads": torch.get_num_threads(),
        "seconds": round(sorted(seconds)[len(seconds) // 2], 2),
        "added_by_checks": round(sorted(shares)[len(shares) // 2], 4),
    }
    print(row)
    print(store("folder_checks", "cpu", [row], options.out))


if __name__ == "__main__":
    main()
