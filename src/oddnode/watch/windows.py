"""Windows in time: of equal length, named by numbers that do not depend on the data."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import numpy as np
from msgspec import Struct

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*([mhdw]?)")
_SECONDS = {"": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Windows of weeks begin on Mondays; 1970 began on a Thursday.
_MONDAY = 4 * 86400.0


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

    length: float  #: In seconds or, if times are numbers, in their unit.
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
        return cls(float(match[1]) * _SECONDS[match[2]], bool(match[2]))

    @property
    def _origin(self) -> float:
        return _MONDAY if self.is_date else 0.0

    def number_of(self, times: np.ndarray) -> np.ndarray:
        """The windows that times ``[n]`` are in."""
        return np.floor((times - self._origin) / self.length).astype(np.int64)

    def start(self, number: int) -> float:
        """When a window begins; the next one begins when it ends."""
        return self._origin + float(number) * self.length

    def name(self, number: int) -> str:
        """When a window begins, in words: a date or time (UTC), or numbers."""
        begin = self.start(number)
        if self.is_date:
            return moment(begin)
        return f"{begin:g}" if self.length == 1 else f"{begin:g} to below {self.start(number + 1):g}"


def moment(seconds: float) -> str:
    """Write seconds since 1970 as a date, or as a date and time if it is not midnight (UTC).

    Examples
    --------
    >>> moment(1_700_000_000)
    '2023-11-14T22:13'
    """
    when = _EPOCH + timedelta(seconds=float(seconds))
    return when.strftime("%Y-%m-%d" if when.time() == datetime.min.time() else "%Y-%m-%dT%H:%M")
