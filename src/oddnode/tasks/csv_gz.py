"""A reader of numbers from ``.csv.gz`` files, a megabyte of text at a time."""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["DamagedFileError", "read_numbers"]

_CHUNK = 1 << 20
# The highest compression ratio of deflate. A number of lines that the file cannot contain is refused before allocation.
_MAX_RATIO = 1032


class DamagedFileError(ValueError):
    """A damaged file; the message says where, and what was expected."""


def read_numbers(path: Path, num_rows: int, num_columns: int | None, dtype: type) -> np.ndarray:
    """Read a file without a header into an array ``[num_rows, num_columns]``.

    Apart from the array, only one chunk of text is in memory at a time.

    Parameters
    ----------
    path : Path
        The file.
    num_rows : int
        Number of lines.
    num_columns : int or None
        Numbers per line; ``None`` means as many as in the first line.
    dtype : type
        NumPy type of the numbers.
    """
    if num_rows > _MAX_RATIO * path.stat().st_size:
        raise DamagedFileError(f"{path.name} is too small for the {num_rows} lines it should have")
    array: np.ndarray | None = None
    row = 0
    for lines in _chunks(path):
        if array is None:
            num_columns = num_columns or lines[0].count(",") + 1
            array = np.empty((num_rows, num_columns), dtype=dtype)
        if row + len(lines) > num_rows:
            raise DamagedFileError(f"{path.name} has more than the {num_rows} lines it should have")
        array[row : row + len(lines)] = _parsed(path, lines, row, array.shape[1], dtype)
        row += len(lines)
    if row != num_rows:
        raise DamagedFileError(f"{path.name} has {row} lines, expected {num_rows}")
    return np.empty((0, num_columns or 0), dtype=dtype) if array is None else array


def _chunks(path: Path) -> Iterator[list[str]]:
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            while lines := file.readlines(_CHUNK):
                yield lines
    except EOFError:
        raise DamagedFileError(f"{path.name} is truncated; download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DamagedFileError(f"{path.name} is not a valid gzip file ({error}); download it again") from None
    except UnicodeDecodeError:
        raise DamagedFileError(f"{path.name} has characters other than numbers and commas") from None


def _parsed(path: Path, lines: list[str], row: int, num_columns: int, dtype: type) -> np.ndarray:
    numbers = _numbers(lines, num_columns, dtype)
    if numbers is not None:
        return numbers
    bad = next(i for i, line in enumerate(lines) if _numbers([line], num_columns, dtype) is None)
    shown = lines[bad].strip()
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    kind = "whole" if np.issubdtype(dtype, np.integer) else "finite"
    expected = f"{num_columns} {kind} number{'s' if num_columns > 1 else ''}"
    raise DamagedFileError(f"line {row + bad + 1} of {path.name} is {shown!r}, expected {expected}")


def _numbers(lines: list[str], num_columns: int, dtype: type) -> np.ndarray | None:
    """Parse lines; ``None`` if one of them does not consist of ``num_columns`` finite numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy only warns about empty lines and about 1.5 as an integer
        try:
            numbers: np.ndarray = np.loadtxt(lines, delimiter=",", dtype=dtype, ndmin=2, comments=None)
        except (ValueError, UserWarning, DeprecationWarning):
            return None
    if numbers.shape != (len(lines), num_columns) or not np.isfinite(numbers).all():
        return None
    return numbers
