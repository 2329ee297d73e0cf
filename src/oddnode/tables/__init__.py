"""Two tables of nodes and edges in, one table of scores out.

May import: detector and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import lazy_names

if TYPE_CHECKING:
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
    from oddnode.tables.schema import TableSchema, read_schema, schema_of
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
    "read_schema",
    "read_split",
    "schema_of",
    "score_folder",
    "split_labelled",
    "trimmed",
    "weight_column_of",
    "write_table",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "oddnode.tables.columns": ["Category", "FeatureRecipe", "Number"],
        "oddnode.tables.edge_weights": ["WeightColumn", "weight_column_of"],
        "oddnode.tables.edges": ["Edges", "edge_columns", "read_edges"],
        "oddnode.tables.folder_model": ["calibrate_folder", "fit_folder", "score_folder"],
        "oddnode.tables.folder_tables": ["FolderTables", "PrepareReport", "files_matching"],
        "oddnode.tables.formats": ["format_of"],
        "oddnode.tables.labels": ["Labels", "encode_labels", "read_marks"],
        "oddnode.tables.learning": ["ReadAs", "learn_features"],
        "oddnode.tables.model": ["TableModel"],
        "oddnode.tables.nodes": ["Nodes", "read_nodes"],
        "oddnode.tables.reader": ["JoinedTable", "MemoryTable", "Table", "TableSource", "open_table"],
        "oddnode.tables.reports": ["CalibrationReport", "FitReport", "ScoreReport"],
        "oddnode.tables.schema": ["TableSchema", "read_schema", "schema_of"],
        "oddnode.tables.splits": ["Split", "read_split", "split_labelled"],
        "oddnode.tables.summary": ["ColumnSummary"],
        "oddnode.tables.table_graph": ["TableGraph", "read_graph"],
        "oddnode.tables.times": ["TrainUntil"],
        "oddnode.tables.training_tables": ["TrainingTables"],
        "oddnode.tables.used_rows": ["UsedRows"],
        "oddnode.tables.values": ["TableError", "missing_to_null", "pyarrow", "trimmed"],
        "oddnode.tables.writer": ["check_target", "neutralised", "write_table"],
    },
)
