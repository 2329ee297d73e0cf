"""How often `oddnode watch` raises an alarm on graphs in which nothing changes but their size.

    OMP_NUM_THREADS=1 ODDNODE_DATA=... python benchmarks/watch_false_alarms.py --cache build/watch --jobs 2

Each graph is fitted without the nodes that arrive later: 30 % of a block model (`false_alarm_spread.py`, at most 1,500
nodes), half of a real graph, drawn at random. These then arrive in one of two orders: *random*, or *together*, in which
neighbours follow each other (breadth-first searches of up to 50 nodes from random ones). Their scores are those of

- the *whole* graph, each node a window of its own: only the order differs between replays; or
- the *grown* graph, with eight windows, each scored in the graph as it was at its end, in a random order inside.

The table has the share of replays in which an alarm is ever raised at a chance of 1 % and of 5 %, with links between
arrivals taken into account as `Watch` does, and without. With ``--cache``, the scores of a graph are kept in a file and
not computed again.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from common import store
from false_alarm_spread import graph_of, in_order, settings_of, without_arrivals
from torch_geometric.data import Data

from oddnode import Detector, load_task
from oddnode.functional import share_interval
from oddnode.tasks.planetoid import planetoid_graph
from oddnode.watch.martingale import Martingale, levels_of

WINDOWS, TOGETHER, LARGEST = 8, 50, 1500
CHANCES = (0.01, 0.05)
#: Seeds of each real graph, and in how many orders the graph grows for each.
GRAPHS = {"cora": (8, 2), "citeseer": (8, 2), "digits": (8, 2), "pubmed": (3, 1), "campus": (3, 1), "films": (3, 1)}
CITATIONS = ("cora", "citeseer", "pubmed")


def real_graph(name: str, seed: int) -> Data:
    """A graph with its masks, in which half of the nodes arrive later."""
    root = Path(os.environ.get("ODDNODE_DATA", "."))
    if name in CITATIONS or name == "digits":
        data = planetoid_graph(name, root) if name in CITATIONS else load_task("digits/label", seed=0).train
        x, edges, y = data.x.numpy(), data.edge_index.numpy(), data.y.numpy()
    else:
        arrays = np.load(root / "graphs" / f"{name}.npz", allow_pickle=False)
        x = sp.csr_matrix(tuple(arrays[f"x_{part}"] for part in ("data", "indices", "indptr")), arrays["x_shape"])
        x, edges, y = x.toarray().astype(np.float32), arrays["edge_index"], arrays["y"]
    rng, count = np.random.default_rng([seed, 7]), len(y)
    is_arrival = rng.random(count) < 0.5
    is_labelled = ~is_arrival & (y >= 0) & (rng.random(count) < (0.6 if count < 5000 else 0.2))
    is_train = is_labelled & (rng.random(count) < 0.4)
    for label in np.unique(y[y >= 0]):
        own = np.flatnonzero(~is_arrival & (y == label))[:2]
        is_labelled[own], is_train[own[:1]], is_train[own[1:]] = True, True, False
    made = Data(x=torch.from_numpy(x).float(), edge_index=torch.from_numpy(edges).long())
    made.y = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    made.train_mask, made.val_mask = torch.from_numpy(is_train), torch.from_numpy(is_labelled & ~is_train)
    made.is_arrival = torch.from_numpy(is_arrival)
    return made


def together(edges: np.ndarray, is_new: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The arrivals in an order in which neighbours follow each other."""
    links = sp.csr_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), (len(is_new), len(is_new)))
    seen, order = np.zeros(len(is_new), dtype=bool), list[int]()
    for start in rng.permutation(np.flatnonzero(is_new)):
        queue, count = ([] if seen[start] else [start]), 0
        seen[start] = True
        while queue and count < TOGETHER:
            node = queue.pop(0)
            order.append(node)
            count += 1
            for other in rng.permutation(links.indices[links.indptr[node] : links.indptr[node + 1]]):
                if is_new[other] and not seen[other]:
                    seen[other] = True
                    queue.append(other)
        seen[queue] = False
    return np.array(order)


def part_of(data: Data, keep: torch.Tensor) -> Data:
    inside, place = keep[data.edge_index].all(dim=0), torch.cumsum(keep, 0) - 1
    part = Data(x=data.x[keep], edge_index=place[data.edge_index[:, inside]])
    if data.edge_weight is not None:
        part.edge_weight = data.edge_weight[inside]
    return part


