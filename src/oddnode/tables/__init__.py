"""Graphs that come as two tables, of nodes and of edges, in CSV or Parquet."""

from oddnode.tables.model import CalibrationReport, FitReport, ScoreReport, TableModel
from oddnode.tables.reader import TableError

__all__ = ["CalibrationReport", "FitReport", "ScoreReport", "TableError", "TableModel"]
