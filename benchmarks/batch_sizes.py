"""False alarms and false discoveries in batches of 50, 500 and 5,000 arrivals.

From the arrivals tasks of a graph, batches are drawn at random, known and unknown arrivals together, so that a batch
has the task's share of unknown nodes (one in seven). Each batch joins the training graph and is judged by itself, alone
and with the batch: known arrivals flagged at 5 %; and, flagged by Benjamini-Hochberg among the new nodes at 10 and
20 %, the share of known ones among them (0 if none is flagged) and the share of unknown nodes that is found. The mean
over draws estimates the false discovery rate.

    ODDNODE_DATA=... python benchmarks/batch_sizes.py --seeds 3 --jobs 16
"""

from __future__ import annotations

import argparse
import logging
import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from common import store
from torch_geometric.data import Data

from oddnode import Detector, load_task
from oddnode.protocols import get_protocol
from oddnode.tasks import KINDS, Task, induced

GRAPHS = ("citations-wide", "campus", "films", "cora", "citeseer", "pubmed", "photo")
#: Batches of every size: how many are drawn.
DRAWS = {50: 10, 500: 4, 5000: 1}
RATES = (0.1, 0.2)


def batch_of(task: Task, size: int, rng: np.random.Generator) -> tuple[Data, torch.Tensor] | None:
    """The training graph with a random batch of arrivals, and which nodes are unknown; None if there are too few."""
    whole = task.tests["arrivals"]
    old = task.train.num_nodes
    arrived = torch.arange(old, whole.num_nodes).numpy()
    if len(arrived) < size:
        return None
    chosen = np.sort(rng.choice(arrived, size, replace=False))
    part = induced(whole, torch.from_numpy(np.concatenate([np.arange(old), chosen])))
    return part, part.ood_mask


def job(graph: str, kind: str, seed: int) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    task = load_task(f"{graph}/arrivals/{kind}-scattered", seed=seed)
    detector = get_protocol("clean").detector("nodesafe-evidence", task, seed=seed, device="cpu").fit(task.train)
    rng, rows = np.random.default_rng(seed), []
    for size, draws in DRAWS.items():
        for _ in range(draws):
            drawn = batch_of(task, size, rng)
            if drawn is None:
                break
            for name, batch in (("alone", False), ("batch", True)):
                row = {"graph": graph, "kind": kind, "seed": seed, "size": size, "judged": name}
                rows.append(row | judged(detector, *drawn, batch))
    return rows


def judged(detector: Detector, data: Data, unknown: torch.Tensor, batch: bool) -> dict[str, float]:
    outputs = detector.outputs(data, batch)
    new = torch.arange(data.num_nodes) >= detector.graph_profile_.num_nodes
    flagged = detector.detect(outputs)
    row = {"false_alarms": share(flagged, new & ~unknown), "caught": share(flagged, unknown)}
    for rate in RATES:
        found = detector.flag(outputs, rate)
        row[f"false_discoveries_{rate}"] = share(~unknown, found & new)
        row[f"found_{rate}"] = share(found, unknown)
    return row


def share(of: torch.Tensor, among: torch.Tensor) -> float:
    """In percent; 0 of nothing is 0."""
    return 100 * float(of[among].double().mean()) if bool(among.any()) else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--seeds", type=int, default=3, help="seeds 100, 101, ..., which no reported table has")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    work = list(product(options.graphs.split(","), KINDS, range(100, 100 + options.seeds)))
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for done, finished in enumerate(as_completed([pool.submit(job, *each) for each in work]), 1):
            rows += finished.result()
            print(f"{done}/{len(work)}", flush=True)
    means = summary(rows)
    for row in means:
        print({name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()})
    print(store("batch_sizes", "cpu", [*means, *rows], options.out))


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the cells of each graph, size and way of judging; a cell is a mean over seeds and draws."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cells[row["graph"], row["size"], row["judged"], row["kind"]].append(row)
    names = [name for name in rows[0] if name not in ("graph", "kind", "seed", "size", "judged")]
    found: dict[tuple[Any, ...], list[dict[str, float]]] = defaultdict(list)
    for (graph, size, judged_by, _), own in cells.items():
        found[graph, size, judged_by].append({name: fmean(row[name] for row in own) for name in names})
    return [
        {"graph": graph, "size": size, "judged": judged_by} | {n: fmean(each[n] for each in own) for n in names}
        for (graph, size, judged_by), own in sorted(found.items())
    ]


if __name__ == "__main__":
    main()
