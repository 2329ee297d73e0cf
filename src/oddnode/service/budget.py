"""Which arrivals are alerts: at most so many a day, decided as they arrive."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

DAY = 86400.0
#: Earlier days that today is compared with.
MOST_DAYS = 7
# The share of the alerts left that has to suffice for what is expected. It was chosen on simulated days: without a
# reserve, too many alerts were raised in the morning.
_USED = 0.8


class _Odd(NamedTuple):
    """One of the oddest arrivals of a day, odder = smaller."""

    p_value: float
    score: float
    second: float  # of the day, at which it arrived


class DailyBudget:
    """Decide at once, as nodes arrive, which of them are alerts: at most N a day (UTC), the oddest as far as possible.

    The N oddest of a day are known only at its end. An arrival is an alert if

    1. fewer than N alerts were raised today,
    2. fewer than N arrivals of today so far are as odd, so that it may still be one of the N oddest of the day, and
    3. what is expected of the rest of the day fits into four fifths of the alerts that are left: of the N oddest of an
       earlier day, those that came later in the day and were as odd, on average over the last seven days (those with
       arrivals). As long as there is no such day, the arrival has to be flagged instead.

    By the first condition there are never more than N. Odder means a lower p-value, or a lower score with the same one.

    Parameters
    ----------
    per_day : int
        N.

    Examples
    --------
    >>> budget = DailyBudget(1)
    >>> [budget.offer(hour * 3600.0, p, -1.0, p <= 0.05) for hour, p in [(1, 0.4), (2, 0.04), (3, 0.01)]]
    [False, True, False]
    """

    def __init__(self, per_day: int):
        if per_day < 1:
            raise ValueError(f"budget is {per_day}, expected 1 alert a day or more")
        self.per_day = per_day
        self._day, self._raised = -1, Counter[int]()
        self._oddest: dict[int, list[_Odd]] = {}  # of the last days and today

    def offer(self, time: float, p_value: float, score: float, is_flagged: bool) -> bool:
        """Say whether the next arrival is an alert; if it seems to be of the day before, it counts as today."""
        day, second = int(time // DAY), time % DAY
        if not self._day - 1 <= day <= self._day:  # also if the clock was wrong before: then that day never was
            self._day = day
            self._oddest = {each: own for each, own in self._oddest.items() if day - MOST_DAYS <= each <= day}
        today, own = self._oddest.setdefault(self._day, []), _Odd(p_value, score, second)
        if bisect_right(today, own) >= self.per_day:
            return False
        insort(today, own)
        del today[self.per_day :]
        left = self.per_day - self._raised[self._day]
        earlier = [_num_later(odd, own) for each, odd in self._oddest.items() if each < self._day]
        lasts = sum(earlier) < _USED * left * len(earlier) if earlier else is_flagged
        is_alert = lasts and left > 0
        self._raised[self._day] += is_alert
        return is_alert

    def resume(self, arrivals: Iterable[tuple[float, float, float, bool]]) -> None:
        """Go on after arrivals of the past: time, p-value and score of each, and whether it was an alert."""
        raised = Counter[int]()
        for time, p_value, score, was_alert in arrivals:
            self.offer(time, p_value, score, is_flagged=False)
            raised[self._day] += was_alert
        self._raised = raised


def _num_later(oddest: list[_Odd], own: _Odd) -> int:
    """How many of a day's oddest arrivals came later in the day and were as odd."""
    as_odd = oddest[: bisect_right(oddest, own[:2], key=lambda each: each[:2])]
    return sum(each.second > own.second for each in as_odd)
