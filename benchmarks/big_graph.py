"""Write a large graph as Parquet files: the input of the scale tests, without a download.

    python benchmarks/big_graph.py --nodes 1e7 --edges 1e8 --out /data/big

``OUT/nodes`` gets tables with an id, features, a label and a split, ``OUT/edges`` tables with a source and a target:
one file for every chunk of `block_model.BlockModel`, made by several threads in the memory of a few chunks.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from block_model import SPLITS, BlockModel
from common import whole_number

__all__ = ["edge_file", "node_file", "read_settings", "write"]


def write(
    graph: BlockModel, folder: Path, workers: int = 2, on_file: Callable[[Path], None] = lambda path: None
) -> None:
    """Write the files of a graph, and its settings.

    Files that are there are kept if the settings are the same, so that a run which was stopped can go on.
    """
    settings, known = json.dumps(asdict(graph), indent=1), folder / "settings.json"
    if known.exists() and known.read_text() != settings:
        raise ValueError(f"{folder} has a graph with other settings; remove it or choose another folder")
    for path in (node_file(folder, 0), edge_file(folder, 0)):
        path.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(known, lambda path: path.write_text(settings))
    jobs = [(node_file(folder, chunk), _node_table, graph, chunk) for chunk in range(graph.num_node_chunks)]
    jobs += [(edge_file(folder, chunk), _edge_table, graph, chunk) for chunk in range(graph.num_edge_chunks)]
    with ThreadPoolExecutor(workers) as pool:
        for path in pool.map(lambda job: _write_table(*job), jobs):
            on_file(path)


def read_settings(folder: Path) -> BlockModel:
    """The graph that a folder was written from."""
    return BlockModel(**json.loads((folder / "settings.json").read_text()))


def node_file(folder: Path, chunk: int) -> Path:
    return folder / "nodes" / f"nodes-{chunk:05d}.parquet"


def edge_file(folder: Path, chunk: int) -> Path:
    return folder / "edges" / f"edges-{chunk:05d}.parquet"


def _node_table(graph: BlockModel, chunk: int) -> pa.Table:
    """Id, features, label and split; the last two are empty for most nodes."""
    part = graph.nodes_of(chunk)
    columns: dict[str, Any] = {"id": part.id}
    columns |= {f"x{number}": column for number, column in enumerate(np.ascontiguousarray(part.x.T))}
    columns["label"] = pa.array(part.label, mask=part.label < 0)
    names = pa.DictionaryArray.from_arrays(pa.array(part.split, mask=part.split < 0), pa.array(SPLITS))
    return pa.table(columns | {"split": names.cast(pa.string())})


def _edge_table(graph: BlockModel, chunk: int) -> pa.Table:
    return pa.table(dict(zip(("source", "target"), graph.pairs_of(chunk), strict=True)))


def _write_table(path: Path, table: Callable[[BlockModel, int], pa.Table], graph: BlockModel, chunk: int) -> Path:
    if not path.exists():
        # Random numbers repeat so rarely that a dictionary only costs time.
        _write_whole(path, lambda part: pq.write_table(table(graph, chunk), part, use_dictionary=["split"]))
    return path


def _write_whole(path: Path, write_to: Callable[[Path], Any]) -> None:
    """Write a file under another name and rename it, so that a file which is there is whole."""
    part = path.with_name(f".{path.name}.part")
    write_to(part)
    os.replace(part, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=whole_number, required=True)
    parser.add_argument("--edges", type=whole_number, required=True, help="columns of edge_index, two for each pair")
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--labelled", type=whole_number, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="threads")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    graph = BlockModel(options.nodes, options.edges, options.features, options.labelled, seed=options.seed)
    began = time.perf_counter()
    written: list[Path] = []
    write(graph, options.out, options.workers, written.append)
    size = sum(path.stat().st_size for path in written)
    print(f"{len(written)} files, {size / 1e9:.2f} GB in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
