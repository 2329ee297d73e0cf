"""The table that scoring writes: one row per node."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from oddnode.detector import Detector, Explanation
from oddnode.scoring import Outputs
from oddnode.tables.drift import note_on_threshold
from oddnode.tables.references import ThresholdBasis, compared_outputs
from oddnode.tables.schema import TableSchema
from oddnode.tables.table_graph import TableGraph
from oddnode.tables.used_rows import UsedRows
from oddnode.tables.values import TableError, pyarrow

__all__ = ["ARRIVAL", "check_id_column", "explained_columns", "scored_table"]

#: The word in the column split for rows that came after those the model was trained on.
ARRIVAL = "arrival"

_WRITTEN = ("predicted", "confidence", "score", "p_value", "is_ood", "split")
_EXPLAINED = ("threshold", "own_score", "neighbour_contribution", "nearest_class", "why")


def check_id_column(schema: TableSchema, detector: Detector) -> None:
    """Raise an error if the id column has the name of a column that is written.

    Parameters
    ----------
    schema : TableSchema
        The schema of the tables.
    detector : Detector
        The detector that scores them; every kind of its evidence has a column.
    """
    if schema.id_column in (*_WRITTEN, *_EXPLAINED, *map(_evidence_column, detector.scorer_.kinds)):
        raise TableError(f"the id column {schema.id_column!r} has the name of an output column; rename it")


def scored_table(
    detector: Detector,
    schema: TableSchema,
    used_rows: UsedRows | None,
    graph: TableGraph,
    explain: bool,
    basis: ThresholdBasis,
) -> tuple[Any, list[str]]:
    """Score every node of tables that were read.

    Parameters
    ----------
    detector : Detector
        Fitted and calibrated.
    schema : TableSchema
        The schema of the tables.
    used_rows : UsedRows or None
        The rows that the detector was fitted on.
    graph : TableGraph
        The tables.
    explain : bool
        Whether to add the columns that explain the scores.
    basis : {"fit", "in place", "stored"}
        The reference scores that the threshold fits.

    Returns
    -------
    pyarrow.Table
        As for `oddnode.tables.TableModel.score_graph`.
    list of str
        Notes for the user.
    """
    check_id_column(schema, detector)
    outputs, notes = compared_outputs(detector, used_rows, graph, basis)
    confidence, predicted = detector.predict_proba(outputs).max(dim=1)
    scores = detector.score_samples(outputs).cpu()
    calibration = detector.calibration_
    assert calibration is not None
    flagged = calibration.detect(scores)
    split = _split(used_rows, graph)
    columns = {
        schema.id_column: graph.ids,
        "predicted": _labels(schema, predicted),
        "confidence": confidence.cpu().numpy(),
        "score": scores.numpy(),
        "p_value": calibration.p_values(scores).numpy(),
        "is_ood": flagged.numpy(),
        "split": split,
    }
    if explain:
        columns |= _explained(detector, schema, graph, outputs, flagged)
    uses = np.array(split.fill_null(ARRIVAL).to_pylist())
    # A threshold that was calibrated on other rows says nothing about the calibration rows of the fit.
    is_calibration = (uses == "calibration") & (basis == "fit")
    notes += note_on_threshold(scores.numpy(), is_calibration, uses == ARRIVAL, calibration)
    return pyarrow().table(columns), notes


def _split(used_rows: UsedRows | None, graph: TableGraph) -> Any:
    """What rows were used for when the model was fitted, and which came later."""
    pa = pyarrow()
    import pyarrow.compute as pc

    use = pa.nulls(len(graph.ids), "string") if used_rows is None else used_rows.use_of(graph.ids)
    if graph.is_arrival is None:
        return use
    return pc.if_else(pc.and_(use.is_null(), pa.array(graph.is_arrival)), ARRIVAL, use)


def _explained(
    detector: Detector, schema: TableSchema, graph: TableGraph, outputs: Outputs, flagged: Tensor
) -> dict[str, Any]:
    """The columns that explain the scores; ``why`` is null for nodes that are not flagged."""
    found = detector.explain(outputs)
    names = {"node_names": graph.ids.to_pylist(), "class_names": schema.classes}
    why = np.full(len(flagged), None, dtype=object)
    why[flagged.numpy()] = detector.reasons(outputs, flagged, **names)
    return explained_columns(detector, schema, found, why, slice(None))


def explained_columns(
    detector: Detector, schema: TableSchema, found: Explanation, why: np.ndarray, rows: slice
) -> dict[str, Any]:
    """Make the columns that explain the scores of some nodes.

    Parameters
    ----------
    detector : Detector
        The fitted detector.
    schema : TableSchema
        How its tables are read.
    found : Explanation
        That of all nodes.
    why : numpy.ndarray
        A sentence for each of the nodes ``[n]``; None for nodes that are not flagged.
    rows : slice
        The nodes.

    Returns
    -------
    dict
        Columns by name.
    """
    own_score = found.own_score[rows].cpu().numpy()
    p_values = (-found.evidence[rows]).exp().cpu().numpy()
    return {
        "threshold": np.full_like(own_score, detector.threshold_),  # in the precision of the scores, to compare with
        "own_score": own_score,
        "neighbour_contribution": found.neighbour_contribution[rows].cpu().numpy(),
        "nearest_class": _labels(schema, found.nearest_class[rows]),
        **{_evidence_column(kind): p_values[:, k] for k, kind in enumerate(found.kinds)},
        "why": pyarrow().array(why, "string"),
    }


def _evidence_column(kind: str) -> str:
    """The name of the column with the p-values of a kind of evidence."""
    return f"p_{kind.replace(' ', '_')}"


def _labels(schema: TableSchema, classes: Tensor) -> Any:
    """The labels of classes, as in the table."""
    return pyarrow().array(list(schema.classes)).take(pyarrow().array(classes.cpu().numpy()))
