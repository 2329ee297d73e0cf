"""The commands that list what there is: ``methods`` and ``datasets``. They import no slow module unless they must."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from oddnode._utils.plugins import load_plugins
from oddnode.cli.messages import print_facts, visible
from oddnode.cli.settings import expected
from oddnode.cli.shared import DataDir, Json, Plugins, print_rows
from oddnode.detector import DETECTOR_SETTINGS, MODEL_FREE, RECIPES, Recipe, default_method, get_recipe

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        epilog="Examples:\n\n"
        "  oddnode methods\n\n"
        "  oddnode methods nodesafe\n\n"
        "  oddnode methods --plugin mine.py --json"
    )(methods)
    app.command(epilog="Examples:\n\n  oddnode datasets\n\n  oddnode datasets --data-dir ~/data --json")(datasets)


def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to show its settings.", show_default="all")] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List the methods and when to use which, or show the settings of one."""
    load_plugins(plugin or ())
    chosen = list(RECIPES.values()) if name is None else [get_recipe(name)]
    if as_json:
        typer.echo(json.dumps([_facts(recipe) for recipe in chosen], indent=1))
    elif name is None:
        _print_methods(chosen)
    else:
        _print_method(chosen[0])


def _facts(recipe: Recipe) -> dict[str, Any]:
    objective, scorer = recipe.build()
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "objective": repr(objective),
        "scorer": repr(scorer),
        "exposure": recipe.needs_exposure,
        "reference": recipe.reference,
        "transductive": recipe.transductive,
        "cost": recipe.cost,
        "hyper_parameters": recipe.hyper_parameters,
    }


def _print_methods(recipes: Sequence[Recipe]) -> None:
    parts: list[list[Recipe]] = [[], [], [], []]
    for recipe in recipes:
        parts[_part(recipe)].append(recipe)
    body: list[list[str]] = []
    cuts: set[int] = set()
    for part in parts:
        cuts.add(len(body))
        for recipe in part:
            text = f"{recipe.summary} ({recipe.reference})".strip()
            body.append([recipe.name, "OOD nodes" if recipe.needs_exposure else "", text])
    print_rows("Methods", ["method", "needs", "what it is and when to use it"], body, cuts=cuts, pipe_width=80)
    typer.echo("oddnode methods NAME shows the settings of a method and its cost.")


def _part(recipe: Recipe) -> int:
    """Which part of the list a method is in: recommended, others, with exposure, without a model."""
    if recipe.name in (default_method(False), default_method(True)):
        return 0
    return 3 if recipe.name in MODEL_FREE else 2 if recipe.needs_exposure else 1


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
    head = ["name", "state", "tasks, place and licence"]
    print_rows("Data sets", head, body, cuts=range(1, len(body)), pipe_width=80)


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return visible(", ".join(value) if isinstance(value, (list, tuple)) else str(value))
