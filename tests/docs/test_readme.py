"""The README's Python runs, top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict = {"__name__": "example"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    graph, scores = names["graph"], names["scores"]
    assert (graph.y < 0)[scores.argsort()[:100]].float().mean() >= 0.9
    assert names["flagged"][graph.ood_mask].float().mean() > 0.5
    assert "'auroc': " in capsys.readouterr().out
    assert (tmp_path / "digits-model" / "config.json").exists()
