"""Objectives and scorers as JSON, and back, with every value checked: what a model's ``config.json`` is made of."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from oddnode.objectives import Objective
from oddnode.scoring import Scorer

__all__ = ["ModelFileError", "checked", "decode", "encode"]

# The module whose import brings in every part that a method uses. By name: what it defines builds on detectors.
_LAST_HOME = "oddnode.protocols.published"

# Far above any real model's, low enough that a hostile one cannot keep the machine busy.
LARGEST_INT = 2**31
_MOST_HOPS = 10_000


class ModelFileError(ValueError):
    """A model folder that cannot be used; the message says what is wrong with it."""


def encode(value: Any, where: str) -> Any:
    """A part or one of its fields as JSON; a class that is not this library's is only named."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}, which cannot be saved")
        return value
    if isinstance(value, (list, tuple)):
        return [encode(item, where) for item in value]
    if not isinstance(value, (Scorer, Objective)):
        raise TypeError(f"{where} holds a {type(value).__name__}, which cannot be saved")
    kind = type(value)
    if kind not in _known_classes().values():
        return {"own": kind.__name__}
    config: dict[str, Any] = {"class": kind.__name__}
    config |= {f.name: encode(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value)}  # type: ignore[arg-type]
    learnt = {k: v for k, v in vars(value).items() if is_fitted(k) and not isinstance(v, Tensor)}
    if learnt:
        config["fitted"] = {k: encode(v, f"{where}.{k}") for k, v in learnt.items()}
    return config


def _known_classes() -> dict[str, type]:
    """The objectives and scorers of this library: all that a config may name."""
    import_module(_LAST_HOME)

    known: dict[str, type] = {}
    waiting: list[type] = [Objective, Scorer]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if is_dataclass(kind) and kind.__module__.startswith("oddnode."):
            known[kind.__name__] = kind
    return known


def decode(config: Any, base: type, where: str, depth: int = 0) -> Any:
    """An objective or a scorer of this library from its config, every field checked against its annotation."""
    if depth > 20:
        raise ModelFileError(f"{where} is nested too deeply")
    of_type(config, dict, where)
    known = _known_classes()
    name = config.get("class")
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None or not issubclass(kind, base):
        names = sorted(n for n, k in known.items() if issubclass(k, base))
        raise ModelFileError(f"{where} has class {show(name)}, expected one of {', '.join(names)}")
    hints = get_type_hints(kind)
    declared = {f.name: hints[f.name] for f in fields(kind)}  # type: ignore[arg-type]
    for key in config:
        if key not in declared and key not in ("class", "fitted"):
            raise ModelFileError(f"{where} has a field {show(key)}, which {name} does not")
    values = {
        key: checked(config[key], hint, f"{where}.{key}", depth + 1) for key, hint in declared.items() if key in config
    }
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"{where} cannot be made: {first_line(error)}") from None


def checked(value: Any, hint: Any, where: str, depth: int) -> Any:
    """``value``, if it is what the annotation ``hint`` says."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _checked_union(value, get_args(hint), where, depth)
    if origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in get_args(hint)):
            raise ModelFileError(f"{where} is {show(value)}, expected one of {', '.join(map(str, get_args(hint)))}")
        return value
    if origin is tuple:
        return _checked_tuple(value, get_args(hint), where, depth)
    if hint is None or hint is type(None):
        if value is not None:
            raise ModelFileError(f"{where} is {show(value)}, expected null")
        return None
    if hint is float:
        number = of_type(value, (int, float), where)
        if not math.isfinite(number) or abs(number) > 1e30:
            raise ModelFileError(f"{where} is {number}, expected a finite number")
        return float(number)
    if hint is int and depth:
        return in_range(of_type(value, int, where), -LARGEST_INT, _MOST_HOPS, where)
    if isinstance(hint, type) and issubclass(hint, (Scorer, Objective)):
        return decode(value, hint, where, depth)
    if hint in (int, bool, str):
        return of_type(value, hint, where)
    raise ModelFileError(f"{where} is of a kind ({hint}) that cannot be read from files")


def _checked_union(value: Any, choices: tuple[Any, ...], where: str, depth: int) -> Any:
    problems = []
    for choice in choices:
        try:
            return checked(value, choice, where, depth)
        except ModelFileError as error:
            problems.append(str(error))
    raise ModelFileError(problems[-1])


def _checked_tuple(value: Any, kinds: tuple[Any, ...], where: str, depth: int) -> tuple[Any, ...]:
    items = of_type(value, list, where)
    if len(items) > 1000:
        raise ModelFileError(f"{where} has {len(items)} entries, expected at most 1000")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(items)
    if len(kinds) != len(items):
        raise ModelFileError(f"{where} has {len(items)} entries, expected {len(kinds)}")
    return tuple(checked(item, kind, where, depth + 1) for item, kind in zip(items, kinds, strict=True))


def is_fitted(key: str) -> bool:
    return key.endswith("_") and not key.endswith("__")


def value_at(config: dict[str, Any], key: str) -> Any:
    if key not in config:
        raise ModelFileError(f"config.json has no {key!r}")
    return config[key]


def value_of(config: dict[str, Any], key: str, kind: type) -> Any:
    return of_type(value_at(config, key), kind, key)


def of_type(value: Any, kind: Any, where: str) -> Any:
    """``value``, if it is of that type; a JSON true is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = kind.__name__ if isinstance(kind, type) else "number"
        raise ModelFileError(f"{where} is {show(value)}, expected a value of type {names}")
    return value


def in_range(value: int, least: int, most: int, where: str) -> int:
    if not least <= value <= most:
        raise ModelFileError(f"{where} is {show(value)}, expected {least}..{most}")
    return value


def count_of(config: dict[str, Any], key: str, least: int) -> int:
    return in_range(value_of(config, key, int), least, LARGEST_INT, key)


def show(value: Any) -> str:
    """A value as a message may quote it: short, whatever it is."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def first_line(error: BaseException) -> str:
    text = str(error).splitlines()
    return (text[0] if text else type(error).__name__)[:200]


def refuse_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}, which is no number")


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return dict(pairs)
