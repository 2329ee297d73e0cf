"""A reader of pickled arrays, sparse matrices and adjacency lists that never calls anything the file names.

A pickle is a program for a small stack machine. This module is another machine for the few operations that
Planetoid's files consist of: it makes integers, bytes, tuples, lists, dictionaries, and arrays of numbers out of bytes.
The names in a file select one of the forms below and are never looked up. The operations come from
`pickletools.genops`, which only splits the file into them.
"""

from __future__ import annotations

import math
import pickletools  # it splits a file into operations and runs none  # nosec B403
from enum import Enum
from typing import Any

import numpy as np
import scipy.sparse

#: Far above real files; it bounds the memory that a file of many empty lists takes.
_MOST_OPERATIONS = 2**22

_DTYPES = {code.encode(): np.dtype(f"<{code}") for code in ("i4", "i8", "f4", "f8")}


#: What a name in a file stands for, and the arrays and matrices whose content follows.
_Name = Enum("_Name", "RECONSTRUCT NDARRAY DTYPE CSR_MATRIX DEFAULTDICT LIST NEW_ARRAY NEW_CSR_MATRIX")

_NAMES = {
    "numpy.core.multiarray _reconstruct": _Name.RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _Name.RECONSTRUCT,
    "numpy ndarray": _Name.NDARRAY,
    "numpy dtype": _Name.DTYPE,
    "scipy.sparse.csr csr_matrix": _Name.CSR_MATRIX,
    "scipy.sparse._csr csr_matrix": _Name.CSR_MATRIX,
    "collections defaultdict": _Name.DEFAULTDICT,
    "__builtin__ list": _Name.LIST,
    "builtins list": _Name.LIST,
}


def read_arrays(raw: bytes) -> Any:
    """Read a pickle of protocol 2 or 3."""
    machine = _Machine()
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(raw)):
            if count > _MOST_OPERATIONS:
                raise ValueError(f"it has more than {_MOST_OPERATIONS} operations")
            machine.step(operation.name, argument)
        return machine.stack.pop()
    except (IndexError, KeyError, TypeError, DeprecationWarning):  # the last for odd escapes, if warnings are errors
        raise ValueError("its operations do not fit together") from None


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        match name:
            case "PROTO" | "STOP":
                pass
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINBYTES" | "SHORT_BINBYTES":
                stack.append(argument)
            case "BINSTRING" | "SHORT_BINSTRING":  # strings of Python 2, which are bytes
                stack.append(argument.encode("latin-1"))
            case "BINUNICODE":
                stack.append(argument.encode())
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "GLOBAL" if argument in _NAMES:
                stack.append(_NAMES[argument])
            case "GLOBAL":
                raise ValueError(f"it refers to {argument.replace(' ', '.')[:60]}, which data does not need")
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(_repeated(self.memo[argument]))
            case "MARK":
                self.marks.append(len(stack))
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                stack.append({"EMPTY_TUPLE": (), "EMPTY_LIST": [], "EMPTY_DICT": {}}[name])
            case "TUPLE":
                stack.append(_tuple(self.since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(_tuple(self.last(int(name[-1]))))
            case "APPEND" | "APPENDS":
                _extend(self.last(1) if name == "APPEND" else self.since_mark(), stack[-1])
            case "SETITEM" | "SETITEMS":
                _update(self.last(2) if name == "SETITEM" else self.since_mark(), stack[-1])
            case "NEWOBJ" | "REDUCE":
                stack.append(_made(*self.last(2)))
            case "BUILD":
                stack.append(_filled(*self.last(2)))
            case _:
                raise ValueError(f"it has the operation {name}, which data does not need")

    def last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items


def _repeated(value: Any) -> Any:
    """A value that a file uses again; not a list or an array, which a small file could repeat endlessly."""
    if not isinstance(value, (_Name, np.dtype, bytes)):
        raise ValueError(f"it repeats a {type(value).__name__}, which data does not need")
    return value


def _tuple(items: list[Any]) -> tuple:
    """A tuple of values that are cheap to compare, which arrays and matrices are not."""
    if not all(item is None or isinstance(item, (int, bytes, tuple, _Name, np.dtype)) for item in items):
        raise ValueError("it has a tuple of lists or arrays, which data does not need")
    return tuple(items)


def _extend(items: list[Any], target: Any) -> None:
    if not isinstance(target, list):
        raise ValueError("it appends to something that is not a list")
    target.extend(items)


def _update(items: list[Any], target: Any) -> None:
    keys, values = items[::2], items[1::2]
    # Only keys that are cheap to hash and to compare.
    if not isinstance(target, dict) or any(type(key) not in (int, bytes) for key in keys):
        raise ValueError("it has a dictionary with keys that are neither integers nor strings")
    target.update(zip(keys, values, strict=True))


def _made(name: Any, arguments: Any) -> Any:
    match name, arguments:
        case _Name.RECONSTRUCT, (_Name.NDARRAY, (0,), b"b"):
            return _Name.NEW_ARRAY
        case _Name.DTYPE, (bytes(code), 0 | 1, 0 | 1):
            if code not in _DTYPES:
                raise ValueError(f"it has an array of type {code[:20]!r}, expected 4 or 8 bytes per number")
            return _DTYPES[code]
        case _Name.CSR_MATRIX, ():
            return _Name.NEW_CSR_MATRIX
        case _Name.DEFAULTDICT, (_Name.LIST,):
            return {}
    raise ValueError("it has a call that data does not need")


def _filled(target: Any, state: Any) -> Any:
    match target, state:
        case np.dtype(), (3, b"<", None, None, None, -1, -1, 0):
            return target
        case _Name.NEW_ARRAY, (1, tuple(shape), np.dtype() as dtype, False, bytes(raw)):
            return _array(shape, dtype, raw)
        case _Name.NEW_CSR_MATRIX, {b"_shape": tuple(shape), b"indptr": indptr, b"indices": indices, b"data": data}:
            return _csr_matrix(shape, indptr, indices, data)
    raise ValueError("it has an array or a matrix in an unknown form")


def _array(shape: tuple, dtype: np.dtype, raw: bytes) -> np.ndarray:
    if not _are_sizes(shape) or math.prod(shape) * dtype.itemsize != len(raw):
        raise ValueError(f"it has an array whose {len(raw)} bytes do not fit its shape")
    values = np.frombuffer(raw, dtype).reshape(shape)
    if not np.isfinite(values).all():
        raise ValueError("it has numbers that are not finite")
    return values


def _csr_matrix(shape: tuple, indptr: Any, indices: Any, data: Any) -> scipy.sparse.csr_matrix:
    if not _are_sizes(shape) or len(shape) != 2:
        raise ValueError("it has a matrix whose shape is not two valid sizes")
    if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in (indptr, indices, data)):
        raise ValueError("it has a matrix whose parts are not arrays")
    kinds, sizes = indptr.dtype.kind + indices.dtype.kind, (len(indptr), len(indices))
    if kinds != "ii" or sizes != (shape[0] + 1, len(data)):
        raise ValueError(f"it has a matrix whose parts do not fit its {shape[0]} rows")
    # SciPy does not look at the pointers of a matrix that claims to be empty.
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise ValueError("it has a matrix whose rows overlap or end outside it")
    matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _are_sizes(shape: tuple) -> bool:
    return 1 <= len(shape) <= 2 and all(type(size) is int and 0 <= size < 2**31 for size in shape)
