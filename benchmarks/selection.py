"""Chooses the settings of the clean protocol without touching the OOD test data of any benchmark cell.

The validation tasks are made from two sources only:

* ``digits``, as it is and *thinned* (a random half of its pixels kept, binarised; two neighbours each, three
  edges in ten replaced at random), so that it is classified about as well as a citation graph;
* classes held out of the ID classes of the citation graphs and of Twitch, each in turn, on a graph that holds none
  of the nodes that are OOD in any cell.

Every candidate is trained on every task with several seeds and judged by its mean FPR95 over the task families. What
was chosen, and how, is told in docs/measurements/settings.md.

    python benchmarks/selection.py --stage training --seeds 2 --out training.json
    python benchmarks/selection.py --stage scoring --seeds 3 --out scoring.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import provenance
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from oddnode import Detector, evaluate
from oddnode.detector import get_recipe
from oddnode.evaluation import TaskOutputs
from oddnode.scoring import Energy, MaxSoftmax, Propagated, Scorer
from oddnode.tasks import ScoredNodes, Task, digits_graph, feature_task, induced, label_task, load_task, structure_task

DIGIT_SPLITS = [
    ([0, 1, 2, 3, 4], [5], [6, 7, 8, 9]),
    ([5, 6, 7, 8, 9], [0], [1, 2, 3, 4]),
    ([0, 2, 4, 6, 8], [1], [3, 5, 7, 9]),
    ([1, 3, 5, 7, 9], [0], [2, 4, 6, 8]),
]

#: ID classes of the citation cells and of Twitch that are in no cell an OOD test class.
HELD_OUT = {"cora": [3, 4, 5, 6], "citeseer": [3, 4, 5], "pubmed": [1, 2], "twitch": [0, 1]}

#: Scoring settings: they need no training of their own.
SCORINGS: list[dict[str, Any]] = [
    {"score": score, "num_hops": k, "eta": eta, "prior_nodes": prior}
    for score in ("energy", "centred energy", "max softmax")
    for k, eta in [(2, 0.5), (8, 0.5), (16, 0.5), (32, 0.5), (8, 0.1), (16, 0.1), (32, 0.1), (16, 0.0)]
    for prior in (0.0, 3.0, 10.0, 30.0, 100.0)
]

BASE_SCORES = {"energy": Energy(), "centred energy": Energy(centred=True), "max softmax": MaxSoftmax()}

#: Training settings without exposure.
PLAIN: list[dict[str, Any]] = [
    {"lambda2": lambda2, "start": start, "num_spare_logits": spare, "dropout": dropout}
    for lambda2, start in [(0.0, 0), (1.0, 20), (5.0, 20), (1.0, 0), (5.0, 0)]
    for spare in (1, 2, 4)
    for dropout in (0.0, 0.5)
]

#: Training settings with exposure; lambda2 = 0 is GNNSafe++.
EXPOSED: list[dict[str, Any]] = [
    {"m_in": m_in, "m_out": m_out, "alpha": alpha, "lambda2": lambda2, "start": start}
    for m_in, m_out in [(-5.0, -1.0), (-5.0, None), (None, None)]
    for alpha in (0.01, 0.1, 1.0)
    for lambda2, start in [(0.0, 0), (0.1, 0), (1.0, 0), (5.0, 0), (1.0, 20)]
]

#: What is chosen together: a method, its training settings, and scoring settings that share one training.
STAGES: dict[str, tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = {
    "training": ("nodesafe", PLAIN, [{"score": "energy", "num_hops": 16, "eta": 0.5, "prior_nodes": 0.0}]),
    "scoring": ("nodesafe", [{}], SCORINGS),
    "exposure": ("nodesafe++", EXPOSED, [{}]),
    "odin": (
        "odin",
        [{}],
        [{"temperature": t, "epsilon": e} for t in (1.0, 5.0, 10.0, 100.0) for e in (0.0, 0.0001, 0.001, 0.01, 0.1)],
    ),
    "mahalanobis": ("mahalanobis", [{}], [{"shrinkage": s} for s in (0.0, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0)]),
    "knn": ("knn", [{}], [{"k": k} for k in (1, 3, 5, 10, 20)]),
    "logitnorm": ("gnnsafe+logitnorm", [{"tau": tau} for tau in (0.04, 0.1, 0.5, 1.0, 2.0)], [{}]),
    "gold": ("gold", [{"weight": w} for w in (0.01, 0.03, 0.1, 1.0)], [{}]),
}


def thinned_digits(seed: int) -> Data:
    """Digits made as hard as a citation graph: sparse binary features, few edges, many of them wrong."""
    rng = np.random.default_rng(1000 + seed)
    full = digits_graph(seed)
    keep = torch.from_numpy(rng.random(full.x.shape) < 0.5)
    x = ((full.x > 0.5) & keep).float()
    near = torch.cdist(full.x, full.x).fill_diagonal_(float("inf")).topk(2, largest=False).indices
    source = torch.arange(full.num_nodes).repeat_interleave(2)
    target = near.reshape(-1)
    wrong = torch.from_numpy(rng.random(target.shape[0]) < 0.3)
    target = torch.where(wrong, torch.from_numpy(rng.integers(full.num_nodes, size=target.shape[0])), target)
    edges, _ = remove_self_loops(to_undirected(torch.stack([source, target]), num_nodes=full.num_nodes))
    thinned = full.clone()
    thinned.x = x / x.sum(dim=1, keepdim=True).clamp_min(1.0)
    thinned.edge_index = coalesce(edges, num_nodes=full.num_nodes)
    return thinned


def held_out_classes(dataset: str, graph: Data, classes: list[int], exposure: bool) -> list[Task]:
    """Every class in turn becomes the OOD class, on the graph of ``classes`` alone.

    Its ID nodes are the validation nodes: test nodes of a benchmark choose nothing.
    """
    tasks = []
    for held_out in classes:
        known = [c for c in classes if c != held_out]
        exposed = [known.pop()] if exposure and len(known) > 1 else []
        inside = torch.isin(graph.y, torch.tensor(classes))
        task = label_task(f"{dataset}/held-out-{held_out}", induced(graph, inside), known, exposed, [held_out])
        tasks.append(replace(task, id_test=ScoredNodes(task.id_test.data, task.id_test.data.val_mask)))
    return [task for task in tasks if task.exposure is not None or not exposure]


def validation_tasks(seed: int, exposure: bool) -> dict[str, list[Task]]:
    """Families of tasks; each family counts the same."""
    digits, thin = digits_graph(seed), thinned_digits(seed)
    return {
        "structure": [structure_task("thinned/structure", thin, seed)],
        "feature": [feature_task("thinned/feature", thin, seed)],
        "label": [label_task(f"digits/label-{i}", digits, *split) for i, split in enumerate(DIGIT_SPLITS)]
        + [label_task(f"thinned/label-{i}", thin, *split) for i, split in enumerate(DIGIT_SPLITS)],
        "held-out": [
            task
            for dataset, classes in HELD_OUT.items()
            for task in held_out_classes(dataset, id_graph(dataset, seed), classes, exposure)
        ],
    }


def id_graph(dataset: str, seed: int) -> Data:
    """The graph that a cell is trained on."""
    return load_task("twitch" if dataset == "twitch" else f"{dataset}/structure", seed=seed).train


def run(method: str, seed: int, training: dict[str, Any], scorings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One training setting with one seed on all validation tasks, under every scoring setting."""
    torch.set_num_threads(1)
    rows = []
    recipe = get_recipe(method)
    for family, tasks in validation_tasks(seed, recipe.needs_exposure).items():
        for task in tasks:
            detector = Detector.from_recipe(method, seed=seed, device="cpu", **training)
            detector.fit(task.train, task.exposure if recipe.needs_exposure else None)
            outputs = TaskOutputs(detector, task)
            for scoring in scorings:
                result = evaluate(detector.with_scorer(_scorer(method, scoring)), task, outputs)
                numbers = {m: result[m] for m in ("auroc", "fpr95", "id_acc")}
                rows.append({"family": family, "task": task.name, "seed": seed, **training, **scoring, **numbers})
    return rows


