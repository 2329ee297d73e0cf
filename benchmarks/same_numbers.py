"""Whether the present source gives the same numbers as a commit: on one machine, on a CPU, bit for bit.

    python benchmarks/same_numbers.py HEAD~1 --out same.json
    python benchmarks/same_numbers.py 53a3fcf --only 'clean digits/label nodesafe*'

For a change that is to move no number. Both sources run the same work at the same time, one thread each: every method,
backbone and published setting, saved models, decisions, tables through the command line, and real data sets where
``ODDNODE_DATA`` has them. Every result is an item, ``unit of work: what``, and is compared by its hash. Printed is one
line for each item that differs or that one source lacks; the exit status is 1 where ``EXPECTED`` does not say why.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from common import machine
from safetensors.torch import load_file
from torch import Tensor
from torch_geometric.data import Data

import oddnode

if TYPE_CHECKING:
    from oddnode import Detector, Task

#: Differences that are meant: item, or pattern of items -> why, for example a fault that was mended on the way.
EXPECTED: dict[str, str] = {
    "clean digits/label grasp: explanation*": "explain showed GRASP's whole score as the node's own; mended",
    "tables*: fit, report, notes": "a note is worded differently",
    "tables*: score, column, neighbour_share": "the column is called neighbour_contribution now",
    "tables*: score, column, neighbour_contribution": "the column was called neighbour_share",
    "tables*: score, column, threshold": "the column is new",
}

ROOT = Path(__file__).resolve().parents[1]
EPOCHS = 60
BACKBONES = ("gcn", "mlp", "gat", "jknet", "mixhop")
#: The uniform term of NODESAFE++ begins after 120 epochs there.
PUBLISHED_EPOCHS = {"nodesafe++": 130}
AS_GIVEN = {"propagation": "as-given"}
#: Units of work on real data: protocol, task, method, backbone, epochs.
REAL = [
    ("clean", "pubmed/label", "nodesafe", "gcn", 30),
    ("clean", "cora/structure", "nodesafe", "gcn", EPOCHS),
    ("clean", "cora/label", "nodesafe++", "gcn", EPOCHS),
    ("clean", "cora/label", "gkde", "gcn", EPOCHS),
    ("clean", "cora/label", "gpn", "gcn", EPOCHS),
    ("clean", "cora/feature", "nodesafe", "gat", EPOCHS),
    ("clean", "twitch", "nodesafe++", "gcn", 30),
    ("published", "cora/structure", "nodesafe", "gcn", EPOCHS),
    ("published", "cora/structure", "gnnsafe++", "gcn", EPOCHS),
    ("published", "cora/label", "gkde", "gcn", EPOCHS),
    ("published", "citeseer/label", "nodesafe", "gcn", EPOCHS),
    ("published", "twitch", "nodesafe", "gcn", 30),
]
#: Settings of a detector that no method has by itself.
SETTINGS: dict[str, dict[str, Any]] = {
    "by default": {},
    "three layers": {"num_layers": 3},
    "running batch norm": {"batch_norm": "running"},
    "no spare logit": {"num_spare_logits": 0},
    "no dropout": {"dropout": 0.0},
    "seed 1": {"seed": 1},
}

Note = Callable[..., None]
Unit = tuple[str, Callable[[Note], None]]


# --- adapters: the only places that know names which oddnode does not export -----------------------------------------


def published() -> Any:
    """The module of the published settings, with ``METHODS`` and ``detector``, wherever the source has it."""
    for name in ("oddnode.protocols.published", "oddnode.published"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ModuleNotFoundError("this source has no published settings where they are looked for")


def published_methods() -> list[str]:
    return list(published().METHODS)


def published_detector(method: str, task: Task, backbone: str, **settings: Any) -> Detector:
    return published().detector(method, task, backbone, 0, "cpu", **settings)


def needs_exposure(detector: Detector) -> bool:
    return detector.objective is not None and detector.objective.needs_exposure


def parts_of(explanation: Any) -> list[Any]:
    """What an explanation holds, be it a dataclass or a tuple."""
    if is_dataclass(explanation):
        return [getattr(explanation, part.name) for part in fields(explanation)]
    return list(explanation)


def runs_of(result: Any) -> Any:
    """What a benchmark found with every seed, without how long it took."""
    return [{k: v for k, v in run.items() if k not in ("seconds", "time", "wall_s")} for run in result.runs]


# --- a value as a hash -----------------------------------------------------------------------------------------------


def digest(value: Any) -> str:
    hasher = hashlib.sha256()
    for piece in pieces(value):
        hasher.update(len(piece).to_bytes(8, "little"))
        hasher.update(piece)
    return hasher.hexdigest()[:16]


def pieces(value: Any) -> Iterator[bytes]:
    """The bytes of a value: of tensors the raw ones with type and shape, of other things their JSON."""
    if isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield value.detach().cpu().contiguous().numpy().tobytes()
    elif isinstance(value, dict):
        yield f"dict of {len(value)}".encode()
        for key, item in value.items():
            yield str(key).encode()
            yield from pieces(item)
    elif isinstance(value, (list, tuple)):
        yield f"list of {len(value)}".encode()
        for item in value:
            yield from pieces(item)
    else:
        yield json.dumps(value).encode()


@dataclass
class Items:
    """What one source gives: item -> hash, or what went wrong."""

    only: str
    found: dict[str, str] = field(default_factory=dict)

    def run(self, unit: str, work: Callable[[Note], None]) -> None:
        """Do a unit of work, if it is asked for; one that cannot be begun is one item."""
        wanted, _, _ = self.only.partition(":")
        if fnmatchcase(unit, wanted):
            problem = self._tried(partial(work, partial(self._note, unit)))
            if problem.startswith("error: "):
                self.found[f"{unit}: as a whole"] = problem

    def _note(self, unit: str, what: str, make: Callable[..., Any], *args: Any) -> None:
        item = f"{unit}: {what}"
        if ":" not in self.only or fnmatchcase(item, self.only):
            self.found[item] = self._tried(partial(make, *args))

    def _tried(self, make: Callable[[], Any]) -> str:
        try:
            return digest(make())
        except Exception as error:
            message = re.sub(re.escape(tempfile.gettempdir()) + r"\S*", "...", " ".join(str(error).split()))
            return f"error: {type(error).__name__}: {message}"


# --- what a detector says --------------------------------------------------------------------------------------------


def graphs_of(task: Task) -> dict[str, Data]:
    return {"id_test": task.id_test.data} | task.tests


def fitted(detector: Detector, task: Task) -> Detector:
    return detector.fit(task.train, task.exposure if needs_exposure(detector) else None)


def observe(note: Note, detector: Detector, task: Task) -> None:
    """Training, weights, scores and probabilities."""
    note("best epoch and losses", lambda: [detector.best_epoch_, detector.history_])
    note("weights", lambda: list(detector.module_.state_dict().values()))
    note("names of weights", lambda: list(detector.module_.state_dict()))
    note("advice", lambda: detector.advice_)
    for name, graph in graphs_of(task).items():
        note(f"scores of {name}", detector.score_samples, graph)
        note(f"probabilities of {name}", detector.predict_proba, graph)
        note(f"explanation of {name}", lambda graph=graph: parts_of(detector.explain(graph)))
    note("evaluate", oddnode.evaluate, detector, task)


def observe_decisions(note: Note, detector: Detector, task: Task) -> None:
    """A threshold on known nodes that were held out, and what follows from it."""
    known = task.train.test_mask & (task.train.y >= 0)
    note("threshold", lambda: detector.calibrate(task.train, 0.05, known).threshold_)
    for name, graph in graphs_of(task).items():
        note(f"p-values of {name}", detector.p_values, graph)
        note(f"p-values per class of {name}", lambda graph=graph: detector.p_values(graph, per_class=True))
        note(f"detected of {name}", detector.detect, graph)
        note(f"flagged of {name}", detector.flag, graph)


def observe_saved(note: Note, detector: Detector, task: Task) -> None:
    """The tensors of the saved folder, and the scores of the detector that is read from it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        detector.save(folder)
        saved = dict(sorted(load_file(folder / "model.safetensors").items()))
        weights = {k: v for k, v in saved.items() if k.startswith("module.")}
        scorer = {k: v for k, v in saved.items() if k.startswith("scorer.")}
        note("saved weights", lambda: weights)
        note("saved scorer", lambda: scorer)
        note("other saved tensors", lambda: {k: v for k, v in saved.items() if k not in weights | scorer})
        note("scores when loaded", loaded_scores, folder, detector, task)


