"""Validation of the tasks, methods, protocol, backbone and settings of a benchmark. Imports no slow module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oddnode._utils.plugins import attribute_of_file
from oddnode._utils.suggestions import unknown
from oddnode.detector import RECIPES, default_method, get_recipe, setting_types
from oddnode.nn import BACKBONES
from oddnode.protocols import PROTOCOLS, get_protocol

if TYPE_CHECKING:
    from oddnode.tasks import Task


#: The default methods of ``oddnode bench``: what tables are fitted with first, so that others are compared with it.
DEFAULT_METHODS = (
    *(default_method(has_exposure=False), "msp", "energy", "gnnsafe", "nodesafe"),
    *("energy-ft", "gnnsafe++", "nodesafe++"),
)


def default_methods(protocol: str) -> list[str]:
    """List the default methods that have settings under a protocol.

    Parameters
    ----------
    protocol : {"clean", "published"}
        The protocol.
    """
    known = get_protocol(protocol).methods()
    return [method for method in DEFAULT_METHODS if method in known]


def expand_methods(names: Iterable[str], protocol: str = "clean") -> list[str]:
    """Replace ``all`` by the names it stands for, and drop duplicates.

    Parameters
    ----------
    names : iterable of str
        Names of methods; ``all`` stands for every method that has settings for the protocol.
    protocol : {"clean", "published"}
        The protocol.
    """
    expanded: dict[str, None] = {}
    for name in names:
        if name != "all":
            get_recipe(name)
        expanded.update(dict.fromkeys(get_protocol(protocol).methods() if name == "all" else [name]))
    return list(expanded)


def check_names(methods: Iterable[str], protocol: str, backbone: str) -> None:
    """Raise an error that suggests the nearest name for one that is unknown.

    Parameters
    ----------
    methods : iterable of str
        Names of methods, or ``all``.
    protocol, backbone : str
        Names.
    """
    for what, names, known in (
        ("method", methods, RECIPES),
        ("protocol", [protocol], PROTOCOLS),
        ("backbone", [backbone], BACKBONES),
    ):
        for name in names:
            if name not in known and (what, name) != ("method", "all"):
                raise unknown(what, name, known)


def check_settings(settings: Mapping[str, Any], methods: Sequence[str]) -> dict[str, list[str]]:
    """Raise an error for a setting that none of the methods has; return the methods that lack each.

    Parameters
    ----------
    settings : dict
        Settings by name.
    methods : sequence of str
        Names of methods.
    """
    known = {method: setting_types(get_recipe(method)) for method in methods}
    every = sorted({name for own in known.values() for name in own})
    for name in settings:
        if name not in every:
            raise unknown(f"setting of {methods[0]}" if len(methods) == 1 else "setting", name, every)
    return {name: [method for method in methods if name not in known[method]] for name in settings}


def task_of_file(text: str) -> Callable[[int], Task] | None:
    """Find the function that a string of the form ``path/file.py:function`` names."""
    file, _, function = text.rpartition(":")
    return attribute_of_file(os.path.expanduser(file), function) if file.endswith(".py") else None
