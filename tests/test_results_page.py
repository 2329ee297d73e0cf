"""The page of results is made from what the benchmark leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from oddnode.bench import Result
from oddnode.bench.report import write_report

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "results.py"


def fake(task: str, method: str, auroc: float, protocol: str = "clean", backbone: str = "gcn") -> Result:
    run = {"auroc": auroc, "aupr": 50.0, "fpr95": 100 - auroc, "id_acc": 80.0, "tests": {}}
    return Result(task, method, protocol, backbone, [run, run])


def page(tmp_path: Path, *groups: list[Result]) -> str:
    for number, results in enumerate(groups):
        write_report(results, tmp_path / str(number))
    files = [str(tmp_path / str(number) / "runs.json") for number in range(len(groups))]
    return subprocess.run([sys.executable, str(SCRIPT), *files], capture_output=True, text=True, check=True).stdout


def test_runs_split_by_task_are_joined(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        [fake("cora/label", "msp", 80.0), fake("cora/label", "degree", 50.0)],
        [fake("twitch", "msp", 90.0), fake("twitch", "degree", 40.0)],
        [fake("cora/label", "msp", 70.0, protocol="published")],
    )
    assert "| msp | 80.0±0.0 / 20.0±0.0 | 90.0±0.0 / 10.0±0.0 | **85.0 / 15.0** |" in text
    assert text.index("## Protocol clean") < text.index("## Protocol published")
    assert "2 seeds" in text
    assert "Made on: oddnode" in text


def test_a_method_that_misses_a_task_gets_a_table_of_its_own(tmp_path: Path) -> None:
    everywhere = [fake("cora/label", "msp", 80.0), fake("twitch", "msp", 90.0)]
    text = page(tmp_path, everywhere, [fake("cora/label", "knn", 70.0)])
    assert "| msp | 80.0±0.0 / 20.0±0.0 | 90.0±0.0 / 10.0±0.0 | **85.0 / 15.0** |" in text
    assert "| knn | 70.0±0.0 / 30.0±0.0 | **70.0 / 30.0** |" in text


def test_backbones_stand_side_by_side(tmp_path: Path) -> None:
    text = page(
        tmp_path, [fake("cora/label", "nodesafe", 80.0)], [fake("cora/label", "nodesafe", 60.0, backbone="mlp")]
    )
    assert "## NODESAFE under other backbones" in text
    assert "| mlp | 60.0±0.0 / 40.0±0.0 | **60.0 / 40.0** |" in text
