"""Windows judged one after another, and the state between runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import beta

from oddnode.detector import Calibration
from oddnode.tables import TableError, TableModel, TrainUntil
from oddnode.tables.reader import Batch
from oddnode.watch import TableRows, Watch, WatchError, Windows
from oddnode.watch.rows import Rows
from tests.watch.conftest import DAY, Scores


def as_known(known: np.ndarray, days: int, rows: int = 30, seed: int = 0) -> dict[int, np.ndarray]:
    """Rows that score as the calibration rows do."""
    rng = np.random.default_rng(seed)
    return {day: rng.choice(known, rows) + 1e-9 * rng.normal(size=rows) for day in range(days)}


def test_rows_that_score_as_known_ones_raise_no_alarm_and_lower_ones_do(
    watch: Callable[..., Watch], known: np.ndarray
) -> None:
    days = as_known(known, 4)
    quiet = watch().run(Scores(days))
    assert [each.raised for each in quiet.windows] == [None] * 4
    days |= {day: np.full(30, known.min() - 1) + 1e-3 * np.arange(30) for day in (4, 5)}
    report = watch().run(Scores(days))
    assert report.is_new
    assert report.alarm is not None
    assert report.alarm.window in ("1970-01-05", "1970-01-06")
    assert report.alarm.log10_evidence >= 2
    # The alarm stands, but it is not a new one.
    again = watch().run(Scores(days | as_known(known, 8)))
    assert (again.alarm, again.is_new) == (report.alarm, False)


def test_a_window_has_its_flagged_share_with_an_interval(watch: Callable[..., Watch], known: np.ndarray) -> None:
    threshold = np.sort(known)[int(0.05 * (len(known) + 1)) - 1]
    scores = np.concatenate([np.full(3, threshold - 1), np.full(17, known.max())]) + 1e-6 * np.arange(20)
    [window] = watch().run(Scores({3: scores})).windows
    assert (window.name, window.drift.num_nodes, window.drift.num_flagged) == ("1970-01-04", 20, 3)
    # Clopper and Pearson, from the quantiles of the Beta distribution.
    assert window.drift.share_interval == pytest.approx((beta.ppf(0.025, 3, 18), beta.ppf(0.975, 4, 17)))
    assert [each.id for each in window.oddest[:3]] == ["3-0", "3-1", "3-2"]
    assert [each.is_flagged for each in window.oddest] == [True, True, True, False, False]


def test_several_runs_end_where_one_run_ends_and_windows_seen_again_change_nothing(
    watch: Callable[..., Watch], known: np.ndarray, tmp_path: Path
) -> None:
    days = as_known(known, 6)
    watch("once.json").run(Scores(days))
    for until in (2, 2, 5, 6):
        report = watch("often.json").run(Scores(days), until=until * DAY)
    assert (tmp_path / "often.json").read_bytes() == (tmp_path / "once.json").read_bytes()
    assert [each.number for each in report.windows] == [1]  # windows of days are counted from Monday, 1970-01-05
    source = Scores(days)
    assert watch("often.json").run(source).windows == []
    assert source.reads == 0
    assert (tmp_path / "often.json").read_bytes() == (tmp_path / "once.json").read_bytes()


def test_notes_are_those_on_all_rows_so_far(watch: Callable[..., Watch], known: np.ndarray) -> None:
    class Noted(Scores):
        def read(self, start: float, end: float) -> tuple[Rows, Rows | None]:
            self.more = {"notes": [f"of the rows up to {end / DAY:g}, many are flagged"]}
            return super().read(start, end)

    assert watch().run(Noted(as_known(known, 4))).notes == ["of the rows up to 4, many are flagged"]


def test_rows_that_come_late_are_left_out_and_said(watch: Callable[..., Watch], known: np.ndarray) -> None:
    """Two in a window that had rows, and three in one that had none."""
    days = as_known(known, 4)
    del days[1]
    before = watch().run(Scores(days)).state
    days |= {0: np.append(days[0], [0.0, 0.0]), 1: np.zeros(3)}
    report = watch().run(Scores(days))
    assert report.state == before
    assert report.notes == ["5 rows came after their window had been judged; they are left out"]


def test_the_order_of_the_table_does_not_matter(watch: Callable[..., Watch], known: np.ndarray) -> None:
    class Reversed(Scores):
        def read(self, start: float, end: float) -> Any:
            rows, _ = super().read(start, end)
            rows.ids, rows.scores = rows.ids[::-1], rows.scores[::-1].copy()
            return rows, None

    days = as_known(known, 3)
    one, other = watch("a.json").run(Scores(days)).state, watch("b.json").run(Reversed(days)).state
    assert one.log_capital == other.log_capital


def test_an_acknowledged_alarm_begins_a_new_bet_and_a_lasting_change_raises_another(
    watch: Callable[..., Watch], known: np.ndarray
) -> None:
    low = {day: np.full(40, known.min() - 1) + 1e-3 * np.arange(40) for day in range(4)}
    with pytest.raises(WatchError, match="no alarm"):
        watch().acknowledge()
    first = watch().run(Scores(low), until=2 * DAY).alarm
    assert watch().acknowledge().alarm is None
    assert watch().run(Scores(low), until=2 * DAY).alarm is None
    second = watch().run(Scores(low)).alarm
    assert first is not None
    assert second is not None
    assert first.id != second.id


def test_with_a_baseline_rows_are_compared_with_the_first_windows(
    watch: Callable[..., Watch], known: np.ndarray
) -> None:
    """Rows that always score lower than calibration rows raise no alarm, but a change from there does."""
    rng = np.random.default_rng(0)
    days = {day: rng.normal(known.min(), 0.5, 60) for day in range(8)}
    assert watch("plain.json").run(Scores(days)).alarm is not None
    quiet = watch("baseline.json", baseline=2).run(Scores(days))
    assert quiet.alarm is None
    assert [each.weight for each in quiet.windows] == [0, 0, 1, 1, 1, 1, 1, 1]
    assert [each.log10_evidence for each in quiet.windows][:2] == pytest.approx([0, 0])
    changed = watch("baseline.json", baseline=2).run(Scores(days | {8: np.full(60, known.max()) + rng.random(60)}))
    assert changed.is_new
    # Acknowledged, the changed rows become the usual ones.
    watch("baseline.json", baseline=2).acknowledge()
    more = {day: known.max() + rng.random(60) for day in range(9, 14)}
    assert watch("baseline.json", baseline=2).run(Scores(days | more)).alarm is None


def test_linked_rows_count_less(watch: Callable[..., Watch], known: np.ndarray) -> None:
    """With a link for each of 40 rows, 1/(1 + 2)."""
    low = {0: np.full(40, known.min() - 1) + 1e-3 * np.arange(40)}
    [apart] = watch("a.json").run(Scores(low)).windows
    [linked] = watch("b.json").run(Scores(low, links_among=40)).windows
    assert (apart.weight, linked.weight) == (1, pytest.approx(1 / 3))
    assert linked.log10_evidence < apart.log10_evidence / 2


def test_a_state_of_another_model_or_with_other_settings_is_refused(
    watch: Callable[..., Watch], known: np.ndarray, tmp_path: Path
) -> None:
    watch().run(Scores(as_known(known, 1)))
    kept = (tmp_path / "state.json").read_bytes()
    with pytest.raises(WatchError, match="belongs to the model"):
        watch(model_id="another").run(Scores(as_known(known, 2)))
    with pytest.raises(WatchError, match=re.escape("was begun with window 1d, but it is 2d now")):
        watch(window="2d").run(Scores(as_known(known, 2)))
    with pytest.raises(WatchError, match="chance"):
        watch(chance=0.05).run(Scores(as_known(known, 2)))
    assert (tmp_path / "state.json").read_bytes() == kept
    with pytest.raises(WatchError, match="its folder does not exist"):
        watch("nowhere/state.json").run(Scores(as_known(known, 2)))
    (tmp_path / "state.json").write_bytes(kept[:-10])
    with pytest.raises(WatchError, match="damaged"):
        watch().run(Scores(as_known(known, 2)))


def test_calibration_rows_with_weights_are_thinned_to_a_plain_sample(model: TableModel, tmp_path: Path) -> None:
    """Half of the rows stand for nine each, so that the others are kept with probability 1/9."""
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.normal(-3, 0.1, 500), rng.normal(3, 0.1, 500)])
    calibration = Calibration.from_scores(scores, weights=np.repeat([1.0, 9.0], 500))
    detector: Any = SimpleNamespace(calibration_=calibration, graph_profile_=model.detector.graph_profile_)
    counts = Watch(detector, tmp_path / "state.json").state().counts
    assert 520 < len(counts) < 600


def test_tables_are_judged_as_they_were_at_the_end_of_each_window(
    model: TableModel, tables: tuple[Any, Any], watch: Callable[..., Watch]
) -> None:
    """Rows that come later do not change what was said; the change of a column is named when it comes."""
    nodes, edges = tables
    windows = Windows.of("1d")
    whole = watch("whole.json").run(TableRows(model, nodes, edges, windows))
    assert [each.name for each in whole.windows] == [f"2024-05-{day:02d}" for day in range(8, 14)]
    until = [n for n, when in enumerate(nodes["when"]) if when < "2024-05-10"]
    past = {name: [column[row] for row in until] for name, column in nodes.items()}
    known = set(past["id"])
    pairs = [(s, t) for s, t in zip(edges["source"], edges["target"], strict=True) if s in known and t in known]
    ends = dict(zip(("source", "target"), map(list, zip(*pairs, strict=True)), strict=True))
    part = watch("part.json").run(TableRows(model, past, ends, windows))
    assert part.windows == whole.windows[:2]
    moved = [{change.what.split()[0] for change in each.changes if change.kind == "column"} for each in whole.windows]
    assert moved[0] == set()
    assert all("size" in each for each in moved[4:])
    assert whole.alarm is not None
    assert whole.alarm.window >= "2024-05-11"
    assert any("`size` is" in str(odd.why) for each in whole.windows[4:] for odd in each.oddest)


def test_times_must_be_of_the_kind_that_the_window_says(model: TableModel, tables: tuple[Any, Any]) -> None:
    with pytest.raises(TableError, match="are dates: give the window a unit"):
        TableRows(model, *tables, Windows.of("5"))
    with pytest.raises(TableError, match=r"'shop'.*expected a date or time"):
        TableRows(model, *tables, Windows.of("1d"), time_column="shop")


@pytest.mark.parametrize("text", ["", "day", "0d", "-1", "1y"])
def test_a_window_that_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a length of time"):
        Windows.of(text)


def test_weeks_begin_on_mondays_and_numbers_at_0() -> None:
    weeks, fives = Windows.of("1w"), Windows.of("5")
    thursday = 1_715_212_800.0  # 2024-05-09
    [number] = weeks.number_of(np.array([thursday])).tolist()
    assert (weeks.name(number), weeks.name(number + 1)) == ("2024-05-06", "2024-05-13")
    assert fives.number_of(np.array([1994, 1995.0, 1999.5])).tolist() == [398, 399, 399]


@pytest.mark.parametrize("text", ["0.1", "0.7", "3", "1.1h", "0.01m", "3.3m", "0.7d", "1w"])
@pytest.mark.parametrize("first", [-40, 0, 12_345, 90_000])
def test_times_at_the_border_of_a_window_are_in_the_one_that_begins(text: str, first: int) -> None:
    """Eight times a window, the first at its border, as exact fractions."""
    windows, unit = Windows.of(text), {"m": 60, "h": 3600, "d": 86400, "w": 604800}.get(text[-1], 1)
    origin = 4 * 86400 if text[-1].isalpha() else 0
    exact = [origin + Fraction(first * 8 + eighth, 8) * Fraction(text.rstrip("mhdw")) * unit for eighth in range(400)]
    times = np.array([float(each) for each in exact])
    found = windows.number_of(times).tolist()
    assert found == [first + eighth // 8 for eighth in range(400)]
    assert windows.number_of(np.nextafter(times[::8], -np.inf)).tolist() == [each - 1 for each in found[::8]]
    # What `Source.read` is asked for, by the same border.
    assert all(windows.start(n) <= time < windows.start(n + 1) for n, time in zip(found, times.tolist(), strict=True))
    assert len({windows.name(each) for each in found}) == 50


NANOSECONDS = 10**9 * np.array([0, 1, 86_400, 1_715_212_800, 9_000_000_000])


def test_decimal_numbers_are_in_the_window_that_they_begin() -> None:
    exact = [Decimal(tenth).scaleb(-1) for tenth in range(20_000)]
    array = pa.array(exact, pa.decimal128(9, 1))
    times = TrainUntil("when", "0").times_or_nan(array, Batch([array], "nodes", len(array), "row"))
    assert Windows.of("0.1").number_of(times).tolist() == list(range(20_000))


@pytest.mark.parametrize("unit", ["ns", "number", "text"])
def test_a_nanosecond_before_a_window_is_not_in_it(unit: str) -> None:
    exact = [int(sign * each + step) for each in NANOSECONDS for sign in (-1, 1) for step in (-1, 0, 1)]
    array: Any = pa.array([str(each) for each in exact] if unit == "text" else exact)
    array = array.cast(pa.timestamp("ns")) if unit == "ns" else array
    read = TrainUntil("when", "1970-01-01" if unit == "ns" else "0")
    times = read.times_or_nan(array, Batch([array], "nodes", len(array), "row"))
    length, origin = (86_400 * 10**9, 4) if unit == "ns" else (10**9, 0)
    windows = Windows.of("1d" if unit == "ns" else str(length))
    assert windows.number_of(times).tolist() == [each // length - origin for each in exact]


def test_the_last_microsecond_of_the_calendar_is_in_its_last_day() -> None:
    array = pa.array([datetime.max])
    [time] = TrainUntil("when", "2000-01-01").times_or_nan(array, Batch([array], "nodes", 1, "row"))
    assert Windows.of("1d").number_of(np.array([time])).tolist() == [(datetime.max - datetime(1970, 1, 5)).days]


@pytest.mark.parametrize("time", [np.inf, -np.inf, 1e300])
def test_a_time_that_no_window_can_count_to_is_named(time: float) -> None:
    with pytest.raises(ValueError, match=f"the time {re.escape(str(time))} is too many windows"):
        Windows.of("1").number_of(np.array([3.0, time]))
