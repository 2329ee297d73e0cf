"""Reports of `TableModel` on fitting, scoring and calibration."""

from __future__ import annotations

from dataclasses import dataclass, field

from oddnode.tables.findings import FlaggedGroup
from oddnode.tables.learning import ColumnSummary


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """A report on a fitted model.

    Parameters
    ----------
    method : str
        The name of the method.
    num_nodes, num_edges, num_features : int
        Size of the tables.
    labels : list
        The label of each class.
    num_train, num_validation, num_calibration : int
        Numbers of labelled nodes by use.
    best_epoch : int
        The epoch with the best validation loss, whose weights are used.
    false_alarm_rate, threshold : float
        The calibrated threshold and its false-alarm rate.
    mean_degree, homophily : float or None
        Statistics of the graph.
    num_exposed, num_exposed_flagged : int or None
        Number of nodes known to be OOD that were trained on, and how many of them the model flags; ``None`` if none
        were given.
    num_arrivals, num_arrival_edges : int or None
        Number of rows later than the training rows, and of their edges; ``None`` if rows have no times.
    num_known_arrivals, num_new_label_arrivals, num_unlabelled_arrivals : int or None
        Number of arrivals with a label that the model knows, with another one, and without a label.
    observed_false_alarm_rate : float or None
        The share of arrivals with a known label that is flagged; ``None`` if there are none.
    num_new_label_flagged, num_unlabelled_flagged : int or None
        Number of arrivals with a new label and without a label that are flagged.
    columns : list of ColumnSummary
        How the columns of the table of nodes were read.
    notes : list of str
        Notes for the user.
    """

    method: str
    num_nodes: int
    num_edges: int
    num_features: int
    labels: list[str | int | bool]
    num_train: int
    num_validation: int
    num_calibration: int
    best_epoch: int
    false_alarm_rate: float
    threshold: float
    mean_degree: float
    homophily: float | None
    num_exposed: int | None = None
    num_exposed_flagged: int | None = None
    num_arrivals: int | None = None
    num_arrival_edges: int | None = None
    num_known_arrivals: int | None = None
    observed_false_alarm_rate: float | None = None
    num_new_label_arrivals: int | None = None
    num_new_label_flagged: int | None = None
    num_unlabelled_arrivals: int | None = None
    num_unlabelled_flagged: int | None = None
    columns: list[ColumnSummary]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ScoreReport:
    """A report on scored tables.

    Parameters
    ----------
    num_nodes, num_edges : int
        Size of the tables.
    num_flagged : int
        Number of nodes that were flagged as OOD.
    false_alarm_rate : float
        The share of known nodes that may be flagged.
    notes : list of str
        Notes for the user.
    findings : list of FlaggedGroup
        Flagged rows that belong together, the largest group first; empty unless scores are explained.
    """

    num_nodes: int
    num_edges: int
    num_flagged: int
    false_alarm_rate: float
    notes: list[str] = field(default_factory=list)
    findings: list[FlaggedGroup] = field(default_factory=list)


@dataclass(frozen=True)
class CalibrationReport:
    """A report on a recalibrated threshold.

    Parameters
    ----------
    num_nodes, num_edges : int or None
        Size of the tables; ``None`` if none were given.
    num_calibration : int
        Number of known nodes that determine the threshold.
    num_left_out : int
        Number of known nodes that the model was trained or validated on, which are left out.
    false_alarm_rate, threshold, old_threshold : float
        The false-alarm rate, and the threshold after and before.
    notes : list of str
        Notes for the user.
    """

    num_nodes: int | None
    num_edges: int | None
    num_calibration: int
    num_left_out: int
    false_alarm_rate: float
    threshold: float
    old_threshold: float
    notes: list[str] = field(default_factory=list)
