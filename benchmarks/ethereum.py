"""Phishing in Ethereum's transfers: what methods find among accounts that arrive in time order.

The network of XBlock's phishing accounts: 86,622 accounts, 445 of them reported for phishing, 445 known as normal, the
rest without a label. A detector is fitted on the accounts seen up to a day and scores those that are first seen later,
in four periods of 90 days, each at its end, on the graph and from the transfers up to then. Features are made from an
account's own transfers; those of accounts in the training graph stay as they were at the fit. Only accounts with at
least five counterparties are ranked.

*Without phishing labels*, the fit knows normal accounts only. *With 50*, the fifty earliest phishing accounts, all seen
before the fit, are known too. An alert is one of the 25 oddest accounts of a period; accounts without a label count as
not phishing, so that the number of phishing accounts per 100 alerts is a lower bound.

    ODDNODE_DATA=... python benchmarks/ethereum.py --seeds 3

Needs ``ethereum/{nodes,edges}.csv.gz`` in the data directory. PyGOD's detectors take part if ``pip install --no-deps
pygod`` has been run.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from common import store
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.neighbors import NearestNeighbors
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.functional import auroc

DAY = 86_400
PERIODS, LENGTH = 4, 90 * DAY
FEWEST, ALERTS, EXPOSED, FEWEST_NORMAL = 5, 25, 50, 20
#: The column of counterparties that sent something, and how many accounts a distance is the mean of.
SENDERS, NEAREST = 5, 10

#: Scores of a graph's accounts, higher = odder, by a method that was fitted on another.
Score = Callable[[Data], np.ndarray]


def seconds_of(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


@dataclass
class Transfers:
    """Accounts are numbered by when they were first seen."""

    source: np.ndarray
    target: np.ndarray
    amount: np.ndarray
    count: np.ndarray
    when: np.ndarray
    phishing: np.ndarray  # [accounts]: 1 reported, 0 normal, -1 without a label
    first: np.ndarray  # [accounts]

    @classmethod
    def read(cls, folder: Path) -> Transfers:
        with gzip.open(folder / "edges.csv.gz", "rt") as file:
            source, target, amount, count, when = np.loadtxt(file, delimiter=",", skiprows=1, unpack=True)
        with gzip.open(folder / "nodes.csv.gz", "rt") as file:
            rows = [line.rstrip("\n").split(",") for line in file][1:]
        ends = np.concatenate([source, target]).astype(np.int64)
        first = np.full(ends.max() + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, ends, np.concatenate([when, when]).astype(np.int64))
        label = np.full(len(first), -1)
        for account, kind, has_label in rows:
            label[int(account)] = int(float(kind)) if has_label == "True" else -1
        order = np.argsort(first, kind="stable")
        order = order[first[order] < np.iinfo(np.int64).max]
        number = np.full(len(first), -1)
        number[order] = np.arange(len(order))
        ends = number[ends]
        half = len(ends) // 2
        return cls(ends[:half], ends[half:], amount, count, when.astype(np.int64), label[order], first[order])

    def graph(self, until: int) -> Data:
        """The accounts and transfers up to a time, with features from these transfers."""
        known, size = self.when <= until, int((self.first <= until).sum())
        source, target, amount, count, when = (
            each[known] for each in (self.source, self.target, self.amount, self.count, self.when)
        )
        columns = []
        for ends in (source, target):
            degree = np.bincount(ends, minlength=size)
            total = np.bincount(ends, amount, minlength=size)
            largest = np.zeros(size)
            np.maximum.at(largest, ends, amount)
            columns += [degree, np.bincount(ends, count, minlength=size), total, largest, total / np.maximum(degree, 1)]
        both, times = np.concatenate([source, target]), np.concatenate([when, when])
        order = np.lexsort((times, both))
        both, times = both[order], times[order]
        gaps = np.diff(times) / DAY
        same = both[1:] == both[:-1]
        longest, degree = np.zeros(size), np.bincount(both, minlength=size)
        np.maximum.at(longest, both[1:][same], gaps[same])
        life = np.bincount(both[1:][same], gaps[same], minlength=size)
        columns += [life, longest, life / np.maximum(degree - 1, 1)]
        share = columns[5] / np.maximum(degree, 1)  # of counterparties that sent something
        x = np.column_stack([np.log1p(np.column_stack(columns)), share])
        edges = torch.from_numpy(np.stack([source, target]))
        return Data(
            x=torch.from_numpy(x).float(), edge_index=torch.cat([edges, edges.flip(0)], dim=1), degree=degree
        )  # fmt: skip


@dataclass
class Periods:
    """What methods are fitted on, and the graphs of the periods with the accounts that are ranked."""

    train: Data  # With `known`, `exposed` and `mature` accounts, as indices
    graphs: list[Data]
    ranked: list[np.ndarray]
    phishing: np.ndarray

    @classmethod
    def after(cls, transfers: Transfers, day: str) -> Periods:
        begin = seconds_of(day)
        train = transfers.graph(begin)
        mean, std = train.x.mean(dim=0), train.x.std(dim=0).clamp_min(1e-6)
        train.x = (train.x - mean) / std
        old = transfers.phishing[: train.num_nodes]
        train.known, train.mature = np.flatnonzero(old == 0), np.flatnonzero(train.degree >= FEWEST)
        train.exposed = np.flatnonzero(old == 1)[:EXPOSED]
        graphs, ranked = [], []
        for end in (begin + LENGTH * (1 + period) for period in range(PERIODS)):
            graph = transfers.graph(end)
            graph.x = torch.cat([train.x, ((graph.x - mean) / std)[train.num_nodes :]])
            arrived = np.arange(graph.num_nodes) >= int((transfers.first <= end - LENGTH).sum())
            graphs.append(graph)
            ranked.append(np.flatnonzero(arrived & (graph.degree >= FEWEST)))
        return cls(train, graphs, ranked, transfers.phishing)


def with_oddnode(periods: Periods, seed: int, exposed: bool) -> Score:
    detector = oddnode_on(periods, seed, exposed)
    return lambda data: -detector.score_samples(Data(x=data.x, edge_index=data.edge_index)).numpy()


def oddnode_on(periods: Periods, seed: int, exposed: bool) -> Detector:
    train, rng = periods.train, np.random.default_rng(seed)
    order = rng.permutation(train.known)
    graph = Data(x=train.x, edge_index=train.edge_index, y=torch.full((train.num_nodes,), -1))
    graph.y[train.known] = 0
    for name, nodes in (("train_mask", order[::2]), ("val_mask", order[1::2])):
        graph[name] = torch.zeros(train.num_nodes, dtype=torch.bool)
        graph[name][nodes] = True
    exposure = None
    if exposed:
        exposure = Data(x=train.x, edge_index=train.edge_index)
        exposure.ood_mask = torch.zeros(train.num_nodes, dtype=torch.bool)
        exposure.ood_mask[train.exposed] = True
    method = "nodesafe-evidence++" if exposed else "nodesafe-evidence"
    return Detector.from_recipe(method, seed=seed, device="cpu").fit(graph, exposure)


def without_labels(periods: Periods, seed: int) -> Score:
    train = Data(x=periods.train.x, edge_index=periods.train.edge_index)
    detector = Detector.from_recipe("evidence-unlabelled", seed=seed, device="cpu").fit(train)
    return lambda data: -detector.score_samples(Data(x=data.x, edge_index=data.edge_index)).numpy()


def with_isolation_forest(periods: Periods, seed: int) -> Score:
    forest = IsolationForest(random_state=seed).fit(periods.train.x[periods.train.mature].numpy())
    return lambda data: -forest.score_samples(data.x.numpy())


def with_senders(periods: Periods, seed: int) -> Score:
    return lambda data: data.x[:, SENDERS].numpy()


def with_distance(periods: Periods, seed: int) -> Score:
    tree = NearestNeighbors(n_neighbors=NEAREST).fit(periods.train.x[periods.train.mature].numpy())
    return lambda data: tree.kneighbors(data.x.numpy())[0].mean(axis=1)


def with_boosting(periods: Periods, seed: int) -> Score:
    train = periods.train
    rows = np.concatenate([train.known, train.exposed])
    y = np.repeat([0, 1], [len(train.known), len(train.exposed)])
    model = HistGradientBoostingClassifier(random_state=seed).fit(train.x[rows].numpy(), y)
    return lambda data: model.predict_proba(data.x.numpy())[:, 1]


def pygod_detector(name: str, seed: int) -> Any:
    """A detector of PyGOD, to be fitted on a graph as a whole: sampling neighbours would need another package."""
    base = importlib.import_module("pygod.detector.base")
    base.NeighborLoader = lambda data, *_, **__: [  # type: ignore[attr-defined]
        Data(**data.to_dict(), batch_size=data.num_nodes, n_id=torch.arange(data.num_nodes))
    ]
    torch.manual_seed(seed)
    return getattr(importlib.import_module("pygod.detector"), name)(gpu=-1, verbose=0)


def with_pygod(name: str, periods: Periods, seed: int) -> Score:
    detector = pygod_detector(name, seed)
    detector.fit(Data(x=periods.train.x, edge_index=periods.train.edge_index))
    return lambda data: detector.decision_function(Data(x=data.x, edge_index=data.edge_index)).numpy()


def methods(phishing_labels: bool) -> Iterator[tuple[str, Callable[[Periods, int], Score]]]:
    yield "oddnode", partial(with_oddnode, exposed=phishing_labels)
    if phishing_labels:
        yield "gradient boosting", with_boosting
        return
    yield "oddnode without labels", without_labels
    yield "isolation forest", with_isolation_forest
    yield "distance to ten accounts", with_distance
    yield "number of senders", with_senders
    try:
        importlib.import_module("pygod.detector")
    except ImportError as error:
        print(f"PyGOD is left out: {error}")
        return
    for name in ("OCGNN", "GAE"):
        yield f"PyGOD {name}", partial(with_pygod, name)


def measured(periods: Periods, score: Score) -> dict[str, float]:
    """Phishing accounts among 100 alerts, and AUROC against all others and, if there are enough, normal accounts."""
    caught, kinds, scores = 0, [], []
    for graph, ranked in zip(periods.graphs, periods.ranked, strict=True):
        own, kind = score(graph)[ranked], periods.phishing[ranked]
        caught += int((kind[np.argsort(-own, kind="stable")[:ALERTS]] == 1).sum())
        kinds.append(kind)
        scores.append(-own)
    kind, values = np.concatenate(kinds), np.concatenate(scores)
    found = {"per_100_alerts": float(caught), "auroc": 100 * auroc(values[kind != 1], values[kind == 1])}
    if (kind == 0).sum() >= FEWEST_NORMAL:
        found["auroc_normal"] = 100 * auroc(values[kind == 0], values[kind == 1])
    return found


def kinds_of(periods: Periods, seed: int = 0) -> dict[str, dict[str, float]]:
    """What each kind of evidence finds by itself, for a fit that knows normal accounts."""
    detector = oddnode_on(periods, seed, exposed=False)

    def score(data: Data, kind: int) -> np.ndarray:
        outputs = detector.outputs(Data(x=data.x, edge_index=data.edge_index))
        return (
            torch.stack([each.surprises for each in detector.scorer_.comparisons(outputs)]).mean(dim=0)[:, kind].numpy()
        )

    kinds = enumerate(detector.scorer_.kinds)
    return {name: measured(periods, partial(score, kind=kind)) for kind, name in kinds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", action="store_true", help="print what each kind of evidence finds, and stop")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    transfers = Transfers.read(Path(os.environ["ODDNODE_DATA"]) / "ethereum")
    rows = []
    if options.kinds:
        for kind, numbers in kinds_of(Periods.after(transfers, "2017-06-15")).items():
            print(kind, {metric: round(value, 1) for metric, value in numbers.items()})
        return
    for day, with_labels in (("2017-06-15", False), ("2017-09-13", False), ("2017-09-13", True)):
        periods = Periods.after(transfers, day)
        kinds = np.concatenate([periods.phishing[ranked] for ranked in periods.ranked])
        facts = {"fit": day, "phishing_labels": EXPOSED if with_labels else 0, "arrivals": len(kinds)}
        facts |= {"phishing": int((kinds == 1).sum()), "normal": int((kinds == 0).sum())}
        for name, build in methods(with_labels):
            began, found = time.perf_counter(), [measured(periods, build(periods, s)) for s in range(options.seeds)]
            row = facts | {"method": name, "seconds": round((time.perf_counter() - began) / options.seeds, 1)}
            for metric in found[0]:
                values = [each[metric] for each in found]
                row[metric] = round(fmean(values), 1)
                row[f"{metric}_std"] = round(stdev(values), 1) if len(values) > 1 else 0.0
            rows.append(row)
            print(row, flush=True)
    print(store("ethereum", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
