"""The commands that show what there is: ``methods``, ``datasets`` and ``info``. No slow imports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oddnode._utils.plugins import load_plugins
from oddnode.cli.shared import DataDir, Json, Plugins, add_command, expected, print_facts, print_rows, visible
from oddnode.detector import (
    DETECTOR_SETTINGS,
    MODEL_FREE,
    RECIPES,
    Recipe,
    default_method,
    get_recipe,
    read_forecast,
    read_summary,
)

if TYPE_CHECKING:
    from oddnode.detector.saved_files import ModelConfig
    from oddnode.tables import Category, Number, TableSchema


# Sections without settings, such as hashes of rows.
_LEFT_OUT = ("table", "table_rows", "table_threshold", "format")
_MOST_COLUMNS = 60
_MOST_CATEGORIES = 5
_LONGEST_PART = 300


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    add_command(app, info, "model", "model --json", panel="Your tables")
    add_command(app, methods, "", "nodesafe", "--plugin mine.py --json", panel="Compare methods")
    add_command(app, datasets, "", "--data-dir ~/data --json", panel="Compare methods")


def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to show its settings.", show_default="all")] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List the methods and when to use which, or show the settings of one."""
    load_plugins(plugin or ())
    chosen = list(RECIPES.values()) if name is None else [get_recipe(name)]
    if as_json:
        typer.echo(json.dumps([_method_facts(recipe) for recipe in chosen], indent=1))
    elif name is None:
        _print_methods(chosen)
    else:
        _print_method(chosen[0])


def _method_facts(recipe: Recipe) -> dict[str, Any]:
    objective, scorer = recipe.build()
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "objective": repr(objective),
        "scorer": repr(scorer),
        "exposure": recipe.needs_exposure,
        "labels": recipe.needs_labels,
        "reference": recipe.reference,
        "transductive": recipe.transductive,
        "cost": recipe.cost,
        "hyper_parameters": recipe.hyper_parameters,
    }


def _print_methods(recipes: Sequence[Recipe]) -> None:
    recommended = default_method(False), default_method(True), default_method(False, has_labels=False)
    parts: list[list[Recipe]] = [[], [], [], []]
    for recipe in recipes:
        name = recipe.name
        place = 0 if name in recommended else 3 if name in MODEL_FREE else 2 if recipe.needs_exposure else 1
        parts[place].append(recipe)
    body: list[list[str]] = []
    cuts: set[int] = set()
    for part in parts:
        cuts.add(len(body))
        for recipe in part:
            text = f"{recipe.summary} ({recipe.reference})".strip()
            needs = "OOD nodes" if recipe.needs_exposure else "" if recipe.needs_labels else "no labels"
            body.append([recipe.name, needs, text])
    print_rows("Methods", ["method", "needs", "what it is and when to use it"], body, cuts=cuts, pipe_width=80)
    typer.echo("oddnode methods NAME shows the settings of a method and its cost.")


def _print_method(recipe: Recipe) -> None:
    facts = {
        "method": recipe.name,
        "summary": recipe.summary,
        "reference": recipe.reference,
        "needs": "nodes that are known to be OOD" if recipe.needs_exposure else None,
        "cost": recipe.cost,
        "a score depends on": "the whole graph" if recipe.transductive else "the neighbourhood that the network sees",
        "network": recipe.backbone,
    }
    print_facts({name: value for name, value in facts.items() if value}, as_json=False)
    kinds, defaults = recipe.hyper_parameter_types, recipe.hyper_parameters | recipe.settings
    body = [[name, _word(defaults[name]), expected(kinds[name])] for name in kinds]
    body += [
        [name, _word(defaults[name]) if name in defaults else "", expected(kind)]
        for name, kind in DETECTOR_SETTINGS.items()
    ]
    print_rows("Settings (--set NAME=VALUE)", ["name", "default", "value"], body, cuts={len(kinds)}, pipe_width=80)