def _scorer(method: str, scoring: dict[str, Any]) -> Scorer:
    if "score" not in scoring:
        return get_recipe(method).build(**scoring)[1]
    base, prior = BASE_SCORES[scoring["score"]], scoring["prior_nodes"]
    return Propagated(base, scoring["num_hops"], scoring["eta"], prior_nodes=prior)


def ranking(rows: list[dict[str, Any]], keys: list[str]) -> list[dict[str, Any]]:
    """Settings by mean FPR95 over the families, best first."""
    groups: dict[tuple, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[tuple(row[k] for k in keys)][row["family"]].append(row)
    table = []
    for setting, families in groups.items():
        means = {
            f: {m: float(np.mean([r[m] for r in rs])) for m in ("auroc", "fpr95", "id_acc")}
            for f, rs in families.items()
        }
        entry = dict(zip(keys, setting, strict=True))
        entry |= {m: float(np.mean([v[m] for v in means.values()])) for m in ("auroc", "fpr95", "id_acc")}
        entry["families"] = means
        table.append(entry)
    return sorted(table, key=lambda e: e["fpr95"])


def main_effect(table: list[dict[str, Any]], key: str) -> dict[str, str]:
    """AUROC / FPR95 of every level of a setting, averaged over all others (single settings differ by noise)."""
    levels: dict[str, list[dict]] = defaultdict(list)
    for entry in table:
        levels[str(entry[key])].append(entry)
    return {
        level: f"{np.mean([e['auroc'] for e in es]):.1f} / {np.mean([e['fpr95'] for e in es]):.1f}"
        for level, es in levels.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=tuple(STAGES), default="training")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("selection.json"))
    args = parser.parse_args()
    method, trainings, scorings = STAGES[args.stage]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(run, method, s, t, scorings) for t, s in itertools.product(trainings, range(args.seeds))]
        for done, job in enumerate(as_completed(jobs), 1):
            rows += job.result()
            print(f"\r{done}/{len(jobs)}", end="", flush=True)
    print()
    keys = [*trainings[0], *scorings[0]]
    table = ranking(rows, keys)
    args.out.write_text(json.dumps({**provenance(), "rows": rows, "ranking": table}))
    for entry in table[:15]:
        print({k: entry[k] for k in [*keys, "auroc", "fpr95"]})
    for key in keys:
        print(key, main_effect(table, key))


if __name__ == "__main__":
    main()