def loaded_scores(folder: Path, detector: Detector, task: Task) -> Tensor:
    graph = task.id_test.data
    scores = oddnode.Detector.load(folder, device="cpu").score_samples(graph)
    if not torch.equal(scores, detector.score_samples(graph)):
        raise AssertionError("the loaded detector scores otherwise than the one that was saved")
    return scores


# --- units of work ---------------------------------------------------------------------------------------------------


def fit_clean(note: Note, task: str, method: str, settings: dict[str, Any], backbone: str = "gcn") -> None:
    loaded = oddnode.load_task(task)
    chosen: dict[str, Any] = {"seed": 0, "device": "cpu", "epochs": EPOCHS} | settings
    detector = fitted(oddnode.Detector.from_recipe(method, backbone, **chosen), loaded)
    observe(note, detector, loaded)
    observe_decisions(note, detector, loaded)
    observe_saved(note, detector, loaded)


def fit_published(note: Note, task: str, method: str, settings: dict[str, Any], backbone: str = "gcn") -> None:
    loaded = oddnode.load_task(task, protocol="published")
    detector = fitted(published_detector(method, loaded, backbone, **settings), loaded)
    observe(note, detector, loaded)
    observe_saved(note, detector, loaded)


def look_at_published(note: Note) -> None:
    note("methods", published_methods)


