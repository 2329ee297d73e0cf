"""Whether the present source gives the same numbers as a commit: on one machine, on a CPU, bit for bit.

    python benchmarks/same_numbers.py HEAD~1 --out same.json
    python benchmarks/same_numbers.py 53a3fcf --only 'clean digits/label nodesafe*' --only 'tables*'
    python benchmarks/same_numbers.py 53a3fcf --save base.json
    python benchmarks/same_numbers.py --against base.json --only 'tables*'

For a change that is to move no number. Both sources run the same work at the same time, one thread each: every method,
backbone and published setting, saved models, decisions, arrivals, sampled and stacked training, tables, graphs on disk
and two ranks (`same_work` has all of it), and real data sets where ``ODDNODE_DATA`` has them. Every result is an item,
``unit of work: what``, and is compared by its hash. Printed is one line for each item that differs or that one source
lacks; the exit status is 1 where ``EXPECTED`` does not say why.

``--save`` runs the commit only and writes its items; ``--against`` runs the present source only, or the one that
``--source`` names, and compares it with such a file, which must come from the same machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import machine
from same_work import Note, command, units
from torch import Tensor

import oddnode

#: Differences that are meant: item, or pattern of items -> why, for example a fault that was mended on the way.
_ARRIVALS = "`LiveGraph` scores single arrivals in place of `ArrivalScorer`"
EXPECTED: dict[str, str] = {
    "arrival scorer *": _ARRIVALS,
    "weighted edges *, arrivals*": _ARRIVALS,
    "*, wording": "notes and advice are worded differently",
}

ROOT = Path(__file__).resolve().parents[1]


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


def wants_unit(only: list[str], unit: str) -> bool:
    return any(fnmatchcase(unit, pattern.partition(":")[0]) for pattern in only)


def wants_item(only: list[str], item: str) -> bool:
    unit = item.partition(":")[0]
    return any(fnmatchcase(item if ":" in pattern else unit, pattern) for pattern in only)


@dataclass
class Items:
    """What one source gives: item -> hash, or what went wrong; and the seconds of each unit of work."""

    only: list[str]
    found: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, unit: str, work: Callable[[Note], None]) -> None:
        """Do a unit of work, if a pattern names it; one that cannot be begun is one item."""
        if not wants_unit(self.only, unit):
            return
        began = time.perf_counter()
        problem = self._tried(partial(work, partial(self._note, unit)))
        if problem.startswith("error: "):
            self.found[f"{unit}: as a whole"] = problem
        self.seconds[unit] = round(time.perf_counter() - began, 2)
        print(f"{self.seconds[unit]:6.2f} s  {unit}", flush=True)

    def _note(self, unit: str, what: str, make: Callable[..., Any], *args: Any) -> None:
        item = f"{unit}: {what}"
        if wants_item(self.only, item):
            self.found[item] = self._tried(partial(make, *args))

    def _tried(self, make: Callable[[], Any]) -> str:
        try:
            return digest(make())
        except Exception as error:
            message = re.sub(re.escape(tempfile.gettempdir()) + r"\S*", "...", " ".join(str(error).split()))
            return f"error: {type(error).__name__}: {message}"


def collect(source: Path, out: Path, only: list[str]) -> None:
    """Run everything with the source that is imported, which must be the one named, and write what was found."""
    torch.set_num_threads(1)
    check_source(source)
    items = Items(only)
    states = {state["name"]: state["state"] for state in command(out.parent, "datasets")}
    here = [name for name in ("cora", "citeseer", "pubmed", "twitch") if states.get(name) == "found"]
    for unit, work in units(here):
        items.run(unit, work)
    out.write_text(json.dumps({"data_sets": here, "seconds": items.seconds, "items": items.found}))


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


def git(*words: str, folder: Path = ROOT) -> bytes:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode().strip())
    return done.stdout


def unpack(commit: str, folder: Path) -> Path:
    subprocess.run(["tar", "-x", "-C", folder], input=git("archive", "--format=tar", commit, "src"), check=True)
    return folder / "src"


def present_state(source: Path) -> str:
    inside = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, capture_output=True)
    if inside.returncode:
        return f"{source}, which is in no repository"
    changed = bool(git("status", "--porcelain", ".", folder=source).strip())
    return inside.stdout.decode().strip() + (" with changes in src" if changed else "")


def copy_present(folder: Path, source: Path = ROOT / "src") -> Path:
    """A copy, so that the source may be worked on meanwhile."""
    return Path(shutil.copytree(source, folder / "src", ignore=shutil.ignore_patterns("__pycache__")))


def run_sources(commit: str | None, present: Path | None, only: list[str]) -> dict[str, Any]:
    """Run a commit and a present source, or one of them, at the same time; gives what `collect` wrote for each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {"commit": unpack(commit, folder / "commit")} if commit else {}
        sources |= {"present": copy_present(folder / "present", present)} if present else {}
        running = {which: start(source, folder / f"{which}.json", only) for which, source in sources.items()}
        try:
            failed = [which for which, process in running.items() if process.wait() != 0]
        finally:
            for process in running.values():
                process.kill()
        for which in failed:
            log = (folder / f"{which}.log").read_text()
            raise SystemExit(f"{log}\nthe source of the {which} could not be run; above is what it said")
        return {which: json.loads((folder / f"{which}.json").read_text()) for which in sources}


