"""The examples of the docs run and say what they say; reference, tables and pictures are those of the code."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import oddnode
from oddnode import RECIPES, Detector, load_task
from oddnode.cli import main
from oddnode.detector.fitting import folder_blocker, full_batch_blocker

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(page: str, heading: str | None = None) -> list[str]:
    text = text_of(page)
    if heading is not None:
        text = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run(page: str, heading: str | None = None, only: int | None = None, **given: Any) -> dict[str, Any]:
    """What the examples there leave behind, all of them one after another or only one."""
    codes = blocks(page, heading)
    left: dict[str, Any] = {"__name__": "example", **given}
    for code in codes if only is None else [codes[only]]:
        exec(compile(code, heading or page, "exec", dont_inherit=True), left)
    return left


def script(name: str) -> ModuleType:
    """A script of the docs, as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_the_mules_of_the_bank_are_flagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run("tables.md", "Several kinds of nodes")
    section = text_of("tables.md").split("## Several kinds of nodes\n", 1)[1].split("\n## ", 1)[0]
    commands = re.findall(r"^\$ oddnode ((?:.*\\\n)*.*)", section, re.MULTILINE)
    for command in commands:
        monkeypatch.setattr(sys, "argv", ["oddnode", *shlex.split(command.replace("\\\n", ""))])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, capsys.readouterr().err
    with closing(sqlite3.connect("bank.db")) as bank:
        rows = bank.execute("select id, is_ood from scores where split is null and id like 'a%'").fetchall()
        others = bank.execute("select sum(is_ood), count(p_value) from scores where id not like 'a%'").fetchall()
    said = re.search(r"All (\d+) mules are flagged, and (\d+) of the (\d+) other accounts", section)
    assert said is not None
    mules = [flag for name, flag in rows if int(name[1:]) >= 900]
    known = [flag for name, flag in rows if int(name[1:]) < 900]
    assert (sum(mules), len(known)) == (int(said[1]), int(said[3]))
    # Other processors add numbers in another order, so single flags may differ.
    assert sum(known) == pytest.approx(int(said[2]), abs=5)
    assert others == [(0, 0)]


def test_a_network_of_ones_own_is_calibrated_and_trained() -> None:
    left = run("graphs.md", "A network of your own")
    data = left["data"]
    assert left["flagged"][data.test_mask].float().mean() <= 0.05  # of the nodes it was calibrated on
    assert (left["detector"].predict(data)[data.test_mask] == data.y[data.test_mask]).float().mean() > 0.8


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
    run("tasks.md")
    shown = capsys.readouterr().out
    assert "structure" in shown
    assert "feature" in shown


def test_a_page_of_other_runs_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    run("report.md")
    assert (tmp_path / "page.html").stat().st_size > 1e6


def test_the_worked_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    run("digits.md")
    alarms, caught = map(float, re.findall(r"[\d.]+(?= %)", capsys.readouterr().out))
    said = re.search(r"prints `false alarms ([\d.]+) %, caught ([\d.]+) %`", text_of("digits.md"))
    assert said is not None
    # Other processors add numbers in another order, so the last digits may differ.
    assert alarms == pytest.approx(float(said[1]), abs=2.0)
    assert caught == pytest.approx(float(said[2]), abs=3.0)


def test_scores_of_several_types_of_nodes_are_split() -> None:
    left = run("graphs.md", "Input")
    assert [len(left["accounts"]), len(left["devices"])] == [300, 100]


@pytest.mark.parametrize("heading", ["Edge weights", "Mini-batches", "Scores without oddnode"])
def test_the_guide_to_graphs_runs(heading: str) -> None:
    left = run("graphs.md", heading)
    scores = left["scores"] if "scores" in left else left["detector"].score_samples(left["data"])
    assert scores.shape == (left["data"].num_nodes,)
    assert scores.isfinite().all()


