"""What the commands share: options, checks, settings, the progress bar and what they print. Imports no slow module."""

from __future__ import annotations

import csv
import json
import logging
import math
import re
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from oddnode._utils.suggestions import unknown
from oddnode.detector import RECIPES, setting_types
from oddnode.nn import BACKBONES

if TYPE_CHECKING:
    from oddnode.runner.engine import Futures


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ARGUMENT = re.compile(r"`([a-z_]+)`")
_SETTING = re.compile(r"`([a-z_]+)='?([\w.-]+)'?`")
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
        help="A Python file that adds methods, backbones, data sets or table formats. It is executed. Can be repeated.",
    ),
]
SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the method, for example num_hops=2; `oddnode methods NAME` lists them. Can be repeated.",
    ),
]

_NOT_FACTS = ("notes", "columns")
# The names of facts for readers, where they are not those of programs without the underscores.
_TITLES = {
    "num_train": "training nodes",
    "num_validation": "validation nodes",
    "num_calibration": "calibration nodes",
    "num_left_out": "trained on, left out",
    "num_flagged": "flagged nodes",
    "num_exposed": "known OOD nodes",
    "num_exposed_flagged": "known OOD flagged",
    "num_arrival_edges": "edges of arrivals",
    "num_known_arrivals": "arrivals with a known label",
    "observed_false_alarm_rate": "arrivals with a known label, share flagged",
    "num_new_label_arrivals": "arrivals with a new label",
    "num_new_label_flagged": "arrivals with a new label, flagged",
    "num_unlabelled_arrivals": "arrivals without a label",
    "num_unlabelled_flagged": "arrivals without a label, flagged",
    "false_alarm_rate": "false-alarm rate",
    "old_threshold": "threshold before",
    "homophily": "same-label edges",
}
_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", NoneType: "none"}


# The groups of options in the help of a command; options in none of them come first.
_PANELS = {
    "Tables": "nodes edges graph exposure_nodes exposure_edges db encoding",
    "Columns of nodes": "id_column label_column unlabelled feature_columns drop_columns category_columns "
    "number_columns decimal_comma known_column checked type_column",
    "Edges": "source_column target_column directed weight_column unweighted ignore_unknown_edges edge_type_column",
    "What to train on": "split_column exposure_column time_column train_until",
    "Decisions": "only_new fdr budget",
    "Method": "method methods backbone set_options seed seeds protocol false_alarm_rate",
    "Running": "device jobs threads engine data_dir plugin log as_json",
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names.split()}
_METAVARS = {Path: "PATH", int: "N", float: "X", str: "TEXT"}


def add_command(
    app: typer.Typer, command: Callable[..., None], *examples: str, before: str = "", panel: str | None = None
) -> None:
    """Add a command, whose help has groups of options and ends with examples."""
    shown = command.__name__.replace("_", "-")
    lines = [before, "Examples:", *(f"  oddnode {shown} {example}" for example in examples)]
    command.__annotations__ = get_type_hints(command, include_extras=True)
    for name, annotation in command.__annotations__.items():
        for option in getattr(annotation, "__metadata__", ()):
            if isinstance(option, OptionInfo):
                option.rich_help_panel = option.rich_help_panel or _PANEL_OF.get(name)
                option.metavar = option.metavar or _metavar(name, get_args(annotation)[0])
    app.command(cls=Command, epilog="\n\n".join(filter(None, lines)), rich_help_panel=panel)(command)


