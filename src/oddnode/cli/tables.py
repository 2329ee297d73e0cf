"""The commands for users' own tables: ``fit``, ``score`` and ``calibrate``.

Long because the signature of `fit` declares the options of the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oddnode._utils.plugins import load_plugins
from oddnode.cli.large import calibrate_graph, fit_graph, save_model, score_graph
from oddnode.cli.messages import print_facts, visible
from oddnode.cli.ranks import check_graph
from oddnode.cli.settings import SetOptions, checked_backbone, parse_settings
from oddnode.cli.shared import Device, Json, Plugins, check_device, column_names, progress_bar
from oddnode.detector import check_target, default_method

if TYPE_CHECKING:
    from oddnode.tables import ColumnSummary, Table

__all__ = ["register"]

# More columns than this are counted, not listed; JSON lists all.
_MOST_COLUMNS = 60
# The options of `fit` that can be given with --graph.
_WITH_GRAPH = (
    *("graph", "out", "method", "backbone", "false_alarm_rate", "set_options", "seed"),
    *("overwrite", "device", "plugin", "as_json"),
)

NodeTables = Annotated[
    list[Path] | None,
    typer.Option(help="Table of nodes with the columns the model was fitted on. Several are read as one."),
]
EdgeTables = Annotated[list[Path] | None, typer.Option(help="Table of edges. Several are read as one.")]
Graph = Annotated[
    Path | None, typer.Option(help="Folder that `oddnode prepare` wrote, in place of --nodes and --edges.")
]
Encoding = Annotated[str | None, typer.Option(help="Encoding of CSV files, for example latin-1.", show_default="UTF-8")]
IgnoreUnknownEdges = Annotated[
    bool, typer.Option("--ignore-unknown-edges", help="Leave out edges of nodes that are in no table of nodes.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model that --out has already.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        epilog="Examples:\n\n"
        "  oddnode fit --nodes nodes.csv --edges edges.csv --id-column id --label-column topic --out model\n\n"
        "  oddnode fit --nodes n.parquet --edges e.parquet --id-column id --label-column y "
        "--feature-columns age,country --false-alarm-rate 0.01 --out model\n\n"
        "  oddnode fit --nodes n.csv --edges e.csv --id-column id --label-column y --exposure-column spam "
        "--out model\n\n"
        "  oddnode fit --nodes n.csv --edges e.csv --id-column id --label-column y --unlabelled unknown "
        "--category-columns zip,major --drop-columns joined --out model\n\n"
        "  oddnode fit --nodes n.csv --edges e.csv --id-column id --label-column y --time-column joined "
        "--train-until 2024-05-31 --out model\n\n"
        "  oddnode fit --nodes n.csv --edges e.csv --id-column id --label-column y --method nodesafe --set num_hops=2 "
        "--set eta=0.5 --out model\n\n"
        "  oddnode fit --graph graph --out model\n\n"
        "  oddnode fit --graph graph --backbone gat --out model"
    )(fit)
    app.command(
        epilog="Examples:\n\n"
        "  oddnode score model --nodes nodes.csv --edges edges.csv --out scores.csv\n\n"
        "  oddnode score model --nodes new.parquet --edges new_edges.parquet --out scores.parquet --explain\n\n"
        "  oddnode score model --nodes old.csv --nodes new.csv --edges old_edges.csv --edges new_edges.csv "
        "--out s.csv\n\n"
        "  oddnode score model --graph graph --out scores.parquet"
    )(score)
    app.command(
        epilog="Examples:\n\n"
        "  oddnode calibrate model --nodes may.csv --edges may_edges.csv --known-column checked --out model-may\n\n"
        "  oddnode calibrate model --false-alarm-rate 0.01 --out strict"
    )(calibrate)


def _opened(paths: Sequence[Path] | None, encoding: str | None) -> list[Table] | None:
    from oddnode.tables import Table

    return None if not paths else [Table(path, encoding) for path in paths]


def _required(**options: object) -> None:
    """Raise an error for options that are missing although there is no --graph."""
    missing = ["--" + name.replace("_", "-") for name, value in options.items() if not value]
    if missing:
        raise ValueError(f"give {', '.join(missing)}, or a --graph that `oddnode prepare` wrote")


def _checked_tables(
    model: Path,
    nodes: Sequence[Path] | None,
    edges: Sequence[Path] | None,
    encoding: str | None,
    known_column: str | None = None,
) -> tuple[list[Table] | None, list[Table] | None]:
    """Open tables and check that they are such as the model reads, which needs no torch."""
    from oddnode.tables import open_table, read_schema

    schema = read_schema(model)
    tables = _opened(nodes, encoding), _opened(edges, encoding)
    if tables[0] is not None:
        also = [] if known_column is None else [known_column]
        table = open_table(tables[0], "nodes")
        table.require(also, "known")
        schema.check_columns(table, also)
    return tables


def _check_new(out: Path, overwrite: bool) -> None:
    check_target(out)
    if not overwrite and out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} has a model already; replace it with --overwrite, or give another --out")


def fit(
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    nodes: Annotated[
        list[Path] | None,
        typer.Option(help="Table of nodes, .csv or .parquet: an id, a label, features. Several are read as one."),
    ] = None,
    edges: Annotated[
        list[Path] | None,
        typer.Option(help="Table of edges, .csv or .parquet: two columns with ids. Several are read as one."),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column with the ids of the nodes, text or whole numbers.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="Column with the labels; empty = not labelled.")] = None,
    graph: Graph = None,
    unlabelled: Annotated[
        list[str] | None, typer.Option(help="Label that stands for 'not labelled'. Can be repeated.")
    ] = None,
    feature_columns: Annotated[
        str | None,
        typer.Option(help="Columns with features, separated by commas.", show_default="all other columns"),
    ] = None,
    drop_columns: Annotated[str | None, typer.Option(help="Columns that are no features, separated by commas.")] = None,
    category_columns: Annotated[
        str | None, typer.Option(help="Columns of codes: every number is a category of its own.")
    ] = None,
    number_columns: Annotated[
        str | None, typer.Option(help="Columns of numbers: any other text in them counts as missing.")
    ] = None,
    decimal_comma: Annotated[bool, typer.Option("--decimal-comma", help="Read 3,5 as a number.")] = False,
    encoding: Encoding = None,
    source_column: Annotated[
        str | None,
        typer.Option(help="Column with the start of an edge.", show_default="source, or the first column"),
    ] = None,
    target_column: Annotated[
        str | None, typer.Option(help="Column with the end of an edge.", show_default="target, or the second column")
    ] = None,
    directed: Annotated[bool, typer.Option("--directed", help="Use edges in their direction only.")] = False,
    weight_column: Annotated[
        str | None,
        typer.Option(help="Column with the weights of the edges, 0 or more.", show_default="weight, if there is one"),
    ] = None,
    unweighted: Annotated[
        bool, typer.Option("--unweighted", help="Let all edges count the same, even if there is a column weight.")
    ] = False,
    ignore_unknown_edges: IgnoreUnknownEdges = False,
    split_column: Annotated[
        str | None,
        typer.Option(
            help="Column with train, validation or calibration.",
            show_default="40, 20 and 40 % of every label at random",
        ),
    ] = None,
    exposure_nodes: Annotated[list[Path] | None, typer.Option(help="Table of nodes known to be OOD.")] = None,
    exposure_edges: Annotated[
        list[Path] | None, typer.Option(help="Table of the edges between them.", show_default="none")
    ] = None,
    exposure_column: Annotated[
        str | None, typer.Option(help="Column of true and false that marks the nodes known to be OOD.")
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(help="Column with the times of the nodes: numbers, or ISO dates. Needs --train-until."),
    ] = None,
    train_until: Annotated[
        str | None,
        typer.Option(help="Last time to train on; later nodes are arrivals, of which nothing is learnt."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="See `oddnode methods`.",
            show_default="nodesafe-evidence, with exposure followed by ++",
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="The network: gcn, mlp, gat, jknet, mixhop or one of a plugin.", show_default="the method's, or gcn"
        ),
    ] = None,
    false_alarm_rate: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of known nodes that may be flagged.")
    ] = 0.05,
    set_options: SetOptions = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and of training.")] = 0,
    overwrite: Overwrite = False,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Fit a model on a table of nodes and a table of edges, and save it.

    Numbers are scaled and text columns become categories; unseen categories are treated as missing when scoring.
    """
    given = dict(locals())
    from oddnode.tables import ReadAs, TrainingTables

    # What can be refused without torch comes first.
    check_graph(graph)
    load_plugins(plugin or ())
    check_device(device)
    _check_new(out, overwrite)
    has_exposure = bool(exposure_nodes) or exposure_column is not None
    method = method or default_method(has_exposure)
    settings = parse_settings(set_options, [method])
    if backbone is not None:
        settings["backbone"] = checked_backbone(backbone, method)
    if graph is not None:
        options = {"--" + name.replace("_", "-"): value for name, value in given.items() if name not in _WITH_GRAPH}
        model, report = fit_graph(graph, options, device, method, false_alarm_rate, seed, settings)
        save_model(model, out)
        print_facts(asdict(report) | {"model": str(out)}, as_json)
        return
    _required(nodes=nodes, edges=edges, id_column=id_column, label_column=label_column)
    tables: dict[str, Any] = {
        "nodes": _opened(nodes, encoding),
        "edges": _opened(edges, encoding),
        "exposure_nodes": _opened(exposure_nodes, encoding),
        "exposure_edges": _opened(exposure_edges, encoding),
        "id_column": id_column,
        "label_column": label_column,
        "unlabelled": unlabelled or (),
        "feature_columns": None if feature_columns is None else column_names(feature_columns),
        "drop_columns": column_names(drop_columns),
        "source_column": source_column,
        "target_column": target_column,
        "directed": directed,
        "weight_column": weight_column,
        "unweighted": unweighted,
        "ignore_unknown_edges": ignore_unknown_edges,
        "split_column": split_column,
        "exposure_column": exposure_column,
        "time_column": time_column,
        "train_until": train_until,
    }
    read_as = ReadAs(column_names(category_columns), column_names(number_columns), decimal_comma)
    TrainingTables(**tables, read_as=read_as).check_columns()
    from oddnode.tables import TableModel

    with progress_bar(terminal_only=True) as show:
        model, report = TableModel.fit(
            **tables,
            **asdict(read_as),
            method=method,
            false_alarm_rate=false_alarm_rate,
            seed=seed,
            device=device,
            on_epoch=lambda epoch: show(epoch, None, "training"),
            **settings,
        )
    model.save(out)
    if not as_json:
        _print_columns(report.columns)
    print_facts(asdict(report) | {"model": str(out)}, as_json)


