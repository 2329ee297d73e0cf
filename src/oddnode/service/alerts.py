"""Alerts: what was known of a flagged node when it arrived, and what a person says of it afterwards.

Everything is in tables of the log of changes, and only ever added; what is said of an arrival last is what counts. An
alert has the number of its arrival.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from oddnode.online import Judgement, LiveGraph
from oddnode.service.budget import DAY, MOST_DAYS, DailyBudget
from oddnode.service.requests import GraphVersion, Neighbour
from oddnode.tables.checking import draw_rows
from oddnode.tables.values import TableError

#: What a person says of an arrival: it is *known after all*, or *really unknown*.
Verdict = Literal["known", "unknown"]
Cause = Literal["alert", "draw"]
Id = int | str
_Table = Literal["arrived", "feedback", "draws"]

# Neighbours of a node that are recorded with an alert; of more, evenly spaced ones.
_MOST_NEIGHBOURS = 100
_LONGEST = {"note": 4000, "who": 200}
_TABLES = """
create table if not exists arrived (
    number integer primary key, version integer not null, time real not null, id text not null, score real not null,
    p_value real, is_ood integer) strict;
create table if not exists records (
    number integer primary key, cause text not null, version integer not null, time real not null,
    body text not null) strict;
create index if not exists version_of_record on records (version);
create index if not exists cause_of_record on records (cause, number);
create table if not exists feedback (
    number integer primary key, arrival integer not null, time real not null, who text not null,
    verdict text not null, note text not null) strict;
create index if not exists feedback_of_arrival on feedback (arrival);
create table if not exists draws (number integer primary key, time real not null, body text not null) strict;
create view if not exists judged_records as
    select *, (select verdict from feedback where arrival = records.number order by number desc limit 1) verdict
    from records;
create view if not exists judged_arrivals as
    select *, exists (select 1 from records where records.number = arrived.number and cause = 'alert') was_alert,
        (select verdict from feedback where arrival = arrived.number order by number desc limit 1) verdict
    from arrived;