class _PlainHelpOption:
    """Shows ``--help`` without a type, like other flags."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.metavar = " "
        return option


class Command(_PlainHelpOption, TyperCommand):
    """A command."""


class Group(_PlainHelpOption, TyperGroup):
    """The group of all commands."""


def _metavar(name: str, kind: Any) -> str:
    """What an option takes, in one word; nothing for a flag."""
    if kind is bool:
        return " "
    if name.endswith(("nodes", "edges")):
        return "TABLE"
    if name.endswith(("column", "columns")):
        return "COLUMN" if name.endswith("n") else "COLUMNS"
    inner = [kind, *get_args(kind), *(each for part in get_args(kind) for each in get_args(part))]
    return next((_METAVARS[each] for each in inner if each in _METAVARS), "TEXT")


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
    """Split names of columns at commas; a name with a comma is in double quotes.

    Examples
    --------
    >>> column_names('age, "height, cm"')
    ['age', 'height, cm']
    """
    if text is None:
        return []
    return split_names(text) if '"' not in text else next(csv.reader([text], skipinitialspace=True))


def check_device(device: str) -> None:
    """Raise an error for a device that is unknown or cannot be used; only checking for a GPU imports torch."""
    if not _DEVICE.fullmatch(device):
        raise ValueError(f"unknown device {device!r}; expected auto, cpu or cuda")
    if device not in ("auto", "cpu"):
        from oddnode._utils.devices import resolve_device

        resolve_device(device)


def check_engine(name: str) -> None:
    """Raise an error for an unknown engine."""
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
    from oddnode.runner.engine import Futures
    from oddnode.runner.ray_cluster import RayExecutor

    log, notes = logging.getLogger("oddnode.runner"), _Notes()
    log.addHandler(notes)
    try:
        # Ray logs to standard output, which is for results.
        with redirect_stdout(sys.stderr), RayExecutor(jobs, threads, is_gpu(device)) as executor:
            yield Futures(executor, executor.max_workers)
    finally:
        log.removeHandler(notes)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


@contextmanager
def progress_bar(terminal_only: bool) -> Iterator[Callable[..., None]]:
    """Show a progress bar; the block gets a function that takes (done, total=None, description="training").

    With ``terminal_only`` nothing is printed unless standard error is a terminal.
    """
    from rich import progress as bars

    left = bars.MofNCompleteColumn(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn()
    columns = bars.TextColumn("{task.description}"), bars.BarColumn(), *left
    hidden = terminal_only and not err.is_terminal
    with bars.Progress(*columns, console=err, transient=True, disable=hidden) as progress:
        line = progress.add_task("starting", total=None)
        yield lambda done, total=None, what="training": progress.update(
            line, completed=done, total=total, description=what
        )


def parse_settings(given: Sequence[str] | None, methods: Sequence[str]) -> dict[str, Any]:
    """Parse settings; an unknown name and a value of the wrong type are errors.

    Examples
    --------
    >>> parse_settings(["num_hops=2", "eta=0.5", "propagation=as-given"], ["nodesafe"])
    {'num_hops': 2, 'eta': 0.5, 'propagation': 'as-given'}
    """
    types: dict[str, Any] = {}
    for method in reversed(methods):
        types |= setting_types(RECIPES[method])
    settings: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = map(str.strip, text.partition("="))
        if not equals:
            raise ValueError(f"--set {text}: expected a name and a value, like num_hops=2")
        if name not in types:
            raise unknown(f"setting of {methods[0]}" if len(methods) == 1 else "setting", name, types)
        if name in settings:
            raise ValueError(f"--set {text}: {name} is set twice")
        kind = types[name]
        plain = "null" if value.lower() == "none" and NoneType in get_args(kind) else value
        try:
            settings[name] = msgspec.convert(plain, kind, strict=False)
        except msgspec.ValidationError:
            raise ValueError(f"--set {text}: expected {expected(kind)}") from None
        if isinstance(settings[name], float) and not math.isfinite(settings[name]):
            raise ValueError(f"--set {text}: expected a finite number")
    return settings


def checked_backbone(name: str, method: str) -> str:
    """Raise an error for a backbone that is unknown, or that the method does not accept."""
    if name not in BACKBONES:
        raise unknown("backbone", name, BACKBONES)
    own = RECIPES[method].backbone
    if own not in (None, name):
        raise ValueError(f"--backbone {name}: {method} has its own network ({own}); leave the option out")
    return name


def expected(kind: Any) -> str:
    """Describe the values of a type.

    Examples
    --------
    >>> expected(float | None)
    'a number or none'
    """
    if get_origin(kind) is Annotated:
        base, limits = get_args(kind)[0], get_args(kind)[1]
        return expected(base) + ("" if limits.ge is None or limits.ge < 0 else f", {limits.ge} or more")
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if kind in _WORDS:
        return _WORDS[kind]
    return " or ".join(expected(each) for each in get_args(kind)) or str(kind)


def as_options(text: str) -> str:
    """Replace arguments and settings, which the library's messages put in backticks, by options.

    Examples
    --------
    >>> as_options("leave it out with `drop_columns` age")
    'leave it out with --drop-columns age'
    >>> as_options("`propagation='as-given'` keeps it")
    '--set propagation=as-given keeps it'
    """
    text = _SETTING.sub(r"--set \1=\2", text)
    return visible(_ARGUMENT.sub(lambda match: "--" + match.group(1).replace("_", "-"), text))


def visible(text: str) -> str:
    """Escape control characters, which a terminal would interpret."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print facts by name, one per line or as JSON, and their ``"notes"`` on standard error."""
    if "notes" in facts:
        facts = facts | {"notes": list(map(as_options, facts["notes"]))}
    if as_json:
        text = json.dumps(facts, indent=1, ensure_ascii=False)
        typer.echo(re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match.group()):04x}", text))
        return
    shown = {_title(name): value for name, value in facts.items() if value is not None and name not in _NOT_FACTS}
    width = max(17, *map(len, shown)) + 1
    for title, value in shown.items():
        typer.echo(f"{title + ':':<{width}} {visible(_shown(value))}")
    for note in facts.get("notes", []):
        print_note(note)


def _title(name: str) -> str:
    return _TITLES.get(name) or name.removeprefix("num_").replace("_", " ")


def print_note(note: str) -> None:
    """Print a note for the user on standard error."""
    err.print(f"[bold yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(str, value[:12])) + (f", ... ({len(value)})" if len(value) > 12 else "")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


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
    # A pipe has no width; rich would assume 80 columns, too few for a table of numbers.
    console.print(table) if console.is_terminal else Console(width=pipe_width).print(table)
