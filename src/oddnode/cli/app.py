"""The command line. Slow modules are imported inside the commands, so that ``--help`` is fast."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from oddnode._utils.plugins import load_plugins
from oddnode._version import __version__
from oddnode.cli import paper as cli_paper
from oddnode.cli import tables as cli_tables
from oddnode.cli.shared import (
    DataDir,
    Device,
    EngineName,
    Json,
    Plugins,
    check_device,
    check_engine,
    err,
    open_engine,
    print_rows,
    progress_bar,
    split_names,
)

__all__ = ["app", "main"]

app = typer.Typer(
    help="Which nodes of a graph does a model not know?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"oddnode {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command(
    epilog="Examples:\n\n"
    "  oddnode bench\n\n"
    "  oddnode bench --task cora/structure,cora/label --methods gnnsafe,nodesafe --seeds 5\n\n"
    "  oddnode bench --task paper --methods all --protocol published --out runs/published\n\n"
    "  oddnode bench --methods mine,nodesafe --task mydata/label --plugin mine.py\n\n"
    "  oddnode bench --task paper --seeds 5 --engine ray"
)
def bench(
    task: Annotated[
        str,
        typer.Option(help="Tasks, separated by commas; 'paper' = the ten cells of the paper, 'all' = every task."),
    ] = "digits/label",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas; 'all' = every method. See `oddnode methods`.",
            show_default="msp, energy, gnnsafe, nodesafe and, with exposure, energy-ft, gnnsafe++, nodesafe++",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds (0, 1, ...).")] = 3,
    protocol: Annotated[
        str, typer.Option(help="'clean' leaks no test data; 'published' follows the code of the paper.")
    ] = "clean",
    backbone: Annotated[
        str, typer.Option(help="The network of every method: gcn, mlp, gat, jknet, mixhop or one of a plugin.")
    ] = "gcn",
    device: Device = "auto",
    data_dir: DataDir = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes.", show_default="one per core, or one on a GPU; as Ray has room"),
    ] = None,
    engine: EngineName = "processes",
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.md, results.csv, results.json and runs.json.")
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Compare methods on tasks over several seeds."""
    from oddnode.bench.report import check_writable, write_report
    from oddnode.bench.run import DEFAULT_METHODS, benchmark, expand_methods
    from oddnode.tasks import expand_tasks

    load_plugins(plugin or ())
    check_device(device)
    check_engine(engine)
    if out:
        check_writable(out)
    names = list(DEFAULT_METHODS) if methods is None else split_names(methods)
    tasks = expand_tasks(split_names(task), data_dir)
    if "all" in split_names(task):
        _note_left_out(tasks)
    with progress_bar(terminal_only=as_json) as show, open_engine(engine, jobs, 1, device) as remote:
        jobs = jobs if remote is None else remote.jobs
        results = benchmark(
            tasks, names, seeds, protocol, backbone, device, data_dir, jobs, show, model_free=True, engine=remote
        )
    asked = set(expand_methods(names, protocol))
    chosen, model_free = [r for r in results if r.method in asked], [r for r in results if r.method not in asked]
    written = write_report(chosen, out, model_free) if out else []
    if as_json:
        typer.echo(json.dumps([r.summary() for r in chosen], indent=1))
        return
    _print_results(results)
    if written:
        typer.echo("written: " + ", ".join(str(path) for path in written))


@app.command(epilog="Examples:\n\n  oddnode methods\n\n  oddnode methods --plugin mine.py --json")
def methods(
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List the methods: objective, scorer, exposure, reference, reach over the graph and cost."""
    load_plugins(plugin or ())
    from oddnode.detector import RECIPES

    listed = []
    for recipe in RECIPES.values():
        objective, scorer = recipe.build()
        listed.append(
            {
                "name": recipe.name,
                "objective": repr(objective),
                "scorer": repr(scorer),
                "exposure": recipe.needs_exposure,
                "reference": recipe.reference,
                "transductive": recipe.transductive,
                "cost": recipe.cost,
            }
        )
    if as_json:
        typer.echo(json.dumps(listed, indent=1))
        return
    print_rows("Methods", list(listed[0]), [[_word(v) for v in row.values()] for row in listed])


@app.command(epilog="Examples:\n\n  oddnode datasets\n\n  oddnode datasets --data-dir ~/data --json")
def datasets(
    data_dir: DataDir = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List the data sets: their tasks, whether they were found, and their licence."""
    load_plugins(plugin or ())
    from oddnode.tasks import dataset_states

    states = [state.as_dict() for state in dataset_states(data_dir)]
    if as_json:
        typer.echo(json.dumps(states, indent=1))
        return
    print_rows("Data sets", list(states[0]), [[_word(v) for v in row.values()] for row in states])


cli_paper.register(app)
cli_tables.register(app)


def _note_left_out(tasks: list[str]) -> None:
    from oddnode.tasks import DATASETS

    for spec in DATASETS.values():
        if not any(task.name in tasks for task in spec.tasks):
            err.print(f"{spec.name} is left out: its files were not found (`oddnode datasets` says how to get them)")


def _print_results(results: Any) -> None:
    from oddnode.bench.tables import caption, header, is_model_free, results_by_task, rows

    results = results_by_task(results)
    body, apart = rows(results), [is_model_free(r.method) for r in results]
    # Lines separate the model-free scores of a task from its methods.
    cuts = {i for i in range(1, len(body)) if apart[i] != apart[i - 1] or body[i][0] != body[i - 1][0]}
    print_rows(None, header(results), body, numbers_from=2, cuts=cuts)
    typer.echo(caption(results))


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, (list, tuple)) else str(value)


def main() -> None:
    """Run the command line; a user's mistake prints one line on stderr and a non-zero exit status."""
    # Commands print the notes of the library themselves.
    logging.getLogger("oddnode").addHandler(logging.NullHandler())
    try:
        app()
    except SystemExit as stop:
        if stop.code == 130:  # typer turns Ctrl-C into this without a message
            err.print("interrupted")
        raise
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)
    except (ValueError, OSError, RuntimeError) as error:
        err.print(f"[bold red]error:[/] {_plain(error)}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _plain(error: BaseException) -> str:
    from rich.markup import escape

    return escape(str(error) or type(error).__name__)
