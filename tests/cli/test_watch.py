"""`oddnode watch` from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oddnode.cli import main
from oddnode.tables import TableModel
from tests.watch.conftest import model as model
from tests.watch.conftest import tables as tables


@pytest.fixture
def run(
    model: TableModel, tables: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:  # fmt: skip
    """Run the command on the tables, in a folder of the test; its exit status and what it prints."""
    monkeypatch.chdir(tmp_path)
    model.save("model")
    for name, columns in zip(("nodes", "edges"), tables, strict=True):
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(columns), *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]
        Path(f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")

    def start(*arguments: str) -> tuple[int, str, str]:
        given = ["model", "--nodes", "nodes.csv", "--edges", "edges.csv", "--state", "watch.json"]
        monkeypatch.setattr(sys, "argv", ["oddnode", "watch", *given, *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        shown = capsys.readouterr()
        return int(stop.value.code or 0), shown.out, shown.err

    return start


def test_the_exit_status_is_3_while_an_alarm_stands(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("--until", "2024-05-09")
    assert (code, err) == (0, "")
    assert "2024-05-08" in out
    assert "ALARM" not in out
    code, out, _ = run("--page", "watch.html", "--prometheus", "watch.prom", "--webhook", "http://127.0.0.1:9/x")
    assert code == 3
    assert "ALARM. New rows no longer score as known ones" in out
    assert Path("watch.html").exists()
    assert "oddnode_watch_alarm" in Path("watch.prom").read_text()
    code, out, _ = run("--json")
    [alarm] = map(json.loads, out.splitlines())
    assert (code, alarm["kind"], alarm["is_new"]) == (3, "alarm", False)
    code, out, err = run("--acknowledge")
    assert (code, out) == (0, "No window has ended since the last run.\n")
    assert "the alarm was taken back" in err


def test_json_has_a_line_for_each_window(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("--json", "--until", "2024-05-09")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, [each["name"] for each in lines]) == (0, ["2024-05-08", "2024-05-09"])
    assert all(len(each["oddest"]) == 5 for each in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--window", "year"], "not a length of time"),
        (["--window", "1d", "--until", "7"], "expected a date or time"),
        (["--page", "x.pdf"], "expected a name that ends in .html"),
        (["--webhook", "ftp://host/x"], "expected an address like https"),
        (["--log", "folder"], "or --log"),
        (["--chance", "0"], "expected a share between 0 and 1"),
    ],
)
def test_wrong_options_are_errors_before_anything_is_judged(
    run: Callable[..., tuple[int, str, str]], arguments: list[str], message: str
) -> None:
    code, _, err = run(*arguments)
    assert code == 1
    assert message in err.replace("\n", " ")
    assert not Path("watch.json").exists()