def test_the_three_doors_of_the_front_page_open() -> None:
    from torch_geometric.nn import GCN

    task = load_task("digits/label")
    model = GCN(in_channels=64, hidden_channels=16, num_layers=2, out_channels=5)
    for number in range(len(blocks("index.md"))):
        left = run("index.md", only=number, data=task.train, model=model, held_out=task.train.test_mask)
        assert left["flagged"].shape == (task.train.num_nodes,)


def test_the_guide_to_arrivals_gives_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    left = run("arrivals.md")
    assert left["flagged"].any()
    assert "unlike" in capsys.readouterr().out


def test_the_guide_to_single_arrivals_runs() -> None:
    left = run("online.md")
    assert left["live"].num_nodes == len(left["nodes"])


def test_links_and_pictures_exist() -> None:
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names = run("../README.md")
    graph, scores = names["graph"], names["scores"]
    assert (graph.y < 0)[scores.argsort()[:100]].float().mean() >= 0.9
    assert names["flagged"][graph.ood_mask].float().mean() > 0.5
    assert "'auroc': " in capsys.readouterr().out
    assert (tmp_path / "digits-model" / "config.json").exists()


@pytest.mark.usefixtures("own_registries")
def test_the_methods_of_the_page_on_new_methods_detect(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(blocks("add-a-method.md")) == 7
    run("add-a-method.md", __name__="__main__")
    printed = [float(number) for number in re.findall(r"AUROC ([\d.]+)", capsys.readouterr().out)]
    assert len(printed) == 7
    assert min(printed) > 80


def test_a_data_set_in_files_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first block of the page, a whole plugin, is run by the command line in tests/cli/test_plugins.py."""
    monkeypatch.setenv("ODDNODE_DATA", str(tmp_path))
    run("plugins.md", only=1)
    expected = f"Shop is missing nodes.csv, edges.csv; looked in {tmp_path / 'shop'}. Ask sales"
    assert capsys.readouterr().out.startswith(expected)


def test_the_table_says_which_methods_work_on_large_graphs_and_why_others_do_not() -> None:
    shown = dict(re.findall(r"^\| `([^`]+)` \| (yes.*|no: .*) \|$", text_of("large-graphs.md"), re.MULTILINE))
    found = {}
    for name in RECIPES:
        detector = Detector.from_recipe(name, device="cpu")
        blocker = folder_blocker(detector)
        how = "yes" if full_batch_blocker(detector) is None else "yes, in mini-batches"
        found[name] = how if blocker is None else f"no: {blocker}"
    assert shown == found


def test_the_example_of_large_graphs_runs() -> None:
    left = run("large-graphs.md")
    assert len(left["scores"]) == left["folder"].num_nodes
    assert (left["other"].num_nodes, left["other"].num_edges) == (5000, 50_000)


def test_the_tables_of_measurements_are_those_of_the_stored_results() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "measurements.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run benchmarks/measurements.py; out of date: {done.stdout}{done.stderr}"


def test_the_reference_names_what_exists_once_and_all_that_oddnode_exports() -> None:
    package, entries = "", []
    for kind, name in re.findall(
        r"^\.\. (currentmodule|data|auto\w+):: (\S+)$", text_of("reference.rst"), re.MULTILINE
    ):
        if kind == "currentmodule":
            package = name
        else:
            entries.append((package, name))
    assert [f"{home}.{name}" for home, name in entries if not hasattr(import_module(home), name)] == []
    assert len(entries) == len(set(entries))
    names = {name for _, name in entries}
    assert [name for name in vars(oddnode)["__all__"] if name not in names | {"__version__"}] == []


def test_the_picture_of_the_architecture_is_that_of_the_import_contract() -> None:
    drawing = script("draw_architecture")
    assert drawing.PICTURE.read_text(encoding="utf-8") == drawing.draw(), "run: python docs/draw_architecture.py"
    packages = {path.parent.name for path in (ROOT / "src" / "oddnode").glob("*/__init__.py")}
    assert {name for row in drawing.layers() for name in row} == packages
    page = text_of("architecture.md")
    assert [name for name in sorted(packages) if f"`{name}`" not in page] == []
