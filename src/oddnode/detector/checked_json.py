"""Untrusted JSON: strict parsing, and validation by msgspec against types with limits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

__all__ = ["Count", "LayerCount", "ModelFileError", "Number", "checked", "first_line", "parse_json", "show"]

T = TypeVar("T")

# Far above the values of real models, but low enough that a hostile file cannot exhaust the machine.
LARGEST_INT = 2**31
LARGEST_NUMBER = 1e30

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

Count = Annotated[int, Meta(ge=1, le=LARGEST_INT)]
LayerCount = Annotated[int, Meta(ge=1, le=1000)]
#: A finite number: JSON has no infinity, but ``1e999`` is read as one.
Number = Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]


class ModelFileError(ValueError):
    """An invalid model folder; the message names the file or field, what was found and what was expected."""


def parse_json(raw: bytes) -> Any:
    """Parse JSON strictly.

    Parameters
    ----------
    raw : bytes
        UTF-8 text. ``NaN``, ``Infinity``, half of a surrogate pair, and a name that occurs twice in one object are
        refused.

    Returns
    -------
    object
        Dictionaries, lists, texts, numbers, booleans and ``None``.
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique_names)
        if _SURROGATE.search(raw):  # half of a pair is no text, and raises an error wherever it is encoded
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"is damaged: {first_line(error)}") from None


def checked(value: Any, kind: type[T], where: str, decode: Callable[[type, Any], Any] | None = None) -> T:
    """Convert parsed JSON to a type; the error names the invalid field.

    Parameters
    ----------
    value : object
        The return value of `parse_json`, or a part of it.
    kind : type
        A type that msgspec supports: a `msgspec.Struct`, a dataclass, ``Annotated[int, Meta(...)]``, ...
    where : str
        The field's name for messages; ``""`` for the whole file.
    decode : callable, optional
        Makes values of types that msgspec does not support, from the type and the JSON.

    Returns
    -------
    object
        A value of that type.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=decode)
    except OverflowError:
        raise ModelFileError(f"{where or 'it'} has a number that is too large") from None
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        path = place.removesuffix("`").removeprefix("$")
        field = f"{where}{path}".lstrip(".")
        if isinstance(error.__cause__, ModelFileError):  # from a nested value, whose message names its field
            raise ModelFileError(f"{field}{'.' if field else ''}{error.__cause__}") from None
        if problem.startswith("Invalid enum value"):
            problem = f"expected one of {', '.join(map(repr, _choices(kind, path)))}"
        found = "" if problem.startswith("Object ") else f"{field or 'it'} is {show(_at(value, path))}: "
        raise ModelFileError(f"{found or (field and field + ': ')}{problem[0].lower()}{problem[1:]}") from None


def _choices(kind: Any, path: str) -> tuple[Any, ...]:
    """The values that the ``Literal`` at a path of field names allows."""
    for name in re.findall(r"\.(\w+)", path):
        kind = get_type_hints(kind)[name]
    literals = (hint for hint in (kind, *get_args(kind)) if get_origin(hint) is Literal)
    return tuple(choice for literal in literals for choice in get_args(literal))


def _at(value: Any, path: str) -> Any:
    """The value at one of msgspec's paths, such as ``.parts[0][1].start``; it hides keys of dictionaries."""
    for name, place in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        if place == "...":
            return value
        value = value[name] if name else value[int(place)]
    return value


def show(value: Any) -> str:
    """Quote a value in a message.

    Parameters
    ----------
    value : object
        Anything.

    Returns
    -------
    str
        Its repr, cut to 60 characters.
    """
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def first_line(error: BaseException) -> str:
    """Summarise an error in one line.

    Parameters
    ----------
    error : BaseException
        Any error.

    Returns
    -------
    str
        The first line of its message, cut to 200 characters.
    """
    text = str(error).splitlines()
    return (text[0] if text else type(error).__name__)[:200]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it has {name}, which is not a number")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return dict(pairs)
