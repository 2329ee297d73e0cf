"""The files of a saved model, read and checked without importing torch.

A saved model is a folder with ``config.json``, ``model.safetensors`` and a manifest with their checksums. Sizes are
checked before anything is read, and checksums before anything is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from stat import S_ISDIR
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from safetensors import SafetensorError, safe_open

from oddnode._utils.atomic_files import check_name, moved_aside, read_folder, recover, sync_file
from oddnode._utils.checked_json import (
    LARGEST_INT,
    LARGEST_JSON,
    Count,
    LayerCount,
    ModelFileError,
    Number,
    Size,
    checked,
    file_size,
    first_line,
    parse_json,
    read_json_bytes,
    show,
)
from oddnode._version import __version__

FORMAT = "oddnode detector"
FORMAT_VERSION = 4

CONFIG, TENSORS, MANIFEST = "config.json", "model.safetensors", "manifest.json"
FILES = (CONFIG, TENSORS, MANIFEST)

_DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")
# Batch norm's buffers, which are not counted as weights.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The saved arguments of `Detector`, except for its parts; the device and the trainer are not saved."""

    hidden_channels: Count
    num_layers: LayerCount
    dropout: Number
    num_spare_logits: Annotated[int, Meta(ge=0, le=LARGEST_INT)]
    epochs: Count
    lr: Number
    weight_decay: Number
    val_share: Number
    batch_norm: Literal["id-graph", "running"]
    propagation: Literal["auto", "as-given"]
    ensemble: Annotated[int, Meta(ge=1, le=1000)]
    seed: int


class ProfileConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The section on the training graph."""

    num_nodes: Size
    num_edges: Size
    mean_degree: Number
    isolated_share: Number
    labelled_edges: Size
    homophily: Number | None
    chance: Number | None


class CalibrationConfig(Struct, frozen=True):
    """The section on a calibration; the threshold is computed again from the saved scores and compared."""

    false_alarm_rate: Number
    threshold: Number
    num_nodes: Count


class ModelConfig(Struct, frozen=True):
    """The schema of ``config.json``; callers check additional sections, such as that of tables, themselves."""

    oddnode_version: str  # The version that wrote it
    method: str | None  # `None` if the parts of the detector were chosen one by one
    hyper_parameters: dict[str, bool | int | Number | str | None]
    backbone: str | dict[str, str]
    objective: dict[str, Any] | None  # As `oddnode.detector.part_config.encode` returns it
    scorer: dict[str, Any]
    settings: Settings
    num_features: Count
    num_classes: Count
    max_abs_feature: Annotated[float, Meta(ge=0, le=1e300)]
    best_epoch: Size
    dtype: Literal["float32", "float64"]
    graph: ProfileConfig
    advice: list[str]
    num_networks: Count  # More than the setting `ensemble` if networks were cross-fitted
    learnt: dict[str, bool | int | Number | str | None]  # Learnt values of the scorer that are not tensors, by path
    calibration: CalibrationConfig | None


class FileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A file in the manifest."""

    bytes: Size
    sha256: str


def check_target(target: Path) -> None:
    """Check that a model can be written, so that a mistake shows before the training and not after it."""
    standing = next(parent for parent in target.absolute().parents if parent.exists())
    if not standing.is_dir():
        raise NotADirectoryError(f"cannot write {target}: {standing} is not a folder")
    if not os.access(standing, os.W_OK):
        raise PermissionError(f"cannot write {target}: no permission to write into {standing}")
    check_name(target)
    recover(target)
    try:
        status = target.stat()  # once, because another process may replace it
    except FileNotFoundError:
        return
    if not S_ISDIR(status.st_mode):
        raise FileExistsError(f"{target} is a file; give a folder for the model")
    names = read_folder(target, lambda folder: {entry.name for entry in folder.iterdir()})
    others = sorted(names.difference(FILES))
    if others:
        raise FileExistsError(
            f"{target} has other files ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}); "
            "give a new folder, or one with a saved model and nothing else"
        )
    if names:
        try:
            read_folder(target, _read_header)
        except ModelFileError as error:
            raise FileExistsError(f"{target} is not replaced, because it is not a saved model: {error}") from None


