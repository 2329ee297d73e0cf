"""Checks of what is asked for, made before the work that would be lost."""

from __future__ import annotations

import numpy as np

from oddnode.detector import Detector, scorer_of
from oddnode.functional import CalibrationError, threshold_at
from oddnode.graph import GraphSource
from oddnode.tables.labels import read_marks
from oddnode.tables.schema import TableSchema
from oddnode.tables.table_graph import TableGraph
from oddnode.tables.training_tables import TrainingGraph
from oddnode.tables.used_rows import UsedRows
from oddnode.tables.values import TableError

__all__ = ["calibrated", "calibration_rows", "check_before_training", "compares_with_references"]


def check_before_training(method: str, detector: Detector, graph: TrainingGraph, false_alarm_rate: float) -> None:
    """Raise every error that can be foreseen before the training and not after it.

    Parameters
    ----------
    method : str
        The name of the method.
    detector : Detector
        The detector to fit.
    graph : TrainingGraph
        The tables to fit it on.
    false_alarm_rate : float
        The share of known nodes that may be flagged.
    """
    has_exposure = graph.exposure is not None
    if scorer_of(detector).needs_labelled_nodes:
        raise TableError(
            f"{method} anchors on labelled nodes of the graph it scores, which a table of new nodes need not have, "
            "so its false-alarm rate would not hold; choose another method, for example nodesafe-evidence"
        )
    if detector.needs_exposure and not has_exposure:
        raise TableError(
            f"{method} needs exposure, nodes known to be OOD: give them as a table (`exposure_nodes`) or mark them in "
            "a column (`exposure_column`), or choose a method that needs none, for example nodesafe-evidence"
        )
    if has_exposure and not detector.needs_exposure:
        raise TableError(
            f"{method} does not learn from nodes that are known not to belong; leave them out, or choose a method that "
            "does, for example nodesafe-evidence++"
        )
    threshold_at(np.arange(len(graph.split.calibration), dtype=float), false_alarm_rate)
    if compares_with_references(detector) and len(graph.split.calibration) < 2:
        raise TableError(
            f"{method} compares nodes with calibration nodes, but there is one; give two or more, or choose another "
            "method, for example nodesafe"
        )
    schema = graph.schema
    TableSchema.from_json(schema.to_json(), schema.features.width, len(schema.classes))


def compares_with_references(detector: Detector) -> bool:
    """Whether a detector compares nodes with reference nodes, which are kept out of training.

    Parameters
    ----------
    detector : Detector
        Any detector, fitted or not.
    """
    return scorer_of(detector).needs_reference


def calibrated(detector: Detector, data: GraphSource, false_alarm_rate: float) -> None:
    """Calibrate a fitted detector on the calibration rows.

    Parameters
    ----------
    detector : Detector
        The detector. One that compares with reference rows, which the calibration rows are, has their scores already.
    data : GraphSource
        The graph that it was fitted on.
    false_alarm_rate : float
        The share of known nodes that may be flagged.
    """
    if compares_with_references(detector) and detector.calibration_ is not None:
        detector.set_false_alarm_rate(false_alarm_rate)
    else:
        detector.calibrate(data, false_alarm_rate)


def calibration_rows(
    graph: TableGraph, known_column: str, used_rows: UsedRows | None, false_alarm_rate: float
) -> tuple[np.ndarray, int]:
    """Choose the known nodes to calibrate on, without those that the model was trained or validated on.

    Parameters
    ----------
    graph : TableGraph
        N nodes, read with the column of marks.
    known_column : str
        The column that marks known nodes.
    used_rows : UsedRows or None
        The rows that the model was fitted on; ``None`` if the table has none of them.
    false_alarm_rate : float
        The share of known nodes that may be flagged.

    Returns
    -------
    numpy.ndarray
        One boolean per node ``[N]``.
    int
        Number of known nodes that are left out.
    """
    known = read_marks(graph.columns[known_column], graph.name, known_column)
    if not known.any():
        raise TableError(f"{graph.name}: column {known_column!r} marks no node")
    held_out = known if used_rows is None else known & ~used_rows.trained_on(graph.ids)
    left_out = int(known.sum() - held_out.sum())
    try:
        threshold_at(np.arange(int(held_out.sum()), dtype=float), false_alarm_rate)
    except CalibrationError as error:
        if not left_out:
            raise
        raise CalibrationError(
            f"{error}. {left_out} more nodes are marked as known, but the model was trained or validated on them; "
            "if their ids name other nodes in these tables: `new_ids`"
        ) from None
    return held_out, left_out
