"""Untrusted JSON files: strict parsing, and validation by msgspec against types with limits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

T = TypeVar("T")

# Far above real values, but low enough that a hostile file cannot exhaust the machine.
LARGEST_JSON = 16 * 2**20
LARGEST_INT = 2**31
LARGEST_NUMBER = 1e30

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

Count = Annotated[int, Meta(ge=1, le=LARGEST_INT)]
Size = Annotated[int, Meta(ge=0, le=2**53)]
LayerCount = Annotated[int, Meta(ge=1, le=1000)]
#: A finite number: JSON has no infinity, but ``1e999`` is read as one.
Number = Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]


class ModelFileError(ValueError):
    """An invalid saved model; the message names the file or field, what was found and what was expected."""


@contextmanager
def errors_in(place: object) -> Iterator[None]:
    """Name the file or folder in errors about its contents."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{place}: {error}") from None


def file_size(path: Path) -> int:
    """Return the size of a regular file; reading a pipe or a device might never end."""
    try:
        if path.is_file():
            return path.stat().st_size
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    raise ModelFileError(f"{path} is missing or not a regular file")


def read_json(path: Path) -> tuple[Any, bytes]:
    """Read a JSON file whose size is within the limit, parse it strictly, and return its bytes, too."""
    size = file_size(path)
    if size > LARGEST_JSON:
        raise ModelFileError(f"{path} has {size} bytes, expected at most {LARGEST_JSON}")
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_JSON)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique_names)
        if _SURROGATE.search(raw):  # half of a pair cannot be encoded, and would raise an error much later
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {first_line(error)}") from None
    return value, raw


def checked(value: Any, kind: type[T], where: str) -> T:
    """Convert parsed JSON to a type; the error names the invalid field."""
    try:
        return msgspec.convert(value, kind)
    except OverflowError:
        raise ModelFileError(f"{where or 'it'} has a number that is too large") from None
    except msgspec.ValidationError as error:
        problem, _, location = str(error).partition(" - at `")
        path = location.removesuffix("`").removeprefix("$")
        field = f"{where}{path}".lstrip(".")
        if problem.startswith("Invalid enum value"):
            problem = f"expected one of {', '.join(map(repr, _choices(kind, path)))}"
        prefix = "" if problem.startswith("Object ") else f"{field or 'it'} is {show(_at(value, path))}: "
        raise ModelFileError(f"{prefix or (field and field + ': ')}{problem[0].lower()}{problem[1:]}") from None


def _choices(kind: Any, path: str) -> tuple[Any, ...]:
    """The values that the ``Literal`` at a path of field names allows."""
    for name in re.findall(r"\.(\w+)", path):
        kind = get_type_hints(kind)[name]
    literals = (hint for hint in (kind, *get_args(kind)) if get_origin(hint) is Literal)
    return tuple(choice for literal in literals for choice in get_args(literal))


def _at(value: Any, path: str) -> Any:
    """The value at one of msgspec's paths, such as ``.parts[0][1].start``; it hides keys of dictionaries."""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        if index == "...":
            return value
        value = value[name] if name else value[int(index)]
    return value


def show(value: Any) -> str:
    """Quote a value in a message."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def first_line(error: BaseException) -> str:
    """Summarise an error in one line."""
    text = str(error).splitlines()
    return (text[0] if text else type(error).__name__)[:200]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it has {name}, which is not a number")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return value