def fit_own_module(note: Note) -> None:
    """A network of the user's own, in double precision, without validation nodes."""
    task = oddnode.load_task("digits/label")
    del task.train.val_mask
    torch.manual_seed(0)
    module = oddnode.GCN(64, 16, 6).double()
    observe(note, oddnode.Detector(module, epochs=EPOCHS, device="cpu").fit(task.train), task)


def fit_random_edges(note: Note) -> None:
    """Edges that say nothing of the classes, where propagation is switched off by advice."""
    task = oddnode.load_task("digits/structure")
    task.train.edge_index = task.tests["structure"].edge_index
    detector = oddnode.Detector.from_recipe("nodesafe", epochs=EPOCHS, device="cpu")
    observe(note, detector.fit(task.train), task)


def wrap_module(note: Note) -> None:
    task = oddnode.load_task("digits/label")
    torch.manual_seed(0)
    module = oddnode.GCN(64, 16, 5)
    scorer = oddnode.Propagated(oddnode.Energy())
    observe(note, oddnode.Detector.wrap(module, scorer, task.train, device="cpu"), task)


def change_scorer(note: Note) -> None:
    """Every scorer on one training."""
    task = oddnode.load_task("digits/label")
    detector = oddnode.Detector.from_recipe("msp", epochs=EPOCHS, device="cpu").fit(task.train)
    inner = ("MaxSoftmax", "MaxLogit", "Energy", "ODIN", "KNN", "Mahalanobis", "Degree", "NonZeros", "NeighbourCosine")
    for name in inner:
        note(name, lambda name=name: scored_by(detector, task, getattr(oddnode, name)()))
    for name in ("Propagated", "GRASP"):
        note(name, lambda name=name: scored_by(detector, task, getattr(oddnode, name)(oddnode.MaxLogit())))


def scored_by(detector: Detector, task: Task, scorer: Any) -> Tensor:
    return detector.with_scorer(scorer).score_samples(task.id_test.data)


def run_benchmark(note: Note, **asked: Any) -> None:
    for result in oddnode.benchmark(seeds=1, jobs=1, device="cpu", **asked):
        note(result.method, runs_of, result)


def look_at_task(note: Note, task: str, protocol: Any) -> None:
    """The graphs themselves."""
    loaded = oddnode.load_task(task, protocol=protocol)
    graphs = {"train": loaded.train, "exposure": loaded.exposure} | graphs_of(loaded)
    for graph, data in graphs.items():
        if data is not None:
            note(graph, lambda data=data: dict(sorted(data.to_dict().items())))
    note("mask and numbers", lambda: [loaded.id_test.mask, loaded.num_classes, loaded.num_left_out])


# --- tables through the command line ---------------------------------------------------------------------------------


