"""Conversion of objectives and scorers to JSON and back, with every value checked.

A config names the class of a part, which must be exported by this library or defined by a loaded plugin. Parts of any
other class must be passed again when a model is loaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from torch import Tensor

import oddnode.objectives as objectives
import oddnode.scoring as scoring
from oddnode._utils.checked_json import LARGEST_INT, ModelFileError, Number, checked, first_line, show
from oddnode._utils.plugins import plugin_of
from oddnode._utils.registry import PART_MODULES
from oddnode.objectives import Objective
from oddnode.scoring import Scorer

# Far above the values of real parts, but low enough that a hostile file cannot exhaust the machine.
_Int = Annotated[int, Meta(ge=-LARGEST_INT, le=10_000)]
_MOST_ITEMS = 2**20
_DEEPEST = 20
# This much of its repr identifies a custom scorer when a model is loaded.
_LONGEST_REPR = 10_000
# The name of a learnt value ends in one underscore, as in scikit-learn.
_LEARNT = re.compile(r"[^_](.*[^_])?_")

Part = TypeVar("Part", Objective, Scorer)


def encode(part: Objective | Scorer, where: str) -> dict[str, Any]:
    """Describe a part by its class and its settings."""
    for _, inner in _parts(part, where):
        kind = type(inner)
        if not is_dataclass(kind) or (plugin_of(kind) is None and _library_class(kind.__name__) is not kind):
            return {"own": repr(part)[:_LONGEST_REPR]}
    config = _encoded(part, where)
    base: Any = type(part)
    decode(config, base, where)  # raises an error now for settings that could not be loaded again
    return config


def _encoded(value: Any, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which cannot be saved")
    if value is None or isinstance(value, (bool, int, str, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [_encoded(item, where) for item in value]
    if not isinstance(value, (Scorer, Objective)):
        raise TypeError(f"{where} has a {type(value).__name__}, which cannot be saved")
    kind: Any = type(value)
    config = {"class": kind.__name__} | ({} if plugin_of(kind) is None else {"plugin": plugin_of(kind)})
    names = struct_of(kind).__struct_fields__
    return config | {name: _encoded(getattr(value, name), f"{where}.{name}") for name in names}


def decode(config: Any, base: type[Part], where: str, depth: int = 0) -> Part:
    """Build an objective or a scorer from its config."""
    if depth > _DEEPEST:
        raise ModelFileError(f"{where}.class is nested too deeply, expected at most {_DEEPEST} parts inside each other")
    if not isinstance(config, dict):
        raise ModelFileError(f"{where}.class is missing: expected an object with a class, got {show(config)}")
    values = dict(config)
    kind = _class_named(values.pop("class", None), values.pop("plugin", None), base, where)
    struct, hints = checked(values, struct_of(kind), where), get_type_hints(kind)

    def built(value: Any, hint: Any, path: str) -> Any:
        if isinstance(value, dict):
            return decode(value, _part_in(hint), path, depth + 1)
        if isinstance(value, tuple):
            return tuple(built(item, hint, f"{path}[{n}]") for n, item in enumerate(value))
        return value

    given = {name: built(getattr(struct, name), hints[name], f"{where}.{name}") for name in struct.__struct_fields__}
    try:
        return kind(**given)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"{where}.class {kind.__name__} cannot be built: {first_line(error)}") from None


@cache
def struct_of(kind: type) -> type[msgspec.Struct]:
    """A struct with the settings of a part and limits on their types."""
    hints = get_type_hints(kind)
    columns = [(f.name, _limited(hints[f.name])) for f in fields(kind) if f.init]
    return msgspec.defstruct(kind.__name__, columns, forbid_unknown_fields=True)


def _limited(hint: Any) -> Any:
    """A type with limits on its numbers and on the length of its lists; a part inside is an object, decoded later."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return Union[tuple(_limited(choice) for choice in inside)]  # noqa: UP007, made from a list
    if origin is tuple:
        items = tuple.__class_getitem__(tuple(item if item is Ellipsis else _limited(item) for item in inside))
        return Annotated[items, Meta(max_length=_MOST_ITEMS)] if Ellipsis in inside else items
    if isinstance(hint, type) and issubclass(hint, (Objective, Scorer)):
        return dict[str, Any]
    # A tensor is not a setting: training adds it to a part, and a saved part has none yet.
    return {float: Number, int: _Int, Tensor: NoneType}.get(hint, hint)


