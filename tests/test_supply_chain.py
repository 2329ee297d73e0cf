"""The locks of the release job."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKED = re.compile(r"([A-Za-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


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