def scores_of(name: str, seed: int, orders: int) -> dict[str, np.ndarray]:
    """Scores of the calibration nodes and of arrivals; none if there are too few calibration nodes."""
    settings = settings_of(seed)
    data = graph_of(settings | {"nodes": min(settings["nodes"], LARGEST)}, seed) if name == "block" else None
    data = real_graph(name, seed) if data is None else data
    try:
        detector = Detector.from_recipe("nodesafe-evidence", epochs=40, seed=seed, device="cpu")
        calibration = detector.fit(without_arrivals(data)).calibration_
    except ValueError:
        return {}
    if calibration is None:
        return {}
    graph, num_old = in_order(data), int((~data.is_arrival).sum())
    is_new, edges = np.arange(graph.num_nodes) >= num_old, graph.edge_index.numpy()
    whole = detector.score_samples(detector.outputs(graph, False)).numpy()
    found = {
        "cal": calibration.scores.numpy(),
        "full": whole[num_old:],
        "edge": edges[:, is_new[edges].all(0)] - num_old,
    }
    rng = np.random.default_rng([seed, 3])
    for kind in ("random", "clustered"):
        for number in range(orders):
            first = rng.permutation(np.flatnonzero(is_new)) if kind == "random" else together(edges, is_new, rng)
            keep, scores, parts = torch.from_numpy(~is_new), [], np.array_split(first, WINDOWS)
            for part in parts:
                keep[torch.from_numpy(part)] = True
                place = (torch.cumsum(keep, 0) - 1)[torch.from_numpy(part)]
                scores.append(detector.score_samples(detector.outputs(part_of(graph, keep), False)).numpy()[place])
            windows = np.repeat(np.arange(WINDOWS), [len(part) for part in parts])
            found |= {f"grow_{kind}_{number}": np.concatenate(scores), f"win_{kind}_{number}": windows}
            found |= {f"order_{kind}_{number}": first - num_old}
    return found


def highest(scores: np.ndarray, known: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> float:
    """The highest logarithm of the capital."""
    bet = Martingale([0] * (len(known) + 1))
    rows = zip(levels_of(scores, known, rng).tolist(), rng.random(len(scores)).tolist(), weights.tolist(), strict=True)
    return max(bet.update(*row) for row in rows)


def links_so_far(order: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """After each arrival, how many links there are between arrivals so far, per arrival."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    later = place[np.unique(np.sort(edges[:, edges[0] != edges[1]], axis=0), axis=1)].max(axis=0)
    return np.cumsum(np.bincount(later, minlength=len(order))) / np.arange(1, len(order) + 1)


def replays(found: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """The highest capital of each replay."""
    rng, known, edges = np.random.default_rng(0), found["cal"].astype(np.float64), found["edge"]
    whole, rows = found["full"].astype(np.float64), []
    is_new = np.ones(len(whole), dtype=bool)
    for _ in range(2 if len(whole) < 2000 else 1):
        for kind, order in (("random", rng.permutation(len(whole))), ("clustered", together(edges, is_new, rng))):
            rows.append(("whole", kind, whole[order], links_so_far(order, edges)))
    for name in found:
        if name.startswith("grow_"):
            windows, order = found[name.replace("grow", "win")], found[name.replace("grow", "order")]
            chosen = np.lexsort((rng.random(len(windows)), windows))
            end = np.searchsorted(windows[chosen], windows[chosen], "right") - 1
            links = links_so_far(order[chosen], edges)[end]
            rows.append(("grown", name.split("_")[1], found[name].astype(np.float64)[chosen], links))
    return [
        {
            "graph": graph,
            "order": "together" if kind == "clustered" else kind,
            "links_count": counted,
            "highest": round(highest(scores, known, 1 / (1 + 2 * links * counted), rng), 3),
        }
        for graph, kind, scores, links in rows
        for counted in (True, False)
    ]


def one(task: tuple[str, int, int, Path | None]) -> list[dict[str, Any]]:
    name, seed, orders, cache = task
    logging.getLogger("oddnode").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    path = None if cache is None else cache / f"{name}-{seed}.npz"
    if path is not None and path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            found = dict(arrays)
    else:
        found = scores_of(name, seed, orders)
        if path is not None and found:
            np.savez_compressed(path, **found)  # type: ignore[arg-type]
    return [{"data": name, "seed": seed, **row} for row in replays(found)] if found else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=180, help="number of block models")
    parser.add_argument("--cache", type=Path, help="a folder for scores")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    if options.cache is not None:
        options.cache.mkdir(parents=True, exist_ok=True)
    tasks = [(name, seed, orders, options.cache) for name, (seeds, orders) in GRAPHS.items() for seed in range(seeds)]
    tasks += [("block", seed, 2 if seed < 100 else 1, options.cache) for seed in range(options.blocks)]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("forkserver")) as pool:
        rows = [row for own in pool.map(one, tasks) for row in own]
    summary = []
    for is_block in (False, True):
        for graph, order in (("whole", "random"), ("whole", "together"), ("grown", "random"), ("grown", "together")):
            for counted in (True, False):
                same = graph, order, counted
                own = [
                    row["highest"]
                    for row in rows
                    if (row["graph"], row["order"], row["links_count"]) == same and (row["data"] == "block") == is_block
                ]
                line: dict[str, Any] = {"data": "block models" if is_block else "real graphs", "graph": graph}
                line |= {"order": order, "links_count": counted, "replays": len(own)}
                for chance in CHANCES:
                    raised = sum(each >= -math.log(chance) for each in own)
                    line[f"{chance:.0%}"] = [raised, *(round(end, 4) for end in share_interval(raised, len(own)))]
                summary.append(line)
                print(line, flush=True)
    print(store("watch-false-alarms", "cpu", summary, options.out))


if __name__ == "__main__":
    main()
