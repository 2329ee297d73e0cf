"""A release: one version that all files state, locks that fit, and a wheel that runs outside the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from oddnode import __version__

ROOT = Path(__file__).parents[1]
STATED_IN = ("src/oddnode/_version.py", "CITATION.cff", "CHANGELOG.md", "pyproject.toml", ".ci/check_release.py")
LOCKED = re.compile(r"([A-Za-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")
HERE = ("v9.8.7", "https://github.com/oddnode/oddnode")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that state the version, with version 9.8.7."""
    for name in STATED_IN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in (
        ("src/oddnode/_version.py", '"{}"'),
        ("CITATION.cff", "\nversion: {}\n"),
        ("CHANGELOG.md", "\n## {}\n"),
    ):
        replace(tmp_path / name, text.format(__version__), text.format("9.8.7"))
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} does not have {old!r} once"
    path.write_text(text.replace(old, new), encoding="utf-8")


def check(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / ".ci" / "check_release.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("src/oddnode/_version.py", "9.8.7", "9.8.8", "The tag is v9.8.7, but src/oddnode/_version.py says 9.8.8"),
        ("CITATION.cff", "version: 9.8.7", "version: 9.8.6", "CITATION.cff says 9.8.6"),
        ("CHANGELOG.md", "## 9.8.7", "## 9.8.7 (unreleased)", "heading of CHANGELOG.md is '9.8.7 (unreleased)'"),
        ("CHANGELOG.md", "## 9.8.7", "## 9.8.7\n\n## 9.8.6", "CHANGELOG.md says nothing about 9.8.7"),
        ("pyproject.toml", 'Repository = "https://github.com/', 'Repository = "https://other.org/', "other.org"),
    ],
)
def test_what_states_another_version_is_named(tree: Path, file: str, old: str, new: str, said: str) -> None:
    replace(tree / file, old, new)
    done = check(tree, *HERE)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_release_whose_files_agree_passes_with_the_notes_of_the_first_heading(tree: Path) -> None:
    done = check(tree, *HERE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = "# Changelog\n\n## 9.8.7\n\n### New\n\n- This ([how](docs/a.md)).\n\n## 9.8.6\n\n- That.\n"
    (tree / "CHANGELOG.md").write_text(text, encoding="utf-8")
    address = "https://github.com/oddnode/oddnode/blob/v9.8.7/docs/a.md"
    assert check(tree, "--notes").stdout == f"### New\n\n- This ([how]({address})).\n"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(name: str = "requirements.lock") -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [LOCKED.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(found), "a line without a version or a checksum"
    return {normal(match[1]): match[2] for match in found if match}


def test_the_lock_has_every_requirement_of_the_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = project["project"]["dependencies"]
    wanted += [requirement for extra in ("plot", "report", "tables") for requirement in extras[extra]]
    assert names(wanted) - locked().keys() == set()
    tools = [*project["build-system"]["requires"], "build", "twine", "cyclonedx-bom"]
    assert names(tools) - locked("requirements-tools.lock").keys() == set()


def names(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-tools.lock"])
def test_the_locks_have_the_versions_of_the_constraints(name: str) -> None:
    versions = constraints()
    assert {each: found for each, found in locked(name).items() if versions.get(each, found) != found} == {}


def test_the_lock_has_nothing_that_was_not_tested() -> None:
    # Only the CUDA libraries of torch are not pinned, which machines without a GPU do not install.
    unpinned = locked().keys() - constraints().keys()
    assert {name for name in unpinned if not name.startswith(("nvidia-", "cuda-"))} == set()


def constraints() -> dict[str, str]:
    pinned = (line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    return {normal(name): version for name, version in pinned}


@pytest.mark.slow
def test_wheel_runs_outside_the_tree(dist: Path, tmp_path: Path) -> None:
    [wheel] = dist.glob("oddnode-*.whl")
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
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--quiet"]
    subprocess.run([*install, "--target", str(target), str(wheel)], cwd=tmp_path, check=True)
    code = (
        "import os, runpy, sys; before = dict(os.environ); import oddnode; print(oddnode.__file__); oddnode.Detector; "
    )
    code += "assert dict(os.environ) == before; "  # an import changes no environment variable
    code += "sys.argv = ['oddnode', 'bench', '--methods', 'msp', '--seeds', '1']; "
    code += "runpy.run_module('oddnode', run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(target)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    where, table = done.stdout.split("\n", 1)
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
def test_the_source_distribution_has_every_file_of_the_repository(dist: Path) -> None:
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no clone, so nothing tells which files belong to the repository")
    with tarfile.open(dist / f"oddnode-{__version__}.tar.gz") as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    present = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert present - packed == set()
    assert packed - present == {"PKG-INFO"}
