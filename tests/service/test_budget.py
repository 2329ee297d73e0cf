"""Alerts within a budget a day, and replays, against plain counts over all arrivals."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddnode.service import replay
from oddnode.service.alerts import AlertLog, Arrived
from oddnode.service.budget import DailyBudget
from oddnode.service.replays import AlertRule, replay_log

DAY = 86400.0


def days(num_days: int, per_day: int, seed: int = 0) -> list[Arrived]:
    """Arrivals of which 2 % have a low p-value, more of them at noon than at night."""
    rng = np.random.default_rng(seed)
    found: list[Arrived] = []
    for day in range(num_days):
        count = int(rng.poisson(per_day))
        times = (day + np.sort(np.clip(rng.normal(0.5, 0.15, count), 0, 0.9999))) * DAY
        p_values = np.where(rng.random(count) < 0.02, rng.beta(0.2, 3, count), rng.random(count))
        for time, p_value in zip(times.tolist(), p_values.tolist(), strict=True):
            number = len(found) + 1
            rounded = (1 + int(p_value * 200)) / 201
            found.append(
                Arrived(number, number, time, number, float(np.log(p_value)), rounded, rounded <= 0.05, False, None)
            )
    return found


def oldest_rule(arrivals: list[Arrived], per_day: int) -> set[int]:
    """The rule of `DailyBudget`, counted anew over all arrivals for each of them."""
    raised: set[int] = set()
    for place, own in enumerate(arrivals):
        day, key = own.time // DAY, (own.p_value, own.score)
        before = [each for each in arrivals[:place] if each.time // DAY == day]
        left = per_day - sum(each.number in raised for each in before)
        if left == 0 or sum((each.p_value, each.score) <= key for each in before) >= per_day:
            continue
        later = []
        for other in range(int(day) - 7, int(day)):
            same = [each for each in arrivals if each.time // DAY == other]
            oddest = sorted(same, key=lambda each: (each.p_value, each.score, each.time))[:per_day]
            odd = [each for each in oddest if (each.p_value, each.score) <= key and each.time % DAY > own.time % DAY]
            later += [len(odd)] if same else []
        if np.mean(later) < 0.8 * left if later else own.is_ood:
            raised.add(own.number)
    return raised


@pytest.mark.parametrize("per_day", [1, 5, 40])
def test_a_budget_is_as_described(per_day: int) -> None:
    arrivals = [each for each in days(11, 30) if not 3 <= each.time // DAY < 5]  # two days without any
    assert AlertRule(budget=per_day).alerts(arrivals) == oldest_rule(arrivals, per_day)


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.floats(0, 4 * DAY), st.floats(0, 1), st.floats(-5, 5), st.booleans()), max_size=60),
)
def test_there_are_never_more_alerts_a_day_than_the_budget(per_day: int, arrivals: list[tuple]) -> None:
    budget, count = DailyBudget(per_day), dict[float, int]()
    for time, *rest in sorted(arrivals):
        count[time // DAY] = count.get(time // DAY, 0) + budget.offer(time, *rest)
    assert max(count.values(), default=0) <= per_day


def test_most_of_the_oddest_of_a_day_are_caught_once_there_are_days_to_compare_with() -> None:
    arrivals, per_day = days(15, 600), 20
    alerts, caught = AlertRule(budget=per_day).alerts(arrivals), list[float]()
    for day in range(1, 15):
        same = sorted((each.p_value, each.score, each.number) for each in arrivals if each.time // DAY == day)
        caught.append(sum(number in alerts for *_, number in same[:per_day]) / per_day)
    assert np.mean(caught) > 0.75


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_without_alerts_is_refused(budget: int) -> None:
    with pytest.raises(ValueError, match=f"budget is {budget}, expected 1 alert a day or more"):
        AlertLog(lambda: sqlite3.connect(":memory:"), budget=budget)


# --- replays ---


@pytest.fixture
def arrivals() -> list[Arrived]:
    """Every flagged arrival was an alert."""
    return [each._replace(was_alert=bool(each.is_ood)) for each in days(12, 40)]


@pytest.fixture
def log(arrivals: list[Arrived], tmp_path: Path) -> Iterator[AlertLog]:
    """A log with these arrivals; a record is there to count, it has no content."""
    connection = sqlite3.connect(tmp_path / "changes.sqlite", isolation_level=None)
    found = AlertLog(lambda: connection)
    connection.execute("begin")
    rows = [(*each[:3], f'"{each.id}"', each.score, each.p_value, each.is_ood) for each in arrivals]
    connection.executemany("insert into arrived values (?, ?, ?, ?, ?, ?, ?)", rows)
    alerts = [(each.number, "alert", each.version, each.time, "{}") for each in arrivals if each.was_alert]
    connection.executemany("insert into records values (?, ?, ?, ?, ?)", alerts)
    verdicts = [(each.number, number % 3) for number, each in enumerate(arrivals) if each.was_alert]
    said = [(place, each, 0.0, "", ["known", "unknown"][odd]) for place, (each, odd) in enumerate(verdicts) if odd < 2]
    connection.executemany("insert into feedback values (?, ?, ?, ?, ?, '')", said)
    connection.execute("commit")
    yield found
    connection.close()


def test_a_replay_counts_alerts_by_another_rate(log: AlertLog, tmp_path: Path) -> None:
    found, every = replay(tmp_path, since=2 * DAY, until=9 * DAY, rate=0.01), list(log.arrivals(2 * DAY, 9 * DAY))
    then = {each.number for each in every if each.was_alert}
    now = {each.number for each in every if each.p_value is not None and each.p_value <= 0.01}
    assert (found.arrivals.were, found.arrivals.would_be, found.arrivals.both) == (len(then), len(now), len(then & now))
    assert (found.arrivals.count, found.num_days) == (len(every), 7)
    for name, own in (("known", found.known), ("unknown", found.unknown)):
        said = {each.number for each in every if each.verdict == name}
        assert (own.count, own.were, own.would_be) == (len(said), len(said & then), len(said & now))
    said = {each.number for each in every if each.verdict == "known"}
    assert found.summary[2] == (
        f"Of {len(said)} said to be known after all, {len(said - now)} would have been spared (then 0)."
    )
    table = found.table.to_pylist()
    assert {each["number"] for each in table if each["would_be_alert"]} == now
    assert {each["number"] for each in table if each["was_alert"]} == then


def test_a_replay_by_the_same_rule_changes_nothing(log: AlertLog) -> None:
    for rule in (AlertRule(), AlertRule(rate=0.05)):
        found = replay_log(log, rule)
        assert found.arrivals.were == found.arrivals.would_be == found.arrivals.both > 0


def test_a_replay_by_threshold_and_budget_decides_as_the_service_would_have(log: AlertLog) -> None:
    every = list(log.arrivals())
    strict = replay_log(log, AlertRule(threshold=-4.0))
    assert strict.arrivals.would_be == sum(each.score < -4.0 for each in every)
    found = replay_log(log, AlertRule(budget=3), since=9.5 * DAY)  # days before it are known
    assert found.arrivals.would_be == len([n for n in oldest_rule(every, 3) if every[n - 1].time >= 9.5 * DAY]) > 0


def test_a_budget_goes_on_after_a_restart(arrivals: list[Arrived], log: AlertLog) -> None:
    whole, number = DailyBudget(4), next(each.number for each in arrivals if each.time > 10.5 * DAY)
    expected = [whole.offer(each.time, each.p_value, each.score, bool(each.is_ood)) for each in arrivals]  # type: ignore[arg-type]
    connection = log.connection
    connection.execute("begin")
    connection.execute("delete from arrived where number >= ?", (number,))
    connection.execute("delete from records")
    raised = [(n, "alert", n, arrivals[n - 1].time, "{}") for n in range(1, number) if expected[n - 1]]
    connection.executemany("insert into records values (?, ?, ?, ?, ?)", raised)
    connection.execute("commit")
    resumed = AlertLog(lambda: connection, budget=4)
    resumed._resume()
    again = resumed.budget
    assert again is not None
    rest = [again.offer(each.time, each.p_value, each.score, bool(each.is_ood)) for each in arrivals[number - 1 :]]  # type: ignore[arg-type]
    assert rest == expected[number - 1 :]


@pytest.mark.parametrize("seed", range(40))
def test_a_restart_changes_no_alert_even_if_the_clock_was_set_back_over_midnight(seed: int) -> None:
    rng, connection, place = np.random.default_rng(seed), sqlite3.connect(":memory:", isolation_level=None), 10
    log, whole = AlertLog(lambda: connection, budget=3), DailyBudget(3)
    arrivals = [(day * DAY, 0.5 - n / 50, -1.0, True) for n, day in enumerate(rng.uniform(2.5, 3.5, 20).tolist())]
    expected = [whole.offer(*each) for each in arrivals]
    for number, (each, is_alert) in enumerate(zip(arrivals[:place], expected, strict=False), 1):
        time, p_value, score, is_ood = each
        row = (number, number, time, "1", score, p_value, is_ood)
        connection.execute("insert into arrived values (?, ?, ?, ?, ?, ?, ?)", row)
        if is_alert:
            connection.execute("insert into records values (?, 'alert', ?, ?, '{}')", (number, number, time))
    log._resume()
    assert log.budget is not None
    assert [log.budget.offer(*each) for each in arrivals[place:]] == expected[place:]
    connection.close()


def test_rules_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rate and budget are different rules; give one of them"):
        AlertRule(rate=0.05, budget=3)
    with pytest.raises(ValueError, match=r"`rate` is 1\.5"):
        AlertRule(rate=1.5)
    with pytest.raises(FileNotFoundError, match="has no log of changes"):
        replay(tmp_path / "nowhere", rate=0.1)


def test_a_clock_that_was_a_year_ahead_does_not_use_up_the_year() -> None:
    budget = DailyBudget(1)
    days = (400.2, 765.0, 400.3, 401.5, 401.2, 402.0)
    assert [budget.offer(day * DAY, 0.5, -day, True) for day in days] == [True, True, False, True, False, True]
