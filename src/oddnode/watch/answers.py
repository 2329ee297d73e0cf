"""What `Watch` answers and keeps, as data."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from oddnode.detector import Drift

#: The kinds of things that can move.
CHANGES = ("column", "label", "links", "evidence")


class Change(Struct, frozen=True):
    """Something in which the rows of a window differ from known rows, more than chance would make them."""

    kind: Literal["column", "label", "links", "evidence"]
    what: str  #: What is counted or averaged, in words.
    before: float  #: The share or the mean among known rows.
    now: float  #: That of the window.
    is_share: bool  #: Whether these are shares, rather than means.


class OddRow(Struct, frozen=True):
    """One of the oddest rows of a window."""

    id: int | str
    score: float
    p_value: float
    is_flagged: bool
    predicted: str  #: The most likely label.
    why: str | None  #: The reasons for flagging it; ``None`` if it is not flagged.


class Window(Struct, frozen=True):
    """What was seen in one window in time."""

    number: int  #: As `Windows` counts them.
    name: str
    start: float  #: Seconds since 1970, or a number.
    end: float  #: When the next window begins.
    drift: Drift  #: How its rows score: how many are flagged, with intervals, against the calibrated rate.
    weight: float  #: How much each row counted in the bet, 1 or less; linked rows say less. 0 in a baseline.
    log10_evidence: float  #: The capital of the bet after this window, as a power of 10.
    log10_highest: float  #: The highest that it has been since the bet began.
    changes: list[Change]  #: What moved, the largest first.
    oddest: list[OddRow]
    raised: str | None = None  #: The id of the alarm that was raised in this window.


class Alarm(Struct, frozen=True):
    """Rows do not score as known ones any more."""

    id: str  #: The same for the same alarm, however often it is seen.
    model: str
    window: str  #: The name of the window in which it was raised.
    start: float
    end: float
    chance: float  #: The probability that such an alarm is ever raised if nothing has changed.
    log10_evidence: float
    num_rows: int  #: Number of rows that the bet had seen.


class State(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is kept between two runs."""

    format: Literal[1] = 1
    model: str  #: The model that it belongs to.
    window: str  #: The length of windows, as it was given.
    chance: float
    seed: int
    baseline: int  #: How many windows of this bet are only compared with, and how many of these are still to come.
    num_to_come: int
    counts: list[Annotated[int, Meta(ge=0)]]  #: As for `Martingale`, like the next two.
    weights: list[list[float]]
    log_capital: float = 0.0
    log_highest: float = 0.0
    judged: int | None = None  #: The number of the last window that was judged.
    round: int = 0  #: How many alarms were acknowledged, each of which begins a new bet.
    num_rows: int = 0  #: Number of rows judged so far, and how many of them were flagged.
    num_flagged: int = 0
    num_bet: int = 0  #: Number of rows in this bet, and of links among them.
    num_links: int = 0
    num_alarms: int = 0
    alarm: Alarm | None = None  #: The alarm that stands.
    windows: list[Window] = []  #: The last ones.
    sent: list[str] = []  #: Which alarms were sent to which webhook.


class WatchReport(Struct, frozen=True, kw_only=True):
    """What one run found."""

    windows: list[Window]  #: The windows that were judged, in order.
    alarm: Alarm | None  #: The alarm that stands; raised in one of these windows or earlier.
    is_new: bool  #: Whether it was raised in this run.
    notes: list[str]  #: Notes for the user.
    state: State
