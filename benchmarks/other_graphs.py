"""False alarms in a graph that does not contain the known nodes: one half of a graph is known, the other is scored.

    python benchmarks/other_graphs.py

Halves are drawn at random, which changes degrees, or are *regions*: one is what a breadth-first walk from an end of a
random edge reaches first, so that classes have other shares in the other half. All nodes that are scored are of known
classes, so that all flags are false alarms; 5 % are asked. They are scored *alone*, as a graph of their own; *beside*
the known half, as one graph of two components, with and without the evidence of the batch; and alone after `calibrate`
on 100 of them, drawn at random, which do not count. The graphs are digits and thinned digits, the random graphs of
``evidence_selection.py``, Cora, CiteSeer and PubMed.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from common import store
from evidence_selection import citation_graph, social_graph
from scipy.sparse.csgraph import breadth_first_order
from selection import thinned_digits
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

from oddnode import Detector
from oddnode.tasks import digits_graph, induced

_LABELLED, _CHECKED = 100, 100


def graphs(seed: int) -> dict[str, Callable[[], Data]]:
    """Makers of graphs, all of whose nodes are known."""
    citations = {name: partial(citation_graph, name) for name in ("cora", "citeseer", "pubmed")}
    digits = {"digits": partial(digits_graph, seed), "thinned digits": partial(thinned_digits, seed)}
    return {**digits, "campus": partial(social_graph, seed), "chain": partial(social_graph, seed, True), **citations}


def halves(data: Data, are_regions: bool, seed: int) -> tuple[Data, Data]:
    """Two graphs of about half of the nodes each, without the edges between them."""
    generator, count = torch.Generator().manual_seed(seed), data.num_nodes
    data = Data(x=data.x, edge_index=data.edge_index, y=data.y)  # without masks
    order = torch.randperm(count, generator=generator)
    if are_regions:
        edges = to_scipy_sparse_matrix(data.edge_index, num_nodes=count).tocsr()
        start = data.edge_index[0, torch.randint(data.num_edges, (1,), generator=generator)]
        found = torch.from_numpy(breadth_first_order(edges, int(start), False, False)).long()
        order = torch.cat([found, order[~torch.isin(order, found)]])
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[order[: count // 2]] = True
    return induced(data, chosen), induced(data, ~chosen)


def some(count: int, size: int, seed: int) -> Tensor:
    """A random mask."""
    mask = torch.zeros(count, dtype=torch.bool)
    mask[torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:size]] = True
    return mask


def beside(known: Data, other: Data) -> Data:
    """One graph of both, the known nodes first."""
    edges = torch.cat([known.edge_index, other.edge_index + known.num_nodes], dim=1)
    return Data(x=torch.cat([known.x, other.x]), edge_index=edges)


def job(name: str, are_regions: bool, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    known, other = halves(graphs(seed)[name](), are_regions, seed)
    size = max(_LABELLED, known.num_nodes // 10)
    known.train_mask = some(known.num_nodes, size, seed + 1)
    known.val_mask = some(known.num_nodes, 2 * size, seed + 1) & ~known.train_mask
    classes = known.y[known.train_mask].unique()  # a region may lack some
    is_known, number = torch.isin(known.y, classes), torch.searchsorted(classes, known.y)
    known.y = torch.where(is_known, number, -1)
    known.val_mask &= is_known
    other = induced(other, torch.isin(other.y, classes))
    other.y = torch.searchsorted(classes, other.y)
    detector = Detector.from_recipe("nodesafe-evidence", seed=seed, device="cpu").fit(known)
    both = beside(known, other)

    def share(flags: Tensor) -> float:
        return round(100 * float(flags.double().mean()), 1)

    row: dict[str, Any] = {"graph": name, "halves": "regions" if are_regions else "random", "seed": seed}
    row["alone"] = share(detector.detect(other))
    row["beside"] = share(detector.detect(both)[known.num_nodes :])
    row["beside, no batch"] = share(detector.detect(detector.outputs(both, batch=False))[known.num_nodes :])
    checked = some(other.num_nodes, _CHECKED, seed + 3)
    row["calibrated"] = share(detector.calibrate(other, mask=checked).detect(other)[~checked])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    cells = [(name, regions, seed) for name in graphs(0) for regions in (False, True) for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
        rows = []
        for row in pool.map(job, *zip(*cells, strict=True)):
            rows.append(row)
            print(row, flush=True)
    print(store("other_graphs", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
