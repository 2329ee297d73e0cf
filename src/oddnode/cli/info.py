"""The command ``info``, which shows a saved model without building it. Imports no slow module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oddnode._utils.plugins import load_plugins
from oddnode.cli.messages import print_facts, visible
from oddnode.cli.shared import Json, Plugins, print_rows
from oddnode.detector import read_summary

if TYPE_CHECKING:
    from oddnode.detector.model_config import ModelConfig
    from oddnode.tables import Category, Number, TableSchema

__all__ = ["register"]

# Sections that hold no settings: hashes of rows and the like.
_LEFT_OUT = ("table", "table_rows", "table_threshold", "format")
_MOST_COLUMNS = 60
_MOST_CATEGORIES = 5
_LONGEST_PART = 300


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(epilog="Examples:\n\n  oddnode info model\n\n  oddnode info model --json")(info)


def info(
    model: Annotated[Path, typer.Argument(help="Folder with a saved model.")],
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show the method and the settings of a saved model, and the columns it was fitted on."""
    load_plugins(plugin or ())
    raw, config, num_weights = read_summary(model)
    schema = _schema(model, raw, config)
    if as_json:
        shown = {key: value for key, value in raw.items() if key not in _LEFT_OUT}
        print_facts(shown | _numbers(config, schema, num_weights) | _columns(schema), as_json=True)
        return
    print_facts(_facts(config, schema, num_weights), as_json=False)
    if schema is not None:
        body = [[schema.id_column, "id", ""], *(_row(column) for column in schema.features.columns[:_MOST_COLUMNS])]
        print_rows("Columns", ["column", "read as", "values"], [[visible(cell) for cell in row] for row in body])
        if len(schema.features.columns) > _MOST_COLUMNS:
            typer.echo(f"{len(schema.features.columns) - _MOST_COLUMNS} more columns, which --json lists")


def _schema(model: Path, raw: dict[str, Any], config: ModelConfig) -> TableSchema | None:
    if "table" not in raw:
        return None
    from oddnode.tables import schema_of

    return schema_of(model, raw, config.num_features, config.num_classes)


def _num_edges(config: ModelConfig, schema: TableSchema | None) -> int:
    """The number of edges as the table of edges has them; a graph has every edge in both directions."""
    both_directions = schema is not None and not schema.directed
    return config.graph.num_edges // 2 if both_directions else config.graph.num_edges


def _numbers(config: ModelConfig, schema: TableSchema | None, num_weights: int) -> dict[str, Any]:
    return {"num_nodes": config.graph.num_nodes, "num_edges": _num_edges(config, schema), "num_weights": num_weights}


def _columns(schema: TableSchema | None) -> dict[str, Any]:
    if schema is None:
        return {}
    rows = [_row(column) for column in schema.features.columns]
    facts: dict[str, Any] = {
        "labels": list(schema.classes),
        "id_column": schema.id_column,
        "feature_columns": schema.features.names,
        "columns": [{"name": name, "read_as": kind} for name, kind, _ in rows],
    }
    if schema.weights is not None:
        facts["weight_column"] = schema.weights.name
    if schema.until is not None:
        facts |= {"time_column": schema.time_column, "train_until": schema.train_until}
    return facts


def _facts(config: ModelConfig, schema: TableSchema | None, num_weights: int) -> dict[str, Any]:
    """What a reader wants to know, as texts by name."""
    facts: dict[str, Any] = {
        "method": None if config.method is None else _method(config),
        "objective": _part(config.objective) if config.method is None else None,
        "scorer": _part(config.scorer) if config.method is None else None,
        "network": _network(config, num_weights),
        "training": f"epoch {config.best_epoch} of {config.settings.epochs} was best, seed {config.settings.seed}",
        "graph": _graph(config, schema),
        "decisions": _decisions(config),
    }
    if schema is not None:
        several = len(schema.classes) > 1
        facts["labels"] = list(schema.classes) if several else f"{schema.classes[0]}; alone, so predicted says nothing"
    if schema is not None and schema.weights is not None:
        facts["weight column"] = schema.weights.name
    if schema is not None and schema.until is not None:
        facts |= {"time column": schema.time_column, "train until": schema.train_until}
    return facts | {"saved by": f"oddnode {config.oddnode_version}", "notes": config.advice}


def _method(config: ModelConfig) -> str:
    given = ", ".join(f"{name}={value}" for name, value in config.hyper_parameters.items())
    return f"{config.method}, with {given}" if given else str(config.method)


def _network(config: ModelConfig, num_weights: int) -> str:
    name = config.backbone if isinstance(config.backbone, str) else next(iter(config.backbone.values()), "")
    settings = config.settings
    shape = f", {settings.num_layers} layers, {settings.hidden_channels} hidden channels, dropout {settings.dropout:g}"
    if isinstance(config.backbone, dict) and "own" in config.backbone:
        shape = ""
    networks = "" if config.num_networks == 1 else f"{config.num_networks} networks, "
    return f"{networks}{name}{shape}; {num_weights} weights, {config.num_features} features"


def _graph(config: ModelConfig, schema: TableSchema | None) -> str:
    graph = config.graph
    alike = "" if graph.homophily is None else f", {100 * graph.homophily:.0f} % of labelled edges join one class"
    return f"{graph.num_nodes} nodes, {_num_edges(config, schema)} edges, mean degree {graph.mean_degree:.4g}{alike}"


def _decisions(config: ModelConfig) -> str:
    if config.calibration is None:
        return "not calibrated"
    found = config.calibration
    return (
        f"scores below {found.threshold:.6g} are flagged; false-alarm rate {100 * found.false_alarm_rate:g} %, by "
        f"{found.num_nodes} calibration nodes"
    )


def _part(config: dict[str, Any] | None) -> str | None:
    """An objective or a scorer as Python writes it, shortened."""
    if config is None:
        return None
    text = _written(config)
    return text if len(text) <= _LONGEST_PART else f"{text[:_LONGEST_PART]}..., which --json shows whole"


def _written(value: Any) -> str:
    if isinstance(value, dict) and "own" in value:
        return f"your own: {value['own']}"
    if isinstance(value, dict):
        settings = {name: each for name, each in value.items() if name not in ("class", "plugin")}
        return f"{value.get('class')}({', '.join(f'{name}={_written(each)}' for name, each in settings.items())})"
    return f"[{', '.join(map(_written, value))}]" if isinstance(value, list) else repr(value)


def _row(column: Number | Category) -> list[str]:
    from oddnode.tables import Category

    if isinstance(column, Category):
        more = ", ..." if len(column.categories) > _MOST_CATEGORIES else ""
        shown = f"{len(column.categories)}: {', '.join(column.categories[:_MOST_CATEGORIES])}{more}"
        return [column.name, "category", shown]
    missing = ", and whether it is missing" if column.has_missing else ""
    return [column.name, "number", f"mean {column.mean:.4g}, standard deviation {column.scale:.4g}{missing}"]
