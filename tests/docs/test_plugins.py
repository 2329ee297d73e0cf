"""The page on plugins. Its first block, a whole plugin, is run by the command line in tests/cli/test_plugins.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


def test_a_data_set_in_files_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ODDNODE_DATA", str(tmp_path))
    _, code = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    exec(compile(code, "plugins.md", "exec", dont_inherit=True), {"__name__": "example"})
    expected = f"Shop is missing nodes.csv, edges.csv; looked in {tmp_path / 'shop'}. Ask sales"
    assert capsys.readouterr().out.startswith(expected)
