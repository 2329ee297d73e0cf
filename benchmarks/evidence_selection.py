"""Chooses the kinds of evidence, their combination and NODESAFE's schedule on tasks that hold no reported OOD node.

Validation tasks, each family counted the same:

* arrivals of all three kinds on ``digits`` and on ``thinned`` digits, and of two other kinds (``thinned``: seven in ten
  features set to zero; ``swapped``: the features of a node of another class);
* arrivals in two random graphs made here: ``campus``, dense (mean degree 50, categories as features), and ``chain``,
  whose edges mostly join different classes;
* arrivals in Cora and CiteSeer: classes held out of those that are known in every reported cell, on a graph that holds
  none of the others; and thinned and swapped nodes;
* whole graphs that are OOD, as in the paper's cells: the validation tasks of ``benchmarks/selection.py``.

All other kinds take part in no choice.

    python benchmarks/evidence_selection.py --stage kinds --seeds 2 --out kinds.json
    python benchmarks/evidence_selection.py --stage weights --seeds 2 --out weights.json
    python benchmarks/evidence_selection.py --stage schedule --seeds 2 --out schedule.json
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import provenance
from selection import thinned_digits, validation_tasks
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from oddnode import Detector, evaluate
from oddnode.detector import get_recipe
from oddnode.detector.recipes import evidence
from oddnode.functional import auroc, fpr_at_tpr, surprise
from oddnode.scoring import (
    CentredCosine,
    Degree,
    Energy,
    Evidence,
    FeatureLikelihood,
    LinkPrediction,
    Mahalanobis,
    MaxSoftmax,
    NeighbourhoodFeatures,
    Propagated,
    Scorer,
    TwoSided,
)
from oddnode.tasks import PLACEMENTS, Arrivals, Task, arrivals_task, digits_graph, induced, load_task

#: Classes that are known in every reported cell; each is held out in turn.
HELD_OUT = {"cora": (3, 4, 5, 6), "citeseer": (3, 4, 5)}

#: The method's scorer, whose kinds and weights are compared with others.
METHOD = evidence(2.0, 32, 0.1)
OWN = [repr(scorer) for scorer in METHOD.scorers]
WEIGHTS = dict(zip(OWN, METHOD.weights or (), strict=True))
#: These count only where the known nodes are not in the scored graph.
ELSEWHERE = {name for name in OWN if not WEIGHTS[name]}
#: Weights that are tried for every kind in turn.
TRIED_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
#: A weight is changed for no less than this much worth; smaller differences are chance.
LEAST_GAIN = 0.02

#: Kinds of evidence that were considered besides those of the method.
OTHERS: tuple[Scorer, ...] = (
    Propagated(MaxSoftmax(), 2, 0.5),
    Propagated(MaxSoftmax(), 32, 0.1),
    TwoSided(Propagated(MaxSoftmax(), 32, 0.1)),
    Energy(centred=True),
    Propagated(Energy(centred=True), 32, 0.1),
    Mahalanobis(0.01),
    Propagated(Mahalanobis(0.01), 32, 0.1),
    CentredCosine(),
    Propagated(CentredCosine()),
    Propagated(LinkPrediction(), 32, 0.1),
    TwoSided(LinkPrediction()),
    NeighbourhoodFeatures(0),
    NeighbourhoodFeatures(8),
    FeatureLikelihood(),
    Degree(),
)

#: Schedules of NODESAFE's term; a weight of 0 is plain cross-entropy.
SCHEDULES: list[dict[str, Any]] = [
    {"lambda2": 0.0, "start": 20},
    {"lambda2": 1.0, "start": 20},
    {"lambda2": 1.0, "start": 0},
    {"lambda2": 5.0, "start": 0},
]

MakeTask = Callable[[], Task]


# --- tasks -----------------------------------------------------------------------------------------------------------


def social_graph(seed: int, chain: bool = False, num_nodes: int = 2000, num_classes: int = 5) -> Data:
    """A random graph of people in five years, with dorm, major, gender and status as categories.

    ``campus`` is dense and joins people of one year and of one dorm; in a ``chain``, edges join neighbouring years.
    """
    rng = np.random.default_rng([seed, 9])
    y = rng.integers(num_classes, size=num_nodes)
    columns = [
        ((y // 2 * 6 + rng.integers(10, size=num_nodes)) % 24, 24),
        (rng.integers(40, size=num_nodes), 40),
        (rng.integers(2, size=num_nodes), 2),
        ((y + rng.integers(2, size=num_nodes)) % 6, 6),
    ]
    apart = np.abs(np.subtract.outer(np.arange(num_classes), np.arange(num_classes)))
    joined = 0.1 + (apart == 1) if chain else 0.08 + (apart == 0) + 0.25 * (apart == 1)
    activity, dorm = rng.gamma(2.0, 0.5, num_nodes), columns[0][0]
    weights = joined[y][:, y] * np.outer(activity, activity) * (1 + 1.5 * (dorm[:, None] == dorm))
    weights *= num_nodes * (8 if chain else 50) / weights.sum()
    pairs = np.stack(np.triu(rng.random(weights.shape) < weights, 1).nonzero())
    blocks = [np.eye(size)[column] * (rng.random((num_nodes, 1)) > 0.1) for column, size in columns]
    edges = to_undirected(torch.from_numpy(pairs), num_nodes=num_nodes)
    return Data(x=torch.from_numpy(np.concatenate(blocks, axis=1)).float(), edge_index=edges, y=torch.from_numpy(y))


def citation_graph(name: str, classes: Sequence[int] | None = None) -> Data:
    """A citation graph, or the part of it with some of its classes."""
    data = load_task(f"{name}/structure").train
    data = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    if classes is None:
        return data
    kept = torch.tensor(classes)
    part = induced(data, torch.isin(data.y, kept))
    part.y = torch.searchsorted(kept, part.y)
    return part


def tasks_of(seed: int) -> Iterator[tuple[str, str, MakeTask]]:
    """Suite, family and maker of every validation task."""

    def arrive(graph: Callable[[], Data], name: str, kind: str, unknown: tuple[int, ...] | None = None) -> Iterator:
        for placement in PLACEMENTS:
            arrivals = Arrivals(kind, placement, unknown_classes=unknown)
            family = f"{name.partition('/')[0]}/{kind}-{placement}"
            yield "arrivals", family, partial(_made, name, graph, arrivals, seed)

    for name, digits in (("digits", digits_graph), ("thinned", thinned_digits)):
        for kind in ("feature", "structure", "thinned", "swapped"):
            yield from arrive(partial(digits, seed), name, kind)
        for unknown in ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)):
            yield from arrive(partial(digits, seed), name, "label", unknown)
    for name, kinds in (("campus", ("structure", "swapped")), ("chain", ("feature", "swapped"))):
        for kind in kinds:
            yield from arrive(partial(social_graph, seed, name == "chain"), name, kind)
        yield from arrive(partial(social_graph, seed, name == "chain"), name, "label", (4,))
    for dataset, classes in HELD_OUT.items():
        for position in range(len(classes)):
            yield from arrive(partial(citation_graph, dataset, classes), f"citation/{dataset}", "label", (position,))
        for kind in ("thinned", "swapped"):
            yield from arrive(partial(citation_graph, dataset), f"citation/{dataset}", kind)
    for family, tasks in validation_tasks(seed, False).items():
        for task in tasks:
            yield "graphs", family, partial(_given, task)


def _made(name: str, graph: Callable[[], Data], arrivals: Arrivals, seed: int) -> Task:
    return arrivals_task(name, graph(), arrivals, seed)


def _given(task: Task) -> Task:
    return task


# --- measuring -------------------------------------------------------------------------------------------------------


def scores_by_kind(task: Task, seed: int) -> list[dict[str, Any]]:
    """For every network: the surprises of its reference nodes, of known and of unknown nodes, by every kind."""
    objective, _ = get_recipe("nodesafe").build()
    detector = Detector("gcn", objective, Evidence((MaxSoftmax(),)), seed=seed, device="cpu").fit(task.train)
    training = detector.state_.training
    assert training is not None
    known = detector.outputs(task.id_test.data)
    [test] = list(task.tests.values())[:1]
    unknown = known if test is task.id_test.data else detector.outputs(test)
    return [
        {
            repr(scorer): _surprises(scorer.fit(part.outputs, part.train, part.y), whole, own, other, task, test)
            for scorer in (*METHOD.scorers, *OTHERS)
        }
        for part, whole, own, other in zip(
            training.parts,
            training.outputs.members or [training.outputs],
            known.members or [known],
            unknown.members or [unknown],
            strict=True,
        )
    ]


def _surprises(scorer: Scorer, whole: Any, known: Any, unknown: Any, task: Task, test: Data) -> list[np.ndarray]:
    scores = scorer.score(known)
    reference = scorer.score(whole)[whole.reference] if known.reference is None else scores[known.reference]
    others = scores if unknown is known else scorer.score(unknown)

    def found(values: Tensor, leave_one_out: bool = False) -> Tensor:
        return surprise(values, reference, leave_one_out, scorer.two_sided)

    groups = found(reference, True), found(scores[task.id_test.mask]), found(others[test.ood_mask])
    return [group.float().numpy() for group in groups]


def combined(row: dict[str, Any], weights: dict[str, float], power: float = METHOD.power) -> tuple[float, float]:
    """AUROC and FPR95 of a combination on one task, as `Evidence` computes it."""
    counted = {kind: weight for kind, weight in weights.items() if row["elsewhere"] or kind not in ELSEWHERE}
    scores = []
    for network in row["networks"]:
        totals = [torch.zeros(len(group), dtype=torch.float64) for group in network[OWN[0]]]
        for kind, weight in counted.items():
            for total, found in zip(totals, network[kind], strict=True):
                total += weight * torch.from_numpy(found).double() ** power
        scores.append([-surprise(-each, -totals[0]) for each in totals[1:]])
    known, unknown = (torch.stack(each).mean(dim=0) for each in zip(*scores, strict=True))
    return 100 * auroc(known, unknown), 100 * fpr_at_tpr(known, unknown)


def job(seed: int, place: int, stage: str) -> dict[str, Any]:
    """Measure one task; networks and combinations are those of one seed."""
    torch.set_num_threads(1)
    logging.getLogger("oddnode").setLevel(logging.ERROR)
    suite, family, make = list(tasks_of(seed))[place]
    task = make()
    row: dict[str, Any] = {"suite": suite, "family": family, "task": task.name, "seed": seed}
    if stage in ("kinds", "weights"):
        return row | {"elsewhere": suite == "graphs", "networks": scores_by_kind(task, seed)}
    row["schedules"] = []
    for schedule in SCHEDULES:
        detector = Detector.from_recipe("nodesafe-evidence", seed=seed, device="cpu", **schedule).fit(task.train)
        result = evaluate(detector, task)
        numbers = {m: result[m] for m in ("auroc", "fpr95", "id_acc")} | {"best_epoch": detector.best_epoch_}
        row["schedules"].append(schedule | numbers)
    return row


# --- choosing --------------------------------------------------------------------------------------------------------


def mean_over_families(rows: list[dict[str, Any]], value: Callable[[Any], Sequence[float]]) -> dict[str, Any]:
    """Means of a pair of numbers: over tasks in a family, over families of a graph, over graphs in a suite."""
    found: dict[str, dict[str, dict[str, list]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        found[row["suite"]][row["family"].partition("/")[0]][row["family"]].append(value(row))
    return {
        suite: np.mean([np.mean([np.mean(v, 0) for v in f.values()], 0) for f in graphs.values()], 0).tolist()
        for suite, graphs in found.items()
    }


def worth(numbers: dict[str, Any]) -> float:
    """One number to choose by: AUROC less a third of FPR95, arrivals counted 3:2 against whole graphs."""
    share = {"arrivals": 0.6, "graphs": 0.4}
    return sum(share[suite] * (pair[0] - pair[1] / 3) for suite, pair in numbers.items())


def measure(rows: list[dict[str, Any]], weights: dict[str, float], power: float = METHOD.power) -> dict[str, Any]:
    """The numbers and the worth of a combination."""
    numbers = mean_over_families(rows, lambda row: combined(row, weights, power))
    return numbers | {"worth": worth(numbers)}


def choose_kinds(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The method's kinds, every one of them left out, every other one added, other powers, and a greedy search."""
    report: dict[str, Any] = {"chosen": measure(rows, WEIGHTS)}
    report |= {f"power {power}": measure(rows, WEIGHTS, power) for power in (1.0, 1.5, 3.0)}
    report |= {f"without {kind}": measure(rows, {k: w for k, w in WEIGHTS.items() if k != kind}) for kind in OWN}
    report |= {f"with {kind}": measure(rows, WEIGHTS | {kind: 1.0}) for kind in map(repr, OTHERS)}
    greedy: dict[str, float] = {}
    best = -np.inf
    while len(greedy) < len(OWN):
        left = [kind for kind in (*OWN, *map(repr, OTHERS)) if kind not in greedy]
        tried = {kind: measure(rows, greedy | {kind: 1.0}) for kind in left}
        kind = max(tried, key=lambda k: tried[k]["worth"])
        if tried[kind]["worth"] <= best:
            break
        best = tried[kind]["worth"]
        greedy[kind] = 1.0
        report[f"greedy {len(greedy)}: {kind}"] = tried[kind]
    return report


