"""What the commands share: options, checks and the progress bar. Imports nothing that is slow."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["DataDir", "Device", "Json", "Plugins", "check_device", "err", "print_rows", "progress_bar", "split_names"]

#: For everything that is not the result: notes, progress, errors.
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print as JSON and nothing else.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DataDir = Annotated[Path | None, typer.Option(help="Where the data lies; only read.", envvar="ODDNODE_DATA")]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="A Python file that adds methods, backbones or data sets. It is run. May be given several times.",
    ),
]


def split_names(text: str) -> list[str]:
    """Names that are separated by commas.

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
    """Refuse a device that torch does not know or does not have, before any work."""
    if device == "auto":
        return
    import torch

    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}; expected auto, cpu or cuda") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device} was asked for, but torch sees no CUDA GPU; use --device cpu or auto")


@contextmanager
def progress_bar(terminal_only: bool) -> Iterator[Callable[[int, int | None, str], None]]:
    """A bar to be told (done, of how many, what); with ``terminal_only`` a log file sees nothing of it."""
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
) -> None:
    """A table on the terminal; columns from ``numbers_from`` on are set right, ``cuts`` are rows with a line above."""
    table = Table(title=title, title_justify="left")
    for column, name in enumerate(head):
        table.add_column(name, justify="right" if column >= numbers_from else "left", overflow="fold")
    for number, row in enumerate(body):
        if number in cuts:
            table.add_section()
        table.add_row(*row)
    console = Console()
    # A pipe has no width; a table cut to 80 columns there would lose text for nothing.
    console.print(table) if console.is_terminal else Console(width=200).print(table)
