"""A live graph on disk: a folder of plain arrays with a manifest that names the model and the base they belong to.

A *base* has all that was computed of it; *changes* have what is different since. Nothing in a folder is executed, and
nothing is used before its checksum is verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta, Struct, structs
from torch import Tensor

from oddnode._utils.atomic_files import check_name, new_folder, read_folder
from oddnode._version import __version__
from oddnode.detector import Detector
from oddnode.detector.saving import tensors_of
from oddnode.graph import GraphError
from oddnode.large import FolderError
from oddnode.large.arrays import ArrayEntry, check_sum, map_array, write_array
from oddnode.large.manifest import read_json, write_json
from oddnode.online.growing import Id
from oddnode.scoring.evidence import _Compared, _KnownAround
from oddnode.tables import TableModel
from oddnode.tables.used_rows import arrow_ids
from oddnode.tables.values import pa

#: The version of the format; a folder of another version is refused.
FORMAT = 2
MANIFEST = "live.json"

# What scorers may know about a whole graph, besides tensors.
_FACTS: tuple[Any, ...] = (_Compared, _KnownAround)
_Size = Annotated[int, Meta(ge=0, le=2**53)]
T = TypeVar("T", bound=Struct)
_ANEW = "delete it and save the live graph again"


class NetworkFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one network: the names of the columns of its values, and of its facts."""

    values: list[tuple[str, str]]
    facts: list[tuple[str, str]]


class BaseFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of a base that are no arrays."""

    graph: str  # The graph folder that has its features and edges; empty if they are among the arrays
    version: _Size
    next_id: int
    directed: bool
    is_symmetric: bool
    max_neighbours: Annotated[int, Meta(ge=1)]
    reach: Annotated[int, Meta(ge=1)]
    tried: list[_Size]
    spread: float
    ids: Literal["indices", "arrow", "mixed"]
    columns: list[list[str | int | float]]
    networks: list[NetworkFacts]


class ChangeFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of changes that are no arrays."""

    base: str  # The key of the base
    version: _Size
    num_nodes: _Size
    next_id: int