def _part_in(hint: Any) -> Any:
    """The class of the only part in a type, such as ``tuple[tuple[float, Term], ...]``."""
    if isinstance(hint, type) and issubclass(hint, (Objective, Scorer)):
        return hint
    return next(filter(None, map(_part_in, get_args(hint))), None)


def _library_class(name: str) -> Any:
    """The class of an exported part; modules of higher packages are imported only if the lower ones lack the name."""
    for home in chain((objectives, scoring), PART_MODULES.values()):
        kind = vars(home).get(name)
        if isinstance(kind, type) and issubclass(kind, (Objective, Scorer)) and is_dataclass(kind):
            return kind
    return None


def library() -> dict[str, type]:
    """The objectives and scorers of this library by name."""
    names = (name for home in chain((objectives, scoring), PART_MODULES.values()) for name in vars(home))
    return {name: kind for name in names if (kind := _library_class(name)) is not None}


def _class_named(name: Any, plugin: Any, base: type, where: str) -> Any:
    if plugin is None:
        kind = _library_class(name) if isinstance(name, str) else None
        if kind is None or not issubclass(kind, base):
            known = sorted(n for n, k in library().items() if issubclass(k, base))
            raise ModelFileError(f"{where}.class is {show(name)}, expected one of {', '.join(known)}")
        return kind
    family: list[type] = [base]
    for kind in family:  # it grows meanwhile
        family += kind.__subclasses__()
    kinds = {kind for kind in family if kind.__name__ == name and plugin_of(kind) == plugin}
    if not kinds:
        raise ModelFileError(
            f"{where}.class is {show(name)} of the plugin {show(plugin)}, which is not loaded or does not define it; "
            "install that plugin, or load its file first (`load_plugins`, --plugin)"
        )
    if len(kinds) > 1:
        homes = ", ".join(sorted(kind.__module__ for kind in kinds))
        raise ModelFileError(f"{where}.class is {show(name)}, which {show(plugin)} defines more than once ({homes})")
    return kinds.pop()


def _parts(value: Any, path: str) -> Iterator[tuple[str, Objective | Scorer]]:
    """A part and all parts inside it, by path."""
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, (Objective, Scorer)):
        yield path, value
        inside = vars(value).items()
    elif isinstance(value, (tuple, list)):
        inside = enumerate(value)
    for name, item in inside:
        yield from _parts(item, f"{path}.{name}")


def learnt_of(scorer: Scorer) -> Iterator[tuple[str, Any]]:
    """Collect the learnt tensors, numbers and strings of a scorer and the scorers inside it, by path."""
    for owner_path, owner in _parts(scorer, "scorer"):
        for name, value in vars(owner).items():
            if not _LEARNT.fullmatch(name) or isinstance(value, Scorer):
                continue
            path = f"{owner_path}.{name}"
            if not isinstance(value, (Tensor, bool, int, float, str, NoneType)):
                raise TypeError(f"{path} is a {type(value).__name__}, which cannot be saved; learn tensors or numbers")
            yield path, value


def check_learnt(fitted: Scorer, unfitted: Scorer) -> None:
    """Raise an error if `Scorer.fit` has set an attribute that would not be saved."""
    before = {path: vars(owner) for path, owner in _parts(unfitted, "scorer")}
    for path, owner in _parts(fitted, "scorer"):
        for name, value in vars(owner).items():
            is_cached = isinstance(getattr(type(owner), name, None), cached_property)
            if path not in before or is_cached or _LEARNT.fullmatch(name):
                continue
            old, is_plain = before[path].get(name, ...), isinstance(value, (bool, int, float, str))
            is_changed = is_plain and old is not value and old != value
            if (old is ... and (isinstance(value, Tensor) or not name.startswith("_"))) or is_changed:
                raise TypeError(
                    f"{type(owner).__name__}.fit has set {name!r}, which would not be saved; call it '{name}_' and "
                    f"declare it: `{name}_: {type(value).__name__} = field(init=False, repr=False, compare=False)`"
                )


def set_learnt(scorer: Scorer, learnt: dict[str, Any]) -> None:
    """Restore learnt values at the paths of `learnt_of`."""
    owners = dict(_parts(scorer, "scorer"))
    for path, value in learnt.items():
        owner, _, name = path.rpartition(".")
        if owner not in owners or not _LEARNT.fullmatch(name):
            raise ModelFileError(f"{path!r} is not a learnt value of a scorer of the model")
        setattr(owners[owner], name, value)