def command(folder: Path, *words: str) -> Any:
    """What ``oddnode ... --json`` prints, run in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "oddnode", *words, "--json"], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def use_tables(note: Note, exposure: bool) -> None:
    """Fit, score, calibrate and score again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, exposure)
        tables = ["--edges", "edges.csv", "--device", "cpu", "--nodes"]
        columns = ["--id-column", "image", "--label-column", "digit"]
        columns += ["--exposure-column", "odd"] if exposure else []
        known = ["--known-column", "ok", "--false-alarm-rate", "0.1"]
        steps = {
            "fit": ["fit", *tables, "nodes.csv", *columns, "--out", "first"],
            "score": ["score", "first", *tables, "nodes.csv", "--out", "first.csv", "--explain"],
            "calibrate": ["calibrate", "first", *tables, "known.csv", *known, "--out", "second"],
            "score again": ["score", "second", *tables, "nodes.csv", "--out", "second.csv"],
        }
        for step, words in steps.items():
            note_report(note, step, folder, words)
        for step, file in (("score", "first.csv"), ("score again", "second.csv")):
            note_columns(note, step, folder / file)


def note_report(note: Note, step: str, folder: Path, words: list[str]) -> None:
    """Each number that a command tells."""
    try:
        facts = command(folder, *words)
    except RuntimeError as error:
        note(step, raised, error)
        return
    for key, value in facts.items():
        note(f"{step}, report, {key}", lambda value=value: value)


def note_columns(note: Note, step: str, file: Path) -> None:
    """Each column of a table of scores; a renamed one can be told by its hash."""
    with file.open(newline="") as opened:
        head, *rows = csv.reader(opened)
    for column, values in zip(head, zip(*rows, strict=True), strict=True):
        note(f"{step}, column, {column}", lambda values=values: values)


def raised(error: Exception) -> None:
    raise error


def write_tables(folder: Path, exposure: bool) -> None:
    """The digits as tables: 0 to 4 are known, some of them without a label; 5 is known not to belong."""
    graph = oddnode.load_task("digits/feature").train
    digits = graph.y.tolist()
    ids = [f"img-{i:04d}" for i in range(len(digits))]
    labelled = [y < 5 and i % 3 > 0 for i, y in enumerate(digits)]
    nodes = {
        "image": ids,
        "digit": [f"digit {y}" if known else "" for y, known in zip(digits, labelled, strict=True)],
        "paper": [("white", "grey", "", "yellow")[i * i % 7 % 4] for i in range(len(ids))],
    }
    nodes |= {f"pixel_{place}": values for place, values in enumerate(graph.x.t().tolist())}
    if exposure:
        nodes["odd"] = ["true" if y == 5 else "false" for y in digits]
    write_csv(folder / "nodes.csv", nodes)
    held_out = [y < 5 and not known for y, known in zip(digits, labelled, strict=True)]
    write_csv(folder / "known.csv", nodes | {"ok": ["true" if each else "false" for each in held_out]})
    source, target = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].tolist()
    write_csv(folder / "edges.csv", {"source": [ids[i] for i in source], "target": [ids[i] for i in target]})


def write_csv(file: Path, columns: dict[str, list[Any]]) -> None:
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


# --- all of them -----------------------------------------------------------------------------------------------------


def units(data_sets: list[str]) -> Iterator[Unit]:
    """The whole work, by name; of real data only the data sets that are here."""
    yield from units_on_digits()
    yield from units_published_on_digits()
    for protocol, task, method, backbone, epochs in REAL:
        if task.split("/")[0] in data_sets:
            yield (
                f"{protocol} {task} {method} {backbone}",
                partial(
                    fit_clean if protocol == "clean" else fit_published,
                    task=task,
                    method=method,
                    backbone=backbone,
                    settings={"epochs": epochs} | (AS_GIVEN if protocol == "clean" else {}),
                ),
            )
    for data_set in ("digits", *data_sets):
        for shift in ("",) if data_set == "twitch" else ("/structure", "/feature", "/label"):
            for protocol in ("clean", "published"):
                name = f"{data_set}{shift}"
                yield f"task {name} {protocol}", partial(look_at_task, task=name, protocol=protocol)
    yield "benchmark digits/structure", partial(run_benchmark, tasks="digits/structure")
    yield "tables", partial(use_tables, exposure=False)
    yield "tables with exposure", partial(use_tables, exposure=True)