class _Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The file ``live.json``."""

    format: int
    oddnode_version: str
    kind: Literal["base", "changes"]
    model: str  # As `model_key`
    facts: msgspec.Raw
    arrays: dict[Annotated[str, Meta(pattern="^[a-z_0-9-]+$")], ArrayEntry]


class _Header(Struct):
    format: int
    oddnode_version: str


def write(folder: Path, model: str, facts: BaseFacts | ChangeFacts, arrays: Mapping[str, np.ndarray]) -> str:
    """Write a folder atomically, and return its key: a hash of everything in it."""
    check_name(folder)
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MANIFEST).exists())):
        raise FileExistsError(f"{folder} holds something else than a live graph; give a new or an empty folder")
    kind: Any = "base" if isinstance(facts, BaseFacts) else "changes"
    with new_folder(folder) as part:
        entries = {name: write_array(part / f"{name}.bin", values) for name, values in arrays.items()}
        encoded = msgspec.Raw(msgspec.json.encode(facts))
        manifest = _Manifest(FORMAT, __version__, kind, model, encoded, entries)
        write_json(part / MANIFEST, manifest)
        return _key(manifest)


def read(folder: Path, model: str, kind: type[T]) -> tuple[T, dict[str, Tensor], str]:
    """Read and check a folder: its facts, its arrays, mapped copy-on-write, and its key."""
    try:
        return read_folder(folder, lambda place: _read(place, model, kind))
    except FolderError as error:
        raise FolderError(f"{str(error).partition('; ')[0]}; {_ANEW}") from None


def _read(folder: Path, model: str, kind: type[T]) -> tuple[T, dict[str, Tensor], str]:
    path = folder / MANIFEST
    header = read_json(path, _Header)
    if (header.format, header.oddnode_version) != (FORMAT, __version__):
        raise FolderError(
            f"{folder} was written by oddnode {header.oddnode_version} in format {header.format}, expected "
            f"{__version__} in format {FORMAT}"
        )
    manifest = read_json(path, _Manifest)
    expected = "base" if issubclass(kind, BaseFacts) else "changes"
    if manifest.kind != expected:
        raise FolderError(f"{folder} has the {manifest.kind} of a live graph, expected its {expected}")
    if manifest.model != model:
        raise FolderError(f"{folder} belongs to another model ({manifest.model[:12]}), expected {model[:12]}")
    arrays = {}
    for name, entry in manifest.arrays.items():
        arrays[name] = map_array(folder / f"{name}.bin", entry)
        check_sum(folder / f"{name}.bin", entry)
    try:
        facts = msgspec.json.decode(manifest.facts, type=kind)
        # Encoded anew, because the file has spaces for readers.
        return facts, arrays, _key(structs.replace(manifest, facts=msgspec.Raw(msgspec.json.encode(facts))))
    except msgspec.DecodeError as error:
        raise FolderError(f"{path} is damaged ({error})") from None


def _key(manifest: _Manifest) -> str:
    # Compact: facts that were read are spaced as they are in the file.
    return hashlib.sha256(msgspec.json.format(msgspec.json.encode(manifest), indent=-1)).hexdigest()


def model_key(model: Detector | TableModel) -> str:
    """A hash of all that scores follow from: tensors, scorers, schema; not of the false-alarm rate."""
    detector = model.detector if isinstance(model, TableModel) else model
    facts = [repr(detector.state_.module), repr(detector.state_.scorer), repr(detector.state_.max_abs_feature)]
    if isinstance(model, TableModel):
        facts += [msgspec.json.encode(model.schema.to_json()).decode(), model.basis]
    digest = hashlib.sha256(msgspec.json.encode(facts))
    for name, value in sorted(tensors_of(detector).items()):
        array = np.ascontiguousarray(value.detach().cpu().numpy())
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


# --- columns, ids and facts as arrays ---


def key_of_column(saved: Sequence[str | int | float]) -> Hashable:
    """The key of a column, from a list."""
    return saved[0] if len(saved) == 1 else tuple(saved)


def saved_ids(ids: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Ids as arrays, and how they are stored: numbers, strings as in a graph folder, or a mixture as JSON."""
    if ids is None:
        return "indices", {}
    kinds = {type(node) for node in ids} if isinstance(ids, list) else set()
    if len(kinds) > 1:
        return "mixed", {"ids": np.frombuffer(msgspec.json.encode(ids), np.uint8)}
    array = pa.array(ids) if isinstance(ids, list) else ids
    if pa.types.is_integer(array.type):
        return "arrow", {"ids": array.cast(pa.int64()).to_numpy()}
    array = array.cast(pa.large_string())
    _, ends, text = array.buffers()
    offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
    held = np.empty(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)
    return "arrow", {"id_offsets": offsets - offsets[0], "id_bytes": held[offsets[0] : offsets[-1]]}


def read_ids(kind: str, arrays: Mapping[str, Tensor], num_nodes: int) -> Any:
    """Ids that `saved_ids` stored."""
    if kind == "indices":
        return None
    own = {name: arrays[name].numpy() for name in ("ids", "id_offsets", "id_bytes") if name in arrays}
    return mixed_ids(own["ids"]) if kind == "mixed" else arrow_ids(own, 0, num_nodes)


def mixed_ids(array: np.ndarray) -> list[Id]:
    """A list of numbers and strings that was stored as JSON."""
    return msgspec.json.decode(array.tobytes(), type=list[int | str])


def saved_fact(value: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """A fact about the whole graph as arrays."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        for field, each in value._asdict().items():
            yield from saved_fact(each, f"{name}-{field}")
    elif isinstance(value, Tensor):
        yield name, value.detach().cpu().numpy()
    else:
        yield name, np.array([value], dtype=bool)


def check_fact(value: Any, owner: str) -> None:
    """Raise an error for a fact of a scorer that cannot be read again."""
    if not isinstance(value, (Tensor, *_FACTS)):
        raise GraphError(
            f"{owner[:60]} keeps a {type(value).__name__} about the whole graph, which cannot be saved; a live graph "
            "with this scorer is computed anew at every start"
        )


def read_fact(arrays: Mapping[str, Tensor], name: str, kind: Any = None) -> Any:
    """A fact that `saved_fact` stored."""
    if kind is None and name in arrays:
        return arrays[name]
    if kind is None:
        kind = next(each for each in _FACTS if f"{name}-{each._fields[0]}" in arrays)
    values: dict[str, Any] = {}
    for field, own in get_type_hints(kind).items():
        found = arrays.get(f"{name}-{field}")
        values[field] = read_fact(arrays, f"{name}-{field}", own) if found is None else found
        if own is bool:
            values[field] = bool(values[field])
    return kind(**values)
