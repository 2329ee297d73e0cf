"""The command: ``python -m soak --minutes 30``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

# Before torch is imported: every process has one thread and computes on the CPU, and forks stay sound.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from soak.canaries import find_all
from soak.cases import Case
from soak.engine import Engine
from soak.families import FAMILIES, chosen
from soak.summary import Summary
from soak.trial import Family, Trial

_STANDARD_MINUTES = 30


def main() -> int:
    """Run the soak and return the exit status: 1 if there was a violation, or a canary was not found."""
    options = _options()
    folder = options.out.resolve()
    for name in ("bases", "work"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, {options.minutes:g} minutes, {options.jobs} processes, files in {folder}", flush=True)
    if options.replay is not None:
        return _replay(options.replay, folder)
    if options.canary:
        return 0 if find_all(folder, options.seed, options.jobs, options.minutes * 60) else 1
    return _soak(folder, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description="Hostile use of oddnode by chance.")
    parser.add_argument("--minutes", type=float, default=_STANDARD_MINUTES, help="how long; of each canary at most")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the seed of all chance")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--only", help="families, separated by commas: " + ", ".join(FAMILIES))
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="folder for cases and temporary files")
    parser.add_argument("--canary", action="store_true", help="put old faults back and find each")
    parser.add_argument("--replay", type=Path, help="do the trial of a case again")
    return parser.parse_args()


def _soak(folder: Path, options: argparse.Namespace) -> int:
    summary = Summary()

    def on_trial(family: Family, trial: Trial) -> None:
        summary.add(family.name, trial)
        if trial.violation is not None:
            print(f"VIOLATION {family.name}, {trial.kind}: {trial.violation}", flush=True)

    families = chosen(options.only)
    engine = Engine(families, options.seed, folder, options.jobs, on_trial)
    began = time.monotonic()
    engine.prepare()
    print(f"prepared in {time.monotonic() - began:.0f} s", flush=True)
    engine.run(time.monotonic() + 60 * options.minutes)
    print(summary.markdown())
    for family in families:
        wanted = round(family.quota * options.minutes / _STANDARD_MINUTES)
        if summary.total(family.name) < wanted:
            print(f"note: {summary.total(family.name)} trials of {family.name}, wanted {wanted}; the machine is busy")
    for dismissed in engine.dismissed:
        print(f"note: {dismissed}, once and not in three replays; the machine is busy")
    if summary.num_violations:
        print(f"{summary.num_violations} violations; their cases are in {folder / 'cases'}")
    return 1 if summary.num_violations else 0


def _replay(path: Path, folder: Path) -> int:
    case = Case.read(path)
    engine = Engine([FAMILIES[case.family]], case.seed, folder, 1, lambda family, trial: None)
    engine.prepare()
    found = engine.replay(case)
    for trial in found:
        print(f"{trial.kind}: {trial.violation or 'no violation'}")
    return 1 if any(trial.violation for trial in found) else 0


if __name__ == "__main__":
    sys.exit(main())
