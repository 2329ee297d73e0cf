"""The lock of the release job, and the workflows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKED = re.compile(r"([A-Za-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    found = [LOCKED.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(found), "a line without a version or a checksum"
    return {normal(match[1]): match[2] for match in found if match}


def test_the_lock_has_every_requirement_of_the_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    wanted += [requirement for extra in ("plot", "report", "tables") for requirement in extras[extra]]
    names = {normal(re.match(r"[A-Za-z0-9._-]+", requirement)[0]) for requirement in wanted}  # type: ignore[index]
    assert names - locked().keys() == set()


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    versions = {normal(name): version for name, version in pinned.items()}
    other = {name: version for name, version in locked().items() if versions.get(name, version) != version}
    assert other == {}
    # Only the CUDA libraries of torch are not pinned, which machines without a GPU do not install.
    assert {name for name in locked() if name not in versions and not name.startswith(("nvidia-", "cuda-"))} == set()


@pytest.mark.parametrize("name", ["release", "security"])
def test_workflows_are_yaml_and_may_do_little(name: str) -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    used = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all("@" in action for action in used)
    for job in workflow["jobs"].values():
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout")]
        assert [step["with"]["persist-credentials"] for step in checkouts] == [False]
