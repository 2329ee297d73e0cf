"""Options, checks and the progress bar that the commands share. Imports no slow module."""

from __future__ import annotations

import csv
import logging
import re
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from oddnode.runner.futures import Futures

__all__ = [
    "DataDir",
    "Device",
    "EngineName",
    "Json",
    "Plugins",
    "check_device",
    "check_engine",
    "column_names",
    "err",
    "open_engine",
    "print_rows",
    "progress_bar",
    "split_names",
]

_DEVICE = re.compile(r"auto|(cpu|cuda|mps|xpu)(:\d+)?")

#: The console for notes, progress and errors; results go to standard output.
err = Console(stderr=True)

_ENGINES = ("processes", "ray")

Json = Annotated[bool, typer.Option("--json", help="Print as JSON and nothing else.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data sets; it is only read.", envvar="ODDNODE_DATA")]
EngineName = Annotated[
    str,
    typer.Option("--engine", help="Where trainings run: processes (of this machine) or ray (on a Ray cluster)."),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="A Python file that adds methods, backbones or data sets. It is executed. Can be repeated.",
    ),
]


def split_names(text: str) -> list[str]:
    """Split a list of names at its commas.

    Examples
    --------
    >>> split_names("msp, energy")
    ['msp', 'energy']
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ValueError(f"expected names separated by commas, got {text!r}")
    return names


def column_names(text: str | None) -> list[str]:
    """Split names of columns at commas; a name with a comma stands in double quotes.

    Examples
    --------
    >>> column_names('age, "height, cm"')
    ['age', 'height, cm']
    """
    if text is None:
        return []
    return split_names(text) if '"' not in text else next(csv.reader([text], skipinitialspace=True))


def check_device(device: str) -> None:
    """Raise an error for a device that is unknown or cannot be used; only a GPU needs torch to tell."""
    if not _DEVICE.fullmatch(device):
        raise ValueError(f"unknown device {device!r}; expected auto, cpu or cuda")
    if device not in ("auto", "cpu"):
        from oddnode._utils.devices import resolve_device

        resolve_device(device)


def check_engine(name: str) -> None:
    """Raise an error for an engine that does not exist."""
    from oddnode._utils.suggestions import unknown

    if name not in _ENGINES:
        raise unknown("engine", name, _ENGINES)


@contextmanager
def open_engine(name: str, jobs: int | None, threads: int, device: str) -> Iterator[Futures | None]:
    """Open the engine that the user has chosen; None stands for the processes of this machine.

    What happens on other machines is printed as notes.
    """
    if name == "processes":
        yield None
        return
    from oddnode._utils.devices import is_gpu
    from oddnode.runner.futures import Futures
    from oddnode.runner.ray_cluster import RayExecutor

    log, notes = logging.getLogger("oddnode.runner"), _Notes()
    log.addHandler(notes)
    try:
        # Ray prints what it has to say to standard output, which is for results.
        with redirect_stdout(sys.stderr), RayExecutor(jobs, threads, is_gpu(device)) as executor:
            yield Futures(executor, executor.max_workers)
    finally:
        log.removeHandler(notes)


class _Notes(logging.Handler):
    """Prints what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(f"[bold yellow]note:[/] {escape(record.getMessage())}", highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(terminal_only: bool) -> Iterator[Callable[[int, int | None, str], None]]:
    """Show a progress bar; the block gets a function that takes (done, total, description).

    With ``terminal_only`` nothing is printed unless standard error is a terminal.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=err, transient=True, disable=terminal_only and not err.is_terminal) as progress:
        line = progress.add_task("starting", total=None)
        yield lambda done, total, what: progress.update(line, completed=done, total=total, description=what)


def print_rows(
    title: str | None,
    head: list[str],
    body: list[list[str]],
    numbers_from: int = 99,
    cuts: Container[int] = (),
    pipe_width: int = 200,
) -> None:
    """Print a table; columns from ``numbers_from`` on are right-aligned, rows in ``cuts`` get a line above."""
    table = Table(title=title, title_justify="left")
    for column, name in enumerate(head):
        table.add_column(name, justify="right" if column >= numbers_from else "left", overflow="fold")
    for number, row in enumerate(body):
        if number in cuts:
            table.add_section()
        table.add_row(*map(escape, row))
    console = Console()
    # A pipe has no width; rich would take 80 columns, too few for a table of numbers.
    console.print(table) if console.is_terminal else Console(width=pipe_width).print(table)
