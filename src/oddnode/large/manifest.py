"""The manifest of a graph folder: what it holds, with the checksums of all files."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from filelock import FileLock, Timeout
from msgspec import Meta, Struct

from oddnode._utils.atomic_files import new_file
from oddnode.large.arrays import ANEW, ArrayEntry, FolderError, regular_size

#: The version of the format; a folder of another version is refused.
FORMAT = 2

#: The file that completes a folder.
MANIFEST = "graph.json"
#: The lock file for writing to a folder.
LOCK = ".lock"
#: The subfolder of a graph that is being prepared.
BUILDING = ".building"

_Count = Annotated[int, Meta(ge=0, le=2**53)]
T = TypeVar("T")

# Far above real files, but small enough to be read.
_LARGEST_JSON = 2**26
_CHECKSUM = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n')

# The types that each array may have; masks are booleans.
_TYPES = {
    "x": ("float32", "float64"),
    "weights": ("float32", "float64"),
    "loop_weights": ("float32", "float64"),
    "sources": ("int32", "int64"),
    "id_bytes": ("uint8",),
}


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The file ``graph.json``, which is written last."""

    format: int  # The version of the format
    num_nodes: Annotated[int, Meta(ge=1, le=2**53)]  # Number of nodes
    num_edges: _Count  # Number of edges, as columns of an `edge_index`
    max_abs_feature: Annotated[float, Meta(ge=0, le=sys.float_info.max)]  # The largest magnitude of a feature
    arrays: dict[str, ArrayEntry]  # The arrays, by name; each is the file `<name>.bin`
    made_from: str  # A fingerprint of what the folder was made from
    classes: list[bool | int | str] | None = None  # The label that each class stands for
    table: dict[str, Any] | None = None  # How the tables that it was made from were read, as a model saves it
    notes: list[str] = []  # Notes for the user on how they were read

    @property
    def graph_key(self) -> str:
        """A hash of what sidecars depend on: features, edges and weights, by their checksums."""
        parts = [self.arrays.get(name) for name in ("x", "sources", "offsets", "weights")]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a folder."""
    path = folder / MANIFEST
    if not path.is_symlink() and not path.exists():
        raise FolderError(_why_incomplete(folder))
    raw = _read(path)
    version = _decoded(path, raw, _Version).format
    if version != FORMAT:
        raise FolderError(
            f"{folder} has the format {version}, expected {FORMAT}: it was made by another version of oddnode; "
            f"{ANEW}, or use that version"
        )
    manifest = _decoded(path, _without_checksum(path, raw), Manifest)
    _check_shapes(path, manifest)
    return manifest


class _Version(Struct):
    format: int


def _why_incomplete(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is not a folder; make one with `oddnode prepare` or oddnode.large.build_folder"
    if is_locked(folder):
        return f"{folder} is being written by another process; wait until it has finished"
    if (folder / BUILDING).is_dir():
        return f"{folder} was not finished; prepare the graph again, which resumes the work"
    return f"{folder} holds no graph ({MANIFEST} is missing); give a folder that `oddnode prepare` wrote"


def _check_shapes(path: Path, manifest: Manifest) -> None:
    nodes, edges = manifest.num_nodes, manifest.num_edges
    odd = next((name for name in manifest.arrays if not re.fullmatch("[a-z_]+", name)), None)
    if odd is not None:  # names become file names
        raise FolderError(f"{path} lists the unknown array {odd[:60]!r}; {ANEW}")
    text = [manifest.arrays[name] for name in ("id_offsets", "id_bytes") if name in manifest.arrays]
    if text and (len(text) == 1 or "ids" in manifest.arrays or len(text[1].shape) > 1):
        raise FolderError(f"{path} does not list ids as integers or as strings; {ANEW}")
    per_node = {"y", "ids", *(name for name in manifest.arrays if name.endswith("_mask"))}
    expected: dict[str, tuple[int, ...]] = {name: (nodes,) for name in per_node if name in manifest.arrays}
    expected |= {"offsets": (nodes + 1,), "sources": (edges,)} | ({"id_offsets": (nodes + 1,)} if text else {})
    loops = manifest.arrays["loop_nodes"].shape if "loop_nodes" in manifest.arrays else (0,)
    expected |= {"loop_nodes": loops, "loop_counts": loops}
    if "weights" in manifest.arrays:
        expected |= {"weights": (edges,), "loop_weights": loops}
    for name, shape in expected.items():
        if name not in manifest.arrays or manifest.arrays[name].shape != shape:
            raise FolderError(f"{path} does not list {name!r} with the shape {list(shape)}; {ANEW}")
    x = manifest.arrays.get("x")
    if x is None or len(x.shape) != 2 or x.shape[0] != nodes or x.shape[1] == 0:
        raise FolderError(f"{path} does not list features of {nodes} nodes; {ANEW}")
    if "weights" in manifest.arrays and manifest.arrays["weights"].dtype != x.dtype:
        raise FolderError(f"{path} does not list weights in the dtype of the features; {ANEW}")
    for name, entry in manifest.arrays.items():
        types = ("bool",) if name.endswith("_mask") else _TYPES.get(name, ("int64",))
        if entry.dtype not in types:
            raise FolderError(f"{path} lists {name!r} as {entry.dtype}, expected {' or '.join(types)}; {ANEW}")


def read_json(path: Path, kind: type[T]) -> T:
    """Read a file that `write_json` wrote, and verify its checksum."""
    return _decoded(path, _without_checksum(path, _read(path)), kind)


def _read(path: Path) -> bytes:
    size = regular_size(path)
    if size > _LARGEST_JSON:
        raise FolderError(f"{path} has {size} bytes, expected at most {_LARGEST_JSON}; {ANEW}")
    return path.read_bytes()


def _without_checksum(path: Path, raw: bytes) -> bytes:
    """The JSON as it was before `write_json` put the checksum of all that follows in front of it."""
    start = _CHECKSUM.match(raw)
    if start is None or hashlib.sha256(raw[start.end() :]).hexdigest().encode() != start[1]:
        raise FolderError(f"{path} is damaged (it does not fit its checksum); {ANEW}")
    return b"{\n" + raw[start.end() :]


def _decoded(path: Path, raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FolderError(f"{path} is damaged ({error}); {ANEW}") from None


def write_json(path: Path, value: Struct) -> None:
    """Write a file atomically, with the checksum of its content as the first field."""
    rest = msgspec.json.format(msgspec.json.encode(value), indent=1).removeprefix(b"{\n")
    if len(rest) > _LARGEST_JSON // 2:
        raise FolderError(f"{path} would have {len(rest)} bytes: the tables have too many columns or categories")
    if path.is_symlink():  # `new_file` follows links, here to what is no file of a graph
        path.unlink()
    with new_file(path) as part:
        part.write_bytes(b'{\n "sha256": "%s",\n' % hashlib.sha256(rest).hexdigest().encode() + rest)


def folder_lock(folder: Path, timeout: float = -1) -> FileLock:
    """Return the lock for writing to a folder; the system releases it when a process dies."""
    path = folder / LOCK
    if path.is_symlink() or path.exists():  # opening a lock file truncates it, or what it links to
        regular_size(path)
    return FileLock(path, timeout=timeout)


def is_locked(folder: Path) -> bool:
    """Whether a process is writing to a folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        with folder_lock(folder, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a folder that cannot be written is not being written
        return False