def choose_weights(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The method's weights, equal weights, and a search that changes one weight after another while that helps."""
    report = {"chosen": measure(rows, WEIGHTS), "equal": measure(rows, dict.fromkeys(OWN, 1.0))}
    weights, best = dict(WEIGHTS), report["chosen"]["worth"]
    for kind in OWN:
        tried = {value: measure(rows, weights | {kind: value}) for value in TRIED_WEIGHTS if value != weights[kind]}
        value = max(tried, key=lambda each: tried[each]["worth"])
        report |= {f"{each} for {kind}": numbers for each, numbers in tried.items()}
        if tried[value]["worth"] > best + LEAST_GAIN:
            weights[kind], best = value, tried[value]["worth"]
            report[f"changed to {value}: {kind}"] = tried[value]
    return report


def choose_schedule(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of every schedule."""
    report = {}
    for place, schedule in enumerate(SCHEDULES):
        numbers = mean_over_families(rows, partial(_numbers_of, place))
        epochs = [row["schedules"][place]["best_epoch"] for row in rows]
        report[str(schedule)] = numbers | {"worth": worth(numbers), "median epoch": float(np.median(epochs))}
    return report


def _numbers_of(place: int, row: dict[str, Any]) -> list[float]:
    return [row["schedules"][place][metric] for metric in ("auroc", "fpr95")]


CHOOSE = {"kinds": choose_kinds, "weights": choose_weights, "schedule": choose_schedule}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=tuple(CHOOSE), default="kinds")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the name of the families to run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("evidence_selection.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("fork")) as pool:
        places = [
            (seed, place)
            for seed in range(args.seeds)
            for place, (suite, family, _) in enumerate(tasks_of(seed))
            if args.only in f"{suite}/{family}"
        ]
        jobs = [pool.submit(job, *place, args.stage) for place in places]
        for done, finished in enumerate(as_completed(jobs), 1):
            rows.append(finished.result())
            print(f"\r{done}/{len(jobs)}", end="", flush=True)
    print()
    report = CHOOSE[args.stage](rows)
    for name, numbers in report.items():
        shown = {k: [round(x, 1) for x in v] if isinstance(v, list) else round(v, 2) for k, v in numbers.items()}
        print(f"{name[:60]:60}", shown)
    stored = {**provenance(), "seeds": args.seeds, "stage": args.stage, "report": report}
    args.out.write_text(json.dumps(stored, indent=1))


if __name__ == "__main__":
    main()
