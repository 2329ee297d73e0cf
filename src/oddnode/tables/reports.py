"""What `TableModel` tells about its work."""

from __future__ import annotations

from dataclasses import dataclass, field

from oddnode.detector import Detector
from oddnode.tables.training_tables import TrainingGraph

__all__ = ["CalibrationReport", "FitReport", "ScoreReport"]


@dataclass(frozen=True)
class FitReport:
    """What was read and learnt.

    Parameters
    ----------
    num_nodes, num_edges, num_features : int
        Size of the tables.
    labels : list
        The label of each class.
    num_train, num_validation, num_calibration : int
        How the labelled nodes were used.
    best_epoch : int
        The epoch whose weights were kept.
    false_alarm_rate, threshold : float
        Of the calibration.
    mean_degree, homophily : float or None
        Of the graph.
    notes : list of str
        What to tell the user.
    """

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
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, detector: Detector, graph: TrainingGraph) -> FitReport:
        """Report on a fit.

        Parameters
        ----------
        detector : Detector
            Fitted and calibrated.
        graph : TrainingGraph
            What it was fitted on.
        """
        profile, directed = detector.graph_profile_, graph.schema.directed
        return cls(
            num_nodes=profile.num_nodes,
            num_edges=profile.num_edges if directed else profile.num_edges // 2,
            num_features=graph.data.x.shape[1],
            labels=list(graph.schema.classes),
            num_train=len(graph.split.train),
            num_validation=len(graph.split.validation),
            num_calibration=len(graph.split.calibration),
            best_epoch=detector.best_epoch_,
            false_alarm_rate=detector.false_alarm_rate_,
            threshold=detector.threshold_,
            mean_degree=profile.mean_degree,
            homophily=profile.homophily,
            notes=graph.notes + detector.advice_,
        )


@dataclass(frozen=True)
class ScoreReport:
    """What was scored.

    Parameters
    ----------
    num_nodes, num_edges : int
        Size of the tables.
    num_flagged : int
        How many nodes were flagged as OOD.
    false_alarm_rate : float
        The share of known nodes that may be flagged.
    notes : list of str
        What to tell the user.
    """

    num_nodes: int
    num_edges: int
    num_flagged: int
    false_alarm_rate: float
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CalibrationReport:
    """What a threshold was set on.

    Parameters
    ----------
    num_nodes, num_edges : int
        Size of the tables.
    num_calibration : int
        How many known nodes it was set on.
    false_alarm_rate, threshold, old_threshold : float
        Of the calibration, and the threshold before.
    notes : list of str
        What to tell the user.
    """

    num_nodes: int
    num_edges: int
    num_calibration: int
    false_alarm_rate: float
    threshold: float
    old_threshold: float
    notes: list[str] = field(default_factory=list)
