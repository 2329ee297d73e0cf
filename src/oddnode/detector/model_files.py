"""The files of a saved model as bytes: ``config.json``, ``model.safetensors``, and a manifest with their checksums.

Sizes are checked before anything is read, and checksums before anything is used. Imports no slow module.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
from msgspec import Meta, Struct

from oddnode._utils.atomic_files import sync_file
from oddnode._utils.hidden_siblings import moved_aside
from oddnode.detector.checked_json import ModelFileError, checked, first_line, parse_json

__all__ = [
    "CONFIG",
    "FILES",
    "TENSORS",
    "FileFacts",
    "TensorFacts",
    "read_json",
    "read_manifest",
    "read_tensor_bytes",
    "tensors_in",
    "write_files",
]

CONFIG, TENSORS, MANIFEST = "config.json", "model.safetensors", "manifest.json"
#: The names of the files.
FILES = (CONFIG, TENSORS, MANIFEST)

# Far above the files of real models, but low enough that a hostile file cannot exhaust the machine.
_LARGEST_JSON = 16 * 2**20
_MOST_DIMENSIONS = 8
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}

_Size = Annotated[int, Meta(ge=0, le=2**53)]


class FileFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """A file in the manifest.

    Parameters
    ----------
    bytes : int
        Its size.
    sha256 : str
        Its checksum, in hexadecimal.
    """

    bytes: _Size
    sha256: str


class TensorFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor in the header of a safetensors file.

    Parameters
    ----------
    dtype : str
        The type of its numbers, such as ``"F32"``.
    shape : list of int
        Its shape.
    data_offsets : pair of int
        Where its bytes start and end.
    """

    dtype: str
    shape: list[_Size]
    data_offsets: tuple[_Size, _Size]


# --- writing ---------------------------------------------------------------------------------------------------------


