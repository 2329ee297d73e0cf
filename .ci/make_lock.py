"""Write the locks: what the release job installs, every file with its SHA-256 checksum.

``requirements.lock`` has what oddnode and its extras for users need, ``requirements-tools.lock`` what builds a release.
The versions are those of ``constraints.txt``; what it does not name (the CUDA libraries of torch, some tools) pip
chooses. The files are those for Linux on x86-64 and the Python that runs this script, from PyPI alone. ``make lock``
runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("plot", "report", "tables")
TOOLS = ("build", "twine", "cyclonedx-bom")
INDEX = "https://pypi.org/simple"


def requirements() -> dict[str, list[str]]:
    """The requirements of every lock: of the package with its extras for users, and of building it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    chosen = [requirement for extra in EXTRAS for requirement in extras[extra]]
    return {
        "requirements.lock": [*project["project"]["dependencies"], *chosen],
        "requirements-tools.lock": [*project["build-system"]["requires"], *TOOLS],
    }


def resolved(wanted: list[str]) -> list[dict]:
    """What pip would install, as its report says."""
    # The user's own settings could name other indexes, whose files have other checksums.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name == "PIP_CERT"
    }
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--only-binary", ":all:", "--index-url", INDEX, "-c", str(ROOT / "constraints.txt")]
        command += ["--report", str(report), *wanted]
        subprocess.run(command, check=True, env=environment | {"PIP_CONFIG_FILE": os.devnull})
        return json.loads(report.read_text(encoding="utf-8"))["install"]


def locked(packages: list[dict]) -> str:
    """The lock as text, sorted by name."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [f"# Made by .ci/make_lock.py for Linux on x86-64 and Python {version}; `make lock` makes it anew."]
    for package in sorted(packages, key=lambda each: each["metadata"]["name"].lower()):
        name, number = package["metadata"]["name"], package["metadata"]["version"]
        checksum = package["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={number} --hash=sha256:{checksum}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, wanted in requirements().items():
        (ROOT / name).write_text(locked(resolved(wanted)), encoding="utf-8")
