"""The examples of the docs run, and say what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oddnode import load_task

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, heading: str | None = None) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    if heading is not None:
        text = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run(page: str, heading: str | None = None) -> dict[str, Any]:
    """What the one example there leaves behind."""
    [code] = blocks(page, heading)
    left: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, heading or page, "exec"), left)
    return left


def test_the_quick_start_flags_the_unknown_digits(capsys: pytest.CaptureFixture[str]) -> None:
    left = run("quickstart.md", "From `Data` to flagged nodes")
    flagged, data, task = left["flagged"], left["data"], left["task"]
    assert f"{int(flagged.sum())} of {len(flagged)} nodes flagged" in capsys.readouterr().out
    assert flagged[data.ood_mask].float().mean() > 0.7
    assert flagged[task.id_test.mask & ~left["calibration"]].float().mean() < 0.1


def test_tables_in_memory_are_scored() -> None:
    left = run("tables.md", "In Python")
    scores = left["scores"]
    assert scores["id"].to_pylist() == left["nodes"]["id"]
    assert left["report"].notes == []
    assert set(scores["split"].to_pylist()) == {"train", "validation", "calibration", None}


def test_a_network_of_ones_own_is_calibrated_and_trained() -> None:
    left = run("graphs.md", "A network of your own")
    data = left["data"]
    assert left["flagged"][data.test_mask].float().mean() <= 0.05  # of the nodes it was calibrated on
    assert (left["detector"].predict(data)[data.test_mask] == data.y[data.test_mask]).float().mean() > 0.8


def test_exported_scores_are_those_of_the_detector() -> None:
    left = run("graphs.md", "Scores without oddnode")
    assert left["scores"].shape == (left["data"].num_nodes,)


def test_the_researchers_combination_detects(capsys: pytest.CaptureFixture[str]) -> None:
    result = run("quickstart.md", "Research")["result"]
    assert f"'auroc': {result['auroc']:.1f}" in capsys.readouterr().out
    assert result["auroc"] > 95


def test_a_benchmark_takes_the_readers_own_task_and_method() -> None:
    left = run("benchmarks.md", "Your own task or method")
    assert [(r.task, r.method) for r in left["results"]] == [
        *[("noisy_digits", "mine"), ("noisy_digits", "msp"), ("digits/label", "mine"), ("digits/label", "msp")]
    ]
    left = run("benchmarks.md", "The files")
    assert [r.method for r in left["results"]] == ["nodesafe", "msp"]


def test_a_task_of_ones_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = blocks("tasks.md")
    exec(compile(code, "tasks.md", "exec"), {"__name__": "example"})
    shown = capsys.readouterr().out
    assert "structure" in shown
    assert "feature" in shown


def test_a_page_of_other_runs_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    [code] = blocks("report.md")
    exec(compile(code, "report.md", "exec"), {"__name__": "example"})
    assert (tmp_path / "page.html").stat().st_size > 1e6


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


@pytest.mark.parametrize("heading", ["Edge weights", "Mini-batches"])
def test_the_guide_to_graphs_runs(heading: str) -> None:
    left = run("graphs.md", heading)
    assert left["detector"].score_samples(left["data"]).isfinite().all()


def test_the_three_doors_of_the_front_page_open() -> None:
    from torch_geometric.nn import GCN

    task = load_task("digits/label")
    model = GCN(in_channels=64, hidden_channels=16, num_layers=2, out_channels=5)
    given = {"data": task.train, "model": model, "held_out": task.train.test_mask}
    for code in blocks("index.md"):
        left: dict[str, Any] = {"__name__": "example", **given}
        exec(compile(code, "index.md", "exec"), left)
        assert left["flagged"].shape == (task.train.num_nodes,)


def test_the_guide_to_arrivals_gives_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    left = run("arrivals.md")
    assert left["flagged"].any()
    assert "unlike" in capsys.readouterr().out


def test_links_and_pictures_exist() -> None:
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
