"""Reference rows: known rows that nothing was learnt from, and that other nodes are compared with."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Literal, get_args

import torch

from oddnode.detector import Detector, ModelFileError
from oddnode.scoring import Outputs
from oddnode.tables.table_graph import TableGraph
from oddnode.tables.used_rows import UsedRows

__all__ = ["ThresholdBasis", "checked_basis", "compared_outputs", "fitting_outputs", "with_references"]

#: The reference scores that a threshold fits: those of the fitted tables and of tables that contain them (``"fit"``: it
#: is that of the reference rows themselves), only those of tables that contain the reference rows (``"in place"``), or
#: only those of the fitted tables (``"stored"``).
ThresholdBasis = Literal["fit", "in place", "stored"]

_RECALIBRATE = "recalibrate on known rows of these tables: `oddnode calibrate`"
_CALIBRATED_WITHOUT = (
    "the reference rows are in these tables, but the threshold was calibrated in tables without them, so nodes were "
    f"compared with the reference rows as they were at fit; to compare with them where they are now, {_RECALIBRATE}"
)


def checked_basis(value: Any) -> ThresholdBasis:
    """Check the section of a model's config on the basis of its threshold.

    Parameters
    ----------
    value : object
        Parsed JSON.
    """
    if value not in get_args(ThresholdBasis):
        expected = ", ".join(get_args(ThresholdBasis))
        raise ModelFileError(f"table_threshold is {str(value)[:60]!r}, expected one of {expected}")
    return value


def with_references(detector: Detector, used_rows: UsedRows | None, graph: TableGraph) -> tuple[TableGraph, str]:
    """Mark the reference rows in tables, if the detector compares nodes with such rows.

    Parameters
    ----------
    detector : Detector
        A fitted detector.
    used_rows : UsedRows or None
        The rows that it was fitted on.
    graph : TableGraph
        The tables.

    Returns
    -------
    TableGraph
        The tables, where reference rows were found with ``data.reference_mask``.
    str
        What was found, for a message.
    """
    if not detector.state_.references or used_rows is None:
        return graph, "the reference rows are not in these tables"
    data = copy.copy(graph.data)
    mask, found = used_rows.reference_rows(graph.ids, data.x.numpy(), data.edge_index.numpy())
    if mask is not None:
        data.reference_mask = torch.from_numpy(mask)
        seen = used_rows.seen_rows(graph.ids)
        data.seen_mask = None if seen is None else torch.from_numpy(seen)
    return replace(graph, data=data), found


def compared_outputs(
    detector: Detector, used_rows: UsedRows | None, graph: TableGraph, basis: ThresholdBasis
) -> tuple[Outputs, list[str]]:
    """Run the network on tables, whose nodes are compared with the reference rows that the threshold fits.

    Parameters
    ----------
    detector : Detector
        A fitted detector.
    used_rows : UsedRows or None
        The rows that it was fitted on.
    graph : TableGraph
        The tables.
    basis : {"fit", "in place", "stored"}
        The reference scores that the threshold fits.

    Returns
    -------
    Outputs
        The network's outputs.
    list of str
        Notes for the user.
    """
    graph, found = with_references(detector, used_rows, graph)
    return fitting_outputs(detector, detector.outputs(graph.data), found, basis)


def fitting_outputs(
    detector: Detector, outputs: Outputs, found: str, basis: ThresholdBasis
) -> tuple[Outputs, list[str]]:
    """Choose the reference scores that the threshold fits: those of a graph, or those of the fit.

    Parameters
    ----------
    detector : Detector
        A fitted detector.
    outputs : Outputs
        The network's outputs on a graph.
    found : str
        What became of the reference rows there, for a message.
    basis : {"fit", "in place", "stored"}
        The reference scores that the threshold fits.

    Returns
    -------
    Outputs
        The network's outputs.
    list of str
        Notes for the user.
    """
    if not detector.state_.references or (basis != "stored" and outputs.references):
        return outputs, []
    if basis == "stored":
        stored = type(outputs)(outputs.module, outputs.graph, outputs.num_classes, outputs.labelled, (), outputs.far)
        return stored, [_CALIBRATED_WITHOUT] if outputs.references else []
    if basis == "in place":
        return outputs, [
            f"{found}, but the threshold was calibrated in tables that had them, so the false-alarm rate does not hold "
            f"here; {_RECALIBRATE}"
        ]
    return outputs, [
        f"{found}, so nodes were compared with the reference rows as they were at fit; in a graph that has grown much "
        "or differs the false-alarm rate may not hold: give old and new nodes together (several `nodes` and `edges`), "
        f"or {_RECALIBRATE}"
    ]
