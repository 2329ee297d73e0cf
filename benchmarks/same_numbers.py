"""Whether two states of the source give the same numbers on a CPU, bit for bit.

    python benchmarks/same_numbers.py before.json                     # with the one source
    python benchmarks/same_numbers.py after.json --against before.json  # with the other; names every pair that differs

All methods on the embedded digits, and some of every kind on Cora, CiteSeer and Twitch; one seed each.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from oddnode import benchmark
from oddnode.tasks import Protocol

CHOSEN: list[tuple[str, list[str], Protocol, str]] = [
    ("cora/structure", ["msp", "nodesafe", "nodesafe++"], "clean", "gcn"),
    ("citeseer/label", ["gnnsafe++", "nodesafe"], "published", "gcn"),
    ("cora/label", ["nodesafe++", "gkde", "gpn"], "clean", "gcn"),
    ("cora/feature", ["nodesafe"], "clean", "gat"),
    ("twitch", ["nodesafe++"], "clean", "gcn"),
    ("digits/label", ["all"], "clean", "gcn"),
]


def numbers() -> dict[str, Any]:
    found = {}
    for task, methods, protocol, backbone in CHOSEN:
        for result in benchmark(task, methods, seeds=1, protocol=protocol, backbone=backbone, jobs=1, device="cpu"):
            found[f"{task} {result.method} {protocol} {backbone}"] = result.runs
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path, default=None, help="what the other source has written")
    options = parser.parse_args()
    torch.set_num_threads(2)  # the order of sums depends on it
    found = numbers()
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    if options.against is None:
        return
    other = json.loads(options.against.read_text())
    different = [pair for pair in other if found.get(pair) != other[pair]]
    same = len(other) - len(different)
    print(f"{same} of {len(other)} pairs of a task and a method agree; different: {different}")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
