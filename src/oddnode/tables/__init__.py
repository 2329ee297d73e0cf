"""Two tables of nodes and edges in, one table of scores out.

May import: detector and below.
"""

from oddnode.tables.columns import Category, FeatureRecipe, Number
from oddnode.tables.edge_weights import WeightColumn, weight_column_of
from oddnode.tables.edges import Edges, edge_columns, read_edges
from oddnode.tables.folder_model import calibrate_folder, fit_folder, score_folder
from oddnode.tables.folder_tables import FolderTables, PrepareReport, files_matching
from oddnode.tables.formats import format_of
from oddnode.tables.labels import Labels, encode_labels, read_marks
from oddnode.tables.learning import ReadAs, learn_features
from oddnode.tables.model import TableModel
from oddnode.tables.nodes import Nodes, read_nodes
from oddnode.tables.reader import JoinedTable, MemoryTable, Table, TableSource, open_table
from oddnode.tables.reports import CalibrationReport, FitReport, ScoreReport
from oddnode.tables.schema import TableSchema
from oddnode.tables.splits import Split, read_split, split_labelled
from oddnode.tables.summary import ColumnSummary
from oddnode.tables.table_graph import TableGraph, read_graph
from oddnode.tables.times import TrainUntil
from oddnode.tables.training_tables import TrainingTables
from oddnode.tables.used_rows import UsedRows
from oddnode.tables.values import TableError, missing_to_null, pyarrow, trimmed
from oddnode.tables.writer import check_target, neutralised, write_table

__all__ = [
    "CalibrationReport",
    "Category",
    "ColumnSummary",
    "Edges",
    "FeatureRecipe",
    "FitReport",
    "FolderTables",
    "JoinedTable",
    "Labels",
    "MemoryTable",
    "Nodes",
    "Number",
    "PrepareReport",
    "ReadAs",
    "ScoreReport",
    "Split",
    "Table",
    "TableError",
    "TableGraph",
    "TableModel",
    "TableSchema",
    "TableSource",
    "TrainUntil",
    "TrainingTables",
    "UsedRows",
    "WeightColumn",
    "calibrate_folder",
    "check_target",
    "edge_columns",
    "encode_labels",
    "files_matching",
    "fit_folder",
    "format_of",
    "learn_features",
    "missing_to_null",
    "neutralised",
    "open_table",
    "pyarrow",
    "read_edges",
    "read_graph",
    "read_marks",
    "read_nodes",
    "read_split",
    "score_folder",
    "split_labelled",
    "trimmed",
    "weight_column_of",
    "write_table",
]
