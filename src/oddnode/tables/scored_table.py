"""The table that scoring writes: one row per node."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from oddnode.detector import Detector
from oddnode.tables.drift import note_on_threshold
from oddnode.tables.reader import Batch
from oddnode.tables.references import ThresholdBasis, compared_outputs
from oddnode.tables.schema import TableSchema
from oddnode.tables.table_graph import TableGraph
from oddnode.tables.used_rows import UsedRows
from oddnode.tables.values import TableError, pyarrow

__all__ = ["ARRIVAL", "check_id_column", "scored_table"]

#: The word in the column split for rows that came after those the model was trained on.
ARRIVAL = "arrival"

_WRITTEN = ("predicted", "confidence", "score", "p_value", "is_ood", "split")
_EXPLAINED = ("own_score", "neighbour_contribution", "nearest_class")


def check_id_column(schema: TableSchema) -> None:
    """Raise an error if the id column has the name of a column that is written.

    Parameters
    ----------
    schema : TableSchema
        The schema of the tables.
    """
    if schema.id_column in _WRITTEN + _EXPLAINED:
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
        Whether to add the columns ``own_score``, ``neighbour_contribution`` and ``nearest_class``.
    basis : {"fit", "in place", "stored"}
        The reference scores that the threshold fits.

    Returns
    -------
    pyarrow.Table
        As for `oddnode.tables.TableModel.score_graph`.
    list of str
        Notes for the user.
    """
    check_id_column(schema)
    outputs, notes = compared_outputs(detector, used_rows, graph, basis)
    confidence, predicted = detector.predict_proba(outputs).max(dim=1)
    scores = detector.score_samples(outputs).cpu()
    calibration = detector.calibration_
    assert calibration is not None
    split = _split(schema, used_rows, graph)
    columns = {
        schema.id_column: graph.ids,
        "predicted": _labels(schema, predicted),
        "confidence": confidence.cpu().numpy(),
        "score": scores.numpy(),
        "p_value": calibration.p_values(scores).numpy(),
        "is_ood": calibration.detect(scores).numpy(),
        "split": split,
    }
    if explain:
        why = detector.explain(outputs)
        columns |= {
            "own_score": why.own_score.cpu().numpy(),
            "neighbour_contribution": why.neighbour_contribution.cpu().numpy(),
            "nearest_class": _labels(schema, why.nearest_class),
        }
    uses = np.array(split.fill_null(ARRIVAL).to_pylist())
    # A threshold that was calibrated on other rows says nothing about the calibration rows of the fit.
    is_calibration = (uses == "calibration") & (basis == "fit")
    notes += note_on_threshold(scores.numpy(), is_calibration, uses == ARRIVAL, calibration)
    return pyarrow().table(columns), notes


def _split(schema: TableSchema, used_rows: UsedRows | None, graph: TableGraph) -> Any:
    """What rows were used for when the model was fitted, and which came later."""
    pa = pyarrow()
    import pyarrow.compute as pc

    use = pa.nulls(len(graph.ids), "string") if used_rows is None else used_rows.use_of(graph.ids)
    until = schema.until
    if until is None or until.column not in graph.columns:
        return use
    times = Batch([graph.columns[until.column]], graph.name, 1, "row")
    is_arrival = pa.array(until.is_arrival(times.arrays[0], times))
    return pc.if_else(pc.and_(use.is_null(), is_arrival), ARRIVAL, use)


def _labels(schema: TableSchema, classes: Tensor) -> Any:
    """The labels of classes, as in the table."""
    return pyarrow().array(list(schema.classes)).take(pyarrow().array(classes.cpu().numpy()))
