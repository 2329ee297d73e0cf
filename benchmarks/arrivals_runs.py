"""Runs everything that the tables of docs/measurements/arrivals.md need, in parts of a few minutes each.

    ODDNODE_DATA=... python benchmarks/arrivals_runs.py --list
    ODDNODE_DATA=... python benchmarks/arrivals_runs.py --jobs 16 --out runs --part citations,photo
    ODDNODE_DATA=... python benchmarks/arrivals_runs.py --jobs 16 --out runs           # all parts that runs/ lacks
    python benchmarks/arrivals_tables.py runs/[!m]* runs/many && python benchmarks/measurements.py

Every part is one call of ``oddnode bench``, on a CPU unless ``--device`` says otherwise, and is complete or absent: an
interrupted call goes on with the next part. The part ``membership`` stores
``membership-cpu.json`` there, which belongs into benchmarks/results.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

BOTH = "nodesafe-evidence,nodesafe-evidence-alone"


def citations(group: str) -> str:
    return ",".join(f"{name}/{group}" for name in ("cora", "citeseer", "pubmed"))


#: Tasks and methods of each part.
PARTS = {
    "citations": ("cora/arrivals,citeseer/arrivals", f"{BOTH},adadetect"),
    "pubmed": ("pubmed/arrivals", f"{BOTH},adadetect"),
    "photo": ("photo/arrivals", f"{BOTH},adadetect"),
    **{  # 3.5 GB and some minutes for each of ten runs
        f"cs-{kind}": (f"cs/arrivals/{kind}-scattered,cs/arrivals/{kind}-grouped", f"{BOTH},adadetect")
        for kind in ("label", "feature", "structure")
    },
    "few": (citations("arrivals-1%"), BOTH),
    "many": (citations("arrivals-20%"), BOTH),
    "unseen": (citations("unseen"), BOTH),
    "cells": ("paper", "nodesafe-evidence"),
    "cells-exposure": ("paper", "nodesafe-evidence++"),
    "membership": ("", "nodesafe-evidence,nodesafe-msp"),
}
#: What ends a part, so that it can be repeated.
LIMIT = 9 * 60


def command(part: str, options: argparse.Namespace) -> list[str]:
    tasks, methods = PARTS[part]
    common = ["--methods", methods, "--seeds", str(options.seeds), "--jobs", str(options.jobs)]
    common += ["--out", str(options.out / part)]
    if part == "membership":
        return [sys.executable, str(Path(__file__).with_name("membership.py")), *common]
    return [sys.executable, "-m", "oddnode", "bench", "--task", tasks, "--device", options.device, *common]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default=",".join(PARTS), help="parts to run, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the parts and what they run, and stop")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()
    missing = sorted(set(options.part.split(",")) - set(PARTS))
    if missing:
        parser.error(f"there is no part {missing[0]!r}, only {', '.join(PARTS)}")
    failed = []
    for part in options.part.split(","):
        if options.list:
            print(part, *command(part, options)[1:])
            continue
        done = options.out / part / ("membership-cpu.json" if part == "membership" else "runs.json")
        if done.exists():
            print(f"{part}: {done} is there")
            continue
        began = time.perf_counter()
        try:
            subprocess.run(
                command(part, options), check=True, timeout=LIMIT, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            print(f"{part}: {time.perf_counter() - began:.0f} s", flush=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            failed.append(part)
            print(f"{part}: {error}", flush=True)
    if failed:
        sys.exit(f"not done: {', '.join(failed)}")


if __name__ == "__main__":
    main()
