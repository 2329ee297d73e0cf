"""False alarms by tables with many labels: Cora's papers and words as tables, 40 % of the old papers labelled.

Papers arrive as in ``cora/arrivals/structure-scattered`` with seeds from 100, which no reported table has; only known
arrivals are counted. The split of the labelled rows is that of ``oddnode fit``: 40, 20 and 40 %.

    ODDNODE_DATA=... python benchmarks/many_labels.py --seeds 6
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from common import store

from oddnode import load_task
from oddnode.tables import TableModel


def false_alarms(seed: int, share: float) -> dict[str, Any]:
    """Percent of the known arrivals that are flagged, alone and with the batch."""
    task = load_task("cora/arrivals/structure-scattered", seed=seed)
    old, data = task.train.num_nodes, task.id_test.data
    is_labelled = np.zeros(data.num_nodes, dtype=bool)
    is_labelled[np.random.default_rng(seed).permutation(old)[: round(share * old)]] = True
    labels = [f"t{label}" if known else None for label, known in zip(data.y.tolist(), is_labelled, strict=True)]
    words = (data.x > 0).int().numpy()
    columns = {f"w{number}": words[:, number] for number in range(words.shape[1])}
    nodes = pa.table({"id": [f"p{node}" for node in range(data.num_nodes)], "topic": labels, **columns})
    pairs = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    edges = pa.table({name: [f"p{node}" for node in row] for name, row in zip("ab", pairs.tolist(), strict=True)})
    inside = pa.array((pairs < old).all(dim=0).numpy())
    settings: dict[str, Any] = {"id_column": "id", "label_column": "topic", "seed": seed, "device": "cpu"}
    model, report = TableModel.fit(nodes.slice(0, old), edges.filter(inside), **settings)
    row: dict[str, Any] = {"seed": seed, "calibration": report.num_calibration}
    for name, batch in (("alone", False), ("batch", True)):
        flagged = model.score_frame(nodes, edges, batch=batch)["is_ood"].to_numpy(zero_copy_only=False)
        row[name] = 100 * float(flagged[task.id_test.mask.numpy()].mean())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--labelled", type=float, default=0.4, help="share of the old papers")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    rows = [false_alarms(100 + seed, options.labelled) for seed in range(options.seeds)]
    for name in ("alone", "batch"):
        values = [row[name] for row in rows]
        print(name, f"{fmean(values):.1f} ± {stdev(values):.1f}", [round(value, 1) for value in values])
    print(store("many_labels", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
