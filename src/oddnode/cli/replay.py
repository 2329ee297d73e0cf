"""The command `replay`: what if a service had used another rule, or another model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from oddnode._utils.plugins import load_plugins
from oddnode.cli.shared import Json, Plugins, add_command, print_facts, progress_bar
from oddnode.cli.tables import _SUFFIXES, EdgeTables, Graph, NodeTables


def replay(
    state: Annotated[Path, typer.Option(help="Folder that `oddnode serve` has as --state; it may run.")],
    model: Annotated[
        Path | None, typer.Argument(help="Folder of another model.", show_default="the answers that were given")
    ] = None,
    graph: Graph = None,
    nodes: NodeTables = None,
    edges: EdgeTables = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="First day or time, for example 2026-05-01 (UTC).")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Last day, or first time after the period.")] = None,
    rate: Annotated[float | None, typer.Option(help="Alerts: arrivals with a p-value of at most this.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Alerts: arrivals that score below this.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Alerts: at most so many a day, the oddest.")] = None,
    out: Annotated[
        Path | None, typer.Option(help=f"File to write, {_SUFFIXES}: arrivals that were alerts, or would have been.")
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Say which arrivals of a service would have been alerts by another rate, threshold, budget or model.

    Another model scores the arrivals again in their order, in the graph as it then was; it needs the tables or the
    graph that the service started from. What was said of alerts counts what would have been caught, and spared.
    """
    load_plugins(plugin or ())
    given = graph is not None or bool(nodes and edges)
    if given != (model is not None) or (graph is not None and (nodes or edges)):
        raise ValueError("give a model together with --graph, or with --nodes and --edges; or none of them")
    from oddnode.service.replays import AlertRule, replay_log, replay_model
    from oddnode.tables import check_target as check_table_target

    rule = AlertRule(rate=rate, threshold=threshold, budget=budget)
    period = {"since": _seconds(since, "since"), "until": _seconds(until, "until")}
    if out is not None:
        check_table_target(out, [])
    if model is None:
        from oddnode.service.exports import open_alerts

        with open_alerts(state) as log:
            found = replay_log(log, rule, **period)
    else:
        from oddnode.service.state import Source

        tables = [[Path(each) for each in some or ()] for some in (nodes, edges)]
        with progress_bar(terminal_only=True) as show:
            source = Source(model, graph, tables[0], tables[1])
            found = replay_model(source, state, rule, **period, on_progress=lambda n, of: show(n, of, "scoring again"))
    facts: dict[str, Any] = {} if out is None else {"written": str(out)}
    if out is not None:
        from oddnode.tables import write_table

        write_table(found.table, out)
    if as_json:
        print_facts(found.as_dict() | facts, as_json)
        return
    for sentence in found.summary:
        typer.echo(sentence)
    if facts:
        print_facts(facts, as_json)


def _seconds(text: str | None, name: str) -> float | None:
    """A time in seconds since 1970; the end of the last day, if it is a day."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"--{name} is {text!r}, expected a day or a time like 2026-05-31 or 2026-05-31T18:00"
        ) from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    is_last_day = name == "until" and len(text) <= len("2026-05-31")
    return (time + timedelta(days=is_last_day)).timestamp()


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    add_command(
        app,
        replay,
        "--state changes --rate 0.01 --since 2026-05-01 --until 2026-05-31",
        "--state changes --budget 20 --out alerts.parquet",
        "stricter --nodes nodes.csv --edges edges.csv --state changes --json",
        panel="Your tables",
    )
