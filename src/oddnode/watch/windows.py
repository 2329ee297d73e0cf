"""Windows in time: of equal length, named by numbers that do not depend on the data."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np
from msgspec import Struct

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*([mhdw]?)")
_SECONDS = {"": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Windows of weeks begin on Mondays; 1970 began on a Thursday.
_MONDAY = 4 * 86400
# The quotient of a time and a length is within one window of the right one up to here.
_MOST_WINDOWS = 2**50


class Windows(Struct, frozen=True):
    """Windows of a length, one after another: window k begins k lengths after 0 or, of dates, a Monday of 1970.

    Examples
    --------
    >>> weeks = Windows.of("1w")
    >>> weeks.name(weeks.number_of(np.array([1_700_000_000.0]))[0])
    '2023-11-13'
    >>> Windows.of("5").name(399)
    '1995 to below 2000'
    """

    length: Fraction  #: In seconds or, if times are numbers, in their unit.
    is_date: bool

    @classmethod
    def of(cls, text: str) -> Windows:
        """Read a length.

        Parameters
        ----------
        text : str
            A number and ``m`` (minutes), ``h``, ``d`` or ``w``, if times are dates; a number alone if they are numbers.
        """
        match = _LENGTH.fullmatch(text.strip())
        if match is None or float(match[1]) <= 0:
            raise ValueError(
                f"the window {text!r} is not a length of time; expected a number above 0 and a unit, like 1h, 1d or "
                "4w, or, where times are numbers, a number alone"
            )
        return cls(Fraction(match[1]) * _SECONDS[match[2]], bool(match[2]))

    @property
    def _origin(self) -> int:
        return _MONDAY if self.is_date else 0

    def number_of(self, times: np.ndarray) -> np.ndarray:
        """The windows that times ``[n]`` are in: each is the last one whose `start` is not after the time."""
        guess = np.floor((times - self._origin) / float(self.length))
        far = ~(np.abs(guess) < _MOST_WINDOWS)
        if far.any():
            raise ValueError(
                f"the time {times[far][0]} is too many windows of {float(self.length):g} away from "
                f"{self.start(0):g}, expected fewer than {_MOST_WINDOWS:.1e}; give longer windows, or check the time"
            )
        numbers, place = np.unique(guess.astype(np.int64), return_inverse=True)
        begins, ends = (np.array([self.start(each) for each in own]) for own in (numbers, numbers + 1))
        # Rounded, a quotient may be on the other side of a border.
        return numbers[place] + (times >= ends[place]) - (times < begins[place])

    def start(self, number: int) -> float:
        """When a window begins, the float nearest to it; the next one begins when it ends."""
        return float(self._origin + int(number) * self.length)

    def name(self, number: int) -> str:
        """When a window begins, in words: a date or time (UTC), or numbers."""
        begin = self.start(number)
        if self.is_date:
            return moment(begin)
        first, last = (repr(each).removesuffix(".0") for each in (begin, self.start(number + 1)))
        return first if self.length == 1 else f"{first} to below {last}"


def moment(seconds: float) -> str:
    """Write seconds since 1970 as a date, or as a date and time if it is not midnight (UTC).

    Examples
    --------
    >>> moment(1_700_000_000)
    '2023-11-14T22:13:20'
    """
    when = (_EPOCH + timedelta(seconds=float(seconds))).replace(tzinfo=None)
    return when.isoformat(timespec="auto" if when.second or when.microsecond else "minutes").removesuffix("T00:00")
