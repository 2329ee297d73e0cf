"""Compares settings of rehearsal and of the batch on three graphs, and says what a choice on two is worth on the third.

The tasks are the arrivals of all kinds, scattered and grouped, in three graphs that are in no reported table:
``citations-wide``, ``campus`` (dense, social) and ``films`` (heterophilous); what a task tests is left out of the
rehearsal. Each network is trained once and its kinds of evidence are computed once; every candidate changes one
setting of how the shipped method combines them. A candidate is judged by its mean FPR95. *Leave-one-graph-out* takes
the best candidate of two graphs and reports it on the third.

    ODDNODE_DATA=... python benchmarks/carry_over.py --seeds 2 --jobs 16   # prints the tables, stores the results
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import store

from oddnode import Detector, evaluate
from oddnode.detector.fitted import members_of
from oddnode.detector.fitting import calibration_by_references
from oddnode.evaluation import TaskOutputs
from oddnode.protocols import get_protocol
from oddnode.scoring import EnsembleMean, batch, evidence, rehearsal
from oddnode.tasks import KINDS, PLACEMENTS, load_task

DEVICE = os.environ.get("ODDNODE_BENCH_DEVICE", "cpu")
GRAPHS = ("citations-wide", "campus", "films")

#: Candidates: settings of modules that differ from the shipped ones.
CANDIDATES: dict[str, dict[tuple[Any, str], Any]] = {
    "as shipped": {},
    "without rehearsal": {(evidence, "_REHEARSAL"): 0.0},
    "rehearsal weighs 2": {(evidence, "_REHEARSAL"): 2.0},
    "rehearsal weighs 8": {(evidence, "_REHEARSAL"): 8.0},
    "rehearsal with C = 0.3": {(rehearsal, "_C"): 0.3},
    "the batch weighs 1": {(evidence, "_BATCH"): 1.0},
    "the batch weighs 4": {(evidence, "_BATCH"): 4.0},
    "penalty 30": {(batch, "_PENALTY"): 30.0},
    "penalty 300": {(batch, "_PENALTY"): 300.0},
    "kinds that see nothing keep 5 %": {(batch, "_KEPT"): 0.05},
    "kinds that see nothing keep 30 %": {(batch, "_KEPT"): 0.3},
    "kinds that see nothing keep all": {(batch, "_KEPT"): 1e6},
    "without the batch": {(batch, "FEWEST_NEW"): 10**9},
}


@contextmanager
def changed(settings: dict[tuple[Any, str], Any]) -> Iterator[None]:
    """Settings of modules, for a while."""
    before = {(module, name): getattr(module, name) for module, name in settings}
    try:
        for (module, name), value in settings.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def combined_anew(detector: Detector, learns: bool) -> Detector:
    """A copy that combines the same kinds of evidence with the settings of now."""
    state = detector.state_
    members = [copy.copy(each) for each in members_of(state.scorer)]
    if learns:  # the rehearsal itself, not only its weight
        assert state.training is not None
        outputs = state.training.outputs
        members = members[0].fit_together(members, outputs.members or [outputs])
    return with_members(detector, members)


def with_members(detector: Detector, members: list[Any]) -> Detector:
    """A copy with other scorers for its networks, calibrated anew."""
    is_ensemble = isinstance(detector.state_.scorer, EnsembleMean)
    state = replace(detector.state_, scorer=EnsembleMean(tuple(members)) if is_ensemble else members[0])
    return copy.copy(detector)._with_state(state, calibration_by_references(state))


def results_of(work: tuple[str, str, str, int]) -> list[dict[str, Any]]:
    """All candidates on one task."""
    graph, kind, placement, seed = work
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    task = load_task(f"{graph}/arrivals/{kind}-{placement}", seed=seed)
    detector = get_protocol("clean").detector("nodesafe-evidence", task, seed=seed, device=DEVICE).fit(task.train)
    rows, outputs = [], TaskOutputs(detector, task)
    for name, settings in CANDIDATES.items():
        with changed(settings):
            learns = any(module is rehearsal for module, _ in settings)
            numbers = evaluate(combined_anew(detector, learns), task, outputs)
        numbers.pop("tests")
        rows.append({"graph": graph, "kind": kind, "placement": placement, "seed": seed, "candidate": name} | numbers)
    return rows


def means(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, ...]]:
    """AUROC, FPR95, caught and false alarms of every candidate on every graph."""
    found = defaultdict(list)
    for row in rows:
        numbers = [row[name] for name in ("auroc", "fpr95", "caught", "false_alarms")]
        found[row["candidate"], row["graph"]].append(numbers)
    return {key: tuple(np.mean(values, axis=0)) for key, values in found.items()}


def lines(rows: list[dict[str, Any]]) -> list[str]:
    """The table of all candidates, and what leaving one graph out gives."""
    table = means(rows)
    made = ["| candidate | " + " | ".join(GRAPHS) + " | mean | caught | false alarms |"]
    made.append("| --- " * (len(GRAPHS) + 4) + "|")
    for name in CANDIDATES:
        cells = [table[name, graph] for graph in GRAPHS]
        mean = np.mean(cells, axis=0)
        shown = " | ".join(f"{cell[0]:.1f} / {cell[1]:.1f}" for cell in cells)
        made.append(f"| {name} | {shown} | **{mean[0]:.1f} / {mean[1]:.1f}** | {mean[2]:.1f} | {mean[3]:.1f} |")
    left_out, chosen = [], []
    for graph in GRAPHS:
        others = [other for other in GRAPHS if other != graph]
        best = min(CANDIDATES, key=lambda name: np.mean([table[name, other][1] for other in others]))
        left_out.append(table[best, graph])
        chosen.append(f"without {graph} *{best}* ({table[best, graph][0]:.1f} / {table[best, graph][1]:.1f} there)")
    area, rate = np.mean(left_out, axis=0)[:2]
    return [
        *made,
        "",
        f"Leave-one-graph-out: {area:.1f} / {rate:.1f}; chosen",
        *(f"{each}," for each in chosen[:-1]),
        f"{chosen[-1]}.",
    ]


def main() -> None:
    """Run all candidates, print the tables and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="seeds 100, 101, ..., which no reported table has")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    work = list(product(GRAPHS, KINDS, PLACEMENTS, range(100, 100 + options.seeds)))  # the largest graph first
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for done, finished in enumerate(as_completed([pool.submit(results_of, each) for each in work]), 1):
            rows += finished.result()
            print(f"{done}/{len(work)}", flush=True)
    rows.sort(key=lambda row: [str(row[name]) for name in ("graph", "kind", "placement", "seed")])
    print("\n".join(lines(rows)))
    print(store("carry_over", DEVICE, rows, options.out))


if __name__ == "__main__":
    main()