def datasets(
    data_dir: DataDir = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List the data sets: their tasks, whether they were found, and their licence."""
    load_plugins(plugin or ())
    from oddnode.tasks import dataset_states

    states = [state.as_dict() for state in dataset_states(data_dir)]
    if as_json:
        typer.echo(json.dumps(states, indent=1))
        return
    body = []
    for row in states:
        name, tasks, state, where, licence = map(_word, row.values())
        body.append([name, state, f"{tasks}\n{where}\nlicence: {licence}"])
    head = ["name", "state", "tasks, location and licence"]
    print_rows("Data sets", head, body, cuts=range(1, len(body)), pipe_width=80)


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return visible(", ".join(value) if isinstance(value, (list, tuple)) else str(value))


def info(
    model: Annotated[Path, typer.Argument(help="Folder with a saved model.")],
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show the method and the settings of a saved model, and the columns it was fitted on."""
    load_plugins(plugin or ())
    raw, config, num_weights = read_summary(model)
    forecast, schema = read_forecast(model, config), None
    if "table" in raw:
        from oddnode.tables import schema_of

        schema = schema_of(model, raw)
    if as_json:
        shown = {key: value for key, value in raw.items() if key not in _LEFT_OUT}
        print_facts(shown | _json_facts(config, schema, num_weights) | {"forecast": forecast}, as_json=True)
        return
    facts, notes = _facts(config, schema, num_weights), {"notes": config.advice}
    caught = ", ".join(f"{name} {100 * share:.0f} %" for name, share in forecast.items())
    facts |= {"forecast": f"of altered known nodes, caught at 5 % false alarms: {caught}"} if caught else {}
    print_facts(facts | notes, as_json=False)
    if schema is not None:
        body = [[schema.id_column, "id", ""], *(_row(column) for column in schema.features.columns[:_MOST_COLUMNS])]
        print_rows("Columns", ["column", "read as", "values"], [[visible(cell) for cell in row] for row in body])
        if len(schema.features.columns) > _MOST_COLUMNS:
            typer.echo(f"{len(schema.features.columns) - _MOST_COLUMNS} more columns, which --json lists")


def _num_edges(config: ModelConfig, schema: TableSchema | None) -> int:
    """The number of edges as the table of edges has them; a graph has every edge in both directions."""
    both_directions = schema is not None and not schema.directed
    return config.graph.num_edges // 2 if both_directions else config.graph.num_edges


def _json_facts(config: ModelConfig, schema: TableSchema | None, num_weights: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "num_nodes": config.graph.num_nodes,
        "num_edges": _num_edges(config, schema),
        "num_weights": num_weights,
    }
    if schema is None:
        return facts
    rows = map(_row, schema.features.columns)
    facts |= {
        "labels": list(schema.classes),
        "id_column": schema.id_column,
        "feature_columns": schema.features.names,
        "columns": [{"name": name, "read_as": kind} for name, kind, _ in rows],
    }
    return facts | {name.replace(" ", "_"): value for name, value in _further_columns(schema).items()}


def _further_columns(schema: TableSchema) -> dict[str, Any]:
    facts: dict[str, Any] = {} if schema.weights is None else {"weight column": schema.weights.name}
    if schema.until is not None:
        facts |= {"time column": schema.time_column, "train until": schema.train_until}
    return facts


def _facts(config: ModelConfig, schema: TableSchema | None, num_weights: int) -> dict[str, Any]:
    """A summary for readers, as strings by name."""
    graph, given = config.graph, ", ".join(f"{name}={value}" for name, value in config.hyper_parameters.items())
    has_labels = schema is None or schema.label_column
    homophily = graph.homophily if has_labels else None
    alike = "" if homophily is None else f", {100 * homophily:.0f} % of labelled edges join one class"
    edges = f"{_num_edges(config, schema)} edges, mean degree {graph.mean_degree:.4g}{alike}"
    trained = f"epoch {config.best_epoch} of {config.settings.epochs} was best, seed {config.settings.seed}"
    facts: dict[str, Any] = {
        "method": f"{config.method}, with {given}" if config.method and given else config.method,
        "objective": _part(config.objective) if config.method is None else None,
        "scorer": _part(config.scorer) if config.method is None else None,
        "network": _network(config, num_weights),
        "training": trained if config.best_epoch else None,  # your own network was trained elsewhere
        "graph": f"{graph.num_nodes} nodes, {edges}",
        "decisions": _decisions(config),
    }
    if schema is not None:
        several = len(schema.classes) > 1
        one = f"{schema.classes[0]}; predicted is always this label" if schema.label_column else "none"
        facts["labels"] = list(schema.classes) if several else one
        facts |= _further_columns(schema)
    return facts | {"saved by": f"oddnode {config.oddnode_version}"}


def _network(config: ModelConfig, num_weights: int) -> str:
    name = config.backbone if isinstance(config.backbone, str) else next(iter(config.backbone.values()), "")
    settings = config.settings
    shape = f", {settings.num_layers} layers, {settings.hidden_channels} hidden channels, dropout {settings.dropout:g}"
    if isinstance(config.backbone, dict) and "own" in config.backbone:
        shape = ""
    networks = "" if config.num_networks == 1 else f"{config.num_networks} networks, "
    return f"{networks}{name}{shape}; {num_weights} weights, {config.num_features} features"


def _decisions(config: ModelConfig) -> str:
    if config.calibration is None:
        return "not calibrated"
    threshold, rate = config.calibration.threshold, 100 * config.calibration.false_alarm_rate
    nodes = config.calibration.num_nodes
    return f"scores below {threshold:.6g} are flagged; false-alarm rate {rate:g} %, by {nodes} calibration nodes"


def _part(config: dict[str, Any] | None) -> str | None:
    """An objective or a scorer as Python writes it, shortened."""
    if config is None:
        return None
    text = _written(config)
    return text if len(text) <= _LONGEST_PART else f"{text[:_LONGEST_PART]}..., which --json shows in full"


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
    unit, kind = f" {column.unit}".rstrip(), "count" if column.is_count else "number"
    return [column.name, kind, f"mean {column.mean:.4g}{unit}, standard deviation {column.scale:.4g}{missing}"]