def write_files(folder: Path, config: dict[str, Any], tensors: bytes) -> None:
    """Write the files of a model.

    Parameters
    ----------
    folder : Path
        An empty folder.
    config : dict
        The content of ``config.json``.
    tensors : bytes
        The content of ``model.safetensors``.
    """
    text = json.dumps(config, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    contents = {CONFIG: text.encode(), TENSORS: tensors}
    if len(contents[CONFIG]) > _LARGEST_JSON:
        raise ValueError(
            f"{CONFIG} would have {len(contents[CONFIG])} bytes, but at most {_LARGEST_JSON} can be loaded again; "
            "use fewer columns or categories"
        )
    facts = {name: FileFacts(len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in contents.items()}
    for name, raw in (contents | {MANIFEST: _manifest(facts)}).items():
        (folder / name).write_bytes(raw)
        sync_file(folder / name)


def _manifest(facts: dict[str, FileFacts]) -> bytes:
    return (json.dumps(msgspec.to_builtins(facts), indent=1) + "\n").encode()


# --- reading ---------------------------------------------------------------------------------------------------------


def read_json(folder: Path) -> tuple[Any, bytes]:
    """Read ``config.json``.

    Parameters
    ----------
    folder : Path
        The model's folder.

    Returns
    -------
    object
        Its content.
    bytes
        The same as bytes, which `read_manifest` checks.
    """
    if not os.path.isdir(folder):  # this one raises no error for names that no folder can have
        aside = moved_aside(folder)
        hint = "" if aside is None else f"; a process that was replacing it has left it as {aside}, move it back"
        found = "it is a file" if os.path.exists(folder) else "it does not exist"
        raise ModelFileError(f"{folder} is not a folder with a saved model: {found}{hint}")
    if not os.path.lexists(folder / CONFIG):
        raise ModelFileError(
            f"{folder} is not a saved model: it has no {CONFIG}. A saved model is a folder with {', '.join(FILES)}, as "
            "`oddnode fit --out` and Detector.save write it"
        )
    raw = _read_bytes(folder / CONFIG)
    try:
        return parse_json(raw), raw
    except ModelFileError as error:
        raise ModelFileError(f"{folder / CONFIG} {error}") from None


def read_manifest(folder: Path, config: bytes) -> FileFacts:
    """Read ``manifest.json``, and check the config against it.

    Parameters
    ----------
    folder : Path
        The model's folder.
    config : bytes
        From `read_json`.

    Returns
    -------
    FileFacts
        What it says of ``model.safetensors``.
    """
    raw = _read_bytes(folder / MANIFEST)
    try:
        facts = checked(parse_json(raw), dict[str, FileFacts], "")
    except ModelFileError as error:
        raise ModelFileError(f"{folder / MANIFEST}: {error}") from None
    if set(facts) != {CONFIG, TENSORS} or raw != _manifest(facts):
        raise ModelFileError(f"{folder / MANIFEST} is damaged or was changed")
    _check_content(folder / CONFIG, config, facts[CONFIG])
    return facts[TENSORS]


def read_tensor_bytes(folder: Path, facts: FileFacts) -> tuple[bytes, dict[str, TensorFacts]]:
    """Read ``model.safetensors``, and check it against the manifest and against its own header.

    Parameters
    ----------
    folder : Path
        The model's folder.
    facts : FileFacts
        From `read_manifest`.

    Returns
    -------
    bytes
        Its content.
    dict
        The types and shapes of its tensors, by name.
    """
    path = folder / TENSORS
    size = _size_of(path)
    if size != facts.bytes:
        raise ModelFileError(f"{path} has {size} bytes, but {facts.bytes} according to {MANIFEST}")
    try:
        with path.open("rb") as file:
            tensors = tensors_in(file, size)
            file.seek(0)
            raw = file.read(size)
    except ModelFileError as error:
        raise ModelFileError(f"{path} is damaged or not a safetensors file: {error}") from None
    except (OSError, MemoryError) as error:
        raise ModelFileError(f"{path} cannot be read: {first_line(error)}") from None
    _check_content(path, raw, facts)
    return raw, tensors


def tensors_in(file: BinaryIO, size: int) -> dict[str, TensorFacts]:
    """Read the header of a safetensors file and check it against the file's size, without reading the numbers.

    Parameters
    ----------
    file : binary file
        At its start.
    size : int
        Its size in bytes.

    Returns
    -------
    dict
        The types and shapes of its tensors, by name.
    """
    length = int.from_bytes(file.read(8), "little")
    longest = min(max(size - 8, 0), _LARGEST_JSON)
    if length > longest:
        raise ModelFileError(f"its header has {length} bytes, expected at most {longest}")
    header = parse_json(file.read(length))
    if isinstance(header, dict):
        header.pop("__metadata__", None)
    end = 0
    tensors = checked(header, dict[str, TensorFacts], "")
    for name, facts in tensors.items():
        _check_tensor(name, facts)
        end = max(end, facts.data_offsets[1])
    if 8 + length + end != size:
        raise ModelFileError(f"it has {size} bytes, but {8 + length + end} according to its header")
    return tensors


def _check_tensor(name: str, facts: TensorFacts) -> None:
    if facts.dtype not in _ITEM_BYTES:
        raise ModelFileError(f"{name[:60]!r} is {facts.dtype[:20]}, expected one of {', '.join(_ITEM_BYTES)}")
    if len(facts.shape) > _MOST_DIMENSIONS:
        raise ModelFileError(f"{name[:60]!r} has {len(facts.shape)} dimensions, expected at most {_MOST_DIMENSIONS}")
    start, end = facts.data_offsets
    if math.prod(facts.shape) * _ITEM_BYTES[facts.dtype] != end - start:
        raise ModelFileError(f"{name[:60]!r} has {end - start} bytes, which do not fit its shape")


def _check_content(path: Path, raw: bytes, facts: FileFacts) -> None:
    if len(raw) != facts.bytes or hashlib.sha256(raw).hexdigest() != facts.sha256:
        raise ModelFileError(
            f"{path} is damaged or was changed: its checksum is not that in {MANIFEST}; take another copy of the "
            "model, or save it again"
        )


def _read_bytes(path: Path) -> bytes:
    size = _size_of(path)
    if size > _LARGEST_JSON:
        raise ModelFileError(f"{path} has {size} bytes, expected at most {_LARGEST_JSON}")
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_JSON)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None


def _size_of(path: Path) -> int:
    # Only regular files, because reading a pipe or a device may never end.
    try:
        if path.is_file():
            return path.stat().st_size
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    raise ModelFileError(f"{path} is missing or not a regular file")
