"""Saved detectors: a folder with a readable ``config.json``, the tensors in ``model.safetensors``, and a manifest.

Nothing in them is executed. Parts are rebuilt by name from known classes; the checksum of every file, the type and
range of every value, and the shape, type and finiteness of every tensor are checked before use.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import asdict
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor, nn

from oddnode._utils.atomic_files import new_folder, read_folder
from oddnode._utils.plugins import plugin_of
from oddnode._version import __version__
from oddnode.detector.checked_json import ModelFileError, checked, first_line
from oddnode.detector.model_config import ModelConfig, Settings
from oddnode.detector.model_files import TENSORS, read_tensor_bytes, tensors_in, write_files
from oddnode.detector.model_header import FORMAT, FORMAT_VERSION, check_target, read_checked_config
from oddnode.detector.own_parts import as_scorer
from oddnode.detector.part_config import encode
from oddnode.detector.restore import made_or_given, named_or_given, restored
from oddnode.nn import BACKBONES
from oddnode.objectives import Objective
from oddnode.scoring import Scorer

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["load", "save"]

_PLAIN = (bool, int, float, str, type(None))


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
        tensors_in(io.BytesIO(blob), len(blob))
    except ModelFileError as error:
        raise ValueError(f"the tensors of the model cannot be saved: {error}") from None
    config = _config_of(detector) | (extra or {})
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target) as folder:
        write_files(folder, config, blob)


def _config_of(detector: Detector) -> dict[str, Any]:
    params = detector.get_params(deep=False)
    calibration = detector.calibration_
    config: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "oddnode_version": __version__,
        "method": detector.method,
        "hyper_parameters": {k: v for k, v in detector.hyper_parameters.items() if isinstance(v, _PLAIN)},
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
    config, facts = read_checked_config(folder)
    raw, _ = read_tensor_bytes(folder, facts)
    return config, _parsed(raw, folder / TENSORS)


def _parsed(raw: bytes, path: Path) -> dict[str, Tensor]:
    """Tensors of finite numbers, by name."""
    try:
        tensors = parse_tensors(raw)
    except (SafetensorError, ValueError, RuntimeError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{path} is damaged or not a safetensors file: {first_line(error)}") from None
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelFileError(f"{path}: {name!r} has NaN or infinite values")
    return tensors
