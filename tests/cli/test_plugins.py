"""Plugins as a stranger uses them: a file outside the package, and the command line in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oddnode
from tests.cli.test_app import CLI
from tests.cli.test_app import oddnode as run

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
SOURCE = str(Path(oddnode.__file__).parents[1])


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The file that the documentation shows."""
    [code] = re.findall(r"This is `mine.py`.*?```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "mine.py"
    file.write_text(code, encoding="utf-8")
    return file


def install(plugin: Path, folder: Path) -> None:
    """The plugin as pip would leave it in a folder of packages: a module, and a dist-info folder that names it."""
    info = folder / "my_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[oddnode.plugins]\nmine = my_package\n")
    (folder / "my_package.py").write_text(plugin.read_text())


@pytest.mark.usefixtures("own_registries")
def test_methods_and_data_of_a_file_are_listed_and_run(plugin: Path, cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oddnode._utils.plugins._loaded", {})
    last = json.loads(cli("methods", "--plugin", str(plugin), "--json").stdout)[-1]
    assert (last["name"], last["scorer"], last["reference"]) == ("margin", "Margin(scale=1.0)", "unpublished")
    datasets = json.loads(cli("datasets", "--plugin", str(plugin), "--json").stdout)
    assert datasets[-1]["name"] == "rings"
    shifts, arrivals = ["label", "structure", "feature"], ["arrivals", "arrivals-1%", "arrivals-20%", "unseen"]
    assert datasets[-1]["tasks"] == [f"rings/{name}" for name in (*shifts, *arrivals)]
    chosen = ("--methods", "margin,msp", "--task", "rings/label", "--backbone", "sgc", "--seeds", "2", "--jobs", "1")
    rows = {row["method"]: row for row in json.loads(cli("bench", *chosen, "--plugin", str(plugin), "--json").stdout)}
    assert list(rows) == ["margin", "msp"]
    assert min(row["auroc"] for row in rows.values()) > 80
    assert rows["margin"]["backbone"] == "sgc"


def test_an_installed_package_needs_no_option_and_reaches_worker_processes(plugin: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    install(plugin, folder)
    chosen = ("--methods", "margin", "--task", "rings/label", "--seeds", "2", "--jobs", "2")
    # Another folder of installed packages beside our own source.
    done = run("bench", *chosen, "--json", PYTHONPATH=os.pathsep.join([SOURCE, str(folder)]))
    assert json.loads(done.stdout)[0]["method"] == "margin"
    without = run("bench", *chosen, "--json", fails=True)
    assert "unknown task 'rings/label'" in without.stderr


def test_fresh_worker_processes_load_the_file_first(plugin: Path, tmp_path: Path) -> None:
    """A spawned process knows nothing of its parent's registries."""
    script = tmp_path / "script.py"
    script.write_text(
        "from oddnode import benchmark, load_plugins\n"
        "from oddnode.runner import engine\n"
        "if __name__ == '__main__':\n"
        "    engine.can_fork = lambda: False\n"
        f"    load_plugins([{str(plugin)!r}])\n"
        "    [result] = benchmark('rings/label', 'margin', seeds=2, jobs=2, device='cpu')\n"
        "    print(result.method, result.seeds)\n"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "margin 2"


def test_a_broken_plugin_is_one_line_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from oddnode import RECIPES\n\nRECIPES['nodesave']\n")
    done = run("methods", "--plugin", str(tmp_path / "mine.py"), fails=True)
    assert "mine.py, line 3: UnknownNameError" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
