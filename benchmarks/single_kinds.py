"""Whether the sum of all evidence says less than one part of it: the default against its best single kind, by cell.

In every reported cell (the ten cells, the arrivals of the citation graphs and of Amazon Photo) and in the arrivals of
the three graphs for choosing settings, `nodesafe-evidence` is fitted once. Its AUROC stands beside that of every kind
of evidence alone (the mean surprise over its networks) and of the scores without a model. The best of these is known
only because the unknown nodes are: it is a bound to compare with, not a method.

    ODDNODE_DATA=... python benchmarks/single_kinds.py --seeds 2 --jobs 2
    ODDNODE_DATA=... python benchmarks/single_kinds.py --tasks photo/arrivals --seeds 1
"""

from __future__ import annotations

import argparse
import logging
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from common import store
from torch import Tensor

from oddnode import Detector, evaluate
from oddnode.detector import MODEL_FREE
from oddnode.detector.fitted import members_of
from oddnode.evaluation import TaskOutputs
from oddnode.functional import auroc
from oddnode.protocols import get_protocol
from oddnode.scoring import Outputs
from oddnode.tasks import expand_tasks, load_task

GROUPS = (
    ",".join(
        f"{graph}/arrivals" for graph in ("cora", "citeseer", "pubmed", "photo", "citations-wide", "campus", "films")
    )
    + ",paper"
)


def job(name: str, seed: int) -> dict[str, Any]:
    """The AUROC of the default, of each of its kinds and of the scores without a model."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    task = load_task(name, seed=seed)
    detector = get_protocol("clean").detector("nodesafe-evidence", task, seed=seed, device="cpu").fit(task.train)
    outputs = TaskOutputs(detector, task)
    known = surprises(detector, outputs.id_test)
    kinds: dict[str, float] = {}
    for test, data in task.tests.items():
        found = surprises(detector, outputs.tests[test])
        for kind, values in known.items():
            area = auroc(-values[task.id_test.mask], -found[kind][data.ood_mask])
            kinds[kind] = kinds.get(kind, 0.0) + 100 * area / len(task.tests)
    for method in sorted(MODEL_FREE):
        kinds[f"*{method}*"] = evaluate(Detector.from_recipe(method, device="cpu").fit(task.train), task)["auroc"]
    best = max(kinds, key=lambda kind: kinds[kind])
    row = {"task": name, "seed": seed, "auroc": evaluate(detector, task, outputs)["auroc"], "best": best}
    return row | {"kinds": {kind: round(area, 2) for kind, area in kinds.items()}}


def surprises(detector: Detector, outputs: Outputs) -> dict[str, Tensor]:
    """How unusual every node is by every kind, a mean over the networks ``[N]``."""
    scorers: tuple[Any, ...] = members_of(detector.state_.scorer)
    members = outputs.members or [outputs]
    found = torch.stack([scorer.surprises(own) for scorer, own in zip(scorers, members, strict=True)]).mean(dim=0)
    return dict(zip(scorers[0].kinds, found.cpu().unbind(dim=1), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=GROUPS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    names = expand_tasks(options.tasks.split(","))
    work = [(name, seed) for name in names for seed in range(options.seeds)]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for done, finished in enumerate(as_completed([pool.submit(job, *each) for each in work]), 1):
            rows.append(finished.result())
            row = rows[-1]
            print(f"{done}/{len(work)} {row['task']} {row['auroc']:.1f}, {row['best']} {row['kinds'][row['best']]:.1f}")
    rows.sort(key=lambda row: (names.index(row["task"]), row["seed"]))
    print(store("single_kinds", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
