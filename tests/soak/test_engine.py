"""The engine: a trial that crashes, hangs, fills the memory or raises is a violation with a case."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest

from soak.cases import Case
from soak.engine import Engine
from soak.summary import Summary
from soak.trial import Family, Trial


class Odd(Family):
    """Every kind goes wrong in its own way."""

    name = "odd"
    quota = 10
    kinds: ClassVar[tuple[str, ...]] = ("fine", "dies", "raises", "is wrong")
    limit = 300.0
    batch = 4

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        (work / "input").write_text(str(rng.random()))
        if kind == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "hangs":
            time.sleep(600)
        if kind == "computes" or (kind == "computes once" and "replay" not in str(work)):
            while True:
                pass
        if kind == "fills the memory":
            held = bytearray(b"x") * 2**29
            time.sleep(len(held))
        if kind == "raises":
            raise ZeroDivisionError("harness")
        yield Trial(kind, "it is wrong" if kind == "is wrong" else None)


class Hangs(Odd):
    kinds: ClassVar[tuple[str, ...]] = ("hangs",)
    limit = 0.4


class Computes(Odd):
    kinds: ClassVar[tuple[str, ...]] = ("computes",)
    limit = 1.0


class SlowOnce(Odd):
    """As on a machine that was busy for a while."""

    kinds: ClassVar[tuple[str, ...]] = ("computes once",)
    limit = 1.0
    batch = 1


class Fills(Odd):
    kinds: ClassVar[tuple[str, ...]] = ("fills the memory",)


def run(family: Family, folder: Path, trials: int) -> list[Trial]:
    found: list[Trial] = []
    engine = Engine([family], 7, folder, 2, lambda _, trial: found.append(trial))
    engine.prepare()
    engine.run(time.monotonic() + 600, enough=lambda: len(found) >= trials)
    return found


def test_crashes_errors_and_violations_are_told_apart_and_leave_cases(tmp_path: Path) -> None:
    found = run(Odd(), tmp_path, trials=8)
    by_kind = {trial.kind: trial.violation for trial in found}
    assert by_kind["fine"] is None
    assert by_kind["dies"] == "the process ended with status -9 (again in replay 1)"
    cases = [Case.read(path) for path in sorted((tmp_path / "cases").glob("*.json"))]
    assert {case.kind for case in cases} == {"dies"}  # it ends its batch
    assert all((tmp_path / "cases" / f"odd-7-{case.number}" / "input").exists() for case in cases)


@pytest.mark.parametrize(("number", "violation"), [(2, "ZeroDivisionError: harness"), (3, "it is wrong"), (4, None)])
def test_a_case_is_done_again(tmp_path: Path, number: int, violation: str | None) -> None:
    case = Case("odd", "any", 7, number, "as found")
    assert Case.read(case.write(tmp_path / "read")) == case
    engine = Engine([Odd()], 7, tmp_path, 1, lambda family, trial: None)
    engine.prepare()
    [trial] = engine.replay(case)
    assert trial.violation is None if violation is None else violation in (trial.violation or "")


@pytest.mark.parametrize(
    ("family", "violation"),
    [
        (Hangs(), "a trial hung for 2 s"),
        (Computes(), "a trial took more than 1 s of CPU time"),
        (Fills(), "a trial took more than 0.25 GiB"),
    ],
)
def test_a_trial_that_hangs_or_fills_the_memory_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: Family, violation: str
) -> None:
    monkeypatch.setattr("soak.engine._MOST_MEMORY", 2**28)
    monkeypatch.setattr("soak.engine._WAITING", 5 if family.kinds == ("hangs",) else 500)
    assert run(family, tmp_path, trials=1)[0].violation == f"{violation} (again in replay 1)"


def test_a_trial_that_was_slow_once_is_no_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak.engine._WAITING", 500)
    engine = Engine([SlowOnce()], 7, tmp_path, 1, lambda _, trial: found.append(trial))
    found: list[Trial] = []
    engine.prepare()
    engine.run(time.monotonic() + 600, enough=lambda: bool(found or engine._doubts))
    assert found == [Trial("computes once")]
    assert engine.dismissed == ["odd, computes once: a trial took more than 1 s of CPU time"]
    assert not list((tmp_path / "cases").glob("*.json"))


def test_families_keep_pace_with_their_quotas(tmp_path: Path) -> None:
    class Many(Odd):
        name = "many"
        least = 5
        quota = 80
        kinds: ClassVar[tuple[str, ...]] = ("fine",)

    class Few(Many):
        name = "few"
        quota = 10

    counts: Counter[str] = Counter()
    engine = Engine([Many(), Few()], 0, tmp_path, 1, lambda family, trial: counts.update([family.name]))
    engine.prepare()
    engine.run(time.monotonic() + 600, enough=lambda: counts.total() >= 90)
    assert 60 <= counts["many"] <= 84
    assert 8 <= counts["few"] <= 16


def test_trials_violations_and_shares_are_counted() -> None:
    summary = Summary()
    summary.add("models", Trial("bit", parsed=False, accepted=False))
    summary.add("models", Trial("bit", "it loads", parsed=True, accepted=True))
    summary.add("models", Trial("number", parsed=True, accepted=False))
    summary.add("kills", Trial("save"))
    assert summary.num_violations == 1
    assert summary.total("models") == 3
    assert summary.markdown().splitlines()[2:] == [
        "| **models** | 3 | 1 | 67% | 33% |",
        "| bit | 2 | 1 | 50% | 50% |",
        "| number | 1 | 0 | 100% | 0% |",
        "| **kills** | 1 | 0 |  |  |",
        "| save | 1 | 0 |  |  |",
    ]
