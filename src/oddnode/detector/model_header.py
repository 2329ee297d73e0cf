"""What can be said of a folder without building its model: whether it is one, its config, and what it weighs.

Imports no slow module, so that the command line can refuse a wrong folder at once.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from oddnode._utils.atomic_files import read_folder
from oddnode._utils.hidden_siblings import check_name, recover
from oddnode._version import __version__
from oddnode.detector.checked_json import ModelFileError, checked, show
from oddnode.detector.model_config import ModelConfig
from oddnode.detector.model_files import CONFIG, FILES, FileFacts, read_json, read_manifest, read_tensor_bytes

__all__ = ["FORMAT", "FORMAT_VERSION", "check_target", "read_checked_config", "read_config", "read_summary"]

FORMAT = "oddnode detector"
FORMAT_VERSION = 3

# What batch norm keeps beside its weights.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def check_target(target: Path) -> None:
    """Check that a model can be written, so that a mistake shows before the work and not after it.

    Parameters
    ----------
    target : Path
        The folder to write.
    """
    standing = next(parent for parent in target.absolute().parents if parent.exists())
    if not standing.is_dir():
        raise NotADirectoryError(f"cannot write {target}: {standing} is not a folder")
    if not os.access(standing, os.W_OK):
        raise PermissionError(f"cannot write {target}: no permission to write into {standing}")
    check_name(target)
    recover(target)
    try:
        found = target.stat()  # once, because another process may replace it
    except FileNotFoundError:
        return
    if not S_ISDIR(found.st_mode):
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
    return read_folder(folder, read_checked_config)[0]


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
    raw, num_weights = read_folder(folder, _read_config_and_count)
    try:
        return raw, checked(raw, ModelConfig, ""), num_weights
    except ModelFileError as error:
        raise ModelFileError(f"{folder}: {error}") from None


def _read_config_and_count(folder: Path) -> tuple[dict[str, Any], int]:
    config, facts = read_checked_config(folder)
    _, tensors = read_tensor_bytes(folder, facts)
    weights = [name for name in tensors if name.startswith("module.") and not name.endswith(_STATISTICS)]
    return config, sum(math.prod(tensors[name].shape) for name in weights)


def read_checked_config(folder: Path) -> tuple[dict[str, Any], FileFacts]:
    """Read a config of this format, and check it against the manifest.

    Parameters
    ----------
    folder : Path
        The model's folder.

    Returns
    -------
    dict
        ``config.json``, as it was saved; only its format and version have been checked.
    FileFacts
        What the manifest says of ``model.safetensors``.
    """
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
    return config, read_manifest(folder, raw)


def _read_header(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Read the config, and check its ``format``."""
    config, raw = read_json(folder)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(f"{folder / CONFIG} is not the config of a saved oddnode detector")
    return config, raw
