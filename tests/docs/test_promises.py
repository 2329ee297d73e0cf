"""Every test that a promise names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_that_a_promise_names_exist() -> None:
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("docs/reliability.md", "SECURITY.md"))
    files = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    defined = set(re.findall(r"def (test_\w+)\(", "\n".join(files.values())))
    named, paths = re.findall(r"`(test_\w+)`", text), re.findall(r"`(?:tests/)?([\w/]*test_\w+\.py)`", text)
    assert named
    assert sorted(set(named) - defined) == []
    assert [path for path in paths if not (ROOT / "tests" / path).exists()] == []
