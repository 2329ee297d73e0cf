"""Conversion of objectives and scorers to JSON and back, with every value checked.

A config names the class of a part, which must be exported by this library or defined by a loaded plugin. Parts of any
other class must be passed again when a model is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from functools import cache
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from torch import Tensor

from oddnode._utils.plugins import plugin_of
from oddnode.detector.checked_json import LARGEST_INT, ModelFileError, Number, checked, first_line, show
from oddnode.objectives import Objective
from oddnode.scoring import Scorer

__all__ = ["LearntValue", "decode", "encode", "learnt_of", "set_learnt"]

# The modules whose objectives and scorers a config may name; by name, because the last of them imports this package.
_HOMES = ("oddnode.objectives", "oddnode.scoring", "oddnode.protocols.published")

# Far above the values of real parts, but low enough that a hostile file cannot exhaust the machine.
_Int = Annotated[int, Meta(ge=-LARGEST_INT, le=10_000)]
_MOST_ITEMS = 2**20
_DEEPEST = 20
# By this much of its text a scorer of the user's own is recognised when a model is loaded.
_LONGEST_TEXT = 10_000

#: The types of learnt values apart from tensors.
LearntValue = bool | int | float | str | None

Part = TypeVar("Part", Objective, Scorer)


# --- settings --------------------------------------------------------------------------------------------------------


def encode(part: Objective | Scorer, where: str) -> dict[str, Any]:
    """Describe a part by its class and its settings.

    Parameters
    ----------
    part : Objective or Scorer
        The part, including the parts inside it.
    where : str
        Its name in messages: ``"objective"`` or ``"scorer"``.

    Returns
    -------
    dict
        ``{"class": ..., setting: value, ...}``, with ``"plugin"`` if a plugin defines the class. A part that is the
        user's own, or contains one, is only named: ``{"own": ...}``.
    """
    if any(not _is_loadable(type(each)) for each in _parts(part)):
        return {"own": repr(part)[:_LONGEST_TEXT]}
    config = _encoded(part, where)
    base: Any = type(part)
    decode(config, base, where)  # raises an error now for settings that could not be loaded again
    return config


def _encoded(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}, which cannot be saved")
        return value
    if isinstance(value, (list, tuple)):
        return [_encoded(item, where) for item in value]
    if not isinstance(value, (Scorer, Objective)):
        raise TypeError(f"{where} has a {type(value).__name__}, which cannot be saved")
    plugin = plugin_of(type(value))
    config: dict[str, Any] = {"class": type(value).__name__} | ({} if plugin is None else {"plugin": plugin})
    return config | {f.name: _encoded(getattr(value, f.name), f"{where}.{f.name}") for f in _settings(type(value))}


def decode(config: Any, base: type[Part], where: str) -> Part:
    """Build an objective or a scorer from its config.

    Parameters
    ----------
    config : object
        Parsed JSON, as `encode` returns it. Every value is checked against the annotation of its field.
    base : type
        The required base class: `Objective`, `Scorer`, or a subclass.
    where : str
        Its name in the file, for messages.

    Returns
    -------
    Objective or Scorer
        The part, not fitted.
    """
    try:
        return _decoded(config, base, 0)
    except ModelFileError as error:
        raise ModelFileError(f"{where}.{error}") from None


def _decoded(config: Any, base: type, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ModelFileError(f"class is nested too deeply, expected at most {_DEEPEST} parts inside each other")
    if not isinstance(config, dict):
        raise ModelFileError(f"class is missing: expected an object with a class, got {show(config)}")
    values = dict(config)
    kind = _named_class(values.pop("class", None), values.pop("plugin", None), base)
    struct = checked(values, _struct_of(kind), "", lambda inner, value: _decoded(value, _base_of(inner), depth + 1))
    given = {f.name: getattr(struct, f.name) for f in _settings(kind)}
    try:
        return kind(**given)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"class {kind.__name__} cannot be built: {first_line(error)}") from None


@cache
def _struct_of(kind: type) -> type[msgspec.Struct]:
    """A struct with the settings of a part and limits on their types."""
    hints = get_type_hints(kind)
    columns = [(f.name, _limited(hints[f.name])) for f in _settings(kind)]
    return msgspec.defstruct(kind.__name__, columns, forbid_unknown_fields=True)


def _limited(hint: Any) -> Any:
    """A type with limits on its numbers and on the length of its lists."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return Union[tuple(_limited(choice) for choice in inside)]  # noqa: UP007, made from a list
    if origin is tuple:
        items = tuple.__class_getitem__(tuple(item if item is Ellipsis else _limited(item) for item in inside))
        return Annotated[items, Meta(max_length=_MOST_ITEMS)] if Ellipsis in inside else items
    if isinstance(hint, type) and issubclass(hint, (Objective, Scorer)):
        base: Any = hint
        return _stand_in(base)
    return {float: Number, int: _Int}.get(hint, hint)


class _StandIn(type):
    """The type of `_stand_in`: an instance of ``base`` passes for an instance of it."""

    base: type

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.base)


