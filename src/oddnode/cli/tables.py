"""The commands for users' own tables: ``fit``, ``score``, ``calibrate`` and ``info``.

Long because the signature of `fit` declares the options of the command.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from oddnode._utils.plugins import load_plugins
from oddnode.cli.shared import Device, Json, Plugins, check_device, err, progress_bar, split_names

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        epilog="Examples:\n\n"
        "  oddnode fit --nodes nodes.csv --edges edges.csv --id-column id --label-column topic --out model\n\n"
        "  oddnode fit --nodes n.parquet --edges e.parquet --id-column id --label-column y "
        "--feature-columns age,country --false-alarm-rate 0.01 --out model\n\n"
        "  oddnode fit --nodes n.csv --edges e.csv --id-column id --label-column y --exposure-column spam --out model"
    )(fit)
    app.command(
        epilog="Examples:\n\n"
        "  oddnode score model --nodes nodes.csv --edges edges.csv --out scores.csv\n\n"
        "  oddnode score model --nodes new.parquet --edges new_edges.parquet --out scores.parquet --explain"
    )(score)
    app.command(
        epilog="Examples:\n\n"
        "  oddnode calibrate model --nodes may.csv --edges may_edges.csv --known-column checked --out model-may\n\n"
        "  oddnode calibrate model --nodes n.csv --edges e.csv --known-column ok --false-alarm-rate 0.01 --out strict"
    )(calibrate)
    app.command(epilog="Examples:\n\n  oddnode info model\n\n  oddnode info model --json")(info)


def fit(
    nodes: Annotated[Path, typer.Option(help="Table of nodes, .csv or .parquet: an id, a label, features.")],
    edges: Annotated[Path, typer.Option(help="Table of edges, .csv or .parquet: two columns with ids.")],
    id_column: Annotated[str, typer.Option(help="Column with the ids of the nodes, text or whole numbers.")],
    label_column: Annotated[str, typer.Option(help="Column with the labels; empty = not labelled.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    feature_columns: Annotated[
        str | None,
        typer.Option(help="Columns with features, separated by commas.", show_default="all other columns"),
    ] = None,
    source_column: Annotated[
        str | None,
        typer.Option(help="Column with the start of an edge.", show_default="source, or the first column"),
    ] = None,
    target_column: Annotated[
        str | None, typer.Option(help="Column with the end of an edge.", show_default="target, or the second column")
    ] = None,
    directed: Annotated[bool, typer.Option("--directed", help="Use edges in their direction only.")] = False,
    split_column: Annotated[
        str | None,
        typer.Option(
            help="Column with train, validation or calibration.",
            show_default="40, 20 and 40 % of every label at random",
        ),
    ] = None,
    exposure_nodes: Annotated[Path | None, typer.Option(help="Table of nodes known to be OOD.")] = None,
    exposure_edges: Annotated[
        Path | None, typer.Option(help="Table of the edges between them.", show_default="none")
    ] = None,
    exposure_column: Annotated[
        str | None, typer.Option(help="Column of true and false that marks the nodes known to be OOD.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="See `oddnode methods`.", show_default="nodesafe; with exposure nodesafe++")
    ] = None,
    false_alarm_rate: Annotated[float, typer.Option(help="Share of known nodes that may be flagged.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and of training.")] = 0,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Fit a model on a table of nodes and a table of edges, and save it.

    Numbers are scaled and text columns become categories; unseen categories are treated as missing when scoring.
    """
    from oddnode.detector import check_target, get_recipe
    from oddnode.tables import TableModel

    load_plugins(plugin or ())
    check_device(device)
    check_target(out)
    if method is not None:
        get_recipe(method)
    with progress_bar(terminal_only=True) as show:
        model, report = TableModel.fit(
            nodes,
            edges,
            id_column=id_column,
            label_column=label_column,
            feature_columns=None if feature_columns is None else split_names(feature_columns),
            source_column=source_column,
            target_column=target_column,
            directed=directed,
            split_column=split_column,
            exposure_nodes=exposure_nodes,
            exposure_edges=exposure_edges,
            exposure_column=exposure_column,
            method=method,
            false_alarm_rate=false_alarm_rate,
            seed=seed,
            device=device,
            on_epoch=lambda epoch: show(epoch, None, "training"),
        )
    model.save(out)
    _print_facts(asdict(report) | {"model": str(out)}, as_json, report.notes)


def score(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    nodes: Annotated[Path, typer.Option(help="Table of nodes with the columns the model was fitted on.")],
    edges: Annotated[Path, typer.Option(help="Table of edges.")],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet.")],
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Add the columns own_score, neighbour_contribution and nearest_class."),
    ] = False,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Score the nodes of two tables and write one row per node.

    Columns: the id, predicted, confidence, score (higher = better known), p_value, is_ood.
    """
    from oddnode.tables import TableModel

    load_plugins(plugin or ())
    check_device(device)
    report = TableModel.load(model, device).score(nodes, edges, out, explain)
    _print_facts(asdict(report) | {"written": str(out)}, as_json, report.notes)


def calibrate(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    nodes: Annotated[Path, typer.Option(help="Table of nodes with the columns the model was fitted on.")],
    edges: Annotated[Path, typer.Option(help="Table of edges.")],
    known_column: Annotated[
        str, typer.Option(help="Column of true and false: true for known nodes that were not trained on.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model with the new threshold.")],
    false_alarm_rate: Annotated[
        float | None,
        typer.Option(help="Share of known nodes that may be flagged.", show_default="the model's"),
    ] = None,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Recalibrate the threshold of a model on known nodes of another graph, or for another false-alarm rate.

    The network is not trained again. The old model is unchanged unless --out names its folder.
    """
    from oddnode.detector import check_target
    from oddnode.tables import TableModel

    load_plugins(plugin or ())
    check_device(device)
    check_target(out)
    loaded = TableModel.load(model, device)
    report = loaded.calibrate(nodes, edges, known_column, false_alarm_rate)
    loaded.save(out)
    _print_facts(asdict(report) | {"model": str(out)}, as_json, report.notes)


def info(
    model: Annotated[Path, typer.Argument(help="Folder with a saved model.")],
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show the settings of a saved model and the columns it was fitted on."""
    from oddnode.detector import Detector, load, read_config
    from oddnode.tables import TableSchema

    load_plugins(plugin or ())
    config = read_config(model)
    shown = {key: value for key, value in config.items() if key not in ("table", "format")}
    own = any(isinstance(config.get(k), dict) and "own" in config[k] for k in ("backbone", "objective", "scorer"))
    if not own:  # a model with the user's own classes cannot be rebuilt here; its config can be shown
        detector, _ = load(Detector, model, device="cpu")
        shown["num_weights"] = sum(p.numel() for p in detector.module_.parameters())
        if "table" in config:
            schema = TableSchema.from_json(config["table"], detector.n_features_in_, detector.num_classes_)
            shown["labels"] = list(schema.classes)
            shown["id_column"] = schema.id_column
            shown["feature_columns"] = schema.features.names
    _print_facts(shown, as_json, [])


def _print_facts(facts: dict[str, Any], as_json: bool, notes: list[str]) -> None:
    if as_json:
        typer.echo(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    for name, value in facts.items():
        if name != "notes":
            typer.echo(f"{name.replace('_', ' ') + ':':<18} {_shown(value)}")
    for note in notes:
        err.print(f"[bold yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(str, value[:12])) + (f", ... ({len(value)})" if len(value) > 12 else "")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
