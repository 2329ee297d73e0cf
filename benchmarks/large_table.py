"""A table of a million nodes and ten million edges: read, scored by a fitted model and written.

Makes the tables, fits a model on a small one of the same columns, then runs ``oddnode score`` in a process of its
own and prints its time and its peak memory. With ``--fit`` a model of the large tables is fitted (``nodesafe``,
3 epochs, so that rows and ids count), saved, loaded again and compared, and scored are 2,000 rows.

    python benchmarks/large_table.py --folder /tmp/large --format parquet
    python benchmarks/large_table.py --folder /tmp/large --fit --nodes 4000000 --edges 8000000 --features 4
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import provenance
from pyarrow import csv, parquet

from oddnode.tables import TableModel

CLASSES = 5


def make_tables(folder: Path, name: str, nodes: int, edges: int, features: int, kind: str, seed: int) -> list[Path]:
    """Nodes in five classes with a mean of their own, edges mostly within classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=nodes)
    means = np.random.default_rng(0).normal(size=(CLASSES, features))
    columns: dict[str, object] = {"id": [f"node-{i:07d}" for i in range(nodes)]}
    columns["label"] = [
        f"class {c}" if rng_keep else "" for c, rng_keep in zip(y, rng.random(nodes) < 0.3, strict=True)
    ]
    for j in range(features):
        columns[f"x{j}"] = (means[y, j] + rng.normal(size=nodes)).astype(np.float32)
    order = np.argsort(y, kind="stable")
    start = np.searchsorted(y[order], np.arange(CLASSES + 1))
    source = rng.integers(nodes, size=edges)
    within = start[y[source]] + (rng.random(edges) * (start[y[source] + 1] - start[y[source]])).astype(np.int64)
    target = np.where(rng.random(edges) < 0.8, order[within], rng.integers(nodes, size=edges))
    ids = pa.array(columns["id"])
    tables = {"nodes": pa.table(columns), "edges": pa.table({"source": ids.take(source), "target": ids.take(target)})}
    paths = []
    for part, table in tables.items():
        paths.append(folder / f"{name}-{part}.{kind}")
        parquet.write_table(table, paths[-1]) if kind == "parquet" else csv.write_csv(table, paths[-1])
    return paths


def fit_large(options: argparse.Namespace) -> None:
    """Fit, save, load and use a model of the large tables; each step with its CPU seconds and the peak so far."""
    sizes, kind = (options.nodes, options.edges, options.features), options.format
    with get_context("spawn").Pool(1) as pool:  # so that the peak is not that of making the tables
        paths = pool.apply(make_tables, (options.folder, "large", *sizes, kind, 2))
        small = pool.apply(make_tables, (options.folder, "small", 2000, 4000, options.features, kind, 1))
    print(json.dumps({**provenance(), "nodes": options.nodes, "edges": options.edges, "features": options.features}))
    folder = options.folder / "large-model"
    model = _timed("fit", lambda: _fit(*paths, method="nodesafe", epochs=3))
    _timed("save", lambda: model.save(folder))
    loaded = _timed("load", lambda: TableModel.load(folder))
    one = _timed("score 2,000 rows", lambda: model.score_frame(*small))
    assert one.equals(_timed("again, as loaded", lambda: loaded.score_frame(*small)))
    print(json.dumps({"model_mb": round(sum(path.stat().st_size for path in folder.iterdir()) / 1e6)}))
    for path in [] if options.keep else [*paths, *small]:
        path.unlink()


def _fit(nodes: Path, edges: Path, **settings: Any) -> TableModel:
    return TableModel.fit(nodes, edges, id_column="id", label_column="label", device="cpu", **settings)[0]


def _timed(name: str, work: Callable[[], Any]) -> Any:
    before = time.process_time()
    result = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    row = {"step": name, "cpu_seconds": round(time.process_time() - before, 1), "peak_gb": round(peak, 2)}
    print(json.dumps(row), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the tables are made; some 2 GB as CSV")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--format", choices=["csv", "parquet"], default="parquet")
    parser.add_argument("--fit", action="store_true", help="fit, save and load a model of the large tables")
    parser.add_argument("--keep", action="store_true", help="leave the tables there")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.fit:
        fit_large(options)
        return
    degree = options.edges // options.nodes
    nodes, edges = make_tables(options.folder, "small", 2000, 2000 * degree, options.features, options.format, seed=1)
    _fit(nodes, edges, epochs=50).save(options.folder / "model")
    large = make_tables(options.folder, "large", options.nodes, options.edges, options.features, options.format, seed=2)
    out = options.folder / f"scores.{options.format}"
    start = time.perf_counter()
    command = ["score", str(options.folder / "model"), "--nodes", str(large[0]), "--edges", str(large[1])]
    subprocess.run(
        [sys.executable, "-m", "oddnode", *command, "--out", str(out), "--device", "cpu", "--json"], check=True
    )
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    megabytes = sum(path.stat().st_size for path in large) / 1e6
    print(
        json.dumps(
            {
                **provenance(),
                "nodes": options.nodes,
                "edges": options.edges,
                "format": options.format,
                "input_mb": round(megabytes),
                "seconds": round(seconds, 1),
                "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
                "peak_gb": round(used.ru_maxrss * 1024 / 1e9, 2),
            }
        )
    )
    if not options.keep:
        for path in [nodes, edges, *large, out]:
            path.unlink()


if __name__ == "__main__":
    main()