def units_on_digits() -> Iterator[Unit]:
    fit = partial(fit_clean, task="digits/label", settings=AS_GIVEN)
    for method in oddnode.RECIPES:
        yield f"clean digits/label {method}", partial(fit, method=method)
    fit = partial(fit_clean, task="digits/feature", settings=AS_GIVEN)
    for backbone in BACKBONES:
        for method in ("nodesafe", "gnnsafe++"):
            yield f"clean digits/feature {method} {backbone}", partial(fit, method=method, backbone=backbone)
    for name, settings in SETTINGS.items():
        yield f"settings {name}", partial(fit_clean, task="digits/label", method="nodesafe", settings=settings)
    yield "own module", fit_own_module
    yield "random edges", fit_random_edges
    yield "wrapped module", wrap_module
    yield "scorers", change_scorer


def units_published_on_digits() -> Iterator[Unit]:
    yield "published", look_at_published
    try:
        methods = published_methods()
    except (ImportError, AttributeError):  # the unit above has it
        methods = []
    for method in methods:
        settings = {"epochs": PUBLISHED_EPOCHS.get(method, EPOCHS)}
        yield (
            f"published digits/label {method}",
            partial(fit_published, task="digits/label", method=method, settings=settings),
        )
    asked: dict[str, Any] = {
        "tasks": "digits/label",
        "methods": ["msp", "nodesafe", "nodesafe++"],
        "protocol": "published",
    }
    yield "benchmark published digits/label", partial(run_benchmark, **asked)


def collect(source: Path, out: Path, only: str) -> None:
    """Run everything with the source that is imported, which must be the one named, and write what was found."""
    torch.set_num_threads(1)
    check_source(source)
    items = Items(only)
    states = {state["name"]: state["state"] for state in command(out.parent, "datasets")}
    here = [name for name in ("cora", "citeseer", "pubmed", "twitch") if states.get(name) == "found"]
    for unit, work in units(here):
        start = time.perf_counter()
        items.run(unit, work)
        print(f"{time.perf_counter() - start:6.2f} s  {unit}", flush=True)
    out.write_text(json.dumps({"items": items.found, "data_sets": here}))


def check_source(source: Path) -> None:
    """That both this process and the command line have their oddnode from there."""
    asked = [sys.executable, "-c", "import oddnode; print(oddnode.__file__)"]
    elsewhere = subprocess.run(asked, cwd=source.parent, capture_output=True, text=True, check=True).stdout.strip()
    for file in (oddnode.__file__, elsewhere):
        if not Path(file).resolve().is_relative_to(source.resolve()):
            raise AssertionError(f"oddnode comes from {file}, not from {source}")


# --- two sources side by side ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """The items of the commit and of the present source."""

    commit: dict[str, str]
    present: dict[str, str]

    @property
    def items(self) -> list[str]:
        return list(self.commit | self.present)

    @property
    def different(self) -> list[str]:
        return [item for item in self.items if self.commit.get(item) != self.present.get(item)]

    @property
    def failed(self) -> list[str]:
        """Items that agree, but only in what went wrong."""
        agreed = [item for item in self.items if item not in set(self.different)]
        return [item for item in agreed if self.present[item].startswith("error: ")]

    def told(self, item: str) -> str:
        """How an item differs."""
        if item in self.commit and item in self.present:
            return f"{item}: {self.commit[item]} in the commit, {self.present[item]} now"
        ours, theirs, where = self.commit, self.present, "commit"
        if item not in ours:
            ours, theirs, where = theirs, ours, "present source"
        unit, _, _ = item.partition(":")
        alike = [other for other, value in theirs.items() if value == ours[item] and other not in ours]
        twins = [other for other in alike if other.startswith(f"{unit}:")]
        return f"{item}: only in the {where}" + (f"; the same value as {twins[0]}" if twins else "")


def reason(item: str) -> str | None:
    """Why an item may differ, where that is known."""
    return next((why for pattern, why in EXPECTED.items() if item == pattern or fnmatchcase(item, pattern)), None)


def idle_patterns(different: list[str]) -> list[str]:
    """Expected differences that are not there."""
    return [
        pattern for pattern in EXPECTED if not any(item == pattern or fnmatchcase(item, pattern) for item in different)
    ]