"""
_NEXT = {
    "arrived": "select coalesce(max(number), 0) + 1 from arrived",
    "feedback": "select coalesce(max(number), 0) + 1 from feedback",
    "draws": "select coalesce(max(number), 0) + 1 from draws",
}
_encode = msgspec.json.encode


class JudgedNeighbour(Neighbour, frozen=True, kw_only=True):
    """An edge that leads to a node, and what was kept of the node that it comes from."""

    predicted: bool | int | str  #: Its most likely class.
    is_ood: bool | None  #: Whether it was flagged.


class Record(Struct, frozen=True, kw_only=True):
    """What was known of an arrival, as it was at that moment."""

    number: int  #: The number of the arrival.
    cause: Cause  #: Whether it was an alert, or was drawn later for a person to check.
    rule: str  #: Why: ``"rate"``, ``"budget 20"`` or ``"draw 3"``.
    time: float  #: When it was recorded, in seconds since 1970: for an alert, when the node arrived.
    model: str  #: The hash of the model.
    graph: GraphVersion  #: The graph with the arrival.
    row: dict[str, Any]  #: The node as it was sent: its columns, or ``id`` and ``x``.
    answer: Judgement  #: Score, p-value, evidence and reasons.
    neighbours: list[JudgedNeighbour]  #: At most 100.


class Feedback(Struct, frozen=True, kw_only=True):
    """What a person said of an arrival."""

    number: int  #: Counts all feedback.
    arrival: int  #: The number of the arrival.
    time: float  #: When, in seconds since 1970.
    who: str  #: Who, as they name themselves.
    verdict: Verdict  #: What.
    note: str  #: Why, in their words.


class Draw(Struct, frozen=True, kw_only=True):
    """Arrivals that were drawn at random for a person to check, among the flagged and among the others."""

    number: int  #: Counts the draws.
    time: float  #: When, in seconds since 1970.
    since: float | None  #: The period that they arrived in.
    until: float | None
    seed: int  #: The seed of the draw.
    arrivals: list[int]  #: Their numbers, in random order.
    is_ood: list[bool]  #: Whether each was flagged.
    num_alike: list[int]  #: The number of arrivals that each was drawn from: flagged ones, or others.
    weight: list[float]  #: The number of arrivals that each stands for.


class Arrived(NamedTuple):
    """A node that arrived, what was said of it then, and what a person said of it last."""

    number: int
    version: int
    time: float
    id: Id
    score: float
    p_value: float | None
    is_ood: bool | None
    was_alert: bool = False
    verdict: Verdict | None = None


class AlertLog:
    """Arrivals, alerts and feedback in the log of a service.

    What writes here runs in a transaction of the caller, who commits it together with the change that it is about.

    Parameters
    ----------
    connect : callable
        Returns the connection to the log, which changes if the log is opened again.
    model : str
        The hash of the model, which records name.
    budget : int, optional
        The most alerts a day, as for `DailyBudget`; by default every flagged arrival is an alert.
    read_only : bool
        Whether the tables are left as they are.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        model: str = "",
        *,
        budget: int | None = None,
        read_only: bool = False,
    ):
        self._connect, self._model, self._per_day = connect, model, budget
        self.budget = None if budget is None else DailyBudget(budget)
        self._next = 0
        if not read_only:
            for statement in filter(str.strip, _TABLES.split(";")):
                self.connection.execute(statement)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to the log."""
        return self._connect()

    def _all(self, query: str, *values: Any, **named: Any) -> list[Any]:
        return self.connection.execute(query, named or values).fetchall()

    def _next_number(self, table: _Table) -> int:
        return int(self._all(_NEXT[table])[0][0])

    # --- arrivals ---

    def record(
        self,
        live: LiveGraph,
        answers: Sequence[Judgement],
        rows: Sequence[Mapping[str, Any]],
        time: float,
        base: str = "",
    ) -> list[Record]:
        """Add the arrivals of a change to the log, and record those that are alerts, the oddest first.

        ``live`` is the graph after the change, ``base`` the hash of its base, ``rows`` the arrivals as they were sent.
        """
        first = self._next_number("arrived")
        if first != self._next:  # the first time, or a transaction was undone
            self._resume()
        self._next = first + len(answers)
        self.connection.executemany(
            "insert into arrived values (?, ?, ?, ?, ?, ?, ?)",
            [
                (first + place, live.version, time, _as_text(each.id), each.score, each.p_value, each.is_ood)
                for place, each in enumerate(answers)
            ],
        )
        # Of nodes that arrive together, the oddest get what is left of a budget.
        judged = [(each.p_value, each.score, place) for place, each in enumerate(answers) if each.p_value is not None]
        chosen = {}
        for p_value, score, place in sorted(judged):
            is_ood = bool(answers[place].is_ood)
            if is_ood if self.budget is None else self.budget.offer(time, p_value, score, is_ood):
                chosen[first + place] = answers[place], rows[place]
        rule = "rate" if self.budget is None else f"budget {self.budget.per_day}"
        return self._keep(live, chosen, "alert", rule, time, base)

    def _resume(self) -> None:
        """Let the budget go on where the log ends."""
        if self._per_day is None:
            return
        self.budget = DailyBudget(self._per_day)
        [[last]] = self._all("select coalesce((select time from arrived order by number desc limit 1), 0)")
        past = self._all(
            "select time, p_value, score, was_alert from judged_arrivals where p_value is not null and time >= ?"
            " order by version, p_value, score, number",
            (last // DAY - MOST_DAYS) * DAY,
        )
        self.budget.resume(past)

    def _keep(
        self,
        live: LiveGraph,
        chosen: dict[int, tuple[Judgement, Mapping[str, Any]]],
        cause: Cause,
        rule: str,
        time: float,
        base: str,
    ) -> list[Record]:
        # Words cost as much as the score, so only what is recorded is put into words.
        why = {each.id: each.why for each in live.explain([own.id for own, _ in chosen.values() if own.why is None])}
        records = [
            Record(
                number=number,
                cause=cause,
                rule=rule,
                time=time,
                model=self._model,
                graph=GraphVersion(base, live.version),
                row=dict(row),
                answer=msgspec.structs.replace(answer, why=answer.why or why[answer.id]),
                neighbours=_neighbours(live, answer.id),
            )
            for number, (answer, row) in chosen.items()
        ]
        self.connection.executemany(
            "insert into records values (?, ?, ?, ?, ?)",
            [(each.number, cause, live.version, time, _as_text(each)) for each in records],
        )
        return records

    def arrivals(self, since: float | None = None, until: float | None = None) -> Iterator[Arrived]:
        """Arrivals of a period, without its end, in their order."""
        found = self.connection.execute(
            "select number, version, time, id, score, p_value, is_ood, was_alert, verdict from judged_arrivals"
            " where (:since is null or time >= :since) and (:until is null or time < :until) order by number",
            {"since": since, "until": until},
        )
        for number, version, time, node, score, p_value, is_ood, was_alert, verdict in found:
            flag = None if is_ood is None else bool(is_ood)
            own = msgspec.json.decode(node)
            yield Arrived(number, version, time, own, score, p_value, flag, bool(was_alert), verdict)

    # --- records ---

    def records(
        self,
        *,
        limit: int | None = None,
        before: int | None = None,
        cause: Cause | None = "alert",
        verdict: Literal["known", "unknown", "open"] | None = None,
    ) -> list[Record]:
        """Alerts, the newest first: those with a number ``before``, and of which ``verdict`` was said last."""
        found = self._all(
            "select body from judged_records where (:cause is null or cause = :cause)"
            " and (:before is null or number < :before) and (:verdict is null or :verdict = coalesce(verdict, 'open'))"
            " order by number desc limit :limit",
            cause=cause,
            before=before,
            verdict=verdict,
            limit=-1 if limit is None else limit,
        )
        return [msgspec.json.decode(body, type=Record) for [body] in found]

    def record_of(self, number: int) -> Record:
        """The record of an arrival that was an alert, or was drawn."""
        found = self._all("select body from records where number = ?", number)
        if not found:
            raise KeyError(f"there is no alert with the number {number}, and no arrival that was drawn to be checked")
        return msgspec.json.decode(found[0][0], type=Record)

    def counts(self) -> dict[str, int]:
        """How many alerts there are by what was said of them last: ``"known"``, ``"unknown"`` or ``"open"``."""
        # From feedback and an index, since `status` asks often and records are long.
        [[total]] = self._all("select count(*) from records where cause = 'alert'")
        said = self._all(
            "select verdict, count(*) from (select verdict, max(number) from feedback"
            " where arrival in (select number from records where cause = 'alert') group by arrival) group by verdict"
        )
        found = {"known": 0, "unknown": 0} | dict(said)
        return found | {"open": total - sum(found.values())}

    def numbers(self, version: int) -> dict[Id, int]:
        """The numbers of the alerts among the arrivals of a change, by id."""
        query = "select body -> '$.answer.id', number from records where cause = 'alert' and version = ?"
        return {msgspec.json.decode(node): number for node, number in self._all(query, version)}

    # --- feedback ---

    def give_feedback(self, number: int, verdict: Verdict, note: str = "", who: str = "", *, time: float) -> Feedback:
        """Say what an arrival with a record is; what was said before is kept."""
        self.record_of(number)
        if verdict not in ("known", "unknown"):
            raise ValueError(f"verdict is {verdict!r}, expected 'known' (after all) or 'unknown' (really)")
        for name, text in (("note", note), ("who", who)):
            if len(text) > _LONGEST[name]:
                raise ValueError(f"{name} has {len(text)} characters, expected {_LONGEST[name]} at most")
        named = {"time": time, "who": who, "verdict": verdict, "note": note}
        given = {"number": self._next_number("feedback"), "arrival": number, **named}
        self.connection.execute("insert into feedback values (?, ?, ?, ?, ?, ?)", (*given.values(),))
        return msgspec.convert(given, Feedback)

    def feedback(self, number: int | None = None) -> list[Feedback]:
        """What was said, of one arrival or of all, the oldest first."""
        found = self._all(
            "select * from feedback where :number is null or arrival = :number order by number", number=number
        )
        return [Feedback(**dict(zip(Feedback.__struct_fields__, each, strict=True))) for each in found]

    # --- draws ---

    def draw(
        self,
        live: LiveGraph,
        rows_of: Callable[[Sequence[Arrived]], Mapping[int, Mapping[str, Any]]],
        n: int = 100,
        *,
        since: float | None = None,
        until: float | None = None,
        seed: int = 0,
        time: float,
        base: str = "",
    ) -> Draw:
        """Draw arrivals of a period for a person to check: at random, half of them flagged if there are as many.

        Feedback on alerts alone says nothing of what was not flagged; feedback on a draw does. Only nodes that are
        still in the graph are drawn; those that were no alerts are recorded as they are now, with the rows that
        ``rows_of`` returns by their numbers.
        """
        last = {each.id: each for each in self.arrivals(since, until) if each.p_value is not None and each.id in live}
        candidates = list(last.values())
        if n < 2 or not candidates:
            raise TableError(
                f"there are {len(candidates)} judged arrivals to draw from and `n` is {n}; expected at least 1 arrival "
                "and `n` of at least 2"
            )
        flagged = np.array([bool(each.is_ood) for each in candidates])
        order, weight, num_alike = draw_rows(flagged, np.ones(len(flagged), dtype=bool), n, seed)
        drawn = [candidates[place] for place in order.tolist()]
        found = Draw(
            number=self._next_number("draws"),
            time=time,
            since=since,
            until=until,
            seed=seed,
            arrivals=[each.number for each in drawn],
            is_ood=flagged[order].tolist(),
            num_alike=num_alike.tolist(),
            weight=weight.tolist(),
        )
        known = {number for [number] in self._all("select number from records")}
        fresh = [each for each in drawn if each.number not in known]
        answers, rows = live.explain([each.id for each in fresh]), rows_of(fresh)
        chosen = {each.number: (answer, rows[each.number]) for each, answer in zip(fresh, answers, strict=True)}
        self._keep(live, chosen, "draw", f"draw {found.number}", time, base)
        self.connection.execute("insert into draws values (?, ?, ?)", (found.number, time, _as_text(found)))
        return found

    def draws(self) -> list[Draw]:
        """All draws, the oldest first."""
        return [msgspec.json.decode(body, type=Draw) for [body] in self._all("select body from draws order by number")]


def _neighbours(live: LiveGraph, node: Id) -> list[JudgedNeighbour]:
    edges = live.neighbours(node, _MOST_NEIGHBOURS)
    kept = live.scores_of([other for other, _ in edges])
    return [
        JudgedNeighbour(other, weight, predicted=predicted, is_ood=is_ood)
        for (other, weight), predicted, is_ood in zip(edges, kept.predicted, kept.is_ood, strict=True)
    ]


def _as_text(value: Any) -> str:
    return _encode(value).decode()
