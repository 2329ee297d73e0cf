"""Arrivals: rows that came after those to train on. Nothing of them is learnt; they check a fitted model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oddnode.tables.edges import Edges
from oddnode.tables.nodes import Nodes
from oddnode.tables.table_graph import TableGraph
from oddnode.tables.values import pyarrow

__all__ = ["ArrivalCheck", "Arrivals", "rows_and_edges"]


@dataclass(frozen=True)
class Arrivals:
    """The arrivals among the rows of a table, and the graph with and without them.

    Parameters
    ----------
    graph : TableGraph
        All N rows with all edges.
    is_arrival : numpy.ndarray
        One boolean per row ``[N]``.
    has_known_label, has_new_label : numpy.ndarray
        Whether a row has a label of the rows that are trained on, or one that none of them has ``[N]``.
    num_edges : int
        Number of edges that arrivals have.
    """

    graph: TableGraph
    is_arrival: np.ndarray
    has_known_label: np.ndarray
    has_new_label: np.ndarray
    num_edges: int

    def check(self, is_flagged: np.ndarray) -> ArrivalCheck:
        """Count how a fitted model judges the arrivals.

        Parameters
        ----------
        is_flagged : numpy.ndarray
            One boolean per row ``[N]``.
        """
        known, new = self.is_arrival & self.has_known_label, self.is_arrival & self.has_new_label
        unlabelled = self.is_arrival & ~known & ~new
        return ArrivalCheck(
            num_arrivals=int(self.is_arrival.sum()),
            num_arrival_edges=self.num_edges,
            num_known_arrivals=int(known.sum()),
            observed_false_alarm_rate=float(is_flagged[known].mean()) if known.any() else None,
            num_new_label_arrivals=int(new.sum()),
            num_new_label_flagged=int(is_flagged[new].sum()),
            num_unlabelled_arrivals=int(unlabelled.sum()),
            num_unlabelled_flagged=int(is_flagged[unlabelled].sum()),
        )


@dataclass(frozen=True)
class ArrivalCheck:
    """How a fitted model judges arrivals.

    Parameters
    ----------
    num_arrivals, num_arrival_edges : int
        Numbers of rows that came after those to train on, and of their edges.
    num_known_arrivals : int
        Number of arrivals with a label that the model knows.
    observed_false_alarm_rate : float or None
        The share of these that is flagged; ``None`` if there are none.
    num_new_label_arrivals, num_new_label_flagged : int
        Number of arrivals with a label that no training row has, and how many of them are flagged.
    num_unlabelled_arrivals, num_unlabelled_flagged : int
        Number of arrivals without a label, and how many of them are flagged.
    """

    num_arrivals: int
    num_arrival_edges: int
    num_known_arrivals: int
    observed_false_alarm_rate: float | None
    num_new_label_arrivals: int
    num_new_label_flagged: int
    num_unlabelled_arrivals: int
    num_unlabelled_flagged: int


def rows_and_edges(rows: Nodes, edges: Edges, keep: np.ndarray) -> tuple[Nodes, Edges]:
    """Keep some rows and the edges between them.

    Parameters
    ----------
    rows : Nodes
        N rows.
    edges : Edges
        Their edges.
    keep : numpy.ndarray
        One boolean per row ``[N]``.

    Returns
    -------
    Nodes
        The n rows that are kept.
    Edges
        Their edges, as positions among them, in the same order.
    """
    chosen = pyarrow().array(keep)
    columns = {name: array.filter(chosen) for name, array in rows.columns.items()}
    return Nodes(rows.ids.filter(chosen), rows.x[keep], columns, rows.counts), edges.between(keep)
