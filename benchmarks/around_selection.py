"""Chooses how far evidence is averaged where a whole region can be unknown, and how much that counts.

The tasks hold no OOD test node of a reported cell: the whole graphs of ``selection.py``; shifts of structure and
features in three graphs that are in no reported table; the same with the ID test nodes kept out of the training graph
(*new*, as in ``membership.py``); and unknown nodes that training has seen (``seen_selection.py``). Each detector is
fitted once; every candidate changes how it combines the same evidence. *False alarms* are those among the ID test
nodes at a nominal 5 %.

    ODDNODE_DATA=... python benchmarks/around_selection.py --seeds 2 --jobs 2
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from carry_over import GRAPHS, changed, with_members
from common import store
from membership import without_members
from seen_selection import graphs, seen_task
from selection import validation_tasks

from oddnode import Detector, evaluate
from oddnode.detector.fitted import members_of
from oddnode.evaluation import TaskOutputs
from oddnode.scoring import evidence
from oddnode.tasks import Task, feature_task, load_task, structure_task

_TESTED = 1000

#: Numbers of hops, and the weight of what is around a node.
CANDIDATES = {"none": (0, 2.0)} | {
    f"{hops} hops, weight {weight:g}": (hops, weight)
    for hops, weight in [(4, 2.0), (8, 2.0), (12, 0.5), (12, 1.0), (12, 2.0), (12, 4.0), (16, 2.0)]
}


def tasks_of(seed: int) -> Iterator[tuple[str, Task]]:
    """Family and task of every validation task."""
    for family, tasks in validation_tasks(seed, False).items():
        for task in tasks:
            yield family, task
            if torch.equal(task.id_test.mask, task.train.test_mask):
                yield f"new {family}", without_members(task)
    for graph in GRAPHS:
        data = load_task(f"{graph}/arrivals/structure-scattered", seed=seed).train.clone()
        rest = (~data.train_mask & ~data.val_mask).nonzero().squeeze(1)
        chosen = torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))[:_TESTED]
        data.test_mask = torch.zeros_like(data.train_mask)
        data.test_mask[rest[chosen]] = True
        for kind, make in (("structure", structure_task), ("feature", feature_task)):
            task = make(f"{graph}/{kind}", data, seed)
            yield "other graphs", task
            yield "new other graphs", without_members(task)
    for name, graph, unknown in graphs(seed):
        yield "seen", seen_task(name, graph, unknown, seed)


def combined_anew(detector: Detector, hops: int) -> Detector:
    """A copy that averages the same evidence over another number of hops."""
    state = detector.state_
    assert state.training is not None
    outputs, members = state.training.outputs, []
    for fitted, own in zip(members_of(state.scorer), outputs.members or [outputs], strict=True):
        member: Any = copy.copy(fitted)
        member.around_hops = hops
        members.append(member.fit_scores(own))
    return with_members(detector, members)


def job(seed: int, place: int) -> dict[str, Any]:
    """All candidates on one task."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    family, task = list(tasks_of(seed))[place]
    detector = Detector.from_recipe("nodesafe-evidence", seed=seed, device="cpu").fit(task.train)
    outputs, found = TaskOutputs(detector, task), {}
    for name, (hops, weight) in CANDIDATES.items():
        with changed({(evidence, "_AROUND"): weight}):
            numbers = evaluate(combined_anew(detector, hops), task, outputs)
        found[name] = [round(numbers[each], 2) for each in ("auroc", "fpr95", "false_alarms")]
    return {"family": family, "task": task.name, "seed": seed, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="seeds 100, 101, ..., which no reported table has")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    seeds = range(100, 100 + options.seeds)
    work = [(seed, place) for seed in seeds for place, _ in enumerate(tasks_of(seed))]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for done, finished in enumerate(as_completed([pool.submit(job, *each) for each in work]), 1):
            rows.append(finished.result())
            print(f"\r{done}/{len(work)}", end="", flush=True)
    print()
    rows.sort(key=lambda row: (row["family"], row["task"], row["seed"]))
    families = defaultdict(list)
    for row in rows:
        families[row["family"]].append(row["found"])
    for name in CANDIDATES:
        means = {family: np.mean([each[name] for each in found], axis=0) for family, found in families.items()}
        mean = np.mean(list(means.values()), axis=0)
        shown = ", ".join(f"{family} {own[0]:.1f} / {own[1]:.1f}" for family, own in means.items())
        print(f"{name:20} {mean[0]:.1f} / {mean[1]:.1f}, {mean[2]:.1f} % false alarms; {shown}")
    print(store("around_selection", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