def score(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet.")],
    nodes: NodeTables = None,
    edges: EdgeTables = None,
    graph: Graph = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Add columns that explain the scores; why says in words what speaks against a flagged node.",
        ),
    ] = False,
    ignore_unknown_edges: IgnoreUnknownEdges = False,
    raw_text: Annotated[
        bool,
        typer.Option(
            "--raw-text", help="Write ids and labels to CSV as they are, even if a spreadsheet would run them."
        ),
    ] = False,
    encoding: Encoding = None,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Score the nodes of two tables and write one row per node.

    Columns: the id, predicted, confidence, score (higher = better known), p_value, is_ood, and split, which says
    what a row was used for when the model was fitted, or arrival for one that came later.
    """
    from oddnode.tables import check_target as check_table_target

    check_graph(graph)
    load_plugins(plugin or ())
    check_device(device)
    if graph is not None:
        refused = {"--nodes": nodes, "--edges": edges, "--ignore-unknown-edges": ignore_unknown_edges}
        report = score_graph(model, graph, refused, device, out, explain, raw_text)
        print_facts(asdict(report) | {"written": str(out)}, as_json)
        return
    _required(nodes=nodes, edges=edges)
    check_table_target(out, [*(nodes or ()), *(edges or ())])
    tables = _checked_tables(model, nodes, edges, encoding)
    from oddnode.tables import TableModel

    report = TableModel.load(model, device).score(*tables, out, explain, ignore_unknown_edges, raw_text)
    print_facts(asdict(report) | {"written": str(out)}, as_json)


def calibrate(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for the model with the new threshold.")],
    nodes: Annotated[
        list[Path] | None,
        typer.Option(help="Table of nodes with the columns the model was fitted on. Several are read as one."),
    ] = None,
    edges: Annotated[list[Path] | None, typer.Option(help="Table of edges. Several are read as one.")] = None,
    graph: Graph = None,
    known_column: Annotated[
        str | None, typer.Option(help="Column of true and false: true for nodes that are known.")
    ] = None,
    false_alarm_rate: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Share of known nodes that may be flagged.", show_default="the model's"),
    ] = None,
    ignore_unknown_edges: IgnoreUnknownEdges = False,
    new_ids: Annotated[
        bool,
        typer.Option("--new-ids", help="Ids name other nodes than in the fitted table, so none was trained on."),
    ] = False,
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Recalibrate the threshold of a model on known nodes of another graph, or for another false-alarm rate.

    Without tables, the nodes that the model was calibrated on determine the threshold for the new rate. Nodes that it
    was trained on are left out. The network is not trained again. The old model is unchanged unless --out names it.
    """
    check_graph(graph)
    load_plugins(plugin or ())
    check_device(device)
    _check_new(out, overwrite)
    given = [bool(nodes), bool(edges), known_column is not None]
    if any(given) and not all(given):
        raise ValueError("give --nodes, --edges and --known-column together, or none of them")
    if not any(given) and graph is None and false_alarm_rate is None:
        raise ValueError("nothing to do: give a --false-alarm-rate, or --nodes, --edges and --known-column, or both")
    tables = _checked_tables(model, nodes, edges, encoding, known_column)
    from oddnode.tables import TableModel

    loaded = TableModel.load(model, device)
    if graph is not None:
        refused = {"--nodes": nodes, "--edges": edges, "--known-column": known_column, "--new-ids": new_ids}
        report = calibrate_graph(loaded, graph, refused, false_alarm_rate)
    elif known_column is not None:
        report = loaded.calibrate(*tables, known_column, false_alarm_rate, ignore_unknown_edges, new_ids)
    else:
        assert false_alarm_rate is not None
        report = loaded.set_false_alarm_rate(false_alarm_rate)
    save_model(loaded, out)
    print_facts(asdict(report) | {"model": str(out)}, as_json)


def _print_columns(columns: list[ColumnSummary]) -> None:
    for column in columns[:_MOST_COLUMNS]:
        typer.echo(visible(f"column {column.name}: {column}"))
    if len(columns) > _MOST_COLUMNS:
        typer.echo(f"{len(columns) - _MOST_COLUMNS} more columns, which --json lists")
