"""The command that watches a graph over time."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oddnode._utils.plugins import load_plugins
from oddnode.cli.shared import (
    Device,
    Json,
    Plugins,
    add_command,
    as_options,
    check_device,
    print_note,
    print_rows,
    visible,
)
from oddnode.cli.tables import Db, EdgeTables, Encoding, IgnoreUnknownEdges, NodeTables, checked_tables

if TYPE_CHECKING:
    from oddnode.watch import Source, Watch, WatchReport, Window

#: The exit status while an alarm stands.
ALARM = 3


def watch(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    state: Annotated[Path, typer.Option(help="File that keeps what was seen; the first run makes it.")],
    nodes: NodeTables = None,
    edges: EdgeTables = None,
    db: Db = None,
    window: Annotated[
        str, typer.Option(help="Length of windows: 30m, 1h, 1d, 4w; a number alone where times are numbers.")
    ] = "1d",
    time_column: Annotated[
        str | None, typer.Option(help="Column with the times of the nodes.", show_default="as when fitting")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="Time up to which all rows are there; windows that end later are left for a later run.",
            show_default="now; where times are numbers, all windows with rows are judged",
        ),
    ] = None,
    chance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Probability of ever raising an alarm if nothing changes.")
    ] = 0.01,
    baseline: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of windows, the first ones, that later rows are compared with, not the calibration rows.",
        ),
    ] = 0,
    log: Annotated[
        Path | None, typer.Option(help="The --state folder of `oddnode serve`, in place of --nodes and --edges.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order within a window.")] = 0,
    page: Annotated[Path | None, typer.Option(help="Page to write, .html.")] = None,
    prometheus: Annotated[
        Path | None, typer.Option(help="File of metrics to write, .prom, for the textfile collector.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Address that is told of an alarm once, as JSON by POST.")
    ] = None,
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="Take the alarm back first, and begin a new bet.")
    ] = False,
    ignore_unknown_edges: IgnoreUnknownEdges = False,
    encoding: Encoding = None,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Watch whether new rows still score as known ones, window by window.

    Give all tables so far, old rows and new ones, or the log of a service. Each run judges the windows that have ended
    since the last one: how many rows are flagged, what moved, the oddest rows with reasons, and whether rows as a whole
    no longer score as known ones. The exit status is 3 while an alarm stands, 0 without one, and 1 on an error. With
    --json, every window is one line, and so is an alarm.
    """
    load_plugins(plugin or ())
    check_device(device)
    if (not nodes or not edges) if log is None else (nodes or edges or db):
        raise ValueError("give --nodes and --edges, all rows so far, or --log, the --state folder of `oddnode serve`")
    for path, ends in ((page, (".html", ".htm")), (prometheus, (".prom",))):
        if path is not None and path.suffix.lower() not in ends:
            raise ValueError(f"{path}: expected a name that ends in {ends[0]}")
    from oddnode.watch.windows import Windows

    windows = Windows.of(window)
    last = _until(until, windows.is_date)
    if log is not None and not windows.is_date:
        raise ValueError(f"--window {window}: the log of a service has dates, so the window needs a unit, like 1h")
    tables = checked_tables(model, nodes, edges, encoding, db) if log is None else (None, None)
    from oddnode.detector import Detector, read_config
    from oddnode.tables import TableModel
    from oddnode.watch import LogRows, TableRows, Watch
    from oddnode.watch.webhook import check_url

    if webhook is not None:
        check_url(webhook)
    kind = TableModel if log is None or "table" in read_config(model) else Detector
    loaded: TableModel | Detector = kind.load(model, device=device)
    model_id = hashlib.sha256((model / "manifest.json").read_bytes()).hexdigest()[:12]
    watched = Watch(loaded, state, window, chance=chance, baseline=baseline, seed=seed, model_id=model_id)
    source: Source
    if log is None:
        assert isinstance(loaded, TableModel)
        source = TableRows(loaded, *tables, windows, time_column, ignore_unknown_edges)
    else:
        source = LogRows(log, model_id)
    if acknowledge:
        watched.acknowledge()
        print_note("the alarm was taken back, and a new bet begins")
    report = watched.run(source, last)
    notes = report.notes + _outputs(watched, report, page, prometheus, webhook)
    _print_lines(report) if as_json else _print_windows(report, windows.is_date)
    for note in notes:
        print_note(as_options(note))
    if report.alarm is not None:
        raise typer.Exit(ALARM)


def _until(text: str | None, is_date: bool) -> float | None:
    if text is None:
        return time.time() if is_date else None
    from oddnode.tables import TrainUntil

    given = TrainUntil("until", text)
    if given.is_number == is_date:
        raise ValueError(f"--until {text}: expected {'a date or time' if is_date else 'a number'}, as the window says")
    return (given.last + 1) / 10**6 if is_date else float(given.last)


def _outputs(
    watched: Watch, report: WatchReport, page: Path | None, prometheus: Path | None, webhook: str | None
) -> list[str]:
    """Write the page and the metrics and tell the webhook; what could not be told is a note."""
    from oddnode.watch import send, write_metrics, write_page

    if page is not None:
        write_page(report.state, page)
    if prometheus is not None:
        write_metrics(report.state, prometheus)
    problem = send(watched, webhook)[1] if webhook is not None else ""
    return [problem] if problem else []


def _print_lines(report: WatchReport) -> None:
    import msgspec

    lines: list[dict[str, Any]] = [{"kind": "window", **msgspec.to_builtins(each)} for each in report.windows]
    if report.alarm is not None:
        lines.append({"kind": "alarm", "is_new": report.is_new, **msgspec.to_builtins(report.alarm)})
    for line in lines:
        typer.echo(msgspec.json.encode(line).decode())


def _print_windows(report: WatchReport, is_date: bool) -> None:
    from oddnode.tables.reports import percent
    from oddnode.watch.page import in_words
    from oddnode.watch.webhook import sentence

    def row(each: Window) -> list[str]:
        low, high = each.drift.share_interval
        share = f"{percent(each.drift.share_flagged)} ({percent(low)} to {percent(high)})"
        moved = in_words(each.changes[0]) if each.changes else "-"
        return [each.name, str(each.drift.num_nodes), share, f"{each.log10_evidence:+.1f}", visible(moved)]

    if report.windows:
        head = ["window", "rows", "flagged (95 % interval)", "log10 evidence", "what moved most"]
        print_rows(None, head, [row(each) for each in report.windows])
        rate = report.windows[-1].drift.false_alarm_rate
        typer.echo(f"Of known rows, {percent(rate)} should be flagged.")
    else:
        typer.echo("No window has ended since the last run.")
    for each in report.windows[-1:]:
        for odd in each.oddest:
            typer.echo(visible(f"{odd.id}: p = {odd.p_value:.3g}. {odd.why or 'Not flagged.'}"))
    if report.alarm is not None:
        typer.echo(("ALARM. " if report.is_new else "The alarm stands. ") + sentence(report.alarm))


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    tables = "--nodes nodes.csv --edges edges.csv"
    add_command(
        app,
        watch,
        f"model {tables} --state watch.json --window 1d",
        f"model {tables} --state watch.json --window 1d --json --page watch.html --prometheus /metrics/oddnode.prom",
        "model --db postgresql://host/shop --nodes 'select * from products' --edges 'select a, b from links' "
        "--state watch.json --window 1h --webhook https://host/hook",
        f"model {tables} --state watch.json --window 5 --time-column year --until 2005",
        "model --log service-state --state watch.json --window 1h",
        f"model {tables} --state watch.json --acknowledge",
        panel="Your tables",
    )