def saved_items(file: Path, only: list[str]) -> dict[str, Any]:
    """What ``--save`` wrote, of the items that patterns name."""
    saved = json.loads(file.read_text())
    return saved | {"items": {item: value for item, value in saved["items"].items() if wants_item(only, item)}}


def start(source: Path, out: Path, only: list[str]) -> subprocess.Popen:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": str(source), "CUDA_VISIBLE_DEVICES": ""}
    environment["TMPDIR"] = str(out.parent)  # libraries leave files there; this folder goes away
    if environment.get("ODDNODE_DATA"):
        environment["ODDNODE_DATA"] = os.path.abspath(os.path.expanduser(environment["ODDNODE_DATA"]))
    asked = [sys.executable, str(Path(__file__).resolve()), "--collect", str(source), str(out)]
    asked += [f"--only={pattern}" for pattern in only]
    with out.with_suffix(".log").open("w") as log:
        return subprocess.Popen(asked, env=environment, cwd=source.parent, stdout=log, stderr=subprocess.STDOUT)


def report(found: Comparison, only: list[str]) -> list[str]:
    """Print what differs; gives the items that nobody expected to."""
    unexpected = []
    for item in found.different:
        why = reason(item)
        print(found.told(item) + (f" (expected: {why})" if why else ""))
        if why is None:
            unexpected.append(item)
    for item in found.failed:
        print(f"{item}: the same in both, but {found.present[item]}")
    for pattern in idle_patterns(found.different) if "*" in only else []:
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
    parser.add_argument("commit", nargs="?", help="the commit to compare with")
    parser.add_argument("--save", type=Path, default=None, help="run the commit only, and write its items to this file")
    parser.add_argument("--against", type=Path, default=None, help="compare with this file instead of a commit")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the present source: the src of a checkout")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for a summary")
    parser.add_argument(
        "--only",
        action="append",
        default=None,
        help="pattern of units of work ('tables*'), or of their items ('*: scores*'); may be given several times",
    )
    parser.add_argument("--collect", nargs=2, type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = options.only or ["*"]
    if options.collect:
        source, out = options.collect
        collect(source, out, options.only)
        return
    if (options.commit is None) == (options.against is None):
        parser.error("name a commit, or a file with --against")
    if options.save and options.against:
        parser.error("--save takes a commit, not --against")
    if options.save:
        save(options)
    else:
        compare(options)


def resolved(commit: str) -> str:
    return git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()


def save(options: argparse.Namespace) -> None:
    commit = resolved(options.commit)
    began = time.perf_counter()
    written = run_sources(commit, None, options.only)["commit"]
    facts = {"commit": commit, "only": options.only, "machine": machine()}
    options.save.write_text(json.dumps(facts | written, indent=1) + "\n")
    for item, value in written["items"].items():
        if value.startswith("error: "):
            print(f"{item}: {value}")
    print(f"{len(written['items'])} items of {options.commit} in {time.perf_counter() - began:.0f} s: {options.save}")


def compare(options: argparse.Namespace) -> None:
    began = time.perf_counter()
    if options.against:
        base = saved_items(options.against, options.only)
        commit, written = base["commit"], run_sources(None, options.source, options.only)
    else:
        commit = resolved(options.commit)
        written = run_sources(commit, options.source, options.only)
        base = written["commit"]
    found, data_sets = Comparison(base["items"], written["present"]["items"]), written["present"]["data_sets"]
    facts = {"commit": commit, "present": present_state(options.source), "only": options.only, "data_sets": data_sets}
    facts |= {"seconds": round(time.perf_counter() - began, 1)}
    unexpected = report(found, options.only)
    if options.out:
        options.out.write_text(json.dumps(summary(found, facts), indent=1) + "\n")
    if not found.items:
        raise SystemExit(f"no item fits {options.only}")
    print(f"data sets besides digits: {', '.join(data_sets) or 'none; set ODDNODE_DATA to the folder that has them'}")
    same = len(found.items) - len(found.different)
    print(f"{same} of {len(found.items)} items agree bit for bit with {commit[:12]}, in {facts['seconds']} s")
    sys.exit(bool(unexpected))


if __name__ == "__main__":
    main()
