"""Options, checks and the progress bar that the commands share. Imports no slow module."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["DataDir", "Device", "Json", "Plugins", "check_device", "err", "print_rows", "progress_bar", "split_names"]

_DEVICE = re.compile(r"auto|(cpu|cuda|mps|xpu)(:\d+)?")

#: The console for notes, progress and errors; results go to standard output.
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print as JSON and nothing else.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data sets; it is only read.", envvar="ODDNODE_DATA")]
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


def check_device(device: str) -> None:
    """Raise an error for a device that is unknown or cannot be used; only a GPU needs torch to tell."""
    if not _DEVICE.fullmatch(device):
        raise ValueError(f"unknown device {device!r}; expected auto, cpu or cuda")
    if device not in ("auto", "cpu"):
        from oddnode._utils.devices import resolve_device

        resolve_device(device)


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
