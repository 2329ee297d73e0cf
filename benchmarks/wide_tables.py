"""Time and memory to fit and score tables with very many columns, in a process for each size.

    OMP_NUM_THREADS=1 python benchmarks/wide_tables.py

CSV files of 60 rows: columns of random numbers, and constant columns, which are dropped. The method is ``nodesafe``
with 3 epochs, so that reading and encoding count. Times are CPU seconds of the whole process, imports included.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import store
from pyarrow import csv

SIZES = (("numbers", 5_000), ("numbers", 20_000), ("constant", 25_000), ("constant", 100_000))
_ROWS = 60


def measured(kind: str, columns: int) -> dict[str, Any]:
    """Fit and score one table."""
    from oddnode.tables import TableModel

    rng = np.random.default_rng(0)
    ids = [f"n{row}" for row in range(_ROWS)]
    data: dict[str, Any] = {"id": ids, "label": [f"t{row % 3}" for row in range(_ROWS)], "f": rng.random(_ROWS)}
    for column in range(columns):
        data[f"c{column}"] = np.zeros(_ROWS) if kind == "constant" else rng.standard_normal(_ROWS)
    ends = rng.integers(_ROWS, size=(2, 200))
    edges = pa.table({"source": [ids[node] for node in ends[0]], "target": [ids[node] for node in ends[1]]})
    with tempfile.TemporaryDirectory() as name:
        nodes = Path(name) / "nodes.csv"
        csv.write_csv(pa.table(data), nodes)
        before = sum(os.times()[:2])
        model, _ = TableModel.fit(nodes, edges, id_column="id", label_column="label", method="nodesafe", epochs=3)
        model.score(nodes, edges, Path(name) / "scores.csv")
        seconds = sum(os.times()[:2]) - before
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"kind": kind, "columns": columns, "cpu_seconds": round(seconds, 1), "mib": mib}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for size in SIZES:
        with get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measured, size))
        print(rows[-1], flush=True)
    print(store("wide_tables", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
