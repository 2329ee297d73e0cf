"""How well the forecast of rehearsal holds: forecast and observed shares of caught arrivals, by kind.

`fit` forecasts which share of altered known nodes would be flagged at 5 %. Here nodes that are altered in the same way
arrive as unknown ones, scattered and grouped, in the three graphs for choosing settings and, except for the kinds of
the reported tables (mixed, rewired), in Cora, CiteSeer and PubMed. One fit per graph and seed rehearses every kind.
Four kinds are never rehearsed; for them, and for unknown classes, the forecast is the mean over the rehearsed kinds,
which nobody promised to hold.

    ODDNODE_DATA=... python benchmarks/forecast.py --seeds 3 --jobs 16
"""

from __future__ import annotations

import argparse
import logging
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from common import store

from oddnode import Detector
from oddnode.graph.alterations import ALTERATIONS
from oddnode.tasks import DATASETS, PLACEMENTS
from oddnode.tasks.arrivals import Arrivals, arrivals_task

CHOOSING, CITATIONS = ("citations-wide", "campus", "films"), ("cora", "citeseer", "pubmed")
REPORTED = ("mixed", "rewired")


def job(graph: str, seed: int) -> list[dict[str, Any]]:
    """All kinds in one graph; unknown classes only where they choose nothing that is reported."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    whole = whole_graph(graph, seed)
    kinds = [name for name in ALTERATIONS if graph in CHOOSING or name not in REPORTED]
    rows: list[dict[str, Any]] = []
    detector: Detector | None = None
    for kind in [*kinds, *(["label"] if graph in CHOOSING else [])]:
        for placement in PLACEMENTS:
            task = arrivals_task(f"{graph}/{kind}-{placement}", whole, Arrivals(kind, placement), seed)
            if detector is None or (kind == "label" and placement == PLACEMENTS[0]):  # its training graph is another
                detector = Detector.from_recipe("nodesafe-evidence", seed=seed, device="cpu").fit(task.train)
            forecast = detector.forecast_
            row = {"graph": graph, "kind": kind, "placement": placement, "seed": seed}
            row["forecast"] = 100 * forecast.get(kind, fmean(forecast.values()))
            row["is_rehearsed"] = kind in forecast
            alone = task.tests["arrivals"]
            for name, batch in (("alone", False), ("batch", True)):
                flagged = detector.detect(detector.outputs(alone, batch))
                row[f"caught_{name}"] = 100 * float(flagged[alone.ood_mask].double().mean())
                row[f"false_alarms_{name}"] = 100 * float(flagged[task.id_test.mask].double().mean())
            rows.append(row)
    return rows


def whole_graph(name: str, seed: int) -> Any:
    """The graph of a data set, with all of its nodes and classes."""
    load = DATASETS[name].load
    assert load is not None
    return load(None, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 100, 101, ..., which no reported table has")
    parser.add_argument("--graphs", default=",".join((*CHOOSING, *CITATIONS)))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    work = [(graph, 100 + seed) for graph in options.graphs.split(",") for seed in range(options.seeds)]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for done, finished in enumerate(as_completed([pool.submit(job, *each) for each in work]), 1):
            rows += finished.result()
            print(f"{done}/{len(work)}", flush=True)
    rows.sort(key=lambda row: [str(row[name]) for name in ("graph", "kind", "placement", "seed")])
    print(store("forecast", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
