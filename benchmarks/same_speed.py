"""Whether the present source is as fast as a commit: both on one machine, turn by turn, medians of several runs.

    python benchmarks/same_speed.py 53a3fcf
    python benchmarks/same_speed.py 53a3fcf --only 'fit*' --repeats 3
    python benchmarks/same_speed.py /tmp/other-checkout/src --device cuda --out benchmarks/results

One process for each source stays up; the parent asks them for the same work in turn, so that whatever else the machine
does falls on both. A ratio above 1 means that the present source is slower. The other source may also be the ``src``
folder of a checkout. Results go to ``same_speed-DEVICE.json``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import random_graph, store, wait
from same_numbers import ROOT, check_source, copy_present, resolved, unpack
from same_work import large_graph, write_tables

#: Slower by more than this needs an explanation.
TOLERANCE = 1.10

Probe = Callable[[], Any]


def propagate_function() -> Any:
    """`propagate`, wherever the source has it."""
    try:
        return importlib.import_module("oddnode.functional.energy").propagate
    except ModuleNotFoundError:
        return importlib.import_module("oddnode.energy").propagate


def fit(task: str, method: str, device: str, epochs: int, **settings: Any) -> Probe:
    """A whole training by name, on real data where there is some."""
    from oddnode import Detector, load_task

    loaded = load_task(task)

    def work() -> Any:
        detector = Detector.from_recipe(method, device=device, epochs=epochs, propagation="as-given", **settings)
        needs_exposure = detector.objective is not None and detector.objective.needs_exposure
        return detector.fit(loaded.train, loaded.exposure if needs_exposure else None)

    return work


def score(task: str, method: str, device: str) -> Probe:
    detector = fit(task, method, device, epochs=3)()
    from oddnode import load_task

    data = load_task(task).id_test.data
    return lambda: detector.score_samples(data)


def cell(task: str, methods: list[str], device: str) -> Probe:
    from oddnode import benchmark

    seeds, jobs = (10, 1) if device == "cuda" else (1, 1)
    return lambda: benchmark(task, methods, seeds=seeds, jobs=jobs, device=device)


def large_fit(device: str) -> Probe:
    from oddnode import Detector

    edges = 10_000_000 if device == "cuda" else 1_000_000
    data = random_graph(edges // 10, edges, 32, 8)
    return lambda: Detector.from_recipe("nodesafe", device=device, epochs=25, propagation="as-given").fit(data)


def hops(device: str) -> Probe:
    edges = 100_000_000 if device == "cuda" else 10_000_000
    nodes = edges // 20
    generator = torch.Generator(device).manual_seed(0)
    edge_index = torch.randint(nodes, (2, edges), generator=generator, device=device)
    scores = torch.rand(nodes, generator=generator, device=device)
    propagate = propagate_function()
    return lambda: propagate(scores, edge_index, num_hops=4)


def save_and_load(device: str) -> Probe:
    from oddnode import Detector

    detector = fit("digits/label", "nodesafe", device, epochs=3)()

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            detector.save(f"{folder}/model")
            Detector.load(f"{folder}/model", device=device)

    return work


def table_fit(method: str, device: str) -> Probe:
    """Two CSV files as a model, from Python: reading, training and calibration."""
    from oddnode.tables import TableModel

    folder = scratch()
    write_tables(folder, exposure=False)
    settings: dict[str, Any] = {"id_column": "image", "label_column": "digit", "epochs": 60, "device": device}
    return lambda: TableModel.fit(folder / "nodes.csv", folder / "edges.csv", method=method, **settings)[0]


def table_score(method: str, device: str) -> Probe:
    model, folder = table_fit(method, device)(), scratch()
    write_tables(folder, exposure=False)
    return lambda: model.score(folder / "nodes.csv", folder / "edges.csv", folder / "scores.csv", explain=True)


def disk_build() -> Probe:
    from oddnode.large import folder_from_data

    data = large_graph()

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            folder_from_data(data, f"{folder}/graph")

    return work


def disk_fit(method: str, device: str) -> Probe:
    """What depends on the graph alone is stored beside it in the first run, which does not count."""
    from oddnode import Detector
    from oddnode.large import folder_from_data

    graph = folder_from_data(large_graph(), scratch() / "graph")
    return lambda: Detector.from_recipe(method, device=device, epochs=10).fit(graph)


def disk_score(method: str, device: str) -> Probe:
    from oddnode import Detector
    from oddnode.large import folder_from_data

    graph = folder_from_data(large_graph(), scratch() / "graph")
    detector = Detector.from_recipe(method, device=device, epochs=3).fit(graph)
    return lambda: detector.score_samples(graph)


def scratch() -> Path:
    """A folder that goes away with the folder of all temporary files of a source."""
    return Path(tempfile.mkdtemp())


def probes(device: str) -> dict[str, Callable[[], Probe]]:
    """What is timed; each is set up once and then run several times."""
    epochs = 200 if device == "cuda" else 60
    seven = ["msp", "energy", "gnnsafe", "nodesafe", "energy-ft", "gnnsafe++", "nodesafe++"]
    found: dict[str, Callable[[], Probe]] = {
        "fit cora nodesafe": lambda: fit("cora/structure", "nodesafe", device, epochs),
        "fit cora nodesafe++": lambda: fit("cora/feature", "nodesafe++", device, epochs),
        "fit cora ten networks": lambda: fit("cora/structure", "nodesafe", device, max(20, epochs // 6), ensemble=10),
        "fit cora gat": lambda: fit("cora/feature", "nodesafe", device, epochs // 3, backbone="gat"),
        "fit cora mixhop": lambda: fit("cora/feature", "nodesafe", device, epochs // 3, backbone="mixhop"),
        "fit cora gpn": lambda: fit("cora/label", "gpn", device, epochs // 6),
        "fit cora gkde": lambda: fit("cora/label", "gkde", device, epochs // 6),
        "fit pubmed nodesafe": lambda: fit("pubmed/structure", "nodesafe", device, epochs // 2),
        "fit twitch nodesafe++": lambda: fit("twitch", "nodesafe++", device, epochs // 4),
        "score cora nodesafe": lambda: score("cora/structure", "nodesafe", device),
        "cell cora, seven methods": lambda: cell("cora/structure", seven, device),
        "large graph": lambda: large_fit(device),
        "hops over many edges": lambda: hops(device),
        "save and load": lambda: save_and_load(device),
        "fit digits evidence": lambda: fit("digits/label", "nodesafe-evidence", device, epochs),
        "score digits evidence": lambda: score("digits/label", "nodesafe-evidence", device),
        "fit cora evidence": lambda: fit("cora/arrivals/label-scattered", "nodesafe-evidence", device, epochs),
        "score cora evidence": lambda: score("cora/arrivals/label-scattered", "nodesafe-evidence", device),
        "build disk": disk_build,
    }
    for method in ("nodesafe", "nodesafe-evidence"):
        found |= {
            f"fit tables {method}": partial(table_fit, method, device),
            f"score tables {method}": partial(table_score, method, device),
            f"fit disk {method}": partial(disk_fit, method, device),
            f"score disk {method}": partial(disk_score, method, device),
        }
    if not os.environ.get("ODDNODE_DATA"):
        found = {name: make for name, make in found.items() if not any(d in name for d in ("cora", "pubmed", "twitch"))}
    return found


def serve(source: Path, device: str) -> None:
    """Do what standard input asks for, one probe a line; answer with the seconds that it took."""
    check_source(source)
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints must not look like an answer
    torch.manual_seed(0)
    ready: dict[str, Probe] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready.clear()  # one at a time: memory
            ready[name] = probes(device)[name]()
            ready[name]()  # compiles kernels and fills caches
        wait(device)
        began = time.perf_counter()
        ready[name]()
        wait(device)
        print(time.perf_counter() - began, file=answers, flush=True)


class Source:
    """A process that runs probes with one source."""

    def __init__(self, source: Path, device: str, temporary: Path):
        asked = [sys.executable, str(Path(__file__).resolve()), str(source), "--device", device, "--serve"]
        self.process = subprocess.Popen(
            asked,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=source.parent,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]),
                "TMPDIR": str(temporary),
            },
        )

    def seconds(self, probe: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(probe, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{probe} failed; see above")
        return float(answer)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(other: Path, present: Path, device: str, only: str, repeats: int, temporary: Path) -> list[dict[str, Any]]:
    rows = []
    names = [name for name in probes(device) if fnmatchcase(name, only)]
    sources = {"other": Source(other, device, temporary), "present": Source(present, device, temporary)}
    try:
        for name in names:
            times: dict[str, list[float]] = {which: [] for which in sources}
            for turn in range(repeats):
                for which in sources if turn % 2 == 0 else reversed(sources):
                    times[which].append(sources[which].seconds(name))
            medians = {which: median(values) for which, values in times.items()}
            ratio = medians["present"] / medians["other"]
            rows.append({"probe": name, "ratio": round(ratio, 3)} | {k: round(v, 5) for k, v in medians.items()})
            slower = "  <- slower" if ratio > TOLERANCE else ""
            print(
                f"{name:28} before {1e3 * medians['other']:10.1f} ms   now {1e3 * medians['present']:10.1f} ms   "
                f"ratio {ratio:.3f}{slower}",
                flush=True,
            )
    finally:
        for source in sources.values():
            source.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="a commit, or the src folder of another checkout")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the present source: the src of a checkout")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="*", help="pattern of probes")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=None, help="folder for the results")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Path(options.other), options.device)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = Path(options.other)
        other = given.resolve() if (given / "oddnode").is_dir() else unpack(resolved(options.other), folder / "other")
        present = copy_present(folder / "present", options.source)
        rows = compare(other, present, options.device, options.only, options.repeats, folder)
    if options.out:
        print(
            store(
                "same_speed",
                options.device,
                [{"other": options.other, "repeats": options.repeats} | r for r in rows],
                options.out,
            )
        )
    slower = [row["probe"] for row in rows if row["ratio"] > TOLERANCE]
    print(f"{len(rows) - len(slower)} of {len(rows)} probes are within {TOLERANCE - 1:.0%} of the other source")
    sys.exit(bool(slower))


if __name__ == "__main__":
    main()
