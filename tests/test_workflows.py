"""The workflows: what they may do, and that the lines they run on Linux work.

Every `run:` of a job on Linux is executed, job by job, in an unpacked source distribution, with three exceptions:

- `NEEDS_NETWORK`: these are only parsed (`bash -n`). Where later steps use what they install, `stand_in` makes it from
  the packages of this environment.
- `NEEDS_TOOL`: these are executed where the tool is installed, and else only parsed.
- Steps that call `make` are those of ``.ci/run``, which runs them anyway, and are too long to run twice.

The schemas of GitHub are checked by `make check-github`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from oddnode import __version__

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in (ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS = {
    name: yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")) for name in NAMES
}
NEEDS_NETWORK = {
    "Install oddnode and what its tests need",
    "Install the tools of a release",
    "Install the wheel and what its tests need",
    "Install what the locks name, and nothing else",
    "Install bandit",
    "Install pip-audit",
    "Look for known vulnerabilities of what we install",
    "Make the release on GitHub, with the files, the bill of materials and the notes",
}
NEEDS_TOOL = {"Check the metadata": "twine", "Write the bill of materials of this environment": "cyclonedx_py"}
#: A workflow runs all its tests; here those of one module are enough to see that the line works.
PYTEST_OPTIONS = "-q -p no:cacheprovider --ignore=src --ignore-glob=*/tests/[!f]* -k test_energy"


def steps(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of a job that run a line; a job that calls another workflow has none."""
    return [step for step in job.get("steps", []) if "run" in step]


def linux_jobs() -> Iterator[tuple[str, str]]:
    for name, workflow in WORKFLOWS.items():
        for job, content in workflow["jobs"].items():
            systems = content.get("strategy", {}).get("matrix", {}).get("os", [content.get("runs-on")])
            if steps(content) and "ubuntu-latest" in systems:
                yield name, job


def stand_in(environment: Path, *more: Path) -> Path:
    """Make a virtual environment that sees the packages of this one, but not this oddnode; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    seen = [*(path for path in sys.path if path.endswith("site-packages")), *map(str, more)]
    (packages / "seen.pth").write_text("\n".join(seen) + "\n", encoding="utf-8")
    return environment / "bin" / "python"


def prepare(job: str, workspace: Path, dist: Path) -> None:
    """What a job finds when it starts to run lines, and what its steps that need the network would make."""
    python = workspace.parent / "python"
    if job == "installed":
        shutil.copytree(dist, workspace / "dist")
        [wheel] = dist.glob("*.whl")
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
        subprocess.run([stand_in(python), *install], check=True)
        return
    [archive] = dist.glob("*.tar.gz")
    # tarfile's filters came with Python 3.11.4, and are asked for from 3.12 on.
    subprocess.run(["tar", "-xf", archive, "-C", workspace.parent], check=True)
    (workspace.parent / archive.name.removesuffix(".tar.gz")).rename(workspace)
    stand_in(python, workspace / "src")
    if job == "build":
        for name in ("release", "tools"):
            stand_in(workspace / name)


def variables(workspace: Path) -> dict[str, str]:
    """What GitHub sets, in a clean environment."""
    temporary = workspace.parent / "temporary"
    temporary.mkdir()
    programs = [workspace.parent / "python" / "bin", Path(sys.executable).parent, os.environ["PATH"]]
    return {
        "HOME": str(temporary),
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join(map(str, programs)),
        "PYTEST_ADDOPTS": PYTEST_OPTIONS,
        "PYTEST_XDIST_AUTO_NUM_WORKERS": "1",
        "GITHUB_WORKSPACE": str(workspace),
        "GITHUB_REF_NAME": f"v{__version__}",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "oddnode/oddnode",
        "RUNNER_TEMP": str(temporary),
    }


def is_executed(step: dict[str, Any]) -> bool:
    name = step["name"]
    if name in NEEDS_NETWORK or step["run"].startswith("make "):
        return False
    return name not in NEEDS_TOOL or find_spec(NEEDS_TOOL[name]) is not None


def shell(script: str, cwd: Path, environment: dict[str, str], *options: str) -> None:
    # As GitHub calls it: a line that fails ends the step.
    command = ["bash", "--noprofile", "--norc", *options, "-eo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the lines of jobs on Linux")
@pytest.mark.parametrize(("workflow", "job"), list(linux_jobs()))
def test_the_lines_of_a_job_run(workflow: str, job: str, tmp_path: Path, dist: Path) -> None:
    workspace = tmp_path / "workspace"
    prepare(job, workspace, dist)
    environment = variables(workspace)
    for step in steps(WORKFLOWS[workflow]["jobs"][job]):
        shell(step["run"], workspace, environment, *([] if is_executed(step) else ["-n"]))


def test_exceptions_exist_and_lines_that_call_make_are_those_of_continuous_integration_here() -> None:
    here = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    every = [step for name, job in linux_jobs() for step in steps(WORKFLOWS[name]["jobs"][job])]
    assert (NEEDS_NETWORK | NEEDS_TOOL.keys()) - {step["name"] for step in every} == set()
    called = {step["run"] for step in every if step["run"].startswith("make ")}
    assert called == {"make check", "make test", "make docs"}
    assert called <= set(here)


@pytest.mark.parametrize("name", NAMES)
def test_workflows_may_do_little(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    for job in WORKFLOWS[name]["jobs"].values():
        # GitHub pastes expressions into a line before the shell reads it, so the name of a branch could run a command.
        assert [step["run"] for step in steps(job) if "${{" in step["run"]] == []
        used = [step for step in job.get("steps", []) if "uses" in step]
        assert all("@" in step["uses"] for step in used)
        checkouts = [step for step in used if step["uses"].startswith("actions/checkout")]
        assert [step["with"]["persist-credentials"] for step in checkouts] == [False] * len(checkouts)


def test_only_the_jobs_that_publish_may_write() -> None:
    may_write = {
        (name, job)
        for name, workflow in WORKFLOWS.items()
        for job, content in workflow["jobs"].items()
        if "write" in content.get("permissions", {}).values()
    }
    expected = {("release", job) for job in ("build", "publish", "announce")}
    assert may_write == expected | {("docs", "publish"), ("security", "codeql")}
    # A job with the right to publish installs nothing and runs no code of this repository.
    assert steps(WORKFLOWS["release"]["jobs"]["publish"]) == []
    assert steps(WORKFLOWS["docs"]["jobs"]["publish"]) == []


def test_every_python_that_the_package_names_is_tested_on_every_system() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    named = [c.rsplit(" ", 1)[1] for c in classifiers if c.startswith("Programming Language :: Python :: 3.")]
    matrix = WORKFLOWS["tests"]["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
