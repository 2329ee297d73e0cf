"""The pages of measurements show what the benchmarks stored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_of_the_stored_results() -> None:
    script = ROOT / "benchmarks" / "measurements.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run benchmarks/measurements.py; out of date: {done.stdout}{done.stderr}"
