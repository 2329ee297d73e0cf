"""The files that a benchmark writes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from platform import machine, python_version, system
from typing import Any

from oddnode._utils.atomic_files import new_file
from oddnode._version import __version__
from oddnode.bench.tables import compare_table, markdown_table, to_csv
from oddnode.evaluation import Result

__all__ = ["check_writable", "write_report"]


def check_writable(folder: Path) -> None:
    """Create a folder and check that it is writable, so that a mistake shows before the work and not after it.

    Parameters
    ----------
    folder : Path
        Created with its parents if it does not exist.

    Raises
    ------
    OSError
        If it cannot be created, or the user has no permission to write into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot create the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"no permission to write into {folder}")


def write_report(results: Sequence[Result], folder: Path, model_free: Sequence[Result] = ()) -> list[Path]:
    """Write the report, the results as CSV and JSON, and ``runs.json`` with every seed, each file atomically.

    Parameters
    ----------
    results : sequence of Result
        The results of the requested methods, which go into every file.
    folder : Path
        Created if it does not exist; files of the same names are replaced.
    model_free : sequence of Result
        Results of model-free scores, which only the report and ``runs.json`` show.

    Returns
    -------
    list of Path
        The files written.
    """
    check_writable(folder)
    files = {
        "report.md": _report([*results, *model_free]),
        "results.csv": to_csv(results),
        "results.json": json.dumps([r.summary() for r in results], indent=1) + "\n",
        "runs.json": json.dumps(_all_runs([*results, *model_free]), indent=1) + "\n",
    }
    paths = []
    for name, text in files.items():
        with new_file(folder / name) as part:
            part.write_text(text, encoding="utf-8")
        paths.append(folder / name)
    return paths


def _made_on() -> str:
    import torch

    when = datetime.now(UTC).strftime("%Y-%m-%d")
    versions = f"oddnode {__version__}, torch {torch.__version__}, Python {python_version()}"
    return f"{versions}, {system()} {machine()}, {when}"


def _all_runs(results: Sequence[Result]) -> dict[str, Any]:
    return {"made_on": _made_on(), "results": [r.summary() | {"runs": r.runs} for r in results]}


def _report(results: Sequence[Result]) -> str:
    several = len({r.task for r in results}) > 1
    parts = [
        "# oddnode benchmark",
        "",
        f"{_made_on()}. Scores: higher = more in-distribution; ID is the positive class.",
        "",
        *([compare_table(results)] if several else []),
        markdown_table(results),
    ]
    return "\n".join(parts)
