"""How far the share of false alarms on arrivals is from the rate asked for, over many random graphs.

    OMP_NUM_THREADS=1 python benchmarks/false_alarm_spread.py --graphs 500 --jobs 2 --rows build/spread.jsonl

With ``--rows`` each graph is written as a line as soon as it is judged, and a later call goes on after the last one.

Each graph is a degree-corrected block model with settings of its own: 300 to 3,000 nodes, 2 to 6 classes, a mean
degree of 1.5 to 30, 10 to 95 % of edges within a class, 5 to 90 % labelled nodes (40 % of these to train, the rest to
validate), weights in half of them, heavy-tailed degrees in half, 4 to 64 features of separation 0.3 to 2. 30 % of the
nodes, all of known classes, arrive after training; those that are flagged are false alarms.

With n reference nodes the threshold is the k-th lowest of their scores, k = floor(rate (n + 1)). For exchangeable nodes
the probability of a false alarm is then Beta(k, n + 1 - k) over graphs, and the number among m arrivals beta-binomial.
The table has, for each number of reference nodes, the mean, the observed 95th percentile, the 95 % quantile of the
Beta distribution, and the share of graphs above their own 95 % quantile of the beta-binomial distribution: at most 5 %
if the number of reference nodes alone decides.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import store
from scipy.stats import beta, betabinom
from torch_geometric.data import Data

from oddnode import Detector

BINS = (19, 50, 100, 200, 400, 10**9)


def settings_of(seed: int) -> dict[str, Any]:
    """Draw the settings of a graph."""
    rng = np.random.default_rng([seed, 0])
    return {
        "nodes": int(np.exp(rng.uniform(np.log(300), np.log(3000)))),
        "classes": int(rng.integers(2, 7)),
        "degree": float(np.exp(rng.uniform(np.log(1.5), np.log(30)))),
        "within": float(rng.uniform(0.1, 0.95)),
        "labelled": float(rng.uniform(0.05, 0.9)),
        "weighted": bool(rng.integers(2)),
        "heavy_tail": bool(rng.integers(2)),
        "features": int(np.exp(rng.uniform(np.log(4), np.log(64)))),
        "separation": float(rng.uniform(0.3, 2.0)),
    }


def graph_of(settings: dict[str, Any], seed: int) -> Data:
    """Make the whole graph, in which ``is_arrival`` marks the nodes that come later."""
    rng = np.random.default_rng([seed, 1])
    num_nodes, num_classes = settings["nodes"], settings["classes"]
    y = rng.integers(num_classes, size=num_nodes)
    means = rng.standard_normal((num_classes, settings["features"]))
    means *= settings["separation"] / np.linalg.norm(means, axis=1, keepdims=True)
    x = means[y] + rng.standard_normal((num_nodes, settings["features"]))
    weight = rng.pareto(1.5, num_nodes) + 1 if settings["heavy_tail"] else np.ones(num_nodes)
    count = round(num_nodes * settings["degree"] / 2)
    source = rng.choice(num_nodes, count, p=weight / weight.sum())
    target = np.empty(count, dtype=np.int64)
    is_within = rng.random(count) < settings["within"]
    for label in range(num_classes):
        for inside in (True, False):
            edges, nodes = (y[source] == label) & (is_within == inside), np.flatnonzero((y == label) == inside)
            if len(nodes):
                target[edges] = rng.choice(nodes, int(edges.sum()), p=weight[nodes] / weight[nodes].sum())
            else:
                target[edges] = source[edges]
    edge_index = torch.from_numpy(np.stack([np.r_[source, target], np.r_[target, source]]))
    is_arrival = rng.random(num_nodes) < 0.3
    is_labelled = ~is_arrival & (rng.random(num_nodes) < settings["labelled"])
    is_train = is_labelled & (rng.random(num_nodes) < 0.4)
    for label in range(num_classes):  # each class can be learnt and checked
        own = np.flatnonzero(~is_arrival & (y == label))[:2]
        is_labelled[own], is_train[own[:1]], is_train[own[1:]] = True, True, False
    data = Data(x=torch.from_numpy(x).float(), edge_index=edge_index, y=torch.from_numpy(y))
    data.train_mask, data.val_mask = (torch.from_numpy(mask) for mask in (is_train, is_labelled & ~is_train))
    data.is_arrival = torch.from_numpy(is_arrival)
    if settings["weighted"]:
        data.edge_weight = torch.from_numpy(np.tile(rng.exponential(size=count) + 0.1, 2)).float()
    return data


def without_arrivals(data: Data) -> Data:
    """The graph at the time of training; its nodes come first in `in_order`."""
    keep = ~data.is_arrival
    inside = keep[data.edge_index].all(dim=0)
    index = torch.cumsum(keep, 0) - 1
    masks = {name: data[name][keep] for name in ("train_mask", "val_mask", "y", "x")}
    known = Data(edge_index=index[data.edge_index[:, inside]], **masks)
    if data.edge_weight is not None:
        known.edge_weight = data.edge_weight[inside]
    return known


def in_order(data: Data) -> Data:
    """The whole graph, the nodes of training first and in the same order."""
    order = torch.cat([(~data.is_arrival).nonzero().squeeze(1), data.is_arrival.nonzero().squeeze(1)])
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return Data(x=data.x[order], edge_index=place[data.edge_index], edge_weight=data.edge_weight)


def one(task: tuple[int, float, str, int]) -> dict[str, Any]:
    """Fit on one graph, and count the arrivals that are flagged."""
    seed, rate, method, epochs = task
    logging.getLogger("oddnode").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    settings = settings_of(seed)
    data = graph_of(settings, seed)
    row = {"seed": seed, **settings, "arrivals": int(data.is_arrival.sum())}
    try:
        detector = Detector.from_recipe(method, epochs=epochs, seed=seed, device="cpu").fit(without_arrivals(data))
        calibration = detector.calibration_
        if calibration is None:
            return row | {"references": 0}
        row["references"] = len(calibration.scores)
        flags = detector.set_false_alarm_rate(rate).detect(in_order(data))
    except ValueError as error:  # too few reference nodes, among others
        return row | {"references": row.get("references", 0), "refused": str(error)[:200]}
    return row | {"flagged": int(flags[-row["arrivals"] :].sum())}


def tail(rows: Sequence[dict[str, Any]], rate: float) -> dict[str, Any]:
    """Mean and tail of some graphs, against what their numbers of reference nodes allow."""
    shares = np.array([row["flagged"] / row["arrivals"] for row in rows])
    above, allowed = [], []
    for row in rows:
        count, rank = row["references"], math.floor(rate * (row["references"] + 1) + 1e-9)
        above.append(row["flagged"] > betabinom.ppf(0.95, row["arrivals"], rank, count + 1 - rank))
        allowed.append(beta.ppf(0.95, rank, count + 1 - rank))
    return {
        "graphs": len(rows),
        "references": int(np.median([row["references"] for row in rows])),
        "mean": round(float(shares.mean()), 4),
        "error": round(float(shares.std() / math.sqrt(len(shares))), 4),
        "percentile_95": round(float(np.quantile(shares, 0.95)), 4),
        "beta_95": round(float(np.median(allowed)), 4),
        "above_own_95": round(float(np.mean(above)), 4),
        "largest": round(float(shares.max()), 4),
    }


def groups_of(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups = {"all": rows}
    for low, high in pairwise(BINS):
        name = f"{low} to {high - 1} reference nodes" if high < BINS[-1] else f"{low} reference nodes or more"
        groups[name] = [row for row in rows if low <= row["references"] < high]
    groups |= {
        "with hubs": [row for row in rows if row["heavy_tail"]],
        "without hubs": [row for row in rows if not row["heavy_tail"]],
        "up to 700 nodes": [row for row in rows if row["nodes"] <= 700],
        "more than 700 nodes": [row for row in rows if row["nodes"] > 700],
    }
    return {name: own for name, own in groups.items() if own}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first graph")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--method", default="nodesafe-evidence")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=Path, help="a file of JSON lines, which an interrupted run goes on with")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.graphs)
    rows = [json.loads(line) for line in options.rows.open()] if options.rows and options.rows.exists() else []
    done = {row["seed"] for row in rows}
    tasks = [(seed, options.rate, options.method, options.epochs) for seed in seeds if seed not in done]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("forkserver")) as pool:
        for row in pool.map(one, tasks):
            rows.append(row)
            if options.rows:
                with options.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    judged = [row for row in rows if "flagged" in row]
    print(f"{len(rows) - len(judged)} of {len(rows)} graphs have too few reference nodes for a threshold\n")
    print("| graphs | number | reference nodes | mean | 95 % below | Beta 95 % | above their own 95 % | largest |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    summary = {name: tail(own, options.rate) for name, own in groups_of(judged).items()}
    for name, row in summary.items():
        numbers = [f"{row['graphs']}", f"{row['references']}", f"{row['mean']:.1%} ± {row['error']:.1%}"]
        numbers += [f"{row[key]:.1%}" for key in ("percentile_95", "beta_95", "above_own_95", "largest")]
        print(f"| {name} | {' | '.join(numbers)} |")
    print(store("false_alarm_spread", "cpu", [{"rate": options.rate, "summary": summary, "graphs": rows}], options.out))


if __name__ == "__main__":
    main()
