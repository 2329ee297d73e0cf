"""Metrics in Prometheus' text format, for the textfile collector of its node exporter."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from oddnode._utils.atomic_files import write_text
from oddnode.watch.answers import CHANGES, State

#: Every metric: its type, and what it says.
METRICS = {
    "rows_total": ("counter", "Rows judged so far."),
    "flagged_rows_total": ("counter", "Rows flagged so far."),
    "alarms_total": ("counter", "Alarms raised so far."),
    "alarm": ("gauge", "1 while an alarm stands, otherwise 0."),
    "evidence_log10": ("gauge", "Evidence that new rows no longer score as known ones, as a power of 10."),
    "evidence_highest_log10": ("gauge", "The highest evidence since the last alarm was acknowledged."),
    "evidence_alarm_log10": ("gauge", "The evidence that raises an alarm."),
    "calibrated_rate": ("gauge", "The share of known rows that should be flagged."),
    "window_rows": ("gauge", "Rows in the last window."),
    "window_flagged_share": ("gauge", "The share of them that is flagged."),
    "window_flagged_share_low": ("gauge", "The lower end of its 95 % interval."),
    "window_flagged_share_high": ("gauge", "The upper end of its 95 % interval."),
    "window_end_timestamp_seconds": ("gauge", "When the last window ended."),
    "window_moved": ("gauge", "How many things moved in the last window, by kind."),
    "run_timestamp_seconds": ("gauge", "When the last run ended."),
}
_PREFIX = "oddnode_watch_"


def write_metrics(state: State, path: str | os.PathLike, now: float | None = None) -> Path:
    """Write the metrics of a watch, atomically, and return the path.

    Parameters
    ----------
    state : State
        From `Watch.run`.
    path : path
        The file, which the collector expects to end in ``.prom``; an existing one is replaced.
    now : float, optional
        When the run ended, in seconds since 1970.
    """
    lines = list(_lines(state, time.time() if now is None else now))
    return write_text(Path(path), "\n".join(lines) + "\n")


def _lines(state: State, now: float) -> Iterator[str]:
    values = list(_values(state, now))
    for name, (kind, text) in METRICS.items():
        own = [(labels, value) for metric, labels, value in values if metric == name]
        if own:
            yield f"# HELP {_PREFIX}{name} {text}"
            yield f"# TYPE {_PREFIX}{name} {kind}"
        for labels, value in own:
            yield f'{_PREFIX}{name}{{model="{state.model}"{labels}}} {value:.10g}'


def _values(state: State, now: float) -> Iterator[tuple[str, str, float]]:
    yield "rows_total", "", state.num_rows
    yield "flagged_rows_total", "", state.num_flagged
    yield "alarms_total", "", state.num_alarms
    yield "alarm", "", state.alarm is not None
    yield "evidence_log10", "", state.log_capital / math.log(10)
    yield "evidence_highest_log10", "", state.log_highest / math.log(10)
    yield "evidence_alarm_log10", "", -math.log10(state.chance)
    yield "run_timestamp_seconds", "", now
    for window in state.windows[-1:]:
        drift = window.drift
        yield "calibrated_rate", "", drift.false_alarm_rate
        yield "window_rows", "", drift.num_nodes
        yield "window_flagged_share", "", drift.share_flagged
        yield "window_flagged_share_low", "", drift.share_interval[0]
        yield "window_flagged_share_high", "", drift.share_interval[1]
        yield "window_end_timestamp_seconds", "", window.end
        for kind in CHANGES:
            yield "window_moved", f',kind="{kind}"', sum(change.kind == kind for change in window.changes)
