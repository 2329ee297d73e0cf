"""How long `oddnode score` takes before it has written the rows of a small table, next to ``import torch`` alone.

    python benchmarks/startup.py --repeats 7

One thread. Both are new processes that take turns; printed are the medians and their ratio.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

NODES = 60
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode


def write_tables(folder: Path) -> None:
    """Write a ring of nodes in three classes as nodes.csv and edges.csv."""
    nodes = (f"n{i},{'abc'[i % 3]},{i % 3 + (i * 7 % 11) / 11:.3f},{(i * 5 % 13) / 13:.3f}" for i in range(NODES))
    edges = (f"n{i},n{(i + step) % NODES}" for i in range(NODES) for step in (3, 6))
    (folder / "nodes.csv").write_text("\n".join(["id,label,height,width", *nodes, ""]))
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges, ""]))


def seconds(*arguments: str) -> float:
    """Run Python with these arguments in a new process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        tables = ("--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv"), "--json")
        columns = ("--id-column", "id", "--label-column", "label", "--set", "epochs=2")
        model, scores = str(folder / "model"), str(folder / "scores.csv")
        seconds("-m", "oddnode", "fit", *tables, *columns, "--out", model)
        commands = {
            "import torch": ("-c", "import torch"),
            "oddnode score": ("-m", "oddnode", "score", model, *tables, "--out", scores),
        }
        times: dict[str, list[float]] = {title: [] for title in commands}
        for _ in range(options.repeats):
            for title, command in commands.items():
                times[title].append(seconds(*command))
    torch, score = (median(taken) for taken in times.values())
    print(f"import torch {torch:.2f} s, oddnode score of {NODES} rows {score:.2f} s: {score / torch:.2f} times as long")


if __name__ == "__main__":
    main()
