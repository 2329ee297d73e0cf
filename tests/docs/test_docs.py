"""The examples of the docs run, and say what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, heading: str | None = None) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    if heading is not None:
        text = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("heading", ["From `Data` to flagged nodes", "A network of your own", "Research"])
def test_the_quick_start_runs(heading: str) -> None:
    [code] = blocks("quickstart.md", heading)
    exec(compile(code, heading, "exec"), {"__name__": "example"})


def test_a_task_of_ones_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = blocks("tasks.md")
    exec(compile(code, "tasks.md", "exec"), {"__name__": "example"})
    shown = capsys.readouterr().out
    assert "structure" in shown
    assert "feature" in shown


def test_the_reproduction_page_lists_every_table_and_figure() -> None:
    from oddnode.paper.experiments import ITEMS

    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert [name for name in ITEMS if not any(f"{name}`" in row or f"{name}-" in row for row in rows)] == []


def test_a_page_of_other_runs_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    [code] = blocks("report.md")
    exec(compile(code, "report.md", "exec"), {"__name__": "example"})
    assert (tmp_path / "page.html").stat().st_size > 1e6


def test_from_data_to_flagged_nodes_takes_twenty_lines() -> None:
    [code] = blocks("quickstart.md", "From `Data` to flagged nodes")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20


def test_the_worked_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "digits.md").read_text(encoding="utf-8")
    [code] = blocks("digits.md")
    exec(compile(code, "digits.md", "exec"), {"__name__": "example"})
    alarms, caught = map(float, re.findall(r"[\d.]+(?= %)", capsys.readouterr().out))
    said = re.search(r"prints `false alarms ([\d.]+) %, caught ([\d.]+) %`", page)
    assert said is not None
    # Other processors add numbers in another order, so the last digits may differ.
    assert alarms == pytest.approx(float(said[1]), abs=2.0)
    assert caught == pytest.approx(float(said[2]), abs=3.0)


def test_links_and_pictures_exist() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