def write_files(folder: Path, config: dict[str, Any], tensors: bytes) -> None:
    """Write the files of a model, and raise an error if they could not be loaded again."""
    text = json.dumps(config, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    contents = {CONFIG: text.encode(), TENSORS: tensors}
    if len(contents[CONFIG]) > LARGEST_JSON:
        raise ValueError(
            f"{CONFIG} would have {len(contents[CONFIG])} bytes, but at most {LARGEST_JSON} can be loaded again; "
            "use fewer columns or categories"
        )
    contents[MANIFEST] = _manifest({name: _entry(raw) for name, raw in contents.items()})
    for name, raw in contents.items():
        (folder / name).write_bytes(raw)
        sync_file(folder / name)
    try:
        _tensor_shapes(folder / TENSORS)
    except ModelFileError as error:
        raise ValueError(f"the tensors of the model cannot be saved: {error}") from None


def _entry(raw: bytes) -> FileEntry:
    return FileEntry(len(raw), hashlib.sha256(raw).hexdigest())


def _manifest(entries: dict[str, FileEntry]) -> bytes:
    return (json.dumps(msgspec.to_builtins(entries), indent=1) + "\n").encode()


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config of a saved model without building the model.

    Parameters
    ----------
    folder : Path
        The model's folder.

    Returns
    -------
    dict
        ``config.json``, as it was saved; only its format and version have been checked.
    """
    return read_folder(folder, _read_config)[0]


def read_summary(folder: Path) -> tuple[dict[str, Any], ModelConfig, int]:
    """Check the files of a saved model without building the model.

    Parameters
    ----------
    folder : Path
        The model's folder.

    Returns
    -------
    dict
        ``config.json``, as it was saved.
    ModelConfig
        The same, checked field by field.
    int
        The number of weights of its networks.
    """
    raw, _, shapes = read_folder(folder, read_model)
    weights = [name for name in shapes if name.startswith("module.") and not name.endswith(_STATISTICS)]
    try:
        return raw, checked(raw, ModelConfig, ""), sum(math.prod(shapes[name]) for name in weights)
    except ModelFileError as error:
        raise ModelFileError(f"{folder}: {error}") from None


def read_model(folder: Path) -> tuple[dict[str, Any], bytes, dict[str, list[int]]]:
    """Read the config, the content of ``model.safetensors``, and the shapes of the tensors, all checked."""
    config, entry = _read_config(folder)
    path = folder / TENSORS
    size = file_size(path)
    if size != entry.bytes:
        raise ModelFileError(f"{path} has {size} bytes, but {entry.bytes} according to {MANIFEST}")
    shapes = _tensor_shapes(path)
    try:
        raw = path.read_bytes()
    except (OSError, MemoryError) as error:
        raise ModelFileError(f"{path} cannot be read: {first_line(error)}") from None
    _check_content(path, raw, entry)
    return config, raw, shapes


def _tensor_shapes(path: Path) -> dict[str, list[int]]:
    """The shapes of the tensors. The library compares the header with the size of the file, and reads no numbers."""
    try:
        with safe_open(path, "np") as file:
            tensors = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, it is not a mapping
            for name, tensor in tensors.items():
                if tensor.get_dtype() not in _DTYPES:
                    kinds = ", ".join(_DTYPES)
                    raise ModelFileError(f"{name[:60]!r} is {tensor.get_dtype()}, expected one of {kinds}")
            return {name: tensor.get_shape() for name, tensor in tensors.items()}
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} is damaged or not a safetensors file: {first_line(error)}") from None


def _read_config(folder: Path) -> tuple[dict[str, Any], FileEntry]:
    """Read a config of this version, check it against the manifest, and return the manifest's entry of the tensors."""
    config, raw = _read_header(folder)
    version = config.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        older = isinstance(version, int) and version < FORMAT_VERSION
        advice = (
            "fit the model again with this version and save it (the file has its settings)"
            if older
            else "load it with the version that wrote it"
        )
        raise ModelFileError(
            f"{folder / CONFIG} has format version {show(version)} (oddnode {show(config.get('oddnode_version'))}), "
            f"but this is oddnode {__version__}, which reads version {FORMAT_VERSION}; {advice}"
        )
    manifest = read_json_bytes(folder / MANIFEST)
    try:
        entries = checked(parse_json(manifest), dict[str, FileEntry], "")
    except ModelFileError as error:
        raise ModelFileError(f"{folder / MANIFEST}: {error}") from None
    if set(entries) != {CONFIG, TENSORS} or manifest != _manifest(entries):
        raise ModelFileError(f"{folder / MANIFEST} is damaged or was changed")
    _check_content(folder / CONFIG, raw, entries[CONFIG])
    return config, entries[TENSORS]


def _read_header(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Read ``config.json``, and check its ``format``."""
    if not os.path.isdir(folder):  # this one raises no error for names that no folder can have
        aside = moved_aside(folder)
        hint = "" if aside is None else f"; a process that was replacing it has left it as {aside}, move it back"
        problem = "it is a file" if os.path.exists(folder) else "it does not exist"
        raise ModelFileError(f"{folder} is not a folder with a saved model: {problem}{hint}")
    path = folder / CONFIG
    if not os.path.lexists(path):
        raise ModelFileError(
            f"{folder} is not a saved model: it has no {CONFIG}. A saved model is a folder with {', '.join(FILES)}, as "
            "`oddnode fit --out` and Detector.save write it"
        )
    raw = read_json_bytes(path)
    try:
        config = parse_json(raw)
    except ModelFileError as error:
        raise ModelFileError(f"{path} {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not the config of a saved oddnode detector")
    return config, raw


def _check_content(path: Path, raw: bytes, entry: FileEntry) -> None:
    if _entry(raw) != entry:
        raise ModelFileError(
            f"{path} is damaged or was changed: its checksum is not that in {MANIFEST}; take another copy of the "
            "model, or save it again"
        )
