"""Settings given as ``--set name=value``, read by the types that they have. Imports no slow module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import typer

from oddnode._utils.suggestions import unknown
from oddnode.detector import get_recipe, setting_types
from oddnode.nn import BACKBONES

__all__ = ["SetOptions", "checked_backbone", "expected", "parse_settings"]

SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the method, for example num_hops=2; `oddnode methods NAME` lists them. Can be repeated.",
    ),
]

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}


def parse_settings(given: Sequence[str] | None, methods: Sequence[str]) -> dict[str, Any]:
    """Read settings; one that no method has and a value of another type are errors.

    Parameters
    ----------
    given : sequence of str or None
        Texts like ``"num_hops=2"``.
    methods : sequence of str
        Names of the methods that the settings are for.

    Returns
    -------
    dict
        The values by name.

    Examples
    --------
    >>> parse_settings(["num_hops=2", "eta=0.5", "propagation=as-given"], ["nodesafe"])
    {'num_hops': 2, 'eta': 0.5, 'propagation': 'as-given'}
    """
    types: dict[str, Any] = {}
    for recipe in reversed([get_recipe(method) for method in methods]):
        types |= setting_types(recipe)
    settings: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise ValueError(f"--set {text}: expected a name and a value, like num_hops=2")
        if name not in types:
            raise unknown(f"setting of {methods[0]}" if len(methods) == 1 else "setting", name, types)
        if name in settings:
            raise ValueError(f"--set {text}: {name} is set twice")
        settings[name] = _read(value, types[name], text)
    return settings


def checked_backbone(name: str, method: str) -> str:
    """Raise an error for a backbone that there is not, or that the method does not take.

    Parameters
    ----------
    name : str
        The name of the backbone.
    method : str
        The name of the method.

    Returns
    -------
    str
        The name of the backbone.
    """
    if name not in BACKBONES:
        raise unknown("backbone", name, BACKBONES)
    own = get_recipe(method).backbone
    if own not in (None, name):
        raise ValueError(f"--backbone {name}: {method} has its own network ({own}); leave the option out")
    return name


def _read(value: str, kind: Any, given: str) -> Any:
    plain = "null" if value.lower() == "none" and NoneType in get_args(kind) else value
    try:
        read = msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError:
        raise ValueError(f"--set {given}: expected {expected(kind)}") from None
    if isinstance(read, float) and not math.isfinite(read):
        raise ValueError(f"--set {given}: expected a finite number")
    return read


def expected(kind: Any) -> str:
    """Describe the values of a type.

    Parameters
    ----------
    kind : type
        The type of a setting.

    Examples
    --------
    >>> expected(float | None)
    'a number or none'
    """
    if get_origin(kind) is Annotated:
        base, limits = get_args(kind)[0], get_args(kind)[1]
        return expected(base) + ("" if limits.ge is None or limits.ge < 0 else f", {limits.ge} or more")
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if kind in _WORDS:
        return _WORDS[kind]
    return " or ".join(expected(each) for each in get_args(kind)) or str(kind)
