"""Old faults that are put back are found; without them the same trials find nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soak.canaries import CANARIES
from soak.families import FAMILIES

ROOT = Path(__file__).parents[2]


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "soak", "--jobs", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)


def test_every_family_has_a_fault_that_it_must_find() -> None:
    assert {family.name for family, _ in CANARIES.values()} == set(FAMILIES)


@pytest.mark.slow
def test_a_manifest_that_is_not_compared_is_found(tmp_path: Path) -> None:
    code = "from pathlib import Path; from soak.canaries import find; "
    code += f"print(find('the manifest is not compared', Path({str(tmp_path)!r}), 1, 1, 60))"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # as the command has it
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.stdout.strip() == "a changed file was loaded (again in replay 1)", done.stderr
    [case, *_] = sorted((tmp_path / "cases").glob("models-1-*.json"))
    # The fault is not in this source: the same trial is refused.
    replayed = soak("--replay", str(case), "--out", str(tmp_path / "again"))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "no violation" in replayed.stdout


@pytest.mark.slow
def test_a_short_soak_of_everything_finds_nothing(tmp_path: Path) -> None:
    done = soak("--minutes", "0.15", "--seed", "5", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 5" in done.stdout
    assert not (tmp_path / "cases").exists()
