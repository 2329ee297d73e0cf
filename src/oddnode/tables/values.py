"""Values of tables as Arrow arrays: text, missing values, types. No file is read here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from oddnode._utils.lazy import LazyModule

#: pyarrow, imported when it is first used: names of files and options are checked without it.
pa: Any = LazyModule("pyarrow")
pc: Any = LazyModule("pyarrow.compute")

#: Strings that stand for a missing value, in labels and features.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")

# A column with more text than this in one batch does not hold ids, labels or categories.
_MOST_TEXT = 2**30


class TableError(ValueError):
    """A table that cannot be used; the message names the file, what was found and what to do.

    Arguments are in backticks, so that the command line can replace them by its options.
    """


def pyarrow() -> Any:
    """Import pyarrow; the error says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise TableError("tables need pyarrow; install it with: pip install 'oddnode[tables]'") from None
    return pyarrow


@contextmanager
def arrow_errors(message: str) -> Iterator[None]:
    """Re-raise pyarrow's errors as `TableError`."""
    try:
        yield
    except (pa.ArrowException, OverflowError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise TableError(f"{message}: {text}") from None


def plain(array: Any, where: str) -> Any:
    """Decode dictionaries, and normalise the variants of string and number types."""
    if pa.types.is_dictionary(array.type):
        _check_decoded_size(array, where)
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    if pa.types.is_float16(array.type):  # pyarrow supports few operations on it
        array = array.cast(pa.float32())
    return array


def _check_decoded_size(array: Any, where: str) -> None:
    """Raise an error for a few long strings that are repeated so often that decoding would exhaust memory."""
    kind = array.type.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)) or not len(array.dictionary):
        return
    lengths = pc.binary_length(array.dictionary).cast(pa.int64())
    size = pc.sum(lengths.take(array.indices)).as_py() or 0
    if size > _MOST_TEXT:
        raise TableError(f"{where} has {size / 2**30:.0f} GiB of text in {len(array)} rows; shorten its strings")


def missing_to_null(array: Any) -> Any:
    """Trim strings, and replace NaN and strings that stand for a missing value by null."""
    if pa.types.is_string(array.type):
        array = pc.utf8_trim_whitespace(array)
        return _without(array, pc.is_in(array, value_set=_missing()))
    if pa.types.is_floating(array.type):
        return _without(array, pc.is_nan(array))
    return array


def _without(array: Any, gone: Any) -> Any:
    """The array itself if nothing is gone, which is quick: a wide table has many such columns."""
    return pc.if_else(gone, pa.scalar(None, array.type), array) if pc.any(gone).as_py() else array


@cache
def _missing() -> Any:
    return pa.array(MISSING)


def as_text(array: Any, where: str, column: str) -> Any:
    """Turn the values of a column into trimmed strings, missing ones into null."""
    array = missing_to_null(array)
    try:
        return array if pa.types.is_string(array.type) else array.cast(pa.string())
    except pa.ArrowException:
        raise TableError(f"{where}: column {column!r} holds {array.type}, expected text or numbers") from None


def concatenated(arrays: Sequence[Any]) -> Any:
    """Concatenate arrays; those of different types, from several files, as text."""
    kinds = {array.type for array in arrays if not pa.types.is_null(array.type)}
    kind = next(iter(kinds)) if len(kinds) == 1 else pa.string() if kinds else pa.null()
    return pa.concat_arrays([array if array.type == kind else array.cast(kind) for array in arrays])


def quoted(value: Any) -> str:
    """Quote a value of a table in a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def as_argument(names: Sequence[Any]) -> str:
    """Write names as they are given to an option of the command line.

    Examples
    --------
    >>> print(as_argument(["age", "height, cm"]))
    'age,"height, cm"'
    """
    return shlex.quote(",".join(f'"{name}"' if "," in str(name) else str(name) for name in names))


def listed(names: Sequence[Any], at_most: int = 10) -> str:
    """List names in a message.

    Examples
    --------
    >>> listed(["a", "b", "c"], at_most=2)
    'a, b, ... (3)'
    """
    shown = ", ".join(str(name)[:60] for name in names[:at_most])
    return shown if len(names) <= at_most else f"{shown}, ... ({len(names)})"
