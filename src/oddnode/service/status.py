"""What ``GET /v1/status`` says: facts about the model, the graph and the log, and the flagged share over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from oddnode.functional import share_interval
from oddnode.graph.alterations import forecast_in_words
from oddnode.tables import TableSchema

if TYPE_CHECKING:
    from oddnode.service.state import State

# A window has so many arrivals at least: an interval of fewer says little. There are about twice as many windows as
# `_WINDOWS` at most, of the last so many changes.
_LEAST, _WINDOWS, _MOST_CHANGES = 20, 20, 5000


class Window(Struct, frozen=True):
    """Arrivals that followed one another."""

    since: float  #: The time of the first one, in seconds since 1970.
    until: float  #: That of the last one.
    count: int  #: Number of nodes that were added or changed.
    flagged: int  #: How many of them were flagged.
    low: float  #: The 95 % interval of their share, as if each were drawn by itself.
    high: float


def windows_of(changes: Iterable[tuple[float, int, int]]) -> list[Window]:
    """Divide changes into windows of about equally many arrivals, since intervals of those can be compared.

    Parameters
    ----------
    changes : iterable of tuple
        The time of each change, the oldest first, and how many nodes it had and flagged.
    """
    changes = list(changes)
    total = sum(count for _, count, _ in changes)
    # Doubled as the log grows, so that the older windows stay what they were, two by two.
    size = _LEAST
    while total > 2 * _WINDOWS * size:
        size *= 2
    found: list[Window] = []
    count = flagged = 0
    since: float | None = None
    for place, (time, nodes, odd) in enumerate(changes, 1):
        since = time if since is None else since
        count, flagged = count + nodes, flagged + odd
        # The last window may be as small as a half.
        if count >= size or (place == len(changes) and (2 * count >= size or not found)):
            found.append(Window(since, time, count, flagged, *share_interval(flagged, count)))
            since, count, flagged = None, 0, 0
    return found


def facts_of(state: State) -> dict[str, Any]:
    """Facts about the model, the graph, the log and what arrived.

    Parameters
    ----------
    state : State
        Asked in the thread that owns its graph.
    """
    detector = state.detector
    calibration, schema, log = detector.calibration_, state.schema, state.log
    classes = list(range(detector.state_.num_classes)) if schema is None else list(schema.classes)
    nodes, flagged = (0, 0) if log is None else log.totals()
    return {
        "model": {
            "hash": state.model,
            "method": state.config.get("method"),
            "classes": classes,
            "networks": state.config.get("num_networks"),
            "features": state.config.get("num_features"),
            **_columns(schema),
            "id_type": state.live.id_type,
            "false_alarm_rate": None if calibration is None else calibration.false_alarm_rate,
            "rate_interval": None if calibration is None else calibration.rate_interval,
            "threshold": None if calibration is None else calibration.threshold,
            "num_calibration": None if calibration is None else len(calibration.scores),
            "forecast": forecast_in_words(detector.forecast_),
        },
        "graph": {
            "base": state.base,
            "version": state.live.version,
            "nodes": state.live.num_nodes,
            "directed": state.live.directed,
        },
        "service": {
            "started": state.started,
            "waiting": state.num_waiting,
            "takes_changes": log is not None and not state.follow,
            "follows": state.follow,
            "last_change": None if log is None or not log.version else log.last_time,
        },
        "counts": {"arrivals": nodes, "flagged": flagged},
        "alerts": None if state.alerts is None else state.alerts.counts(),
        "drift": None if state.drift is None or state.follow else state.drift.facts,
        "windows": [] if log is None else windows_of(log.recent(_MOST_CHANGES)),
    }


def _columns(schema: TableSchema | None) -> dict[str, Any]:
    """The columns that rows and edges have; without tables, rows are features ``x``."""
    if schema is None:
        return {"columns": None, "id_column": "id"}
    return {
        "columns": {each.name: type(each).__name__.lower() for each in schema.features.columns},
        "id_column": schema.id_column,
        "source_column": schema.source_column,
        "target_column": schema.target_column,
        "weight_column": None if schema.weights is None else schema.weights.name,
    }
