"""Rebuilds a detector from a checked config and tensors."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from oddnode._utils.devices import resolve_device
from oddnode._utils.random import seeded
from oddnode.detector.calibration import Calibration
from oddnode.detector.checked_json import ModelFileError, first_line, show
from oddnode.detector.fitted import FittedState
from oddnode.detector.model_config import ModelConfig
from oddnode.detector.networks import as_module, new_backbone
from oddnode.detector.part_config import decode
from oddnode.detector.reference import ReferenceNodes
from oddnode.graph import Graph
from oddnode.nn import BACKBONES, Ensemble
from oddnode.objectives import Objective
from oddnode.scoring import Outputs, Scorer

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["made_or_given", "named_or_given", "restored"]

Part = TypeVar("Part", Objective, Scorer)


def named_or_given(config: str | dict[str, str], given: nn.Module | None) -> str | nn.Module:
    """Return the backbone of a saved model: its name, or the user's own module.

    Parameters
    ----------
    config : str or dict
        Its name, ``{"name": ..., "plugin": ...}``, or ``{"own": ...}`` for the user's own module.
    given : torch.nn.Module or None
        The module that the user passed.
    """
    own = None if isinstance(config, str) else config.get("own")
    if own is not None:
        if given is None:
            raise ModelFileError(
                f"the model has your own module {show(own)}, which is not saved; make one of the same shape and call "
                "Detector.load(..., backbone=module): its copy gets the saved weights"
            )
        return given
    name = config if isinstance(config, str) else config.get("name")
    if given is not None:
        raise ValueError(f"a module was given, but the saved model has the backbone {show(name)} of this library")
    if name is None or name not in BACKBONES:
        plugin = f" of the plugin {show(config.get('plugin'))}" if isinstance(config, dict) else ""
        raise ModelFileError(f"backbone is {show(name)}{plugin}, expected one of {', '.join(BACKBONES)}")
    return name


def made_or_given(config: dict[str, Any], given: Part | None, base: type[Part]) -> Part:
    """Build the objective or scorer of a saved model, or return the user's own.

    Parameters
    ----------
    config : dict
        As `oddnode.detector.part_config.encode` wrote it.
    given : Objective, Scorer or None
        The part that the user passed.
    base : type
        `Objective` or `Scorer`.
    """
    what = base.__name__.lower()
    if "own" not in config:
        if given is not None:
            raise ValueError(f"a {what} was given, but the saved model has its own")
        return decode(config, base, what)
    if given is None:
        raise ModelFileError(
            f"the model has your own {what} {show(config['own'])}, which is not saved; "
            f"call Detector.load(..., {what}=...)"
        )
    return given


def restored(detector: Detector, config: ModelConfig, tensors: dict[str, Tensor]) -> Detector:
    """Restore the saved state of a detector.

    Parameters
    ----------
    detector : Detector
        An unfitted detector with its parts and settings.
    config : ModelConfig
        From ``config.json``.
    tensors : dict
        From ``model.safetensors``. Every tensor must belong to the model; the dictionary is emptied.

    Returns
    -------
    Detector
        The same detector, fitted.
    """
    device = resolve_device(detector.device)
    weights = _taken(tensors, "module.")
    module = _filled_module(detector, config, {k.removeprefix("module."): v for k, v in weights.items()}).to(device)
    learnt = {path: value.to(device) for path, value in _taken(tensors, "scorer.").items()}
    means = tensors.pop("class_means", None)
    references = _references(_taken(tensors, "reference."), device)
    assert detector.scorer is not None
    state = FittedState.from_config(
        config, module.eval(), detector.scorer, learnt, None if means is None else means.to(device), references
    )
    calibration = None
    if config.calibration is not None:
        scores, classes = tensors.pop("calibration.scores", None), tensors.pop("calibration.classes", None)
        calibration = Calibration.from_config(config.calibration, scores, classes)
    if tensors:
        raise ModelFileError(f"the tensor {next(iter(tensors))!r} belongs to no part of the model")
    if isinstance(detector.backbone, str):
        _try_out(state, device)
    return detector._with_state(state, calibration)


def _taken(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}


def _references(tensors: dict[str, Tensor], device: torch.device) -> tuple[ReferenceNodes, ...]:
    """The reference nodes of every network from their tensors, ``reference.0.nodes``, ``reference.0.checksums``, ..."""
    found = []
    for network in range(len(tensors) // 2):
        nodes = tensors.pop(f"reference.{network}.nodes", None)
        checksums = tensors.pop(f"reference.{network}.checksums", None)
        if nodes is None or checksums is None or nodes.dim() != 1 or nodes.shape != checksums.shape:
            raise ModelFileError("the positions and checksums of the reference nodes are missing or do not match")
        if nodes.dtype != torch.long or checksums.dtype != torch.float64 or bool((nodes < 0).any()):
            raise ModelFileError(f"the reference nodes are {nodes.dtype} and {checksums.dtype}, or below 0")
        found.append(ReferenceNodes(nodes.to(device), checksums.to(device)))
    if tensors:
        raise ModelFileError(f"the tensor {next(iter(tensors))!r} belongs to no network")
    return tuple(found)


def _filled_module(detector: Detector, config: ModelConfig, weights: dict[str, Tensor]) -> nn.Module:
    """The network with its saved weights."""
    if isinstance(detector.backbone, nn.Module):
        module = as_module([copy.deepcopy(detector.backbone) for _ in range(detector.ensemble)])
        _check_weights(module, weights)
    else:
        # Shapes are compared on the meta device first, because a hostile config may declare any size.
        with torch.device("meta"):
            _check_weights(_new_module(detector, config), weights)
        module = _new_module(detector, config)
    module.load_state_dict(weights)
    return module


def _new_module(detector: Detector, config: ModelConfig) -> nn.Module:
    try:
        with seeded(0, torch.device("cpu")):
            shape, dtype = (config.num_features, config.num_classes), getattr(torch, config.dtype)
            return as_module([new_backbone(detector, *shape).to(dtype) for _ in range(detector.ensemble)])
    except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"the backbone cannot be built from these settings: {first_line(error)}") from None


def _check_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    expected = module.state_dict()
    name = f"an ensemble of {len(module.members)}" if isinstance(module, Ensemble) else type(module).__name__
    for key in expected.keys() | weights.keys():
        if key not in weights:
            raise ModelFileError(f"the weights {key!r} of {name} are missing")
        if key not in expected:
            raise ModelFileError(f"there are weights {key!r}, which {name} does not have")
        want, found = expected[key], weights[key]
        if want.shape != found.shape or want.dtype != found.dtype:
            raise ModelFileError(
                f"the weights {key!r} are {found.dtype} of shape {list(found.shape)}, "
                f"but {name} has {want.dtype} of shape {list(want.shape)}"
            )


def _try_out(state: FittedState, device: torch.device) -> None:
    """Score three nodes, so that parts that do not work together raise an error when the model is loaded."""
    nodes = torch.zeros(3, state.num_features, dtype=state.dtype, device=device)
    graph = Graph(nodes, torch.tensor([[0, 1], [1, 0]], device=device))
    try:
        scores = state.scorer.score(Outputs(state.module, graph, state.num_classes))
    except Exception as error:  # any failure of a part means that the folder is invalid
        raise ModelFileError(f"the parts do not work together: {first_line(error)}") from None
    if scores.shape != (3,) or not bool(torch.isfinite(scores).all()):
        raise ModelFileError("the parts do not work together: they do not return a finite score per node")
