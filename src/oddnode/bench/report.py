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
from oddnode.bench.comparisons import PairedComparison, compare_with_first, comparison_table
from oddnode.bench.latex import latex_table
from oddnode.bench.tables import compare_table, csv_text, markdown_table, seeds_csv, summaries, to_csv
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


def write_report(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write results as a report, tables, rows per seed and paired comparisons, each file atomically.

    Parameters
    ----------
    results : sequence of Result
        Every method on every task. Methods are compared with the first one.
    folder : Path
        Created if it does not exist; files of the same names are replaced.

    Returns
    -------
    list of Path
        The files written: ``report.md``; ``results.csv``, ``results.json`` and ``results.tex`` with means over seeds;
        ``seeds.csv`` with one row per seed; ``runs.json``, which also has the numbers of every OOD graph; and, for
        several methods, ``comparisons.csv``.
    """
    check_writable(folder)
    comparisons = compare_with_first(results)
    files = {
        "report.md": _report(results, comparisons),
        "results.csv": to_csv(results),
        "results.json": json.dumps(summaries(results), indent=1) + "\n",
        "results.tex": latex_table(results),
        "seeds.csv": seeds_csv(results),
        "runs.json": json.dumps(_all_runs(results), indent=1) + "\n",
    }
    if comparisons:
        files["comparisons.csv"] = csv_text([each.row() for each in comparisons])
    else:  # that of an earlier benchmark would not belong to the rest
        (folder / "comparisons.csv").unlink(missing_ok=True)
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


def _report(results: Sequence[Result], comparisons: Sequence[PairedComparison]) -> str:
    several = len({r.task for r in results}) > 1
    parts = [
        "# oddnode benchmark",
        "",
        f"{_made_on()}. Scores: higher = more in-distribution; ID is the positive class.",
        "",
        *([compare_table(results)] if several else []),
        markdown_table(results),
        *(["## Paired comparisons", "", comparison_table(comparisons)] if comparisons else []),
    ]
    return "\n".join(parts)
