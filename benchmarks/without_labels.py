"""Detection without labels: `evidence-unlabelled` against PyGOD's detectors and an isolation forest.

*Seen*: PyGOD's Cora with injected outliers, all of which were there at the fit; every method ranks the nodes it was
fitted on. *Arrivals*: the reported tasks of Cora and CiteSeer, fitted on the training graph without its labels; nodes
arrive later, some of them unknown. What a task tests is left out of the rehearsal. No setting was chosen on either.

    ODDNODE_DATA=... python benchmarks/without_labels.py --seeds 3

Needs ``graphs/injected-cora.npz`` in the data directory. PyGOD's detectors take part if ``pip install --no-deps pygod``
has been run.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import scipy.sparse
import torch
from common import store
from ethereum import pygod_detector
from sklearn.ensemble import IsolationForest
from torch import Tensor
from torch_geometric.data import Data

from oddnode import Detector, load_task
from oddnode.functional import auroc, fpr_at_tpr

#: Scores of a graph's nodes, higher = better known, and which nodes are flagged at 5 % if the method can say.
Score = Callable[[Data], tuple[Tensor, Tensor | None]]


def with_oddnode(train: Data, seed: int, left_out: tuple[str, ...], batch: bool = True) -> Score:
    detector = Detector.from_recipe("evidence-unlabelled", seed=seed, device="cpu")
    detector._adapt_scorer(lambda scorer: scorer.rehearsing_without(left_out))
    detector.fit(train)

    def score(data: Data) -> tuple[Tensor, Tensor]:
        outputs = detector.outputs(data, batch)
        return detector.score_samples(outputs), detector.detect(outputs)

    return score


def with_isolation_forest(train: Data, seed: int, left_out: tuple[str, ...]) -> Score:
    forest = IsolationForest(random_state=seed).fit(train.x.numpy())
    return lambda data: (torch.from_numpy(forest.score_samples(data.x.numpy())), None)


def with_pygod(name: str, train: Data, seed: int, left_out: tuple[str, ...]) -> Score:
    detector = pygod_detector(name, seed)
    detector.fit(train.clone())
    return lambda data: (-detector.decision_function(Data(x=data.x, edge_index=data.edge_index)), None)


def methods(seen: bool) -> Iterator[tuple[str, Callable[[Data, int, tuple[str, ...]], Score]]]:
    if seen:
        yield "oddnode", with_oddnode
    else:
        yield "oddnode, alone", partial(with_oddnode, batch=False)
        yield "oddnode, with the batch", with_oddnode
    yield "isolation forest", with_isolation_forest
    try:
        pygod_detector("GAE", 0)
    except ImportError as error:
        print(f"PyGOD is left out: {error}")
        return
    for name in ("OCGNN", "GAE", "DOMINANT") if seen else ("OCGNN", "GAE"):
        yield f"PyGOD {name}", partial(with_pygod, name)


def injected_cora(folder: Path) -> tuple[Data, Tensor]:
    """The graph without labels, and the kind of outlier: 0 none, 1 contextual, 2 structural, 3 both."""
    with np.load(folder / "graphs" / "injected-cora.npz") as arrays:
        parts = arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]
        x = scipy.sparse.csr_matrix(parts, shape=tuple(arrays["x_shape"])).toarray()
        edges = torch.from_numpy(arrays["edge_index"]).long()
        return Data(x=torch.from_numpy(x).float(), edge_index=edges), torch.from_numpy(arrays["y"])


def compared(known: Tensor, odd: Tensor) -> dict[str, float]:
    return {"auroc": 100 * auroc(known, odd), "fpr95": 100 * fpr_at_tpr(known, odd)}


def seen_nodes(score: Score, graph: Data, kind: Tensor) -> dict[str, float]:
    scores, flagged = score(graph)
    found = compared(scores[kind == 0], scores[kind > 0])
    found |= {f"auroc_{name}": 100 * auroc(scores[kind == 0], scores[(kind & bit) > 0]) for name, bit in BITS.items()}
    return found if flagged is None else found | rates(flagged, kind == 0, kind > 0)


BITS = {"contextual": 1, "structural": 2}


def rates(flagged: Tensor, known: Tensor, odd: Tensor) -> dict[str, float]:
    return {
        name: 100 * float(flagged[mask].double().mean()) for name, mask in (("caught", odd), ("false_alarms", known))
    }


def arrivals(score: Score, graph: Data, known: Tensor) -> dict[str, float]:
    scores, flagged = score(Data(x=graph.x, edge_index=graph.edge_index))
    found = compared(scores[known], scores[graph.ood_mask])
    return found if flagged is None else found | rates(flagged, known, graph.ood_mask)


def summary(found: list[dict[str, float]]) -> dict[str, float]:
    """Mean and standard deviation of every number."""
    result: dict[str, float] = {}
    for name in found[0]:
        values = [each[name] for each in found]
        result |= {name: round(fmean(values), 1), f"{name}_std": round(stdev(values), 1) if len(values) > 1 else 0.0}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    rows = []
    graph, kind = injected_cora(Path(os.environ["ODDNODE_DATA"]))
    for name, build in methods(seen=True):
        began = time.perf_counter()
        found = [seen_nodes(build(graph, seed, ()), graph, kind) for seed in range(options.seeds)]
        seconds = round((time.perf_counter() - began) / options.seeds, 1)
        rows.append({"data": "injected Cora, seen", "method": name, "seconds": seconds} | summary(found))
        print(rows[-1], flush=True)
    for data in ("cora", "citeseer"):
        for name, build in methods(seen=False):
            by_seed = []
            for seed in range(options.seeds):
                cells = []
                for shift in ("label", "structure", "feature"):
                    for placement in ("scattered", "grouped"):
                        task = load_task(f"{data}/arrivals/{shift}-{placement}", seed=seed)
                        train = Data(x=task.train.x, edge_index=task.train.edge_index)
                        [test] = task.tests.values()
                        cells.append(arrivals(build(train, seed, task.not_rehearsed), test, task.id_test.mask))
                by_seed.append({key: fmean(cell[key] for cell in cells) for key in cells[0]})
            rows.append({"data": f"{data}, arrivals", "method": name} | summary(by_seed))
            print(rows[-1], flush=True)
    print(store("without_labels", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
