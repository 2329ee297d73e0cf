"""Times are compared as times, not as text."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oddnode.tables import TableError, TrainUntil, open_table


def arrivals(times: Any, until: str) -> list[bool]:
    return TrainUntil("t", until).arrivals(open_table({"t": times}, "nodes")).tolist()


@pytest.mark.parametrize(
    ("until", "times", "expected"),
    [
        ("9", ["10", "9", "8.5", " 1e1 "], [True, False, False, True]),
        ("9.5", [9, 10], [False, True]),
        ("1700000000000000000", [1700000000000000000, 1700000000000000001], [False, True]),
        ("1700000000000000000", ["1700000000000000000", "1700000000000000001"], [False, True]),
        ("2", [Decimal("2.0"), Decimal("2.1")], [False, True]),
        ("2024", [2024.0, 2025.0], [False, True]),
        (
            "2024-05-31",
            ["2024-05-31", "2024-05-31 23:59:59.5", "2024-06-01", "2023-12-31"],
            [False, False, True, False],
        ),
        ("2024-05-31T12:00", ["2024-05-31", "2024-05-31T12:00:00", "2024-05-31T12:00:01"], [False, False, True]),
        # The same moment in other zones; as text, the second would be later.
        ("2024-05-31T12:00Z", ["2024-05-31T14:00:00+02:00", "2024-05-31T14:00:00+01:00"], [False, True]),
        ("2024-05-31", [date(2024, 5, 31), date(2024, 6, 1)], [False, True]),
        ("2024-05-31", ["31.05.2024 23:00", "1.6.2024", "2.12.2023"], [False, True, False]),
        ("31.5.2024", ["2024-05-31", "2024-06-01"], [False, True]),
        ("2024-05-31", [datetime(2024, 5, 31, 23), datetime(2024, 6, 1)], [False, True]),
        ("9999-12-30", [date(9999, 12, 31), date(1, 1, 1)], [True, False]),
    ],
)
def test_later_rows_are_arrivals(until: str, times: list[Any], expected: list[bool]) -> None:
    assert arrivals(times, until) == expected


def test_timestamps_with_a_zone_and_of_any_unit_are_moments() -> None:
    zone = timezone(timedelta(hours=2))
    times = pa.array([datetime(2024, 5, 31, 14, tzinfo=zone), datetime(2024, 5, 31, 15, tzinfo=zone)])
    assert arrivals(times, "2024-05-31T12:00") == [False, True]
    nanoseconds = pa.array(np.array(["2024-05-31T23", "2024-06-01"], dtype="datetime64[ns]"))
    assert arrivals(nanoseconds, "2024-05-31") == [False, True]


@pytest.mark.parametrize(
    ("until", "times", "message"),
    [
        ("May", ["1"], "`train_until` is 'May', expected a number, or a date"),
        ("2024-05-31", ["2024-05-30", "31/05/2024"], r"'31/05/2024' in row 2, expected a date or time like"),
        ("2024", ["2024-05-31"], "'2024-05-31' in row 1, expected a number, like the value of `train_until`, '2024'"),
        ("2024-05-31", [1, 2], "holds int64, expected dates or times"),
        ("2024", [date(2024, 1, 1)], "holds date32.*, expected numbers"),
        ("1", [True], "holds bool, expected numbers"),
        ("1", ["1", "NA"], "column 't' has no time in row 2; every row needs one"),
        ("1", [1.0, float("nan")], "column 't' has no time in row 2"),
    ],
)
def test_times_that_cannot_be_compared_are_named(until: str, times: list[Any], message: str) -> None:
    with pytest.raises(TableError, match=message):
        arrivals(times, until)


@pytest.mark.parametrize(
    ("until", "times", "said"),
    [
        ("2024-05-31", ["2024-05-31T00:30", "2024-06-01"], None),
        ("2024-05-31", ["2024-05-31T00:30Z", "2024-06-01T00:30Z"], None),
        ("2024-05-31", ["2024-05-31T00:30", "2024-06-01T00:30Z"], "1 of 2 in column 't'"),
        ("2024-08-15", ["2024-08-16T00:30+02:00"], "`train_until` 2024-08-15"),
        ("2024-08-15T10:00+02:00", ["2024-08-16T00:30"], "1 of 1 in column 't'"),
        ("2024-08-15T10:00+02:00", ["2024-08-16T00:30-05:00"], None),
        ("7", [6, 8], None),
    ],
)
def test_times_without_a_zone_are_said_to_be_utc_where_it_matters(
    until: str, times: list[Any], said: str | None
) -> None:
    notes = TrainUntil("t", until).notes_on_zones(open_table({"t": times}, "nodes"))
    start = "times with a zone are compared with times without one, which are read as UTC: "
    assert notes == ([] if said is None else [start + said])
