"""Times of rows: which nodes existed when a model was fitted, and which arrived later."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np

from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.values import TableError, missing_to_null, pa, pc, quoted

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DOTTED = re.compile(r"^(\d\d?)\.(\d\d?)\.(\d{4})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# The zone of a time, and one that is not UTC.
_ZONE = r"\d[T ].*\d(Z|[+-]\d\d(:?\d\d)*)$"
_OTHER_ZONE = r"\d[T ].*\d[+-]\d*[1-9][\d:]*$"


@dataclass(frozen=True)
class TrainUntil:
    """The last time of the rows to train on; later rows are arrivals.

    Examples
    --------
    >>> import pyarrow as pa
    >>> days = Batch([pa.array(["2024-05-31T23:59", "2024-06-01"])], "nodes.csv", 2, "line")
    >>> TrainUntil("day", "2024-05-31").is_arrival(days.arrays[0], days)
    array([False,  True])
    """

    column: str  # The column with the times: numbers, ISO dates and timestamps as text, or dates and timestamps
    value: str

    @property
    def is_number(self) -> bool:
        """Whether times are compared as numbers rather than dates."""
        return _NUMBER.fullmatch(self.value) is not None

    @cached_property
    def last(self) -> int | float:
        """The value as a number, or in microseconds since 1970; an error if it is neither number nor date."""
        if self.is_number:
            return _number(self.value)
        try:
            return (
                _microseconds(date.fromisoformat(_iso(self.value)).isoformat()) + timedelta(days=1) // _MICROSECOND - 1
            )
        except ValueError:
            pass
        try:
            return _microseconds(self.value)
        except ValueError:
            raise TableError(
                f"`train_until` is {quoted(self.value)}, expected a number, or a date or time like 2024-05-31, "
                "2024-05-31T18:00 or 31.05.2024"
            ) from None

    def arrivals(self, table: TableSource) -> np.ndarray:
        """Find the rows of a table whose time is after the value."""
        return (self.times(table) > self.last).astype(bool)

    def times(self, table: TableSource) -> np.ndarray:
        """Read the times of all rows, as numbers, or in microseconds since 1970."""
        _ = self.last  # an error if it is neither number nor date
        parts: list[np.ndarray] = []
        for batch in table.batches([self.column]):
            [array] = batch.arrays
            missing = missing_to_null(array).is_null().to_numpy(zero_copy_only=False)
            if missing.any():
                row = batch.row_name(int(missing.argmax()))
                raise TableError(
                    f"{batch.table}: column {self.column!r} has no time in {row}; every row needs one, to tell "
                    "whether it is trained on"
                )
            parts.append(self._read(missing_to_null(array), batch, np.arange(len(array))))
        return np.concatenate(parts) if parts else np.empty(0)

    def _read(self, array: Any, batch: Batch, valid: np.ndarray) -> np.ndarray:
        """The times of rows that have one; ``valid`` are their numbers in the batch."""
        return (self._numbers if self.is_number else self._moments)(array, batch, valid)

    def is_arrival(self, array: Any, batch: Batch) -> np.ndarray:
        return self.placed(array, batch)[0]

    def placed(self, array: Any, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Whether each row is an arrival, and its day as a number: -1 without a time, 0 if times are numbers."""
        array, last = missing_to_null(array), self.last
        valid = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        is_later, days = np.zeros(len(array), dtype=bool), np.full(len(array), -1)
        times = self._read(array.drop_null(), batch, valid)
        is_later[valid] = times > last
        days[valid] = 0 if self.is_number else times // (timedelta(days=1) // _MICROSECOND)
        return is_later, days

    def times_or_nan(self, array: Any, batch: Batch) -> np.ndarray:
        """The times of a batch: numbers, or seconds since 1970; NaN where there is none.

        None is rounded up to a second that it comes before, nor beyond 2**53 to the next number.
        """
        array = missing_to_null(array)
        valid, found = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)), np.full(len(array), np.nan)
        times = self._read(array.drop_null(), batch, valid)
        if self.is_number:
            found[valid] = _rounded_down(times)
        else:
            found[valid] = np.minimum(times / 1e6, np.nextafter(times // 10**6 + 1.0, -np.inf))
        return found

    def notes_on_zones(self, table: TableSource) -> list[str]:
        """A note if times with and without a zone are compared."""
        if self.is_number:
            return []
        rows, zoned, elsewhere, own = 0, 0, 0, re.search(_ZONE, self.value) is not None
        for batch in table.batches([self.column]):
            values = missing_to_null(batch.arrays[0]).drop_null()
            rows += len(values)
            if pa.types.is_string(values.type):
                zoned += pc.sum(pc.match_substring_regex(values, _ZONE)).as_py() or 0
                elsewhere += pc.sum(pc.match_substring_regex(values, _OTHER_ZONE)).as_py() or 0
            elif pa.types.is_timestamp(values.type) and values.type.tz is not None:
                zoned += len(values)
                elsewhere += len(values) * (values.type.tz not in ("UTC", "+00:00"))
        without = [f"{rows - zoned} of {rows} in column {self.column!r}"] if rows > zoned and (zoned or own) else []
        without += [f"`train_until` {self.value}"] if elsewhere and not own else []
        start = "times with a zone are compared with times without one, which are read as UTC: "
        return [start + ", ".join(without)] if without else []

    def _numbers(self, array: Any, batch: Batch, valid: np.ndarray) -> np.ndarray:
        types, kind = pa.types, array.type
        if types.is_string(kind) or types.is_decimal(kind):  # a cast of decimals does not find the nearest float
            strings = [str(each) for each in array.to_pylist()]
            wrong = next((i for i, text in enumerate(strings) if _NUMBER.fullmatch(text) is None), None)
            if wrong is not None:
                raise self._wrong(batch, strings[wrong], valid[wrong])
            return np.array([_number(text) for text in strings], dtype=object)
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)):
            raise self._wrong_type(batch, array)
        return array.to_numpy(zero_copy_only=False)

    def _moments(self, array: Any, batch: Batch, valid: np.ndarray) -> np.ndarray:
        types, kind = pa.types, array.type
        if types.is_timestamp(kind) and kind.unit == "ns":  # a cast would round times before 1970 up
            return array.cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
        if types.is_date(kind) or types.is_timestamp(kind):
            zone = kind.tz if types.is_timestamp(kind) else None
            return array.cast(pa.timestamp("us", tz=zone), safe=False).cast(pa.int64()).to_numpy(zero_copy_only=False)
        if not (types.is_string(kind) or types.is_null(kind)):
            raise self._wrong_type(batch, array)
        moments = np.empty(len(array), dtype=np.int64)
        for row, text in enumerate(array.to_pylist()):
            try:
                moments[row] = _microseconds(text)
            except ValueError:
                raise self._wrong(batch, text, valid[row]) from None
        return moments

    def _wrong(self, batch: Batch, text: str, row: int) -> TableError:
        expected = "a number" if self.is_number else "a date or time like 2024-05-31, 2024-05-31T18:00 or 31.05.2024"
        return self._error(batch, f"has {quoted(text)} in {batch.row_name(int(row))}", expected)

    def _wrong_type(self, batch: Batch, array: Any) -> TableError:
        return self._error(batch, f"holds {array.type}", "numbers" if self.is_number else "dates or times")

    def _error(self, batch: Batch, found: str, expected: str) -> TableError:
        value = f"the value of `train_until`, {quoted(self.value)}"
        return TableError(f"{batch.table}: column {self.column!r} {found}, expected {expected}, like {value}")


def _number(text: str) -> int | float:
    # float64 cannot hold nanoseconds since 1970 exactly.
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _rounded_down(numbers: np.ndarray) -> np.ndarray:
    """The numbers as float64, where it cannot hold them the next lower one."""
    found = numbers.astype(np.float64)
    large = np.flatnonzero(np.abs(found) > 2**53)
    pairs = zip(found[large].tolist(), numbers[large].tolist(), strict=True)  # of Python, which compares exactly
    large = large[np.array([rounded > exact for rounded, exact in pairs], dtype=bool)]
    found[large] = np.nextafter(found[large], -np.inf)
    return found


def _iso(text: str) -> str:
    """Turn 31.5.2024 into 2024-05-31; with slashes, nobody knows which number is the day."""
    return _DOTTED.sub(lambda part: f"{part[3]}-{int(part[2]):02d}-{int(part[1]):02d}", text)


def _microseconds(text: str) -> int:
    moment = datetime.fromisoformat(_iso(text))
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