@cache
def _stand_in(base: Any) -> _StandIn:
    """A type that msgspec does not know, so that it calls `_decoded`; dataclasses it would build without subclasses."""
    return _StandIn(base.__name__, (), {"base": base})


def _base_of(stand_in: type) -> type:
    if not isinstance(stand_in, _StandIn):  # a tensor, say, that a part has once it is prepared
        raise ValueError(f"expected null, since a {stand_in.__name__} is no setting")
    return stand_in.base


def _settings(kind: type) -> list[Field]:
    return [f for f in fields(kind) if f.init]


# --- classes ---------------------------------------------------------------------------------------------------------


def _is_loadable(kind: type) -> bool:
    return is_dataclass(kind) and (plugin_of(kind) is not None or _library().get(kind.__name__) is kind)


@cache
def _library() -> dict[str, type]:
    """The objectives and scorers of this library by name."""
    found: dict[str, type] = {}
    for kind in (value for home in _HOMES for value in vars(import_module(home)).values() if _is_part(value)):
        if found.setdefault(kind.__name__, kind) is not kind:
            raise TypeError(f"{kind.__module__} and {found[kind.__name__].__module__} both export {kind.__name__}")
    return found


def _is_part(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, (Objective, Scorer)) and is_dataclass(value)


def _named_class(name: Any, plugin: Any, base: type) -> type:
    if plugin is not None:
        return _plugin_class(name, plugin, base)
    kind = _library().get(name) if isinstance(name, str) else None
    if kind is None or not issubclass(kind, base):
        known = sorted(n for n, k in _library().items() if issubclass(k, base))
        raise ModelFileError(f"class is {show(name)}, expected one of {', '.join(known)}")
    return kind


def _plugin_class(name: Any, plugin: Any, base: type) -> type:
    found = [k for k in {*_subclasses(base), base} if k.__name__ == name and plugin_of(k) == plugin]
    if not found:
        raise ModelFileError(
            f"class is {show(name)} of the plugin {show(plugin)}, which is not loaded or does not define it; "
            "install or load that plugin, then load the model again"
        )
    if len(found) > 1:
        homes = ", ".join(sorted(kind.__module__ for kind in found))
        raise ModelFileError(f"class is {show(name)}, which the plugin {show(plugin)} defines more than once ({homes})")
    return found[0]


def _subclasses(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        yield child
        yield from _subclasses(child)


def _parts(value: Any) -> Iterator[Objective | Scorer]:
    """A part and all parts inside it."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, (Scorer, Objective)):
        yield value
        if is_dataclass(value):
            for f in _settings(type(value)):
                yield from _parts(getattr(value, f.name))


# --- what scorers learn ----------------------------------------------------------------------------------------------


def learnt_of(scorer: Any, where: str) -> Iterator[tuple[str, Tensor | LearntValue]]:
    """Collect the learnt values of a scorer and the scorers inside it, by path.

    Parameters
    ----------
    scorer : Scorer, or tuple or list of them
        A fitted scorer.
    where : str
        The start of every path, ``"scorer"``.

    Yields
    ------
    str
        A path such as ``"scorer.scorers.0.mean_"``.
    Tensor, bool, int, float, str or None
        The value.
    """
    for key, value in _inside(scorer).items():
        path = f"{where}.{key}"
        if isinstance(value, Scorer):
            yield from learnt_of(value, path)
        elif not _is_learnt(key):
            if isinstance(value, (tuple, list)):
                yield from learnt_of(value, path)
        else:
            if not isinstance(value, (Tensor, bool, int, float, str, type(None))):
                raise TypeError(f"{path} is a {type(value).__name__}, which cannot be saved; learn tensors or numbers")
            yield path, value


def set_learnt(scorer: Scorer, path: str, value: Tensor | LearntValue) -> None:
    """Restore a learnt value at a path from `learnt_of`.

    Parameters
    ----------
    scorer : Scorer
        The scorer, which is changed in place.
    path : str
        Its path, which starts with ``"scorer"``.
    value : Tensor, bool, int, float, str or None
        The value.
    """
    owner: Any = scorer
    start, *steps = path.split(".")
    if start != "scorer" or not steps:
        raise ModelFileError(f"{path!r} belongs to no scorer of the model")
    *steps, name = steps
    for step in steps:
        owner = _inside(owner).get(step)
        if not isinstance(owner, (Scorer, tuple, list)):
            raise ModelFileError(f"{path!r} belongs to no scorer of the model")
    if not _is_learnt(name) or not isinstance(owner, Scorer):
        raise ModelFileError(f"{path!r} is not a learnt value of a scorer")
    setattr(owner, name, value)


def _inside(value: Any) -> dict[str, Any]:
    """A scorer's attributes by name; the items of a tuple by number."""
    return {str(n): item for n, item in enumerate(value)} if isinstance(value, (tuple, list)) else vars(value)


def _is_learnt(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and not name.endswith("__")
