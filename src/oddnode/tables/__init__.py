"""Graphs that come as two tables, of nodes and of edges, in CSV or Parquet."""

from oddnode.tables.model import FitReport, ScoreReport, TableModel
from oddnode.tables.reader import TableError

__all__ = ["FitReport", "ScoreReport", "TableError", "TableModel"]
