"""Small tables for tests: two kinds of nodes, each joined to its own kind."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from oddnode.tables import Edges, TableOptions, TrainingTables, WeightColumn, open_table, read_edges

Rows = list[dict[str, Any]]

FIT: dict[str, Any] = {"id_column": "name", "label_column": "kind", "epochs": 5, "device": "cpu"}


def options(**more: Any) -> TableOptions:
    """The columns of `example`."""
    return TableOptions(id_column="name", label_column="kind", **more)


def training_tables(nodes: Any, edges: Any, **more: Any) -> TrainingTables:
    """Tables with the columns of `example`."""
    return TrainingTables(nodes, edges, options(**more))


def edges_in(table: Any, ids: Any, weights: WeightColumn | None = None, **more: Any) -> Edges:
    """Read a table of edges."""
    return read_edges(open_table(table, "edges"), ids, options(**more), weights)


def write_csv(path: Path, rows: Rows) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path: Path, rows: Rows) -> Path:
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def read_csv(path: Path) -> Rows:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def example(num_nodes: int = 120, seed: int = 0) -> tuple[Rows, Rows]:
    """Two kinds of nodes that differ in a number and a category, joined to their own kind; every third unlabelled."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=num_nodes)
    nodes = [
        {
            "name": f"n{i:03d}",
            "kind": "" if i % 3 == 0 else "ab"[kind[i]],
            "size": round(float(rng.normal(3 * kind[i])), 6),
            "colour": ["red", "blue"][kind[i]] if rng.random() < 0.9 else "green",
        }
        for i in range(num_nodes)
    ]
    pairs = rng.integers(num_nodes, size=(4 * num_nodes, 2))
    edges = [{"source": f"n{a:03d}", "target": f"n{b:03d}"} for a, b in pairs if kind[a] == kind[b] and a != b]
    return nodes, edges
