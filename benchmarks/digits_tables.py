"""The two commands on the digits written out as CSV: detection, false alarms and time.

String ids, four digits never labelled, 30 % of the other labels given; 5 seeds. Prints one line per rate. A node is
flagged at a rate where its p-value is at most that rate, so one fit serves all rates.

    python benchmarks/digits_tables.py --seeds 5
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from common import provenance

from oddnode.functional import auroc
from oddnode.tasks import digits_graph

RATES = (0.01, 0.05, 0.1)


def write_tables(folder: Path, seed: int, unknown: tuple[int, ...], share: float = 0.3) -> tuple[np.ndarray, ...]:
    """Write ``nodes.csv`` and ``edges.csv``; returns which nodes are labelled and which are of unknown digits."""
    graph = digits_graph()
    y = graph.y.numpy()
    rng = np.random.default_rng(seed)
    is_unknown = np.isin(y, unknown)
    labelled = np.zeros(len(y), dtype=bool)
    known = np.flatnonzero(~is_unknown)
    labelled[rng.choice(known, round(share * len(known)), replace=False)] = True
    with (folder / "nodes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "digit", *(f"pixel_{i}" for i in range(64))])
        for i, pixels in enumerate((graph.x * 16).int().tolist()):
            writer.writerow([f"img-{i:04d}", f"digit {y[i]}" if labelled[i] else "", *pixels])
    with (folder / "edges.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        for a, b in graph.edge_index.t().tolist():
            if a < b:
                writer.writerow([f"img-{a:04d}", f"img-{b:04d}"])
    return labelled, is_unknown


def run(seed: int, unknown: tuple[int, ...]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labelled, is_unknown = write_tables(folder, seed, unknown)
        tables = ["--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv")]
        command = [sys.executable, "-m", "oddnode"]
        fit = ["--id-column", "image", "--label-column", "digit", "--false-alarm-rate", "0.01", "--seed", str(seed)]
        start, busy = time.perf_counter(), _cpu_seconds()
        subprocess.run(
            [*command, "fit", *tables, *fit, "--out", str(folder / "model"), "--json"], check=True, stdout=-3
        )
        out = folder / "scores.csv"
        subprocess.run(
            [*command, "score", str(folder / "model"), *tables, "--out", str(out), "--json"], check=True, stdout=-3
        )
        seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - busy
        with out.open() as file:
            rows = list(csv.DictReader(file))
    score = np.array([float(row["score"]) for row in rows])
    p_value = np.array([float(row["p_value"]) for row in rows])
    fresh = ~labelled & ~is_unknown
    result = {"auroc": 100 * auroc(score[fresh], score[is_unknown]), "seconds": seconds, "cpu_seconds": cpu_seconds}
    for rate in RATES:
        result[f"false_alarms_at_{rate}"] = 100 * float((p_value[fresh] <= rate).mean())
        result[f"caught_at_{rate}"] = 100 * float((p_value[is_unknown] <= rate).mean())
    return result


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--unknown", default="6,7,8,9", help="digits that are never labelled")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers of every run")
    options = parser.parse_args()
    unknown = tuple(int(digit) for digit in options.unknown.split(","))
    runs = [run(seed, unknown) for seed in range(options.seeds)]
    for key in runs[0]:
        values = [r[key] for r in runs]
        print(f"{key:<22} {fmean(values):6.2f} ± {stdev(values) if len(values) > 1 else 0.0:.2f}")
    if options.out:
        options.out.write_text(json.dumps({**provenance(), "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
