"""Writes docs/results.md from what ``oddnode bench --out`` left behind.

    oddnode bench --task paper --methods all --seeds 5 --out runs/clean
    oddnode bench --task paper --methods all --seeds 5 --protocol published --out runs/published
    oddnode bench --task paper --methods nodesafe --seeds 5 --backbone mlp --out runs/mlp  # and gat, jknet, mixhop
    python benchmarks/results.py runs/*/runs.json > docs/results.md

Files of one protocol are joined: a run may be split by task, by method or by backbone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from oddnode.bench import Result
from oddnode.bench.tables import caption, compare_table
from oddnode.recipes import FLOOR, RECIPES
from oddnode.tasks import TASKS

_INTRO = """# Results

Made by `benchmarks/results.py` from runs of `oddnode bench`; the commands stand at its top. Every number is a mean over
seeds with its standard deviation, in percent. A cell shows AUROC / FPR95. *paper* is what the paper prints, from one
run. The trivial scores at the end of a table (number of non-zero features, degree, cosine to the neighbours) use no
model: a method that loses to them has learnt nothing there. PubMed's label task has one ID class, so its ID accuracy is
100 by construction. Twitch has other features here than in the paper ([tasks](tasks.md)).
"""


def read(paths: Sequence[Path]) -> tuple[list[Result], list[str]]:
    """All results of the files, and on what they were made."""
    results, made_on = [], []
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        made_on.append(content["made_on"])
        for row in content["results"]:
            results.append(Result(row["task"], row["method"], row["protocol"], row["backbone"], row["runs"]))
    return results, sorted(set(made_on))


def tables(results: Sequence[Result]) -> list[list[Result]]:
    """Complete grids of tasks and methods: first the methods that were run on every task, then the rest on theirs."""
    tasks = [t for t in TASKS if any(r.task == t for r in results)]
    methods = [m for m in [*(m for m in RECIPES if m not in FLOOR), *FLOOR] if any(r.method == m for r in results)]
    by_cell = {(r.task, r.method): r for r in results}
    everywhere = [m for m in methods if all((t, m) in by_cell for t in tasks)]
    rest = [m for m in methods if m not in everywhere]
    shared = [t for t in tasks if all((t, m) in by_cell for m in rest)]
    return [
        [by_cell[t, m] for t in where for m in which]
        for where, which in ((tasks, everywhere), (shared, rest))
        if where and which
    ]


def accuracy_table(results: Sequence[Result]) -> str:
    """ID accuracy of every method on every task."""
    tasks = list(dict.fromkeys(r.task for r in results))
    methods = [m for m in dict.fromkeys(r.method for r in results) if m not in FLOOR]
    by_cell = {(r.task, r.method): r for r in results}
    lines = ["| method | " + " | ".join(tasks) + " | mean |", "| --- " * (len(tasks) + 2) + "|"]
    for method in methods:
        cells = [by_cell[task, method] for task in tasks]
        shown = [f"{c.mean('id_acc'):.1f}±{c.std('id_acc'):.1f}" for c in cells]
        mean = fmean(c.mean("id_acc") for c in cells)
        lines.append(f"| {method} | " + " | ".join(shown) + f" | **{mean:.1f}** |")
    return "\n".join(lines) + f"\n\n{caption(results).split('; paper')[0]}\n"


def backbone_table(results: Sequence[Result]) -> str:
    """One method under several backbones."""
    backbones = list(dict.fromkeys(r.backbone for r in results))
    tasks = [t for t in TASKS if all(any(r.task == t and r.backbone == b for r in results) for b in backbones)]
    renamed = [
        Result(r.task, r.backbone, r.protocol, "the row's", r.runs)
        for t in tasks
        for b in backbones
        for r in results
        if (r.task, r.backbone) == (t, b)
    ]
    return compare_table(renamed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="runs.json files")
    results, made_on = read(parser.parse_args().runs)
    print(_INTRO)
    print("Made on: " + "; ".join(made_on) + ".\n")
    for protocol in ("clean", "published"):
        part = [r for r in results if r.protocol == protocol and r.backbone == "gcn"]
        if part:
            print(f"## Protocol {protocol}\n")
            for table in tables(part):
                print(f"{compare_table(table)}\nID accuracy\n\n{accuracy_table(table)}")
    nodesafe = [r for r in results if r.method == "nodesafe" and r.protocol == "clean"]
    if len({r.backbone for r in nodesafe}) > 1:
        print(f"## NODESAFE under other backbones, protocol clean\n\n{backbone_table(nodesafe)}")


if __name__ == "__main__":
    main()
