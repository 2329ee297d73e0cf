"""The command line. Slow modules are imported inside the commands, so that ``--help`` is fast."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from oddnode._utils.plugins import load_plugins
from oddnode._version import __version__
from oddnode.cli import info, paper, replay, serve, tables, watch
from oddnode.cli.ranks import DIVIDED, is_one_of_several, run_together
from oddnode.cli.shared import (
    DataDir,
    Device,
    EngineName,
    Group,
    Json,
    Plugins,
    SetOptions,
    add_command,
    as_options,
    check_device,
    check_engine,
    err,
    open_engine,
    parse_settings,
    print_note,
    print_rows,
    progress_bar,
    split_names,
)

app = typer.Typer(
    cls=Group,
    help="Which nodes of a graph does a model not know?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


_Tasks = Annotated[
    str,
    typer.Option(
        help="Tasks, separated by commas; 'paper' = the ten cells of the paper, 'all' = every task; FILE.py:FUNCTION = "
        "a function of yours that takes a seed and returns a Task (the file is executed)."
    ),
]
_Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods, separated by commas; 'all' = every method. See `oddnode methods`.",
        show_default="nodesafe-evidence, msp, energy, gnnsafe, nodesafe, and with exposure energy-ft, gnnsafe++, "
        "nodesafe++",
    ),
]
_Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Number of processes.", show_default="one per core, one on a GPU; with Ray, all that fit"),
]
_Trackers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=PLACE]",
        help="Log every result to mlflow (PLACE: a tracking URI), wandb (a project) or tensorboard (a folder). "
        "Can be repeated.",
    ),
]


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"oddnode {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, metavar=" ", help="Show the version and exit."
        ),
    ] = False,
) -> None:
    if is_one_of_several() and context.invoked_subcommand not in DIVIDED:
        raise ValueError(f"`oddnode {context.invoked_subcommand}` cannot run under torchrun")


def bench(
    task: _Tasks = "digits/label",
    methods: _Methods = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds (0, 1, ...).")] = 3,
    protocol: Annotated[
        str, typer.Option(help="'clean' leaks no test data; 'published' follows the code of the paper.")
    ] = "clean",
    backbone: Annotated[
        str, typer.Option(help="The network of every method: gcn, mlp, gat, jknet, mixhop or one from a plugin.")
    ] = "gcn",
    set_options: SetOptions = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    jobs: _Jobs = None,
    engine: EngineName = "processes",
    out: Annotated[
        Path | None, typer.Option(help="Folder for a report, tables (CSV, JSON, LaTeX), seeds and comparisons.")
    ] = None,
    log: _Trackers = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Compare methods on tasks over several seeds."""
    from oddnode.bench import check_writable, log_results, open_tracker, write_report
    from oddnode.bench.tables import summaries

    load_plugins(plugin or ())
    check_device(device)
    check_engine(engine)
    tasks, names = _checked_names(task, methods, protocol, backbone, data_dir)
    settings = _checked_settings(set_options, names)
    if out:
        check_writable(out)
    trackers = [open_tracker(text) for text in log or ()]
    from oddnode.bench import benchmark  # after all checks that do not need torch

    with progress_bar(terminal_only=as_json) as show, open_engine(engine, jobs, 1, device) as remote:
        jobs = jobs if remote is None else remote.jobs
        where: dict[str, Any] = {
            "device": device,
            "data_dir": data_dir,
            "jobs": jobs,
            "engine": remote,
            "on_progress": show,
        }
        results = benchmark(tasks, names, seeds, protocol, backbone, model_free=True, settings=settings, **where)
    written = write_report(results, out) if out else []
    if as_json:
        typer.echo(json.dumps(summaries([r for r in results if r.method in names]), indent=1))
    else:
        _print_results(results)
        if written:
            typer.echo("written: " + ", ".join(str(path) for path in written))
    log_results(results, trackers)  # last, so that nothing is lost if a tracker fails


tables.register(app)
serve.register(app)
replay.register(app)
watch.register(app)
info.register(app)
add_command(
    app,
    bench,
    *("", "--task cora/structure,cora/label --methods gnnsafe,nodesafe --seeds 5"),
    "--methods gnnsafe,nodesafe --set num_hops=2 --set eta=0.5",
    "--task paper --methods all --protocol published --out runs/published",
    "--methods mine,nodesafe --task mydata/label --plugin mine.py",
    "--task mine.py:my_task --methods nodesafe,msp",
    "--log mlflow=http://localhost:5000 --log tensorboard=runs",
    "--task paper --seeds 5 --engine ray",
    panel="Compare methods",
)
paper.register(app)


def _checked_names(
    task: str, methods: str | None, protocol: str, backbone: str, data_dir: Path | None
) -> tuple[list[Any], list[str]]:
    """The requested tasks and methods; unknown names and missing data are errors before torch is imported."""
    from oddnode.bench import check_names, default_methods, expand_methods
    from oddnode.tasks import check_data

    tasks = _tasks(split_names(task), data_dir)
    check_names((), protocol, backbone)
    names = default_methods(protocol) if methods is None else split_names(methods)
    check_names(names, protocol, backbone)
    check_data([name for name in tasks if isinstance(name, str)], data_dir)
    return tasks, expand_methods(names, protocol)


def _checked_settings(given: list[str] | None, methods: list[str]) -> dict[str, Any]:
    from oddnode.bench import check_settings

    settings = parse_settings(given, methods)
    for name, others in check_settings(settings, methods).items():
        if others:
            print_note(f"{name} is not a setting of {', '.join(others)}")
    return settings


def _tasks(names: list[str], data_dir: Path | None) -> list[Any]:
    """Names of tasks, and functions that make tasks."""
    from oddnode.bench.choices import task_of_file
    from oddnode.tasks import expand_tasks

    tasks: list[Any] = []
    for name in names:
        own = task_of_file(name)
        tasks += expand_tasks([name], data_dir) if own is None else [own]
    if "all" in names:
        _note_left_out(tasks)
    return tasks


def _note_left_out(tasks: list[Any]) -> None:
    from oddnode.tasks import DATASETS

    for spec in DATASETS.values():
        if not spec.for_choosing and not any(task.name in tasks for task in spec.tasks):
            err.print(f"{spec.name} is left out: its files were not found (`oddnode datasets` says how to get them)")


def _print_results(results: Any) -> None:
    from oddnode.bench.tables import caption, rows
    from oddnode.detector import MODEL_FREE

    head, *body = rows(results)
    apart = [row[1] in MODEL_FREE for row in body]
    # Lines separate the model-free scores of a task from its methods.
    cuts = {i for i in range(1, len(body)) if apart[i] != apart[i - 1] or body[i][0] != body[i - 1][0]}
    print_rows(None, head, body, numbers_from=2, cuts=cuts)
    typer.echo(caption(results))


def main() -> None:
    """Run the command line; a user's mistake prints one line on stderr and a non-zero exit status."""
    # Torch then uses huge pages for large tensors, which more than halves an epoch over ten million edges. It reads
    # this when it allocates its first tensor. Programs that use the library set it themselves (docs/performance.md).
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # Commands print the notes of the library themselves.
    logging.getLogger("oddnode").addHandler(logging.NullHandler())
    try:
        run_together(app) if is_one_of_several() else app()
    except SystemExit as stop:
        if stop.code == 130:  # typer turns Ctrl-C into this without a message
            err.print("interrupted")
        raise
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)
    except (ValueError, OSError, RuntimeError) as error:
        text = escape(as_options(str(error) or type(error).__name__))
        err.print(f"[bold red]error:[/] {text}", highlight=False, soft_wrap=True)
        sys.exit(1)
