"""Fit and score a graph folder of 10^9 edges on one GPU.

    python benchmarks/scale_gpu.py --nodes 5e7 --edges 1e9 --features 64 --labelled 1e6 --work /data/gpu

The graph is that of ``benchmarks/block_model.py``. It is sorted on the GPU and written as a graph folder, because
``oddnode prepare`` is measured by ``benchmarks/scale.py``. Every method is a process of its own, which opens the
folder, checks it, copies it to the GPU, trains 200 epochs and scores all nodes. The AUROC of known against unknown
nodes, none of them labelled, shows whether the answer is right. 32 hops and the support are also timed alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from block_model import BlockModel
from common import seconds, store, wait, whole_number
from sklearn.metrics import roc_auc_score
from torch import Tensor

from oddnode import Detector
from oddnode.functional import propagate, support
from oddnode.large import GraphFolder
from oddnode.large.arrays import ArrayEntry, write_array
from oddnode.large.manifest import FORMAT, MANIFEST, Manifest, write_json

GB = 1e9
NUM_HOPS, ETA = 32, 0.5
#: What 10^9 edges on an H200 may take.
MOST = {"fit with opening seconds": 60.0, "32 hops seconds": 0.5, "support seconds": 5.0, "GPU memory GB": 80.0}


def write_folder(graph: BlockModel, folder: Path, device: str, workers: int) -> None:
    """Write the graph as a folder; edges are sorted by target and then by source."""
    folder.mkdir(parents=True)
    x, masks, y = _nodes(graph, workers)
    offsets, sources = _sorted_edges(graph, device, workers)
    loops = np.zeros(0, np.int64)  # the model has none
    arrays: dict[str, np.ndarray] = {"x": x, "y": y, **masks, "offsets": offsets, "sources": sources}
    arrays |= {"loop_nodes": loops, "loop_counts": loops}
    with ThreadPoolExecutor(len(arrays)) as pool:  # checksums are computed while others are written
        entries = dict(zip(arrays, pool.map(lambda item: _written(folder, *item), arrays.items()), strict=True))
    largest = float(max(np.abs(part).max() for part in np.array_split(x, 64)))
    manifest = Manifest(FORMAT, graph.nodes, len(sources), largest, entries, made_from="block model")
    write_json(folder / MANIFEST, manifest)


def _written(folder: Path, name: str, values: np.ndarray) -> ArrayEntry:
    return write_array(folder / f"{name}.bin", values)


def _nodes(graph: BlockModel, workers: int) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    x, y = np.empty((graph.nodes, graph.features), np.float32), np.empty(graph.nodes, np.int64)
    split = np.empty(graph.nodes, np.int8)

    def fill(chunk: int) -> None:
        part = graph.nodes_of(chunk)
        rows = slice(int(part.id[0]), int(part.id[-1]) + 1)
        x[rows], y[rows], split[rows] = part.x, part.label, part.split

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill, range(graph.num_node_chunks)))
    names = ("train_mask", "val_mask", "calibration_mask")
    return x, {name: split == place for place, name in enumerate(names)}, y


def _sorted_edges(graph: BlockModel, device: str, workers: int) -> tuple[np.ndarray, np.ndarray]:
    keys = torch.empty(graph.edges, dtype=torch.long, device=device)

    def fill(chunk: int) -> None:
        source, target = graph.pairs_of(chunk)
        for start, (a, b) in ((0, (source, target)), (graph.pairs, (target, source))):
            begin = start + chunk * graph.edge_chunk
            keys[begin : begin + len(a)] = torch.from_numpy(b * graph.nodes + a).to(device)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill, range(graph.num_edge_chunks)))
    keys = keys.sort().values
    offsets = torch.zeros(graph.nodes + 1, dtype=torch.long, device=device)
    sources = torch.empty(graph.edges, dtype=torch.int32)
    for start in range(0, graph.edges, 2**27):
        part = keys[start : start + 2**27]
        sources[start : start + len(part)] = (part % graph.nodes).int().cpu()
        target, counts = torch.div(part, graph.nodes, rounding_mode="floor").unique_consecutive(return_counts=True)
        offsets[target + 1] += counts
    return offsets.cumsum(0).cpu().numpy(), sources.numpy()


@contextmanager
def timed(row: dict[str, Any], name: str, device: str) -> Iterator[None]:
    """Add the seconds of a block to a row."""
    began = time.perf_counter()
    yield
    wait(device)
    row[f"{name} seconds"] = round(time.perf_counter() - began, 3)


def measure(method: str, folder: Path, graph: BlockModel, device: str, epochs: int) -> dict[str, Any]:
    """Fit and score, in this process."""
    row: dict[str, Any] = {"method": method, "nodes": graph.nodes, "edges": graph.edges, "features": graph.features}
    with timed(row, "open, check and copy", device):
        source = GraphFolder(folder)
        held = source.as_graph(device)
    opened = _Opened(source, held)
    detector = Detector.from_recipe(method, device=device, epochs=epochs)
    with timed(row, "fit", device):
        began: list[float] = []
        detector.fit(opened, on_epoch=lambda _: began.append(time.perf_counter()))
        trained = time.perf_counter() - began[0]  # a GPU may be behind, which the total shows
    row["seconds of epochs, at least"] = round(trained, 3)
    row["fit with opening seconds"] = round(row["open, check and copy seconds"] + row["fit seconds"], 3)
    with timed(row, "score", device):
        scores = detector.score_samples(opened)
    row["AUROC"] = round(auroc(scores.cpu().numpy(), graph), 4)
    row["GPU memory GB"] = round(torch.cuda.max_memory_allocated() / GB, 1) if device == "cuda" else None
    del detector, scores
    return row | times_alone(held, device)


class _Opened:
    """A folder that is open already, so that reading it is timed apart."""

    def __init__(self, folder: GraphFolder, graph: Any):
        self._folder, self._graph = folder, graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._folder, name)

    def as_graph(self, device: Any) -> Any:
        return self._graph


def times_alone(graph: Any, device: str) -> dict[str, float]:
    """Hops and support, without what is computed once."""
    values = graph.x[:, 0].contiguous()
    hops = _seconds(lambda: propagate(values, graph.random_walk, NUM_HOPS, ETA), device)
    return {
        f"{NUM_HOPS} hops seconds": hops,
        "support seconds": _seconds(lambda: support(graph.random_walk, NUM_HOPS, ETA, 32), device),
        "averages of features seconds": _seconds(lambda: graph.convolve(graph.x), device),
    }


def _seconds(work: Callable[[], Tensor], device: str) -> float:
    return round(seconds(work, device, repeats=2), 4)


def auroc(scores: np.ndarray, graph: BlockModel) -> float:
    """Of known against unknown nodes among a million, without those that have a label."""
    ids = np.random.default_rng(0).choice(graph.nodes, min(graph.nodes, 10**6), replace=False)
    ids = ids[graph.split_of(ids) < 0]
    return float(roc_auc_score(graph.block_of(ids) < graph.known_blocks, scores[ids]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=whole_number, default=5 * 10**7)
    parser.add_argument("--edges", type=whole_number, default=10**9)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--labelled", type=whole_number, default=10**6)
    parser.add_argument("--methods", default="nodesafe")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=16, help="threads that make the graph")
    parser.add_argument("--work", type=Path, required=True, help="a folder for the graph, which is replaced")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # a method, in a process of its own
    options = parser.parse_args()
    graph = BlockModel(options.nodes, options.edges, options.features, options.labelled)
    folder = options.work / "graph"
    if options.only:
        print(json.dumps(measure(options.only, folder, graph, options.device, options.epochs)))
        return
    shutil.rmtree(folder, ignore_errors=True)
    made: dict[str, Any] = {"graph": asdict(graph)}
    with timed(made, "make the graph", options.device):
        write_folder(graph, folder, options.device, options.workers)
    print(json.dumps(made), flush=True)
    if options.device == "cuda":
        torch.cuda.empty_cache()
    rows = [made]
    for method in options.methods.split(","):
        done = subprocess.run([sys.executable, *sys.argv, "--only", method], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            rows.append({"method": method, "failed": done.returncode})
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row | {"holds": {name: row[name] <= most for name, most in MOST.items() if row.get(name)}})
        print(json.dumps(rows[-1]), flush=True)
    print(store("scale-gpu", options.device, rows, options.out))
    missed = [row for row in rows if "failed" in row or not all(row.get("holds", {}).values())]
    sys.exit(f"{len(missed)} methods failed or took more than they may" if missed else 0)


if __name__ == "__main__":
    main()
