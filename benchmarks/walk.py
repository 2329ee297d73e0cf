"""How much of oddnode one call passes through: files, functions, packages, and calls between packages.

    python benchmarks/walk.py
    python benchmarks/walk.py --json
    python benchmarks/walk.py --list score-nodesafe

Real runs on the embedded digits, two epochs each, watched by `sys.setprofile`. All walks run in one process, after the
packages they need were imported: a first `oddnode prepare` sees to that for the commands.

- A function is a code object under ``src/oddnode``, told apart by file and qualified name: methods, lambdas and
  comprehensions count (from Python 3.12 on, only generator expressions), the code of modules does not. A class counts
  if its module is imported only in the course of the walk.
- A crossing is a pair of functions, caller and callee, in different packages. The caller is the nearest function of
  oddnode on the stack, so that a call through torch or typer is a call as well.
- An upward call is a crossing into a higher package, by the layers in ``pyproject.toml``: a callback, or an override of
  a base class below.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import runpy
import sys
import tempfile
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

KEYS = [
    *(f"{step}-{method}" for method in ("nodesafe", "nodesafe-evidence") for step in ("fit", "score")),
    *("cli-fit", "cli-score", "cli-fit-graph", "cli-score-graph"),
]


class Function(NamedTuple):
    """A function by its file, relative to the package under observation, and its qualified name."""

    file: str
    name: str

    @property
    def package(self) -> str:
        return self.file.split("/")[0].removesuffix(".py")


class Walk(NamedTuple):
    """What one run passed."""

    functions: frozenset[Function]
    calls: frozenset[tuple[Function, Function]]  # (caller, callee)


def watch(root: Path, work: Callable[[], Any]) -> Walk:
    """Run ``work`` and note which functions under ``root`` it passes, in every thread, and who calls them."""
    inside, seen = f"{root}/", set[tuple[CodeType | None, CodeType]]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(inside):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(inside):
            caller = caller.f_back
        seen.add((caller and caller.f_code, frame.f_code))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

    def function(code: CodeType) -> Function:
        return Function(code.co_filename.removeprefix(inside), code.co_qualname)

    seen = {(caller, callee) for caller, callee in seen if callee.co_name != "<module>"}
    calls = ((function(caller), function(callee)) for caller, callee in seen if caller is not None)
    return Walk(frozenset(function(callee) for _, callee in seen), frozenset(calls))


def layers_of(pyproject: Path) -> dict[str, int]:
    """The height of every package, 0 = highest."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    return {name.strip(): height for height, names in enumerate(layers) for name in names.split("|")}


def crossings(walk: Walk, layers: dict[str, int]) -> set[tuple[Function, Function]]:
    """The calls between packages. What belongs to no layer, such as the root's ``__init__``, is left out."""
    return {
        (caller, callee)
        for caller, callee in walk.calls
        if caller.package != callee.package and {caller.package, callee.package} <= layers.keys()
    }


def count(walk: Walk, layers: dict[str, int]) -> dict[str, Any]:
    """The figures of one walk."""
    packages = {function.package for function in walk.functions} & layers.keys()
    across = crossings(walk, layers)
    return {
        "files": len({function.file for function in walk.functions}),
        "functions": len(walk.functions),
        "packages": len(packages),
        "crossings": len(across),
        "upward": sum(layers[callee.package] < layers[caller.package] for caller, callee in across),
        "passes_large": "large" in packages,
    }


def walks(folder: Path) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield key, title and work of each walk, prepared so that only the work itself has to be watched."""
    from oddnode import Detector, load_task

    task = load_task("digits/label")
    grown = task.tests["label"]
    for method in ("nodesafe", "nodesafe-evidence"):
        detector = Detector.from_recipe(method, epochs=2)
        yield f"fit-{method}", f"`Detector.fit`, {method}", partial(detector.fit, task.train)
        yield f"score-{method}", f"`score_samples`, {method}", partial(detector.score_samples, grown)
    write_tables(folder, grown)
    tables: list[str | Path] = ["--nodes", folder / "nodes.csv", "--edges", folder / "edges.csv"]
    columns = ["--id-column", "id", "--label-column", "digit"]
    graph: list[str | Path] = ["--graph", folder / "graph"]
    command("prepare", *tables, *columns, "--out", graph[1])
    for key, title, source, options in ("", "--nodes --edges", tables, columns), ("-graph", "--graph", graph, []):
        model, scores = folder / f"model{key}", folder / f"scores{key}.parquet"
        fit = partial(command, "fit", *source, *options, "--set", "epochs=2", "--out", model)
        yield f"cli-fit{key}", f"`oddnode fit {title}`", fit
        score = partial(command, "score", model, *source, "--out", scores)
        yield f"cli-score{key}", f"`oddnode score {title}`", score


def command(*arguments: str | Path) -> None:
    """``python -m oddnode`` in this process; what it prints is dropped."""
    before, sys.argv = sys.argv, ["oddnode", *map(str, arguments), "--json"]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_module("oddnode", run_name="__main__")
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"{' '.join(sys.argv)} ended with status {stop.code}") from None
    finally:
        sys.argv = before


def write_tables(folder: Path, graph: Any) -> None:
    """Write a graph as nodes.csv and edges.csv; nodes of unknown digits have no label."""
    nodes = [
        [f"n{i}", f"digit {y}" if y >= 0 else "", *pixels]
        for i, (y, pixels) in enumerate(zip(graph.y.tolist(), graph.x.tolist(), strict=True))
    ]
    edges = [[f"n{a}", f"n{b}"] for a, b in graph.edge_index.t().tolist() if a < b]
    header = ["id", "digit", *(f"pixel_{i}" for i in range(graph.x.shape[1]))]
    for name, rows in ("nodes", [header, *nodes]), ("edges", [["source", "target"], *edges]):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)


def show(walk: Walk, layers: dict[str, int]) -> None:
    """Print each file with its functions, and every crossing, upward ones marked."""
    for file in sorted({function.file for function in walk.functions}):
        print(file)
        print(*sorted(f"    {function.name}" for function in walk.functions if function.file == file), sep="\n")
    print("\ncrossings (^ = upward)")
    for caller, callee in sorted(crossings(walk, layers)):
        mark = "^" if layers[callee.package] < layers[caller.package] else " "
        print(f"  {mark} {caller.file} {caller.name} -> {callee.file} {callee.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--list", choices=KEYS, metavar="WALK", help=f"what one walk passes: {', '.join(KEYS)}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import oddnode

    root = Path(oddnode.__file__).resolve().parent
    layers = layers_of(root.parents[1] / "pyproject.toml")
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for key, title, work in walks(Path(folder)):
            walk = watch(root, work)
            counts[key] = {"walk": title, **count(walk, layers)}
            if key == options.list:
                show(walk, layers)
                return
    if options.json:
        print(json.dumps(counts, indent=1))
        return
    columns = ("walk", "files", "functions", "packages", "crossings", "upward")
    for cells in (columns, ["---"] * len(columns), *([str(row[name]) for name in columns] for row in counts.values())):
        print(f"| {' | '.join(cells)} |")
    passing = [row["walk"] for key, row in counts.items() if row["passes_large"] and not key.startswith("cli-")]
    print(f"\nIn-memory walks that pass `large`: {'; '.join(passing) or 'none'}.")


if __name__ == "__main__":
    main()
