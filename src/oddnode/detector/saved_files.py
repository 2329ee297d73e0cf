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

from oddnode._utils.atomic_files import check_name, moved_aside, read_folder, recover
from oddnode._utils.checked_json import (
    Count,
    ModelFileError,
    Number,
    Size,
    checked,
    errors_in,
    file_size,
    first_line,
    read_json,
    show,
)
from oddnode._utils.memory import memory_limit
from oddnode._version import __version__
from oddnode.detector.recipes import Settings

FORMAT = "oddnode detector"
FORMAT_VERSION = 4

FILES = CONFIG, TENSORS, MANIFEST = "config.json", "model.safetensors", "manifest.json"

_DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")
# Batch norm's buffers, which are not counted as weights.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


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
    method: str | None  # `None` if the parts of the detector were given one by one
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
    """Check that a model can be written, so that a mistake is found before training and not after it."""
    standing = next(filter(Path.exists, target.absolute().parents))
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


def manifest_of(entries: dict[str, FileEntry]) -> bytes:
    """The manifest, in its only valid form."""
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
    with errors_in(folder):
        return raw, checked(raw, ModelConfig, ""), sum(math.prod(shapes[name]) for name in weights)


def read_forecast(folder: Path, config: ModelConfig) -> dict[str, float]:
    """The share of altered known nodes that a saved model would flag at 5 %, by alteration; empty without a rehearsal.

    Parameters
    ----------
    folder : Path
        The model's folder.
    config : ModelConfig
        From `read_summary`, which has checked the files.
    """
    learnt = ((path, names) for path, names in config.learnt.items() if path.endswith(".alterations_") and names)
    path, names = next(learnt, ("", ""))
    if not names:
        return {}
    name = f"{path.removesuffix('alterations_')}caught_"
    with errors_in(folder), safe_open(folder / TENSORS, "np") as file:
        if name not in file.keys():  # noqa: SIM118, it is not a mapping
            raise ModelFileError(f"{TENSORS} has no {name}, but the config has {path}")
        return dict(zip(str(names).split(","), map(float, file.get_tensor(name)), strict=True))


def read_model(folder: Path) -> tuple[dict[str, Any], bytes, dict[str, list[int]]]:
    """Read the config, the content of ``model.safetensors``, and the shapes of the tensors, all checked."""
    config, entry = _read_config(folder)
    path = folder / TENSORS
    size = file_size(path)
    if size != entry.bytes:
        raise ModelFileError(f"{path} has {size} bytes, but {entry.bytes} according to {MANIFEST}")
    shapes = tensor_shapes(path)
    if size > (limit := memory_limit()):  # some systems promise more, and end the process when it is used
        raise ModelFileError(
            f"{path} cannot be read: it has {size / 2**30:,.1f} GiB, but this process may use {limit / 2**30:,.1f}"
        )
    try:
        raw = path.read_bytes()
    except (OSError, MemoryError) as error:
        raise ModelFileError(f"{path} cannot be read: {first_line(error)}") from None
    _check_content(path, raw, entry)
    return config, raw, shapes


def tensor_shapes(path: Path) -> dict[str, list[int]]:
    """The shapes of the tensors. safetensors checks the header against the file size, and reads no data."""
    shapes: dict[str, list[int]] = {}
    try:
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118, it is not a mapping
                tensor = file.get_slice(name)
                if tensor.get_dtype() not in _DTYPES:
                    raise ModelFileError(f"{name[:60]!r} is {tensor.get_dtype()}, expected one of {', '.join(_DTYPES)}")
                shapes[name] = tensor.get_shape()
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} is damaged or not a safetensors file: {first_line(error)}") from None
    return shapes


def _read_config(folder: Path) -> tuple[dict[str, Any], FileEntry]:
    """Read a config of this version, check it against the manifest, and return the manifest's entry of the tensors."""
    config, raw = _read_header(folder)
    version = config.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        advice = "load it with the version that wrote it"
        if isinstance(version, int) and version < FORMAT_VERSION:
            advice = "fit the model again with this version and save it (the file has its settings)"
        raise ModelFileError(
            f"{folder / CONFIG} has format version {show(version)} (oddnode {show(config.get('oddnode_version'))}), "
            f"but this is oddnode {__version__}, which reads version {FORMAT_VERSION}; {advice}"
        )
    manifest, written = read_json(folder / MANIFEST)
    with errors_in(folder / MANIFEST):
        entries = checked(manifest, dict[str, FileEntry], "")
    if set(entries) != {CONFIG, TENSORS} or written != manifest_of(entries):
        raise ModelFileError(f"{folder / MANIFEST} is damaged or was changed")
    _check_content(folder / CONFIG, raw, entries[CONFIG])
    return config, entries[TENSORS]


def _read_header(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Read ``config.json``, and check its ``format``."""
    if not os.path.isdir(folder):  # unlike `Path.is_dir`, it accepts invalid names
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
    config, raw = read_json(path)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not the config of a saved oddnode detector")
    return config, raw


def _check_content(path: Path, raw: bytes, entry: FileEntry) -> None:
    if FileEntry(len(raw), hashlib.sha256(raw).hexdigest()) != entry:
        raise ModelFileError(
            f"{path} is damaged or was changed: its checksum is not that in {MANIFEST}; take another copy of the "
            "model, or save it again"
        )
