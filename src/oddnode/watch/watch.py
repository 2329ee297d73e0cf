"""`Watch`: windows in time judged one after another, with a bet that goes on from run to run."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from filelock import FileLock, Timeout

from oddnode._utils.atomic_files import write_text
from oddnode.detector import Calibration, Detector, Drift
from oddnode.functional.conformal import check_rate
from oddnode.tables import TableModel
from oddnode.watch.answers import Alarm, OddRow, State, WatchReport, Window
from oddnode.watch.changes import what_moved
from oddnode.watch.martingale import Martingale, levels_of, weight_of_linked
from oddnode.watch.rows import Rows, Source
from oddnode.watch.windows import Windows

# So many windows are kept for the page, and so many rows of each.
_KEPT = 1000
_ODDEST = 5
_SECONDS_TO_WAIT = 600
_SETTINGS = ("window", "chance", "baseline", "seed")


class WatchError(ValueError):
    """A state that does not belong to the model or to the settings, or that is damaged."""


class Watch:
    """Watches whether new rows still score as known ones, window by window.

    Nothing is fitted: it takes a fitted model, and keeps in a file what it has seen. A window that was judged is never
    judged again. Runs that overlap wait for each other.

    Parameters
    ----------
    model : TableModel or Detector
        Fitted and calibrated.
    state : path
        The file with the state; it is made by the first run, and belongs to this model.
    window : str
        The length of windows, as for `Windows.of`.
    chance : float
        The probability that an alarm is ever raised if new rows score as known ones.
    baseline : int
        0 to compare new rows with the calibration rows; otherwise the number of windows, the first ones, that later
        rows are compared with instead, because new rows never score as calibration rows where these have had years to
        gather links. No alarm is raised in them.
    seed : int
        Seed of the random order within a window, and between equal scores.
    model_id : str, optional
        What names the model in the state and in alarms; by default a hash of its calibration.
    """

    def __init__(
        self,
        model: TableModel | Detector,
        state: str | os.PathLike,
        window: str = "1d",
        *,
        chance: float = 0.01,
        baseline: int = 0,
        seed: int = 0,
        model_id: str | None = None,
    ):
        detector = model.detector if isinstance(model, TableModel) else model
        if detector.calibration_ is None:
            raise ValueError("the model has no calibration, so nobody knows how known rows score; call `calibrate`")
        self.calibration: Calibration = detector.calibration_
        self.labels = [str(each) for each in model.schema.classes] if isinstance(model, TableModel) else []
        self.isolated_share = detector.graph_profile_.isolated_share
        self.path, self.windows, self.window = Path(state), Windows.of(window), window
        self.chance, self.baseline, self.seed = check_rate(chance, "chance"), baseline, seed
        if baseline < 0:
            raise ValueError(f"`baseline` is {baseline}, expected a number of windows, 0 or more")
        self.model_id = model_id or _hash(self.calibration.scores.double().numpy().tobytes())
        self._known = _unweighted(self.calibration)

    def state(self) -> State:
        """Read the state, or begin a new one."""
        if not self.path.exists():
            empty = Martingale([0] * (len(self._known) + 1))
            settings: dict[str, Any] = {name: getattr(self, name) for name in _SETTINGS}
            begin = {"counts": empty.counts.tolist(), "weights": empty.weights.tolist(), "num_to_come": self.baseline}
            return State(model=self.model_id, **settings, **begin)
        try:
            state = msgspec.json.decode(self.path.read_bytes(), type=State)
        except msgspec.DecodeError as error:
            raise WatchError(f"{self.path} is damaged or not the state of a watch: {error}") from None
        if state.model != self.model_id or len(state.counts) != len(self._known) + 1:
            raise WatchError(
                f"{self.path} belongs to the model {state.model}, but this is {self.model_id}; a model that was fitted "
                "or calibrated anew needs a `state` of its own"
            )
        for name in _SETTINGS:
            if getattr(state, name) != getattr(self, name):
                raise WatchError(
                    f"{self.path} was begun with {name} {getattr(state, name)}, but it is {getattr(self, name)} now; "
                    "give the same, or another `state`"
                )
        return state

    def run(self, source: Source, until: float | None = None) -> WatchReport:
        """Judge the windows that have ended since the last run.

        Parameters
        ----------
        source : Source
            The rows, such as `TableRows`.
        until : float, optional
            Up to when all rows are there: seconds since 1970, or a number. Only windows that end by then are judged; by
            default all that have rows.
        """
        with self._locked():
            state, times = self.state(), source.times()
            done, notes, judged = state.judged, list[str](), list[Window]()
            numbers, counts = np.unique(self.windows.number_of(times), return_counts=True)
            late = _num_late(state, dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
            before = state.alarm
            for number in numbers.tolist():
                end = self.windows.start(number + 1)
                if (done is None or number > done) and (until is None or end <= until):
                    rows, known = source.read(self.windows.start(number), end)
                    judged.append(self._judge(state, number, rows, known))
                    self._write(state)
                    notes = rows.notes  # on all rows up to the end of this window, so the last ones say it all
            if late:
                notes = [f"{late} rows came after their window had been judged; they are left out", *notes]
            is_new = state.alarm is not None and state.alarm != before
            return WatchReport(windows=judged, alarm=state.alarm, is_new=is_new, notes=notes, state=state)

    def acknowledge(self) -> State:
        """Take the alarm back and begin a new bet.

        It again compares new rows with the calibration rows or, with a `baseline`, with those of the next windows.
        """
        with self._locked():
            state = self.state()
            if state.alarm is None:
                raise WatchError(f"{self.path} has no alarm to acknowledge")
            empty = Martingale([0] * len(state.counts))
            state.counts, state.weights = empty.counts.tolist(), empty.weights.tolist()
            state.log_capital = state.log_highest = 0.0
            state.num_bet = state.num_links = 0
            state.num_to_come = state.baseline
            state.alarm, state.round = None, state.round + 1
            self._write(state)
            return state

    def mark_sent(self, alarm: Alarm, receiver: str) -> None:
        """Remember that an alarm was sent.

        Parameters
        ----------
        alarm : Alarm
            The alarm.
        receiver : str
            A name for where it was sent.
        """
        with self._locked():
            state = self.state()
            state.sent = [*state.sent, f"{alarm.id} {receiver}"][-_KEPT:]
            self._write(state)

    def _locked(self) -> Any:
        if not self.path.absolute().parent.is_dir():
            raise WatchError(f"{self.path} cannot be written: its folder does not exist; make it first")
        try:
            return FileLock(f"{self.path}.lock", timeout=_SECONDS_TO_WAIT).acquire()
        except Timeout:
            raise WatchError(f"{self.path} has been in use by another run for {_SECONDS_TO_WAIT} seconds") from None

    def _write(self, state: State) -> None:
        write_text(self.path, msgspec.json.encode(state).decode())

    def _judge(self, state: State, number: int, rows: Rows, known: Rows | None) -> Window:
        """Bet on the rows of a window, and describe them; the state goes on."""
        total = len(rows.ids)
        state.num_bet += total
        state.num_links += rows.links_among
        weight = 0.0 if state.num_to_come else weight_of_linked(state.num_links, state.num_bet)
        state.num_to_come = max(0, state.num_to_come - 1)
        self._bet(state, number, rows, weight)
        isolated = None if rows.num_links is None else int((rows.num_links == 0).sum())
        drift = Drift.of(rows.scores, self.calibration, isolated, None if isolated is None else self.isolated_share)
        state.num_rows += total
        state.num_flagged += drift.num_flagged
        name, start, end = self.windows.name(number), self.windows.start(number), self.windows.start(number + 1)
        raised = None
        if state.alarm is None and state.log_highest >= -math.log(self.chance):
            raised = _hash(f"{self.model_id} {state.round} {name} {self.window}".encode())
            evidence = state.log_highest / math.log(10)
            about = self.model_id, name, start, end, self.chance, evidence, state.num_bet
            state.alarm, state.num_alarms = Alarm(raised, *about), state.num_alarms + 1
        flagged = self.calibration.detect(rows.scores).numpy()
        odd = np.argsort(rows.scores, kind="stable")[:_ODDEST].tolist()
        window = Window(
            number=number,
            name=name,
            start=start,
            end=end,
            drift=drift,
            weight=weight,
            log10_evidence=state.log_capital / math.log(10),
            log10_highest=state.log_highest / math.log(10),
            changes=what_moved(rows, known, self.calibration, self.labels),
            oddest=[_odd_row(rows, row, bool(flagged[row])) for row in odd],
            raised=raised,
        )
        state.judged, state.windows = number, [*state.windows, window][-_KEPT:]
        return window

    def _bet(self, state: State, number: int, rows: Rows, weight: float) -> None:
        """Bet on the rows in a random order, which depends on nothing but their ids, the window and the seed."""
        rng = np.random.default_rng([self.seed, state.round, number % 2**32])
        order = rng.permutation(np.argsort(np.array([str(each) for each in rows.ids]), kind="stable"))
        levels = levels_of(rows.scores[order], self._known, rng)
        bet = Martingale(state.counts, state.weights, state.log_capital, among_calibration=not state.baseline)
        for level, chance in zip(levels.tolist(), rng.random(len(order)).tolist(), strict=True):
            state.log_highest = max(state.log_highest, bet.update(level, chance, weight))
        state.counts, state.weights = bet.counts.tolist(), bet.weights.tolist()
        state.log_capital = bet.log_capital


def _unweighted(calibration: Calibration) -> np.ndarray:
    """Calibration scores, ascending, as if all had been drawn alike: those that stand for fewer are thinned out."""
    scores = calibration.scores.double().numpy()
    if calibration.weights is None:
        return scores
    weights = calibration.weights.numpy()
    return scores[np.random.default_rng(0).random(len(scores)) < weights / weights.max()]


def _odd_row(rows: Rows, row: int, is_flagged: bool) -> OddRow:
    numbers = float(rows.scores[row]), float(rows.p_values[row])
    return OddRow(rows.ids[row], *numbers, is_flagged, rows.predicted[row], rows.why[row] if rows.why else None)


def _num_late(state: State, counts: dict[int, int]) -> int:
    """How many rows are in windows that have been judged, or passed over, without them."""
    seen = {each.number: each.drift.num_nodes for each in state.windows}
    if not seen or state.judged is None:
        return 0
    first = min(seen) if len(seen) == _KEPT else -math.inf
    return sum(max(0, count - seen.get(n, 0)) for n, count in counts.items() if first <= n <= state.judged)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
