"""Saved detectors: a folder with a readable ``config.json``, the tensors in ``model.safetensors``, and a manifest.

Nothing in them is executed. Parts are rebuilt by name from known classes; the checksum of every file, the type and
range of every value, and the shape, type and finiteness of every tensor are checked before use.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from safetensors.torch import save as format_tensors
from torch import Tensor, nn

from oddnode._utils.atomic_files import new_folder, read_folder
from oddnode._utils.hidden_siblings import check_name, recover
from oddnode._utils.plugins import plugin_of
from oddnode._version import __version__
from oddnode.detector.checked_json import ModelFileError, checked, show
from oddnode.detector.model_config import ModelConfig, Settings
from oddnode.detector.model_files import (
    CONFIG,
    FILES,
    FileFacts,
    check_tensors,
    read_json,
    read_manifest,
    read_tensors,
    write_files,
)
from oddnode.detector.own_parts import as_scorer
from oddnode.detector.part_config import encode
from oddnode.detector.restore import made_or_given, named_or_given, restored
from oddnode.nn import BACKBONES
from oddnode.objectives import Objective
from oddnode.scoring import Scorer

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["FORMAT_VERSION", "check_target", "load", "read_config", "save"]

FORMAT_VERSION = 3
_FORMAT = "oddnode detector"


# --- writing ---------------------------------------------------------------------------------------------------------


def save(detector: Detector, path: str | os.PathLike, extra: dict[str, Any] | None = None) -> None:
    """Save a fitted detector atomically.

    Parameters
    ----------
    detector : Detector
        A fitted detector.
    path : path
        A new folder, or one with a saved model, which is replaced.
    extra : dict, optional
        Further sections of ``config.json``, by name.
    """
    target, state, calibration = Path(path), detector.state_, detector.calibration_
    check_target(target)
    tensors = state.tensors() | ({} if calibration is None else calibration.tensors())
    # Copies, because safetensors refuses tensors that share memory.
    blob = format_tensors({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})
    try:
        check_tensors(io.BytesIO(blob), len(blob))
    except ModelFileError as error:
        raise ValueError(f"the tensors of the model cannot be saved: {error}") from None
    config = _config_of(detector) | (extra or {})
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target) as folder:
        write_files(folder, config, blob)


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


def _config_of(detector: Detector) -> dict[str, Any]:
    params = detector.get_params(deep=False)
    calibration = detector.calibration_
    config: dict[str, Any] = {
        "format": _FORMAT,
        "format_version": FORMAT_VERSION,
        "oddnode_version": __version__,
        "backbone": _backbone_config(detector.backbone),
        "objective": None if detector.objective is None else encode(detector.objective, "objective"),
        "scorer": encode(detector.state_.base_scorer, "scorer"),
        "settings": {name: params[name] for name in Settings.__struct_fields__},
        **detector.state_.to_config(),
        "calibration": None if calibration is None else calibration.to_config(),
    }
    # Values that could not be loaded again raise an error now, while the fitted detector still exists.
    checked(config, ModelConfig, "")
    return config


def _backbone_config(backbone: str | nn.Module) -> str | dict[str, str]:
    if isinstance(backbone, nn.Module):
        return {"own": type(backbone).__name__}
    plugin = plugin_of(BACKBONES[backbone])
    return backbone if plugin is None else {"name": backbone, "plugin": plugin}


# --- reading ---------------------------------------------------------------------------------------------------------


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


def load(
    detector_class: type[Detector],
    path: str | os.PathLike,
    *,
    backbone: nn.Module | None = None,
    objective: Objective | None = None,
    scorer: Scorer | str | None = None,
    device: str = "auto",
) -> tuple[Detector, dict[str, Any]]:
    """Read a detector and the config that it was saved with.

    Parameters
    ----------
    detector_class : type
        `Detector`, or a subclass with the same arguments.
    path : path
        The model's folder.
    backbone, objective, scorer
        The user's own parts, which are not in the folder. A copy of the module gets the saved weights. With another
        scorer than the saved one, the detector has no threshold.
    device : str
        The device to score on: ``"auto"``, ``"cpu"``, ``"cuda"``, ...

    Returns
    -------
    Detector
        A fitted detector, with its calibration if it had one.
    dict
        The complete ``config.json``.
    """
    folder = Path(path)
    raw, tensors = read_folder(folder, _read_model)
    try:
        config = checked(raw, ModelConfig, "")
        detector = detector_class(
            backbone=named_or_given(config.backbone, backbone),
            objective=None if config.objective is None else made_or_given(config.objective, objective, Objective),
            scorer=made_or_given(config.scorer, None if scorer is None else as_scorer(scorer), Scorer),
            device=device,
            **asdict(config.settings),
        )
        return restored(detector, config, tensors), raw
    except ModelFileError as error:
        raise ModelFileError(f"{folder}: {error}") from None


def _read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config, facts = _read_config(folder)
    return config, read_tensors(folder, facts)


def _read_config(folder: Path) -> tuple[dict[str, Any], FileFacts]:
    """Read the config, and what the manifest says of the tensors."""
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
    if not isinstance(config, dict) or config.get("format") != _FORMAT:
        raise ModelFileError(f"{folder / CONFIG} is not the config of a saved oddnode detector")
    return config, raw
