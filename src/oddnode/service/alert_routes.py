"""Alerts over HTTP: lists, exports, the page to print, feedback, draws and replays.

What is only read comes from a connection of its own, so that it does not wait for the graph, nor the graph for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from msgspec import Meta, Struct

from oddnode.service.alerts import AlertLog, Arrived, Draw, Feedback, Record, Verdict
from oddnode.service.app import answer, as_json, body_of, service
from oddnode.service.exports import alert_page, alert_table, checked_table, exposure_tables, feedback_table, open_alerts
from oddnode.service.replays import AlertRule, replay_log
from oddnode.service.requests import Problem, decoded
from oddnode.service.state import State, decoded_change
from oddnode.tables.formats import table_bytes
from oddnode.tables.values import TableError, pa

T = TypeVar("T")
_JSON = "application/json"
_TYPES = {"ndjson": "application/x-ndjson", "parquet": "application/vnd.apache.parquet", "csv": "text/csv"}
_MOST_DRAWN = 10_000
_encode = msgspec.json.encode

Number = Annotated[int, PathParameter(ge=1, le=2**62, description="The number of the alert.")]

router = APIRouter(prefix="/v1", tags=["alerts"])


class FeedbackRequest(Struct, forbid_unknown_fields=True):
    """What an arrival is, by the word of a person."""

    verdict: Verdict  #: Known after all, or really unknown.
    note: Annotated[str, Meta(max_length=4000)] = ""  #: Why.
    who: Annotated[str, Meta(max_length=200)] = ""  #: Who says so.


class DrawRequest(Struct, forbid_unknown_fields=True):
    """How many arrivals to draw, and from which period, in seconds since 1970."""

    n: Annotated[int, Meta(ge=2, le=_MOST_DRAWN)] = 100
    since: float | None = None
    until: float | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class ReplayRequest(AlertRule, frozen=True, forbid_unknown_fields=True):
    """A rule, and the period to replay, in seconds since 1970."""

    since: float | None = None
    until: float | None = None


async def _read(request: Request, function: Callable[[AlertLog], T]) -> T:
    """Call a function with the log, in another thread."""
    log = service(request).log
    if log is None:
        raise Problem(409, "this service has no log, and so no alerts; start it with --state FOLDER", "read-only")

    def read() -> T:
        with open_alerts(log.folder) as alerts:
            try:
                return function(alerts)
            except KeyError as error:
                raise Problem(404, error.args[0]) from None
            except TableError as error:
                raise Problem(422, str(error)) from None

    return await asyncio.to_thread(read)


def _with_feedback(alerts: AlertLog, record: Record) -> dict[str, Any]:
    said = alerts.feedback(record.number)
    last = {"verdict": said[-1].verdict, "note": said[-1].note} if said else {"verdict": None, "note": None}
    return msgspec.structs.asdict(record) | last | {"feedback": said}


def _encoded(table: Any, form: str) -> Response:
    """A table as the body of an answer."""
    if form == "ndjson":
        return Response(b"".join(_encode(row) + b"\n" for row in table.to_pylist()), media_type=_TYPES[form])
    if form == "csv" and any(pa.types.is_nested(column.type) for column in table.schema):
        raise Problem(422, "format: features are lists, which CSV does not have; expected ndjson or parquet")
    return Response(table_bytes(table, f".{form}"), media_type=_TYPES[form])


@router.get("/alerts")
async def alerts(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: Annotated[int | None, Query(ge=1, le=2**62, description="Only alerts with a lower number.")] = None,
    verdict: Annotated[
        Literal["known", "unknown", "open"] | None, Query(description="Only those of which this was said last.")
    ] = None,
) -> Response:
    """Alerts, the newest first."""

    def page(log: AlertLog) -> dict[str, Any]:
        found = log.records(limit=limit, before=before, verdict=verdict)
        more = found[-1].number if len(found) == limit else None
        return {"alerts": [_with_feedback(log, each) for each in found], "next": more, "counts": log.counts()}

    return as_json(_encode(await _read(request, page)))


@router.get("/alerts/export")
async def export(
    request: Request, format: Annotated[Literal["json", "ndjson", "parquet"], Query()] = "ndjson"
) -> Response:
    """All alerts, the oldest first: complete with JSON, a table with Parquet."""

    def everything(log: AlertLog) -> Response:
        records = log.records()[::-1]
        if format == "parquet":
            return _encoded(alert_table(records, log.feedback()), format)
        found = [_with_feedback(log, each) for each in records]
        if format == "json":
            return as_json(_encode(found))
        return Response(b"".join(_encode(each) + b"\n" for each in found), media_type=_TYPES[format])

    return await _read(request, everything)


@router.get("/alerts/{number}")
async def alert(request: Request, number: Number) -> Response:
    """An alert, or an arrival that was drawn, with all that was said of it."""
    return as_json(_encode(await _read(request, lambda log: _with_feedback(log, log.record_of(number)))))


@router.get("/alerts/{number}/page")
async def page(request: Request, number: Number) -> Response:
    """An alert as a page to print."""
    found = await _read(request, lambda log: alert_page(log.record_of(number), log.feedback(number)))
    return Response(found[0], media_type="text/html; charset=utf-8", headers={"content-security-policy": found[1]})


@router.post("/alerts/{number}/feedback")
async def feedback(request: Request, number: Number) -> Response:
    """Say what an alert, or an arrival that was drawn, is; what was said before is kept."""
    asked, state = decoded(await body_of(request, _JSON), FeedbackRequest), service(request)

    def give() -> Feedback:
        log = _written(state)
        try:
            said = log.give_feedback(number, asked.verdict, asked.note, asked.who, time=time.time())
        except KeyError as error:
            raise Problem(404, error.args[0]) from None
        state.tell("feedback", {"alert": number, "verdict": said.verdict, "note": said.note, "time": said.time})
        return said

    return as_json(_encode(await answer(state.write(give))))


@router.get("/feedback/export")
async def export_feedback(
    request: Request,
    form: Annotated[
        Literal["history", "checked", "exposure-nodes", "exposure-edges"],
        Query(alias="as", description="All feedback; answers for a draw (calibrate --checked); or fit --exposure-..."),
    ] = "history",
    format: Annotated[Literal["csv", "ndjson", "parquet"], Query()] = "parquet",
    draw: Annotated[int | None, Query(ge=1, description="The number of the draw; by default the last.")] = None,
) -> Response:
    """Feedback, in the forms that other commands read."""
    schema = getattr(service(request), "schema", None)
    id_column = "id" if schema is None else schema.id_column

    def table(log: AlertLog) -> Any:
        if form == "checked":
            return checked_table(log, id_column, draw)
        return feedback_table(log) if form == "history" else exposure_tables(log)[form == "exposure-edges"]

    return _encoded(await _read(request, table), format)


@router.post("/draws")
async def draw(request: Request) -> Response:
    """Draw arrivals at random for a person to check, flagged ones and others, so that their answers can calibrate."""
    asked, state = decoded(await body_of(request, _JSON), DrawRequest), service(request)

    def make() -> Draw:
        period = {"since": asked.since, "until": asked.until}
        how: dict[str, Any] = {**period, "seed": asked.seed, "time": time.time(), "base": state.base}
        return _written(state).draw(state.live, lambda drawn: _rows_of(state, drawn), asked.n, **how)

    return as_json(_encode(await answer(state.write(make))))


@router.get("/draws")
async def draws(request: Request) -> Response:
    """All draws, the oldest first."""
    return as_json(_encode({"draws": await _read(request, AlertLog.draws)}))


@router.post("/replay")
async def replay(request: Request) -> Response:
    """What if: which arrivals of a period would have been alerts by another rate, threshold or budget."""
    asked = decoded(await body_of(request, _JSON), ReplayRequest)
    found = await _read(request, lambda log: replay_log(log, asked, asked.since, asked.until))
    return as_json(_encode(found.as_dict() | {"alerts": found.table.to_pylist()}))


def _written(state: State) -> AlertLog:
    assert state.alerts is not None  # what writes has a log
    return state.alerts


def _rows_of(state: State, arrived: Sequence[Arrived]) -> dict[int, Mapping[str, Any]]:
    """The nodes of arrivals as they were sent, or as the model reads them, by number."""
    name = "id" if state.schema is None else state.schema.id_column
    found: dict[int, Mapping[str, Any]] = {}
    # By change: each is decoded once, and only one of them is in memory.
    for version, own in groupby(sorted(arrived, key=lambda each: each.version), key=lambda each: each.version):
        entry = None if state.log is None else state.log.of_version(version)
        rows = {} if entry is None else {row.get(name): row for row in decoded_change(entry).add_nodes}
        found |= {each.number: rows.get(each.id) or state.live.row(each.id) for each in own}
    return found
