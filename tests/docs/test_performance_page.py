"""The page on performance shows what the benchmarks stored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pages_tables_are_those_of_the_stored_results() -> None:
    script = ROOT / "benchmarks" / "performance.py"
    made = subprocess.run([sys.executable, str(script), "--print"], capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    shown = page.split("benchmarks/performance.py -->")[1].split("<!-- end of tables -->")[0]
    assert shown.strip() == made.strip()
    assert "times faster" in shown
