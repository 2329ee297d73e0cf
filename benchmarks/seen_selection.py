"""Chooses the weights of the evidence for unknown nodes that were in the training graph all the time, unlabelled.

That is how a table with rows of unknown kinds is fitted and scored. The tasks hold no OOD test node of a reported cell:
classes held out of those that are known in every cell of Cora and CiteSeer, digits, and two random graphs. Three in
ten known nodes are labelled; the others are scored.

    python benchmarks/seen_selection.py --seeds 1 --out seen.json
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import provenance
from evidence_selection import HELD_OUT, METHOD, OWN, WEIGHTS, citation_graph, combined, scores_by_kind, social_graph
from selection import thinned_digits
from torch_geometric.data import Data

from oddnode import Detector, evaluate
from oddnode.tasks import ScoredNodes, Task, digits_graph

#: The share of known nodes that are labelled; six in ten of these are trained on.
LABELLED, TRAINED = 0.3, 0.6
SEEN_WEIGHTS = dict(zip(OWN, METHOD.seen_weights or (), strict=True))
CANDIDATES = {
    "the method's kinds, without what is around": SEEN_WEIGHTS,
    "as for new nodes": WEIGHTS,
    "all equal": dict.fromkeys(OWN, 1.0),
    "only what rests on labels": {kind: float(weight == 1.0) for kind, weight in SEEN_WEIGHTS.items()},
}


def graphs(seed: int) -> Iterator[tuple[str, Data, tuple[int, ...]]]:
    """Name, graph and unknown classes of every task."""
    for dataset, classes in HELD_OUT.items():
        for position in range(len(classes)):
            yield f"{dataset} {classes[position]}", citation_graph(dataset, classes), (position,)
    yield "campus 4", social_graph(seed), (4,)
    yield "campus 2", social_graph(seed + 1), (2,)
    yield "chain", social_graph(seed, chain=True), (4,)
    yield "digits 0-4", digits_graph(seed), (0, 1, 2, 3, 4)
    yield "digits 5-9", digits_graph(seed), (5, 6, 7, 8, 9)
    yield "thinned digits", thinned_digits(seed), (0, 1, 2, 3, 4)


def seen_task(name: str, graph: Data, unknown: tuple[int, ...], seed: int) -> Task:
    """A graph in which the nodes of some classes are never labelled; it is trained on and scored as a whole."""
    is_unknown = torch.isin(graph.y, torch.tensor(unknown))
    classes = graph.y[~is_unknown].unique()
    data = Data(
        x=graph.x, edge_index=graph.edge_index, y=torch.searchsorted(classes, graph.y).clamp_max(len(classes) - 1)
    )
    known = np.random.default_rng([seed, 4]).permutation((~is_unknown).nonzero().squeeze(1).numpy())
    count = round(LABELLED * len(known))
    train, val, test = np.split(known, [round(TRAINED * count), count])
    for mask, nodes in (("train_mask", train), ("val_mask", val), ("test_mask", test)):
        data[mask] = torch.zeros(graph.num_nodes, dtype=torch.bool)
        data[mask][nodes] = True
    data.ood_mask = is_unknown
    return Task(name, data, ScoredNodes(data, data.test_mask), {"same graph": data}, len(classes))


def job(seed: int, place: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    task = seen_task(*list(graphs(seed))[place], seed)
    row = {"task": task.name, "seed": seed, "elsewhere": True, "networks": scores_by_kind(task, seed)}
    found = {name: combined(row, weights) for name, weights in CANDIDATES.items()}
    for method in ("nodesafe-evidence", "msp", "nodesafe"):
        result = evaluate(Detector.from_recipe(method, seed=seed, device="cpu").fit(task.train), task)
        found[method] = result["auroc"], result["fpr95"]
    return {"task": task.name, "seed": seed, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("seen_selection.json"))
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("fork")) as pool:
        jobs = [pool.submit(job, seed, place) for seed in range(args.seeds) for place, _ in enumerate(graphs(seed))]
        rows = []
        for done, finished in enumerate(as_completed(jobs), 1):
            rows.append(finished.result())
            print(f"\r{done}/{len(jobs)}", end="", flush=True)
    print()
    report = {name: np.mean([row["found"][name] for row in rows], axis=0).tolist() for name in rows[0]["found"]}
    for name, (auroc, fpr95) in report.items():
        print(f"{name:42} {auroc:.1f} / {fpr95:.1f}")
    args.out.write_text(json.dumps({**provenance(), "seeds": args.seeds, "report": report, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