def git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode().strip())
    return done.stdout


def unpack(commit: str, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", commit, "src"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def present_state() -> str:
    changed = bool(git("status", "--porcelain", "src").strip())
    return git("rev-parse", "HEAD").decode().strip() + (" with changes in src" if changed else "")


def copy_present(folder: Path) -> Path:
    """A copy, so that the source may be worked on meanwhile."""
    return Path(shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__")))


def compare(commit: str, only: str) -> tuple[Comparison, list[str]]:
    """Run both sources at the same time; also gives the data sets that were used."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {"commit": unpack(commit, folder / "commit"), "present": copy_present(folder / "present")}
        running = {which: start(source, folder / f"{which}.json", only) for which, source in sources.items()}
        try:
            failed = [which for which, process in running.items() if process.wait() != 0]
        finally:
            for process in running.values():
                process.kill()
        for which in failed:
            log = (folder / f"{which}.log").read_text()
            raise SystemExit(f"{log}\nthe source of the {which} could not be run; above is what it said")
        written = {which: json.loads((folder / f"{which}.json").read_text()) for which in sources}
    found = Comparison(written["commit"]["items"], written["present"]["items"])
    return found, written["present"]["data_sets"]


def start(source: Path, out: Path, only: str) -> subprocess.Popen:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": str(source), "CUDA_VISIBLE_DEVICES": ""}
    environment["TMPDIR"] = str(out.parent)  # libraries leave files there; this folder goes away
    if environment.get("ODDNODE_DATA"):
        environment["ODDNODE_DATA"] = os.path.abspath(os.path.expanduser(environment["ODDNODE_DATA"]))
    asked = [sys.executable, str(Path(__file__).resolve()), "HEAD", "--only", only, "--collect", str(source), str(out)]
    with out.with_suffix(".log").open("w") as log:
        return subprocess.Popen(asked, env=environment, cwd=source.parent, stdout=log, stderr=subprocess.STDOUT)


def report(found: Comparison, only: str) -> list[str]:
    """Print what differs; gives the items that nobody expected to."""
    unexpected = []
    for item in found.different:
        why = reason(item)
        print(found.told(item) + (f" (expected: {why})" if why else ""))
        if why is None:
            unexpected.append(item)
    for item in found.failed:
        print(f"{item}: the same in both, but {found.present[item]}")
    for pattern in idle_patterns(found.different) if only == "*" else []:
        print(f"EXPECTED has {pattern!r}, but nothing that it names differs")
    return unexpected


def summary(found: Comparison, facts: dict[str, Any]) -> dict[str, Any]:
    return facts | {
        "machine": machine(),
        "num_items": len(found.items),
        "num_agreeing": len(found.items) - len(found.different),
        "num_failing_in_both": len(found.failed),
        "num_expected": sum(reason(item) is not None for item in found.different),
        "different": {
            item: {"commit": found.commit.get(item), "present": found.present.get(item), "reason": reason(item)}
            for item in found.different
        },
        "items": {item: found.present[item] for item in found.items if item not in set(found.different)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for a summary")
    parser.add_argument(
        "--only", default="*", help="pattern of units of work ('tables*'), or of their items ('*: scores*')"
    )
    parser.add_argument("--collect", nargs=2, type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect:
        source, out = options.collect
        collect(source, out, options.only)
        return
    commit = git("rev-parse", "--verify", f"{options.commit}^{{commit}}").decode().strip()
    facts: dict[str, Any] = {"commit": commit, "present": present_state(), "only": options.only}
    began = time.perf_counter()
    found, data_sets = compare(commit, options.only)
    facts |= {"data_sets": data_sets, "seconds": round(time.perf_counter() - began, 1)}
    unexpected = report(found, options.only)
    if options.out:
        options.out.write_text(json.dumps(summary(found, facts), indent=1) + "\n")
    if not found.items:
        raise SystemExit(f"no item fits {options.only!r}")
    print(f"data sets besides digits: {', '.join(data_sets) or 'none; set ODDNODE_DATA to the folder that has them'}")
    same = len(found.items) - len(found.different)
    print(f"{same} of {len(found.items)} items agree bit for bit with {options.commit}")
    sys.exit(bool(unexpected))


if __name__ == "__main__":
    main()
