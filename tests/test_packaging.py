"""The wheel, built, installed elsewhere and run outside the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from oddnode import __version__

ROOT = Path(__file__).parent.parent


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_wheel_runs_outside_the_tree(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT), cwd=tmp_path)
    [wheel] = tmp_path.glob("oddnode-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "oddnode/py.typed" in names
    assert "oddnode/bench/paper.csv" in names
    assert "oddnode/paper/webpage/assets/page.js" in names
    assert "oddnode/webpage/assets/base.css" in names
    assert "oddnode/paper/webpage/templates/page.html" in names
    assert "oddnode/paper/facts/claims.csv" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]
    check_metadata(zipfile.ZipFile(wheel))
    target = tmp_path / "elsewhere"
    run(*pip, "install", "--no-deps", "--target", str(target), str(wheel), cwd=tmp_path)
    code = "import runpy, sys, oddnode; print(oddnode.__file__); "
    code += "sys.argv = ['oddnode', 'bench', '--methods', 'msp', '--seeds', '1']; "
    code += "runpy.run_module('oddnode', run_name='__main__')"
    where, table = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(target)).split("\n", 1)
    assert Path(where).is_relative_to(target)
    assert "digits/label" in table


def check_metadata(wheel: zipfile.ZipFile) -> None:
    """The page on PyPI has the version, the licence and the addresses, and no link into a tree that is not there."""
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = message_from_bytes(wheel.read(name))
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "MIT"
    stated = [str(entry).partition(", ") for entry in metadata.get_all("Project-URL", [])]
    addresses = {label: address for label, _, address in stated}
    assert {"Documentation", "Repository", "Issues", "Changelog", "Paper"} <= addresses.keys()
    here = f"{addresses['Repository']}/blob/v{__version__}/"
    targets = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    assert [target for target in targets if not target.startswith("https://")] == []
    files = [target.removeprefix(here).partition("#")[0] for target in targets if target.startswith(here)]
    assert "docs/quickstart.md" in files
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.slow
def test_the_source_distribution_has_every_file_of_the_repository(tmp_path: Path) -> None:
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no clone, so nothing tells which files belong to the repository")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path), cwd=ROOT)
    with tarfile.open(tmp_path / f"oddnode-{__version__}.tar.gz") as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    present = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert present - packed == set()
    assert packed - present == {"PKG-INFO"}


def test_importing_oddnode_changes_no_environment_variable() -> None:
    code = "import os; before = dict(os.environ); import oddnode; oddnode.Detector; assert dict(os.environ) == before"
    run(sys.executable, "-c", code, cwd=ROOT)
