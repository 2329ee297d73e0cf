"""Two tables of nodes and edges in, one table of scores out.

May import: detector and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports

if TYPE_CHECKING:
    from oddnode.tables.checking import sample_to_check as sample_to_check
    from oddnode.tables.columns import Category as Category
    from oddnode.tables.columns import FeatureRecipe as FeatureRecipe
    from oddnode.tables.columns import Number as Number
    from oddnode.tables.columns import WeightColumn as WeightColumn
    from oddnode.tables.databases import Database as Database
    from oddnode.tables.databases import DatabaseTable as DatabaseTable
    from oddnode.tables.databases import is_query as is_query
    from oddnode.tables.edges import Edges as Edges
    from oddnode.tables.edges import read_edges as read_edges
    from oddnode.tables.findings import FlaggedGroup as FlaggedGroup
    from oddnode.tables.findings import SharedValue as SharedValue
    from oddnode.tables.formats import FORMATS as FORMATS
    from oddnode.tables.formats import TableFile as TableFile
    from oddnode.tables.formats import TableTarget as TableTarget
    from oddnode.tables.formats import check_target as check_target
    from oddnode.tables.formats import neutralised as neutralised
    from oddnode.tables.formats import register_format as register_format
    from oddnode.tables.formats import write_table as write_table
    from oddnode.tables.graphs import Nodes as Nodes
    from oddnode.tables.graphs import TableGraph as TableGraph
    from oddnode.tables.graphs import read_graph as read_graph
    from oddnode.tables.graphs import read_nodes as read_nodes
    from oddnode.tables.known_values import KnownValues as KnownValues
    from oddnode.tables.labels import Split as Split
    from oddnode.tables.labels import encode_labels as encode_labels
    from oddnode.tables.labels import read_marks as read_marks
    from oddnode.tables.labels import split_labelled as split_labelled
    from oddnode.tables.learning import ColumnSummary as ColumnSummary
    from oddnode.tables.learning import learn_features as learn_features
    from oddnode.tables.model import TableModel as TableModel
    from oddnode.tables.model import calibrate_folder as calibrate_folder
    from oddnode.tables.model import fit_tables as fit_tables
    from oddnode.tables.model import score_folder as score_folder
    from oddnode.tables.reader import QueryTable as QueryTable
    from oddnode.tables.reader import Table as Table
    from oddnode.tables.reader import files_matching as files_matching
    from oddnode.tables.reader import open_table as open_table
    from oddnode.tables.reasons import ColumnReason as ColumnReason
    from oddnode.tables.reasons import LinkReason as LinkReason
    from oddnode.tables.reasons import RowReason as RowReason
    from oddnode.tables.reports import CalibrationReport as CalibrationReport
    from oddnode.tables.reports import CheckedEstimates as CheckedEstimates
    from oddnode.tables.reports import FitReport as FitReport
    from oddnode.tables.reports import RowGroup as RowGroup
    from oddnode.tables.reports import Rule as Rule
    from oddnode.tables.reports import SampleReport as SampleReport
    from oddnode.tables.reports import ScoreReport as ScoreReport
    from oddnode.tables.schema import TableOptions as TableOptions
    from oddnode.tables.schema import TableSchema as TableSchema
    from oddnode.tables.schema import read_schema as read_schema
    from oddnode.tables.schema import schema_of as schema_of
    from oddnode.tables.times import TrainUntil as TrainUntil
    from oddnode.tables.training import TrainingTables as TrainingTables
    from oddnode.tables.used_rows import UsedRows as UsedRows
    from oddnode.tables.values import TableError as TableError
else:
    __getattr__, __dir__, __all__ = exports(__name__)
