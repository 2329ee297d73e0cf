"""The version has one source, and a release is refused where something states another one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oddnode import __version__

ROOT = Path(__file__).parents[1]
STATED_IN = ("src/oddnode/_version.py", "CITATION.cff", "CHANGELOG.md", "pyproject.toml", ".ci/check_release.py")
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


def test_a_release_whose_files_agree_passes(tree: Path) -> None:
    done = check(tree, *HERE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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


def test_the_notes_are_those_of_the_first_heading(tree: Path) -> None:
    text = "# Changelog\n\n## 9.8.7\n\n### New\n\n- This ([how](docs/a.md)).\n\n## 9.8.6\n\n- That.\n"
    (tree / "CHANGELOG.md").write_text(text, encoding="utf-8")
    address = "https://github.com/oddnode/oddnode/blob/v9.8.7/docs/a.md"
    assert check(tree, "--notes").stdout == f"### New\n\n- This ([how]({address})).\n"
