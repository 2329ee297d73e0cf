"""The command ``prepare``, and what ``fit``, ``score`` and ``calibrate`` do with the graphs that it writes.

Long because the signature of `prepare` declares the options of the command.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oddnode.cli.messages import print_facts
from oddnode.cli.shared import Json, column_names, progress_bar

if TYPE_CHECKING:
    from oddnode.tables import CalibrationReport, FitReport, ScoreReport, TableModel

__all__ = ["calibrate_graph", "fit_graph", "register", "save_model", "score_graph"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        epilog="Examples:\n\n"
        "  oddnode prepare --nodes nodes.parquet --edges 'edges/*.parquet' --id-column id --label-column topic "
        "--out graph\n\n"
        "  oddnode prepare --nodes new.parquet --edges new_edges.parquet --model model --out new_graph"
    )(prepare)


def prepare(
    nodes: Annotated[
        list[str], typer.Option(help="Table of nodes, .csv or .parquet, or a pattern of several. Can be repeated.")
    ],
    edges: Annotated[
        list[str], typer.Option(help="Table of edges, .csv or .parquet, or a pattern of several. Can be repeated.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the graph.")],
    id_column: Annotated[str | None, typer.Option(help="Column with the ids of the nodes.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column with the labels; empty = not labelled.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Read the tables as this model does, to score the graph with it.")
    ] = None,
    unlabelled: Annotated[
        list[str] | None, typer.Option(help="Label that stands for 'not labelled'. Can be repeated.")
    ] = None,
    feature_columns: Annotated[
        str | None, typer.Option(help="Columns with features, separated by commas.", show_default="all other columns")
    ] = None,
    drop_columns: Annotated[str | None, typer.Option(help="Columns that are no features, separated by commas.")] = None,
    category_columns: Annotated[
        str | None, typer.Option(help="Columns of codes: every number is a category of its own.")
    ] = None,
    number_columns: Annotated[
        str | None, typer.Option(help="Columns of numbers: any other text in them counts as missing.")
    ] = None,
    decimal_comma: Annotated[bool, typer.Option("--decimal-comma", help="Read 3,5 as a number.")] = False,
    encoding: Annotated[str | None, typer.Option(help="Encoding of CSV files, for example latin-1.")] = None,
    source_column: Annotated[str | None, typer.Option(help="Column with the start of an edge.")] = None,
    target_column: Annotated[str | None, typer.Option(help="Column with the end of an edge.")] = None,
    directed: Annotated[bool, typer.Option("--directed", help="Use edges in their direction only.")] = False,
    weight_column: Annotated[
        str | None,
        typer.Option(help="Column with the weights of the edges, 0 or more.", show_default="weight, if there is one"),
    ] = None,
    unweighted: Annotated[
        bool, typer.Option("--unweighted", help="Let all edges count the same, even if there is a column weight.")
    ] = False,
    ignore_unknown_edges: Annotated[
        bool, typer.Option("--ignore-unknown-edges", help="Leave out edges of nodes that are in no table of nodes.")
    ] = False,
    split_column: Annotated[
        str | None,
        typer.Option(help="Column with train, validation or calibration.", show_default="a random split when fitting"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write tables of any size as a graph on disk, with little memory.

    `fit`, `score` and `calibrate` take the folder as --graph. A run that was stopped goes on where it was when it is
    started again.
    """
    from oddnode.tables import FolderTables, PrepareReport, ReadAs, Table, files_matching, read_schema

    node_tables, edge_tables = (
        [Table(path, encoding) for path in files_matching(patterns)] for patterns in (nodes, edges)
    )
    if model is not None:
        given: dict[str, Any] = {"--id-column": id_column, "--feature-columns": feature_columns}
        given |= {"--weight-column": weight_column, "--unweighted": unweighted, "--split-column": split_column}
        _refuse(given, "--model, which says how the tables are read")
        schema = read_schema(model)
        labels = label_column or "", unlabelled or ()
        read = FolderTables.like(schema, node_tables, edge_tables, *labels, ignore_unknown_edges)
    else:
        if id_column is None or label_column is None:
            raise ValueError("give --id-column and --label-column, or a --model that says how the tables are read")
        read = FolderTables(
            node_tables,
            edge_tables,
            id_column,
            label_column,
            feature_columns=None if feature_columns is None else column_names(feature_columns),
            drop_columns=column_names(drop_columns),
            read_as=ReadAs(column_names(category_columns), column_names(number_columns), decimal_comma),
            unlabelled=unlabelled or (),
            source_column=source_column,
            target_column=target_column,
            directed=directed,
            weight_column=weight_column,
            unweighted=unweighted,
            ignore_unknown_edges=ignore_unknown_edges,
            split_column=split_column,
        )
    read.check_columns()  # what can be refused without torch comes first
    with progress_bar(terminal_only=True) as show:
        folder = read.prepare(out, show)
        show(0, None, "averaging features over neighbours")
        _ = folder.as_graph().smoothed_moments  # kept in the folder, for every training
    print_facts(asdict(PrepareReport.of(folder)) | {"graph": str(out)}, as_json)


def _refuse(given: dict[str, Any], beside: str) -> None:
    """Raise an error for options that make no sense beside another."""
    named = [name for name, value in given.items() if value]
    if named:
        raise ValueError(f"leave out {', '.join(named)} beside {beside}")


def fit_graph(
    graph: Path,
    refused: dict[str, Any],
    device: str,
    method: str,
    false_alarm_rate: float,
    seed: int,
    settings: dict[str, Any],
) -> tuple[TableModel, FitReport]:
    """Fit a model on a graph folder; options that belong to ``prepare`` are refused."""
    from oddnode.large import GraphFolder
    from oddnode.tables import fit_folder

    _refuse(refused, "--graph; they are options of `oddnode prepare`, or not supported for graphs on disk")
    with progress_bar(terminal_only=True) as show:
        return fit_folder(
            GraphFolder(graph),
            method=method,
            false_alarm_rate=false_alarm_rate,
            seed=seed,
            device=device,
            on_epoch=lambda epoch: show(epoch, None, "training"),
            **settings,
        )


def score_graph(
    model: Path, graph: Path, refused: dict[str, Any], device: str, out: Path, explain: bool, raw_text: bool
) -> ScoreReport:
    """Score the nodes of a graph folder and write one row per node."""
    from oddnode.large import GraphFolder
    from oddnode.tables import TableModel, score_folder

    _refuse(refused, "--graph")
    return score_folder(TableModel.load(model, device), GraphFolder(graph), out, explain, raw_text)


def calibrate_graph(
    model: TableModel, graph: Path, refused: dict[str, Any], false_alarm_rate: float | None
) -> CalibrationReport:
    """Recalibrate a model on the known nodes of a graph folder."""
    from oddnode.large import GraphFolder
    from oddnode.tables import calibrate_folder

    _refuse(refused, "--graph")
    return calibrate_folder(model, GraphFolder(graph), false_alarm_rate)


def save_model(model: TableModel, out: Path) -> None:
    """Save a model; of several ranks, the first one does."""
    from oddnode.large.ranks import active_ranks

    active_ranks().from_first(lambda: model.save(out), None)
