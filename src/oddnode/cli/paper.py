"""The command that reproduces the paper: ``oddnode paper``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from oddnode._utils.plugins import load_plugins
from oddnode._utils.suggestions import unknown
from oddnode.cli.shared import (
    DataDir,
    Device,
    EngineName,
    Plugins,
    add_command,
    check_device,
    check_engine,
    err,
    open_engine,
    print_rows,
    split_names,
)
from oddnode.paper.experiments import ITEMS
from oddnode.tasks import data_dir_of

if TYPE_CHECKING:
    from oddnode.paper.plan import Plan
    from oddnode.paper.results import Results
    from oddnode.paper.run import Progress, Summary


_PROTOCOLS = {"clean": ("clean",), "published": ("published",), "both": ("clean", "published")}
_ITEMS_HELP = "\n\n".join(f"  {item.name:<9}  {item.title} ({item.where})" for item in ITEMS.values())


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    runs = ["--seeds 5 --jobs 16", "--only table1,figure3 --protocol clean", "--engine ray", "--dry-run"]
    examples = ["--smoke", *(f"--out runs/paper {more}" for more in runs)]
    add_command(app, paper, *examples, before=f"Tables and figures:\n\n{_ITEMS_HELP}", panel="Compare methods")


def paper(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the store, tables, figures and report.", show_default="paper; with --smoke smoke"
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Names of tables and figures, separated by commas.", show_default="all")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds (0, 1, ...).", show_default="5; with --smoke 2")
    ] = None,
    protocol: Annotated[str, typer.Option(help="clean, published or both.")] = "both",
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of processes that train.",
            show_default="one per core, at most 12 on a GPU; with Ray, all that fit",
        ),
    ] = None,
    engine: EngineName = "processes",
    threads: Annotated[
        int, typer.Option(min=1, help="Threads of each process; results depend on it in their last digits.")
    ] = 1,
    device: Device = "auto",
    data_dir: DataDir = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run everything on the bundled digits, in a minute or two.")
    ] = False,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Also use records made by other versions of the source.")
    ] = False,
    keep_scores: Annotated[
        int | None,
        typer.Option(min=1, help="Number of seeds whose node scores are kept.", show_default="all"),
    ] = None,
    take_from: Annotated[
        Path | None, typer.Option(help="Folder of another run; its records are copied before this run starts.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    no_train: Annotated[
        bool, typer.Option("--no-train", help="Write tables and figures from the store without training.")
    ] = False,
    plugin: Plugins = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON and nothing else.")] = False,
) -> None:
    """Reproduce every table and figure of the paper, next to the paper's numbers.

    Finished trainings are stored in OUT/runs.sqlite. You can stop at any time; the same command continues.
    """
    from oddnode.paper.experiments import SCOPES, choose_items

    items = choose_items(None if only is None else split_names(only))
    if protocol not in _PROTOCOLS:
        raise unknown("protocol", protocol, _PROTOCOLS)
    load_plugins(plugin or ())
    check_device(device)
    check_engine(engine)
    if not smoke and not no_train:
        data_dir_of(data_dir)  # a missing folder is an error before torch is imported
    from oddnode.bench.report import check_writable
    from oddnode.paper.plan import make_plan
    from oddnode.paper.run import Summary, default_jobs, run_plan
    from oddnode.paper.store import Store
    from oddnode.runner.source_key import store_key

    folder = out or Path("smoke" if smoke else "paper")
    note: Callable[[str], None] = (lambda text: None) if as_json else _print_note
    if not dry_run:
        check_writable(folder)
    rescued = _recover(folder, note)
    if take_from is not None and not dry_run:
        with Store(folder) as store:
            note(f"{store.take_from(take_from)} records copied from {escape(str(take_from))}")
    scope, done = SCOPES["smoke" if smoke else "paper"], _tasks_in(folder) if no_train else ()
    plan = make_plan(scope, items, _PROTOCOLS[protocol], seeds, data_dir, device, done)
    _note_absent(plan, note)
    code, trains = store_key(), not (dry_run or no_train)
    with open_engine(engine, jobs, threads, device) if trains else nullcontext() as remote:
        jobs = jobs or (default_jobs(device) if remote is None else remote.jobs)
        if remote is None:
            _note_shared_gpu(device, jobs, note)
        facts = {"out": str(folder), "rescued": rescued} | _print_plan(
            plan, folder, None if any_version else code, jobs, note
        )
        summary = Summary(len(plan.trainings), facts["done_before"])
        if trains:
            try:
                with _bar(hidden=as_json) as show:
                    summary = run_plan(plan, folder, code, jobs, threads, any_version, keep_scores, show, remote)
            except KeyboardInterrupt:
                _print_note("stopped; finished trainings are stored, and the same command continues")
                raise typer.Exit(130) from None
    if not dry_run:
        command = "oddnode paper" + (" --smoke" if smoke else "") + f" --seeds {plan.seeds} --protocol {protocol}"
        facts |= _write_outputs(
            plan, folder, None if any_version else code, command, summary, note, show_table=not as_json
        )
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
    if facts.get("lost"):
        raise RuntimeError(
            f"{len(facts['lost'])} trainings failed (out of memory?); the next run tries them again: "
            + "; ".join(facts["lost"][:5])
        )


def _recover(folder: Path, note: Callable[[str], None]) -> int | None:
    """Repair a damaged store and return the number of records that could be read."""
    from oddnode.paper.store import recover

    rescued = recover(folder)
    if rescued is not None:
        note(f"[bold yellow]note:[/] the file of the store was damaged; {rescued} records were recovered")
    return rescued


def _tasks_in(folder: Path) -> set[str]:
    """The tasks that a store has records of; writing their tables needs no data."""
    from oddnode.paper.store import Store

    if not (folder / "runs.sqlite").exists():
        return set()
    with Store(folder) as store:
        return {record.training.task for record in store.records()}


def _note_absent(plan: Plan, note: Callable[[str], None]) -> None:
    """List the data sets that are missing; raise an error if all of them are."""
    from oddnode.paper.plan import absent_data

    absent = absent_data(plan)
    if absent and not plan.trainings:
        reasons = "; ".join(dict.fromkeys(absent.values()))
        raise ValueError(f"nothing to do: no data set was found ({', '.join(absent)}). {reasons}")
    for data, reason in absent.items():
        note(f"[bold yellow]note:[/] {escape(data)} is left out: {escape(reason)}")


def _note_shared_gpu(device: str, jobs: int, note: Callable[[str], None]) -> None:
    """Say how several processes can use a GPU at the same time, if they cannot yet."""
    from oddnode._utils.devices import is_gpu, processes_share_gpu

    if jobs > 1 and is_gpu(device) and not processes_share_gpu():
        note(
            "[bold yellow]note:[/] the GPU runs one process at a time; start NVIDIA's Multi-Process "
            "Service (nvidia-cuda-mps-control -d) to run all of them at once"
        )


def _print_plan(plan: Plan, folder: Path, code: str | None, jobs: int, note: Callable[[str], None]) -> dict[str, Any]:
    """Print how much of the plan is done and how long the rest will take."""
    from oddnode.paper.plan import estimate_seconds, unfinished
    from oddnode.paper.store import Store
    from oddnode.runner.source_key import store_key

    missing, records = plan.trainings, []
    if (folder / "runs.sqlite").exists():
        with Store(folder, code) as store:
            missing, records = unfinished(plan, store), store.records()
    total, left = len(plan.trainings), estimate_seconds(missing, records, jobs, plan.device)
    processes = f"{jobs} process{'es' if jobs > 1 else ''}"
    to_go = f"{total - len(missing)} of them done; {_duration(left)} to go in {processes}" if missing else "all done"
    note(f"{total} trainings for {len(plan.items)} tables and figures, {to_go}")
    return {
        "trainings": total,
        "done_before": total - len(missing),
        "estimated_seconds": round(left),
        "absent": plan.absent,
        "code": store_key(),
    }


def _write_outputs(
    plan: Plan,
    folder: Path,
    code: str | None,
    command: str,
    summary: Summary,
    note: Callable[[str], None],
    show_table: bool,
) -> dict[str, Any]:
    """Write tables, figures and report, and print where they are."""
    from oddnode.paper.outputs import make_all
    from oddnode.paper.results import Results
    from oddnode.paper.store import Store

    for label in summary.repaired:
        note(f"[bold yellow]note:[/] a damaged record was replaced by a new training: {escape(label)}")
    with Store(folder, code) as store:
        written, notes = make_all(plan, store, folder, command)
        size = store.size()
        if show_table:
            _print_summary(Results(plan, store))
    for text in notes:
        note(f"[bold yellow]note:[/] {escape(text)}")
    note(_where(folder, written, size))
    return {
        "seconds": round(summary.seconds, 1),
        "repaired": summary.repaired,
        "lost": summary.lost,
        "store_bytes": size,
        "notes": notes,
        "written": [str(path) for path in written],
    }


def _print_summary(results: Results) -> None:
    """Print the comparison of all methods under the first protocol."""
    from oddnode.detector import MODEL_FREE
    from oddnode.paper.outputs import main_results, summary_rows

    protocol = results.plan.protocols[0]
    found = main_results(results, protocol)
    if not found:
        return
    head, *body = summary_rows(found)
    model_free = [number for number, row in enumerate(body) if row[0] in MODEL_FREE]
    print_rows(None, head, body, numbers_from=2, cuts=model_free[:1])
    typer.echo(
        f"AUROC up / FPR95 down, percent; protocol {protocol}, {results.plan.seeds} seeds; model-free scores last"
    )


def _print_note(text: str) -> None:
    err.print(text, highlight=False, soft_wrap=True)


def _where(folder: Path, written: list[Path], store_bytes: int) -> str:
    pages = [path for path in written if path.suffix == ".html"]
    first = pages[0] if pages else folder / "results.md"
    return (
        f"written: {len(written)} files in {escape(str(folder))}; the store has {store_bytes / 1e6:.1f} MB\n"
        f"[bold]open {escape(str(first))}[/]"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"about {minutes:.0f} min" if minutes < 90 else f"about {minutes / 60:.1f} h"


@contextmanager
def _bar(hidden: bool) -> Iterator[Callable[[Progress], None]]:
    """Show a progress bar on a terminal, or print a line every half minute for logs."""
    from rich import progress as bars

    began = last = time.monotonic()
    first_share: float | None = None
    text = bars.TextColumn
    times = bars.TimeElapsedColumn(), text("left"), bars.TimeRemainingColumn()
    columns = text("{task.fields[count]}"), bars.BarColumn(), *times, text("{task.description}")
    with bars.Progress(*columns, console=err, transient=True, disable=hidden or not err.is_terminal) as bar:
        line = bar.add_task("", total=1.0, count="")

        def show(progress: Progress) -> None:
            nonlocal last, first_share
            first_share = progress.share if first_share is None else first_share
            count = f"{progress.done} of {progress.total} trainings"
            bar.update(line, completed=progress.share, description=escape(progress.last), count=count)
            now = time.monotonic()
            gained = progress.share - first_share
            if not hidden and not err.is_terminal and now - last > 30 and gained > 0:
                last = now
                left = (now - began) / gained * (1 - progress.share)
                _print_note(f"{count}, {_duration(left)} left; last: {escape(progress.last)}")

        yield show
