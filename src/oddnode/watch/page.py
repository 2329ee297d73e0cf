"""The page of a watch: one self-contained HTML file."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oddnode._utils.atomic_files import write_text
from oddnode._version import __version__
from oddnode.tables.reports import percent
from oddnode.watch.answers import Change, State, Window
from oddnode.watch.webhook import sentence
from oddnode.webpage import render_page

# So many windows are on the page, the last ones.
_MOST = 400


def write_page(state: State, path: str | os.PathLike) -> Path:
    """Write the page of a watch, atomically, and return the path.

    Parameters
    ----------
    state : State
        From `Watch.run`. Every string in it is escaped.
    path : path
        The file; an existing one is replaced.
    """
    windows = state.windows[-_MOST:]
    html = render_page(
        "oddnode.watch",
        {"windows": [_encoded(each) for each in windows], "alarm": -math.log10(state.chance)},
        title="oddnode: new rows over time",
        description=headline(state),
        scripts=("tools.js", "tables.js", "watch.js"),
        headline=headline(state),
        alarm=None if state.alarm is None else sentence(state.alarm),
        state=state,
        rate=windows[-1].drift.false_alarm_rate if windows else None,
        percent=percent,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )
    return write_text(Path(path), html)


def headline(state: State) -> str:
    """What a watch has found so far, in a sentence."""
    if not state.windows:
        return "No window has ended yet."
    if state.alarm is not None:
        return f"Since {state.alarm.window} at the latest, new rows no longer score as known ones."
    shown = f"{percent(state.num_flagged / max(state.num_rows, 1))} of {state.num_rows:,} are flagged"
    return f"New rows score as known ones so far: {shown}."


def in_words(change: Change) -> str:
    """Such as "predicted as garden: 12 % (30 % before)"."""
    before, now = (percent(x) if change.is_share else f"{x:.3g}" for x in (change.before, change.now))
    return f"{change.what}: {now} ({before} before)"


def _encoded(window: Window) -> dict[str, Any]:
    drift = window.drift
    return {
        "name": window.name,
        "rows": drift.num_nodes,
        "flagged": drift.num_flagged,
        "share": drift.share_flagged,
        "low": drift.share_interval[0],
        "high": drift.share_interval[1],
        "rate": drift.false_alarm_rate,
        "rateLow": drift.rate_interval[0],
        "rateHigh": drift.rate_interval[1],
        "evidence": window.log10_evidence,
        "raised": window.raised is not None,
        "changes": [[c.kind, c.what, c.before, c.now, c.is_share] for c in window.changes],
        "oddest": [[str(o.id), o.predicted, o.score, o.p_value, o.is_flagged, o.why or ""] for o in window.oddest],
    }
