"""Alerts, feedback and draws as Arrow tables, in the forms that other commands read, and as a page to print."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from oddnode.online.answers import NOTABLE, surprise_columns
from oddnode.service.alerts import AlertLog, Draw, Feedback, Record
from oddnode.tables.values import TableError, pa
from oddnode.webpage.html import templates

_FILE = "changes.sqlite"
_TYPES = {
    **dict.fromkeys(("number", "arrival", "num_neighbours"), "int64"),
    **dict.fromkeys(("score", "p_value", "confidence"), "float64"),
    **dict.fromkeys(("is_ood", "exact", "was_alert"), "bool"),
    **dict.fromkeys(("reason", "why", "rule", "model", "who", "verdict", "note"), "string"),
}
# Features of a row without columns that are shown on a page.
_MOST_SHOWN = 40


@contextmanager
def open_alerts(folder: str | os.PathLike) -> Iterator[AlertLog]:
    """Open the log in a service's folder to read it, whether the service runs or not."""
    path = Path(folder) / _FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no log of changes; give the folder that `oddnode serve` has as --state")
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        yield AlertLog(lambda: connection, read_only=True)


def read_alerts(folder: str | os.PathLike) -> Any:
    """Read the alerts of a service, whether it runs or not.

    Parameters
    ----------
    folder : path
        The folder that `oddnode serve` has as ``--state``.

    Returns
    -------
    pyarrow.Table
        Number, time, id, what was answered (score, p-value, ...), ``surprise_<kind>`` for every kind of evidence, the
        row as JSON, the neighbours, model and graph, and what was said last: ``verdict``, ``note``, ``who``.

    Examples
    --------
    >>> read_alerts("no such folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: no such folder has no log of changes; give the folder that `oddnode serve` has as --state
    """
    with open_alerts(folder) as log:
        return alert_table(log.records()[::-1], log.feedback())


def read_feedback(folder: str | os.PathLike) -> Any:
    """Read all that was said of alerts and of arrivals that were drawn, also what was changed later.

    Parameters
    ----------
    folder : path
        As for `read_alerts`.

    Returns
    -------
    pyarrow.Table
        The columns ``number`` (which counts feedback), ``arrival``, ``id``, ``time``, ``who``, ``verdict``, ``note``,
        the oldest first.
    """
    with open_alerts(folder) as log:
        return feedback_table(log)


def read_checked(folder: str | os.PathLike, id_column: str = "id", draw: int | None = None) -> Any:
    """Read the answers for arrivals that were drawn at random, for `oddnode.tables.TableModel.calibrate`.

    Parameters
    ----------
    folder : path
        As for `read_alerts`.
    id_column : str
        The name of the column with the ids in the tables.
    draw : int, optional
        The number of the draw; by default the last one.

    Returns
    -------
    pyarrow.Table
        The columns that `oddnode.tables.sample_to_check` writes; ``known`` is yes, no, or null without an answer.
    """
    with open_alerts(folder) as log:
        return checked_table(log, id_column, draw)


def read_exposure(folder: str | os.PathLike) -> tuple[Any, Any]:
    """Read the arrivals that were said to be really unknown, for `oddnode.tables.TableModel.fit`.

    Parameters
    ----------
    folder : path
        As for `read_alerts`.

    Returns
    -------
    pyarrow.Table
        Their rows as they were sent: ``exposure_nodes``.
    pyarrow.Table
        The edges between them, as recorded: ``exposure_edges``.
    """
    with open_alerts(folder) as log:
        return exposure_tables(log)


def columns_of(things: Sequence[Any], *names: str) -> dict[str, Any]:
    """Attributes of some things as arrays, by name."""
    columns = {}
    for name in names:
        values = [getattr(each, name) for each in things]
        if name == "time":
            times = [datetime.fromtimestamp(each, UTC) for each in values]
            columns[name] = pa.array(times, pa.timestamp("us", "UTC"))
        else:
            columns[name] = id_array(values) if name == "id" else _column(values, _TYPES.get(name))
    return columns


def alert_table(records: Sequence[Record], feedback: Iterable[Feedback] = ()) -> Any:
    """Make the table of `read_alerts`."""
    last = {each.arrival: each for each in feedback}
    answers = [each.answer for each in records]
    neighbours = [("id", pa.string()), ("weight", pa.float64()), ("predicted", pa.string()), ("is_ood", pa.bool_())]
    names = [name for name, _ in neighbours]
    linked = [
        [dict(zip(names, (str(n.id), n.weight, str(n.predicted), n.is_ood), strict=True)) for n in each.neighbours]
        for each in records
    ]
    said = [last.get(each.number) for each in records]
    return pa.table(
        {
            **columns_of(records, "number", "time"),
            **columns_of(answers, "id", "score", "p_value", "is_ood", "predicted", "confidence", "reason", "why"),
            **columns_of(answers, "exact", "num_neighbours"),
            **surprise_columns(answers),
            "row": pa.array([msgspec.json.encode(each.row).decode() for each in records], "string"),
            "neighbours": pa.array(linked, pa.list_(pa.struct(neighbours))),
            **columns_of(records, "rule", "model"),
            "graph_base": pa.array([each.graph.base for each in records], "string"),
            "graph_version": pa.array([each.graph.version for each in records], "int64"),
            **{n: pa.array([getattr(each, n, None) for each in said], "string") for n in ("verdict", "note", "who")},
        }
    )


