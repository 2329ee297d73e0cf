"""Rebuilds a detector from a checked config and tensors."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from oddnode._utils.devices import resolve_device
from oddnode._utils.modes import gradients_enabled
from oddnode._utils.random import new_weights, seeded
from oddnode.detector.adaptation import scorer_of
from oddnode.detector.calibration import Calibration
from oddnode.detector.checked_json import ModelFileError, first_line, show
from oddnode.detector.fitted import FittedState
from oddnode.detector.model_config import ModelConfig
from oddnode.detector.networks import as_module, new_backbone
from oddnode.detector.part_config import decode, encode
from oddnode.detector.reference import ReferenceNodes, num_cross_fitted
from oddnode.graph import Graph
from oddnode.nn import BACKBONES
from oddnode.objectives import Objective
from oddnode.scoring import Outputs, Scorer

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["made_or_given", "named_or_given", "restored"]

Part = TypeVar("Part", Objective, Scorer)

_FEW_LAYERS = 50


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


@gradients_enabled()
def restored(detector: Detector, config: ModelConfig, tensors: dict[str, Tensor]) -> Detector:
    """Restore the saved state of a detector.

    Parameters
    ----------
    detector : Detector
        An unfitted detector with its parts and settings. If its scorer is the user's own, but not the saved one, it
        has no threshold.
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
    _check_counts(detector.ensemble, config.num_networks, len(references))
    calibration = _calibration(config, tensors)
    if tensors:
        raise ModelFileError(f"the tensor {next(iter(tensors))!r} belongs to no part of the model")
    scorer, is_other = scorer_of(detector), _is_other(scorer_of(detector), config.scorer)
    if is_other:
        config, learnt = replace(config, learnt={}), {}
    state = FittedState.from_config(
        config, module.eval(), scorer, learnt, None if means is None else means.to(device), references
    )
    if is_other:
        state = state.with_scorer(scorer)
    else:  # with another scorer it is no longer of the method
        detector._made_of(config.method, config.hyper_parameters)
    if isinstance(detector.backbone, str):
        _try_out(state, device)
    if calibration is None or not is_other:
        return detector._with_state(state, calibration)
    return detector._with_state(
        state,
        not_calibrated=f"the threshold of the saved model belongs to its scorer {show(config.scorer['own'])}, and this "
        "Detector was loaded with another one: call calibrate(data, false_alarm_rate=0.05) with held-out known nodes",
    )


def _is_other(scorer: Scorer, saved: dict[str, Any]) -> bool:
    """Whether the user gave another scorer than the one of their own that the model was saved with."""
    return "own" in saved and encode(scorer, "scorer") != saved


def _calibration(config: ModelConfig, tensors: dict[str, Tensor]) -> Calibration | None:
    if config.calibration is None:
        return None
    scores, classes = tensors.pop("calibration.scores", None), tensors.pop("calibration.classes", None)
    return Calibration.from_config(config.calibration, scores, classes)


def _taken(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}


def _references(tensors: dict[str, Tensor], device: torch.device) -> tuple[ReferenceNodes, ...]:
    """The reference nodes of every network from their tensors, ``reference.0.nodes`` and so on."""
    found = []
    for network in range(len(tensors) // 3):
        parts = [tensors.pop(f"reference.{network}.{name}", None) for name in ("nodes", "checksums", "edges")]
        nodes, checksums, edges = parts
        if nodes is None or checksums is None or edges is None:
            raise ModelFileError(f"the reference nodes of network {network} are incomplete")
        if nodes.dim() != 1 or checksums.shape != nodes.shape or edges.dim() != 2 or edges.shape[0] != 2:
            raise ModelFileError("the reference nodes, their checksums and their edges do not match")
        if (nodes.dtype, checksums.dtype, edges.dtype) != (torch.long, torch.float64, torch.long):
            raise ModelFileError(f"the reference nodes are {nodes.dtype}, {checksums.dtype} and {edges.dtype}")
        if bool((nodes < 0).any()) or bool((edges < 0).any()) or bool((edges >= 2**31).any()):
            raise ModelFileError("the reference nodes have positions below 0, or too large")
        found.append(ReferenceNodes(nodes.to(device), checksums.to(device), edges.to(device)))
    if tensors:
        raise ModelFileError(f"the tensor {next(iter(tensors))!r} belongs to no network")
    return tuple(found)


def _check_counts(ensemble: int, num_networks: int, num_references: int) -> None:
    """Refuse a number of networks that `fit` would not train."""
    possible = {ensemble, num_cross_fitted(ensemble)} if num_references else {ensemble}
    if num_networks not in possible or num_references not in (0, num_networks):
        raise ModelFileError(
            f"settings.ensemble is {ensemble}, but there are {num_networks} networks, {num_references} of them with "
            "reference nodes"
        )


def _filled_module(detector: Detector, config: ModelConfig, weights: dict[str, Tensor]) -> nn.Module:
    """The network with its saved weights, which are compared with the config before the network is made."""
    own = detector.backbone if isinstance(detector.backbone, nn.Module) else None
    _check_weights(_sketch(detector, config, len(weights)) if own is None else own, config.num_networks, weights)
    module = as_module(
        [_new_network(detector, config) if own is None else copy.deepcopy(own) for _ in range(config.num_networks)]
    )
    module.load_state_dict(weights)
    return module


def _sketch(detector: Detector, config: ModelConfig, num_weights: int) -> nn.Module:
    """One of the networks, with the shapes of its weights but without memory for them."""
    # A backbone of a plugin may ignore this setting, so that a few more layers than weights prove nothing.
    if detector.num_layers > max(_FEW_LAYERS, num_weights):
        raise ModelFileError(f"settings.num_layers is {detector.num_layers}, but there are {num_weights} weights")
    with torch.device("meta"):
        return _new_network(detector, config)


def _new_network(detector: Detector, config: ModelConfig) -> nn.Module:
    try:
        with seeded(0), new_weights():
            return new_backbone(detector, config.num_features, config.num_classes).to(getattr(torch, config.dtype))
    except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"the backbone cannot be built from these settings: {first_line(error)}") from None


def _check_weights(network: nn.Module, num_networks: int, weights: dict[str, Tensor]) -> None:
    expected, name = network.state_dict(), type(network).__name__
    if num_networks > 1:
        if num_networks * len(expected) != len(weights):
            needed = f"{num_networks} times {len(expected)}"
            raise ModelFileError(f"num_networks is {num_networks}, but there are {len(weights)} weights, not {needed}")
        expected = {f"members.{n}.{key}": value for n in range(num_networks) for key, value in expected.items()}
        name = f"an ensemble of {num_networks}"
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
    """Score small graphs, so that parts that do not work together raise an error when the model is loaded."""
    for num_nodes in (3, 5):  # two sizes, because a learnt value may fit one of them by chance
        nodes = torch.full((num_nodes, state.num_features), 1 / state.num_features, dtype=state.dtype, device=device)
        nodes[0] = 0
        graph = Graph(nodes, torch.tensor([[0, 1], [1, 0]], device=device))
        try:
            scores = state.scorer.score(Outputs(state.module, graph, state.num_classes))
        except Exception as error:  # any failure of a part means that the folder is invalid
            raise ModelFileError(f"the parts do not work together: {first_line(error)}") from None
        if scores.shape != (num_nodes,) or not bool(torch.isfinite(scores).all()):
            raise ModelFileError("the parts do not work together: they do not return a finite score per node")
