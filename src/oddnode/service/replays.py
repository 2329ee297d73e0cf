"""What if: which arrivals of the past would have been alerts by another rate, threshold, budget or model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from oddnode.functional.conformal import check_rate
from oddnode.online import Judgement
from oddnode.service.alerts import AlertLog, Arrived
from oddnode.service.budget import DAY, MOST_DAYS, DailyBudget
from oddnode.service.exports import columns_of, open_alerts
from oddnode.service.log import ChangeLog, LogError
from oddnode.service.requests import arguments_of
from oddnode.service.state import Source, decoded_change
from oddnode.tables import TableModel
from oddnode.tables.values import pa


class AlertRule(Struct, frozen=True, kw_only=True):
    """Which arrivals are alerts; without any field, those that were flagged."""

    rate: float | None = None  #: Those with a p-value of at most this.
    threshold: float | None = None  #: Those that score below this.
    budget: int | None = None  #: At most so many a day, as for `DailyBudget`.

    def __post_init__(self) -> None:
        given = [name for name in AlertRule.__struct_fields__ if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are different rules; give one of them")
        if self.rate is not None:
            check_rate(self.rate, "rate")
        if self.budget is not None:
            DailyBudget(self.budget)

    def __str__(self) -> str:
        if self.budget is not None:
            return f"at most {self.budget} a day"
        if self.threshold is not None:
            return f"scores below {self.threshold:g}"
        return "flagged" if self.rate is None else f"p-values of at most {self.rate:g}"

    def alerts(self, arrivals: Iterable[Arrived]) -> set[int]:
        """The numbers of the arrivals that are alerts; those of one change are decided together, the oddest first."""
        budget = None if self.budget is None else DailyBudget(self.budget)
        found = set()
        for each in sorted(arrivals, key=lambda each: (each.version, each.p_value or 0.0, each.score, each.number)):
            if each.p_value is None:
                continue
            if budget is not None:
                is_alert = budget.offer(each.time, each.p_value, each.score, bool(each.is_ood))
            elif self.threshold is not None:
                is_alert = each.score < self.threshold
            else:
                is_alert = bool(each.is_ood) if self.rate is None else each.p_value <= self.rate
            if is_alert:
                found.add(each.number)
        return found


class Outcomes(Struct, frozen=True, kw_only=True):
    """Arrivals of one kind, as they were and as they would have been."""

    count: int  #: Their number.
    were: int  #: How many were alerts.
    would_be: int  #: How many would have been.
    both: int  #: How many of these are the same.


class Replay(Struct, frozen=True, kw_only=True):
    """Alerts of a past period by another rule or model, beside those that there were."""

    rule: str  #: The rule, in words.
    model: str | None  #: The other model; ``None`` for the answers that were given.
    since: float | None  #: The period, in seconds since 1970.
    until: float | None
    num_days: int  #: Number of days (UTC) with arrivals.
    arrivals: Outcomes  #: All arrivals.
    known: Outcomes  #: Those that were said to be known after all.
    unknown: Outcomes  #: Those that were said to be really unknown.
    rows: list[Arrived]  #: The arrivals that were alerts or would have been, with the scores of the replay.
    would_be: list[bool]  #: Whether each of them would have been.

    @property
    def summary(self) -> list[str]:
        """The most important facts, in sentences."""
        every, known, unknown = self.arrivals, self.known, self.unknown
        sentences = [
            f"{every.were:,} of {every.count:,} arrivals were alerts, {every.would_be:,} would have been "
            f"({self.rule}): {every.both:,} of the same, {every.would_be - every.both:,} others."
        ]
        if unknown.count:
            sentences.append(
                f"Of {unknown.count:,} arrivals said to be really unknown, {unknown.would_be:,} would have been caught "
                f"(then {unknown.were:,})."
            )
        if known.count:
            sentences.append(
                f"Of {known.count:,} said to be known after all, {known.count - known.would_be:,} would have been "
                f"spared (then {known.count - known.were:,})."
            )
        return sentences

    @property
    def table(self) -> Any:
        """The rows as a `pyarrow.Table`."""
        columns = columns_of(self.rows, "number", "time", "id", "score", "p_value", "was_alert", "verdict")
        return pa.table(columns | {"would_be_alert": pa.array(self.would_be, "bool")})

    def as_dict(self) -> dict[str, Any]:
        """Everything but the rows, as plain data."""
        plain = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("rows", "would_be")}
        return msgspec.to_builtins(plain) | {"summary": self.summary}


def replay(
    folder: str | os.PathLike,
    *,
    since: float | None = None,
    until: float | None = None,
    rate: float | None = None,
    threshold: float | None = None,
    budget: int | None = None,
) -> Replay:
    """Say which arrivals of a service would have been alerts by another rule, from the answers that were given.

    Parameters
    ----------
    folder : path
        The folder that `oddnode serve` has as ``--state``; the service may run.
    since, until : float, optional
        The period, in seconds since 1970, without its end.
    rate, threshold, budget
        One of the fields of `AlertRule`.

    Returns
    -------
    Replay
        The alerts that there were, and those that there would have been.
    """
    with open_alerts(folder) as log:
        return replay_log(log, AlertRule(rate=rate, threshold=threshold, budget=budget), since, until)


def replay_log(log: AlertLog, rule: AlertRule, since: float | None = None, until: float | None = None) -> Replay:
    """Replay from an open log, as `replay` does."""
    return _compare(list(log.arrivals(_warm_up(rule, since), until)), rule, since, until)


def _warm_up(rule: AlertRule, since: float | None) -> float | None:
    """Where to start reading: a budget compares a day with the seven days before."""
    return since if since is None or rule.budget is None else (since // DAY - MOST_DAYS) * DAY


def _compare(
    arrivals: Sequence[Arrived], rule: AlertRule, since: float | None, until: float | None, model: str | None = None
) -> Replay:
    """Compare the alerts that there were with those of a rule."""
    chosen = rule.alerts(arrivals)
    inside = [each for each in arrivals if since is None or each.time >= since]
    rows = [each for each in inside if each.was_alert or each.number in chosen]
    groups = {name: [each for each in inside if each.verdict == name] for name in ("known", "unknown")}
    outcomes = {
        name: Outcomes(
            count=len(group),
            were=sum(each.was_alert for each in group),
            would_be=sum(each.number in chosen for each in group),
            both=sum(each.was_alert and each.number in chosen for each in group),
        )
        for name, group in {"arrivals": inside, **groups}.items()
    }
    return Replay(
        rule=str(rule),
        model=model,
        since=since,
        until=until,
        num_days=len({each.time // DAY for each in inside}),
        rows=rows,
        would_be=[each.number in chosen for each in rows],
        **outcomes,
    )


def replay_model(
    source: Source,
    folder: str | os.PathLike,
    rule: AlertRule,
    *,
    since: float | None = None,
    until: float | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Replay:
    """Let another model score the arrivals of a service in their order, in the graph as it then was.

    ``source`` names the other model, and the base that the service started from. ``on_progress`` is called with the
    number of changes done, and of all. At most as many neighbours are read as the service did.
    """
    log = ChangeLog(Path(folder), {"base": source.facts()["base"]}, read_only=True)
    try:
        with open_alerts(folder) as alerts:
            recorded = list(alerts.arrivals(_warm_up(rule, since), until))
        source = replace(source, max_neighbours=int(log.meta["max_neighbours"]))
        model = source.load()
        live, schema = source.live(model), model.schema if isinstance(model, TableModel) else None
        last = recorded[-1].version if recorded else 0
        answers: dict[tuple[int, Any], Judgement] = {}
        while live.version < last:
            entry = log.of_version(live.version + 1)
            if entry is None:
                raise LogError(f"{folder} has no change {live.version + 1}; only a whole log can be replayed")
            found = live.change(**arguments_of(decoded_change(entry), schema))
            answers |= {(entry.version, each.id): each for each in found}
            on_progress(live.version, last)
    finally:
        log.close()
    again = [(each, answers[each.version, each.id]) for each in recorded]
    arrivals = [each._replace(score=new.score, p_value=new.p_value, is_ood=new.is_ood) for each, new in again]
    return _compare(arrivals, rule, since, until, source.facts()["model"][:12])
