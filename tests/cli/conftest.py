"""Tables for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables.examples import example, write_csv


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with nodes.csv and edges.csv."""
    nodes, edges = example(240)
    write_csv(tmp_path / "nodes.csv", nodes)
    write_csv(tmp_path / "edges.csv", edges)
    monkeypatch.chdir(tmp_path)
    return tmp_path
