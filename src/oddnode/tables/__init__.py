"""Two tables of nodes and edges in, one table of scores out.

May import: detector and below.
"""

from oddnode.tables.columns import Category, FeatureRecipe, Number, learn_features
from oddnode.tables.model import TableGraph, TableModel
from oddnode.tables.reader import (
    MemoryTable,
    Table,
    TableError,
    TableSource,
    format_of,
    missing_to_null,
    open_table,
    pyarrow,
    trimmed,
)
from oddnode.tables.reports import CalibrationReport, FitReport, ScoreReport
from oddnode.tables.rows_to_graph import (
    Nodes,
    edge_columns,
    encode_labels,
    read_edges,
    read_marks,
    read_nodes,
)
from oddnode.tables.schema import TableSchema
from oddnode.tables.splits import Split, read_split, split_labelled
from oddnode.tables.training_tables import TrainingTables
from oddnode.tables.writer import check_target, write_table

__all__ = [
    "CalibrationReport",
    "Category",
    "FeatureRecipe",
    "FitReport",
    "MemoryTable",
    "Nodes",
    "Number",
    "ScoreReport",
    "Split",
    "Table",
    "TableError",
    "TableGraph",
    "TableModel",
    "TableSchema",
    "TableSource",
    "TrainingTables",
    "check_target",
    "edge_columns",
    "encode_labels",
    "format_of",
    "learn_features",
    "missing_to_null",
    "open_table",
    "pyarrow",
    "read_edges",
    "read_marks",
    "read_nodes",
    "read_split",
    "split_labelled",
    "trimmed",
    "write_table",
]
