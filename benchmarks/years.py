"""Real drift: PubMed's papers arrive year after year, with one class unknown, or none.

A detector is fitted on the papers up to a year and scores those of the years that follow, at a nominal false-alarm rate
of 5 %. Then 50 random known arrivals of the same years, as a person would have checked them, choose the threshold anew
(`calibrate`), and the rate is counted on the other arrivals; mean over 20 draws.

``--references`` names what nodes are compared with: the ``default``, half of the 120 validation nodes; 200 labelled
nodes that are neither trained nor validated on, drawn at ``random``; or the 200 most ``recent`` of these.

    ODDNODE_DATA=... python benchmarks/years.py --seeds 3 --jobs 2
    ODDNODE_DATA=... python benchmarks/years.py --seeds 3 --jobs 16 --references random,recent
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from common import store
from torch_geometric.data import Data

from oddnode import Detector, evaluate, load_task
from oddnode.detector import Calibration
from oddnode.evaluation import TaskOutputs
from oddnode.graph import most_recent
from oddnode.tasks import TASKS, Task, expand_tasks

CHECKED, DRAWS = 50, 20
REFERENCES = 200


def job(names: list[str], method: str, seed: int, references: str = "default") -> list[dict[str, Any]]:
    """The rows of tasks with the same training graph."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    detector = None
    for name in names:
        task = load_task(name, seed=seed)
        if detector is None:
            train = with_references(task, references, seed)
            detector = Detector.from_recipe(method, seed=seed, device="cpu")
            if references == "recent":  # as tables with a time column do
                detector._adapt_scorer(lambda scorer: scorer.expecting_drift())
            detector.fit(train)
        outputs = TaskOutputs(detector, task)
        found = {k: v for k, v in evaluate(detector, task, outputs).items() if k != "tests"}
        found |= recalibrated(detector.score_samples(outputs.id_test).numpy(), task, seed)
        if method == "nodesafe-evidence":
            alone = detector.detect(detector.outputs(task.id_test.data, batch=False))
            found["false_alarms_alone"] = 100 * float(alone[task.id_test.mask].double().mean())
            found["is_drift"] = float("drift" in " ".join(detector.scorer_.notes(outputs.id_test)))
        facts = {"task": name, "method": method, "references": references, "seed": seed}
        rows.append(facts | {k: round(v, 2) for k, v in found.items()})
    return rows


def with_references(task: Task, references: str, seed: int) -> Data:
    """The training graph with marked reference nodes, unless they are the default ones."""
    train = task.train.clone()
    if references == "default":
        return train
    free = ~(train.train_mask | train.val_mask)
    train.reference_mask = most_recent(free, train.time, REFERENCES)
    if references == "random":
        order = np.random.default_rng([seed, 1]).permutation(free.nonzero().squeeze(1).numpy())
        train.reference_mask = torch.zeros_like(free)
        train.reference_mask[order[:REFERENCES]] = True
    return train


def recalibrated(scores: np.ndarray, task: Task, seed: int) -> dict[str, float]:
    """False alarms and caught nodes, in percent, at thresholds from 50 checked arrivals."""
    rng = np.random.default_rng(seed)
    known, unknown = scores[task.id_test.mask.numpy()], scores[task.tests["arrivals"].ood_mask.numpy()]
    false_alarms, caught = [], []
    for _ in range(DRAWS):
        order = rng.permutation(len(known))
        calibration = Calibration.from_scores(known[order[:CHECKED]])
        false_alarms.append(100 * calibration.detect(known[order[CHECKED:]]).double().mean().item())
        caught += [100 * calibration.detect(unknown).double().mean().item()] if len(unknown) else []
    found = {"checked_false_alarms": fmean(false_alarms), "checked_spread": stdev(false_alarms)}
    return found | ({"checked_caught": fmean(caught)} if caught else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="nodesafe-evidence")
    parser.add_argument("--references", default="default", help="default, random, recent, or several of them")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    by_graph: dict[str, list[str]] = {}
    for name in expand_tasks(["pubmed/years"]):
        by_graph.setdefault(TASKS[name].training_graph, []).append(name)
    settings = product(options.methods.split(","), range(options.seeds), options.references.split(","))
    jobs = [(own, *each) for each in settings for own in by_graph.values()]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
        for done, finished in enumerate(as_completed([pool.submit(job, *each) for each in jobs]), 1):
            rows += finished.result()
            print(f"\r{done}/{len(jobs)}", end="", flush=True)
    rows.sort(key=lambda row: (row["method"], row["references"], row["task"], row["seed"]))
    name = "years" if options.references == "default" else "years_references"
    print(store(name, "cpu", rows, options.out))


if __name__ == "__main__":
    main()