def feedback_table(log: AlertLog) -> Any:
    """Make the table of `read_feedback`."""
    said, ids = log.feedback(), {each.number: each.answer.id for each in log.records(cause=None)}
    columns = columns_of(said, "number", "arrival", "time", "who", "verdict", "note")
    return pa.table(columns | {"id": id_array([ids[each.arrival] for each in said])})


def checked_table(log: AlertLog, id_column: str, draw: int | None = None) -> Any:
    """Make the table of `read_checked`."""
    found = chosen_draw(log, draw)
    known = {each.arrival: {"known": "yes", "unknown": "no"}[each.verdict] for each in log.feedback()}
    arrivals = {each.number: each for each in log.arrivals(found.since, found.until)}
    drawn, shown = [arrivals[number] for number in found.arrivals], [log.record_of(number) for number in found.arrivals]
    return pa.table(
        {
            id_column: id_array([each.id for each in drawn]),
            "arrival": pa.array(found.arrivals, "int64"),
            **columns_of([each.answer for each in shown], "predicted"),
            **columns_of(drawn, "score", "p_value"),
            "is_ood": pa.array(found.is_ood, "bool"),
            "weight": pa.array(found.weight, "float64"),
            "num_alike": pa.array(found.num_alike, "int64"),
            "known": pa.array([known.get(number) for number in found.arrivals], "string"),
        }
    )


def chosen_draw(log: AlertLog, number: int | None) -> Draw:
    """The draw with a number; by default the last one."""
    draws = {each.number: each for each in log.draws()}
    if not draws:
        raise TableError(
            "no arrivals were drawn; answers for alerts alone are no random draw, and a threshold that is calibrated "
            "on them finds nothing any more: draw some first, POST /v1/draws"
        )
    if number is not None and number not in draws:
        raise KeyError(f"there is no draw with the number {number}, expected 1 to {max(draws)}")
    return draws[max(draws) if number is None else number]


def exposure_tables(log: AlertLog) -> tuple[Any, Any]:
    """Make the tables of `read_exposure`."""
    verdicts = {each.arrival: each.verdict for each in log.feedback()}
    unknown = [each for each in log.records(cause=None)[::-1] if verdicts.get(each.number) == "unknown"]
    rows = {each.answer.id: each for each in unknown}  # the last of those with the same id
    if not rows:
        raise TableError("no arrival was said to be really unknown; there is nothing to learn from")
    sources, targets, weights = [], [], []
    seen: set[frozenset[Any]] = set()
    for node, record in rows.items():
        for other in record.neighbours:
            if other.id in rows and frozenset((node, other.id)) not in seen:
                seen.add(frozenset((node, other.id)))
                sources.append(other.id)
                targets.append(node)
                weights.append(other.weight)
    edges = {"source": id_array(sources), "target": id_array(targets)}
    if any(weight != 1 for weight in weights):
        edges["weight"] = pa.array(weights, pa.float64())
    names = list(dict.fromkeys(name for record in rows.values() for name in record.row))
    nodes = {name: _column([record.row.get(name) for record in rows.values()]) for name in names}
    return pa.table(nodes), pa.table(edges)


def id_array(ids: Sequence[Any]) -> Any:
    """Ids as an array of integers, or of strings if there are any."""
    return pa.array(ids, pa.int64()) if all(isinstance(each, int) for each in ids) else pa.array(map(str, ids))


def _column(values: Sequence[Any], kind: str | None = None) -> Any:
    """An array of values; those of several types become text."""
    kinds = {type(value) for value in values if value is not None}
    if kind is None and kinds == {int, float}:
        values, kind = [None if value is None else float(value) for value in values], "float64"
    elif kind is None and len(kinds) != 1:
        values, kind = [None if value is None else str(value) for value in values], "string"
    return pa.array(values, kind)


# --- the page ---


def alert_page(record: Record, feedback: Sequence[Feedback]) -> tuple[str, str]:
    """Render an alert as a page without a script, and a content-security policy with the hash of its one style."""
    environment = templates(__package__)
    style = environment.loader.get_source(environment, "alert.css")[0]  # type: ignore[union-attr]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    ranked = sorted(record.answer.evidence, key=lambda each: -each.surprise)
    evidence = [(each.kind, each.surprise, math.exp(-each.surprise), each.surprise >= NOTABLE) for each in ranked]
    page = environment.get_template("alert.html").render(
        policy=policy,
        style=style,
        title=f"Alert {record.number}" if record.cause == "alert" else f"Arrival {record.number}",
        record=record,
        answer=record.answer,
        time=_shown_time(record.time),
        evidence=[each for each in evidence if each[1] > 0],
        strongest=ranked[0].surprise if ranked else 0.0,
        num_notable=sum(each[3] for each in evidence),
        num_flagged=sum(bool(each.is_ood) for each in record.neighbours),
        row={column: _shown(value) for column, value in record.row.items()},
        feedback=[(each, _shown_time(each.time)) for each in feedback],
    )
    return page, policy


def _shown(value: Any) -> str:
    """A value of a row; of features that are given as numbers, those that are not 0."""
    if not isinstance(value, list):
        return "" if value is None else str(value)
    some = [f"{place}: {number:.4g}" for place, number in enumerate(value) if number]
    more = f", and {len(some) - _MOST_SHOWN} more" if len(some) > _MOST_SHOWN else ""
    return f"{len(value)} features, {len(some)} not 0: {', '.join(some[:_MOST_SHOWN])}{more}"


def _shown_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
