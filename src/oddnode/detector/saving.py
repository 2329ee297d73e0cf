"""Saves and loads detectors. Nothing in a saved model is executed.

Parts are rebuilt by name from known classes. The type and range of every value, and the shape, dtype and finiteness of
every tensor are checked before use; `oddnode.detector.saved_files` checks the files themselves.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import asdict
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor, nn

from oddnode._utils.atomic_files import new_folder, read_folder, sync_file
from oddnode._utils.checked_json import LARGEST_JSON, ModelFileError, checked, errors_in, first_line, show
from oddnode._utils.devices import resolve_device
from oddnode._utils.plugins import plugin_of
from oddnode._utils.random import new_weights, seeded
from oddnode._version import __version__
from oddnode.detector import saved_files
from oddnode.detector.fitted import Calibration, FittedState, as_scorer, gradients_enabled, members_of, unfitted_copy
from oddnode.detector.fitting import as_module, new_backbone
from oddnode.detector.part_config import Part, check_learnt, decode, encode, learnt_of, set_learnt
from oddnode.detector.recipes import Settings
from oddnode.detector.reference import ReferenceNodes, num_cross_fitted
from oddnode.detector.saved_files import CONFIG, MANIFEST, TENSORS, FileEntry, ModelConfig
from oddnode.graph import Graph, GraphProfile
from oddnode.nn import BACKBONES, Ensemble
from oddnode.objectives import Objective
from oddnode.scoring import Outputs, Scorer
from oddnode.scoring.combinations import share_equal

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

_PLAIN = (bool, int, float, str, type(None))
_REFERENCE = ("nodes", "checksums", "edges")
_CALIBRATION = ("scores", "classes", "weights")
_EXTRA = "extra."
_FEW_LAYERS = 50
_MOST_DIMS = 64  # torch computes with no more
# Backbones whose state is all in the saved tensors, so that they need not be initialised.
_ALL_SAVED = ("gcn", "mlp", "gat", "jknet", "mixhop")


def save(
    detector: Detector,
    path: str | os.PathLike,
    extra_config: dict[str, Any] | None = None,
    extra_tensors: dict[str, Tensor] | None = None,
) -> None:
    """Save a fitted detector atomically, with further sections of the config and further int64 tensors."""
    target = Path(path)
    tensors = tensors_of(detector) | {f"{_EXTRA}{name}": value for name, value in (extra_tensors or {}).items()}
    saved_files.check_target(target)
    # Copies, because safetensors refuses tensors that share memory.
    blob = format_tensors({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})
    config = _config_of(detector) | (extra_config or {})
    text = json.dumps(config, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    contents = {CONFIG: text.encode(), TENSORS: blob}
    if len(contents[CONFIG]) > LARGEST_JSON:
        raise ValueError(
            f"{CONFIG} would have {len(contents[CONFIG])} bytes, but at most {LARGEST_JSON} can be loaded again; "
            "use fewer columns or categories"
        )
    entries = {name: FileEntry(len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in contents.items()}
    contents[MANIFEST] = saved_files.manifest_of(entries)
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target) as folder:
        for name, raw in contents.items():
            (folder / name).write_bytes(raw)
            sync_file(folder / name)
        try:
            saved_files.tensor_shapes(folder / TENSORS)
        except ModelFileError as error:
            raise ValueError(f"the tensors of the model cannot be saved: {error}") from None


def _config_of(detector: Detector) -> dict[str, Any]:
    state, calibration, threshold = detector.state_, detector.calibration_, None
    if calibration is not None:
        facts = calibration.false_alarm_rate, calibration.threshold, len(calibration.scores)
        threshold = asdict(saved_files.CalibrationConfig(*facts))
    backbone: Any = detector.backbone
    if isinstance(backbone, nn.Module):
        backbone = {"own": type(backbone).__name__}
    elif plugin_of(BACKBONES[backbone]) is not None:
        backbone = {"name": backbone, "plugin": plugin_of(BACKBONES[backbone])}
    config: dict[str, Any] = {
        "format": saved_files.FORMAT,
        "format_version": saved_files.FORMAT_VERSION,
        "oddnode_version": __version__,
        "method": detector.method,
        "hyper_parameters": {k: v for k, v in detector.hyper_parameters.items() if isinstance(v, _PLAIN)},
        "backbone": backbone,
        "objective": None if detector.objective is None else encode(detector.objective, "objective"),
        "scorer": encode(state.base_scorer, "scorer"),
        "settings": {name: getattr(detector, name) for name in Settings.__struct_fields__},
        "num_features": state.num_features,
        "num_classes": state.num_classes,
        "max_abs_feature": state.max_abs_feature,
        "best_epoch": state.best_epoch,
        "dtype": str(state.dtype).removeprefix("torch."),
        "graph": dataclasses.asdict(state.profile),
        "advice": list(state.advice),
        "num_networks": len(state.module.members) if isinstance(state.module, Ensemble) else 1,
        "learnt": {k: v for k, v in learnt_of(state.scorer) if not isinstance(v, Tensor)},
        "calibration": threshold,
    }
    # Values that could not be loaded again raise an error now, while the fitted detector still exists.
    checked(config, ModelConfig, "")
    return config


def tensors_of(detector: Detector) -> dict[str, Tensor]:
    """Collect the tensors of a fitted detector, by the names that they have in the file."""
    state, calibration = detector.state_, detector.calibration_
    tensors = {f"module.{name}": value for name, value in state.module.state_dict().items()}
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{type(state.module).__name__} has the non-tensor state {name!r}, which cannot be saved")
    check_learnt(state.scorer, unfitted_copy(state.module, state.base_scorer))
    tensors |= {k: v for k, v in learnt_of(state.scorer) if isinstance(v, Tensor)}
    for network, reference in enumerate(state.references):
        tensors |= {f"reference.{network}.{name}": getattr(reference, name) for name in _REFERENCE}
    others = {"class_means": state.class_means}
    if calibration is not None:
        others |= {f"calibration.{name}": getattr(calibration, name) for name in _CALIBRATION}
    return tensors | {name: value for name, value in others.items() if value is not None}


def load(
    detector_class: type[Detector],
    path: str | os.PathLike,
    *,
    backbone: nn.Module | None = None,
    objective: Objective | None = None,
    scorer: Scorer | str | None = None,
    device: str = "auto",
) -> tuple[Detector, dict[str, Any], dict[str, Tensor]]:
    """Read a detector, the config that it was saved with, and the extra tensors."""
    folder = Path(path)
    raw, blob, _ = read_folder(folder, saved_files.read_model)
    try:
        tensors = parse_tensors(blob)
    except (SafetensorError, ValueError, RuntimeError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{folder / TENSORS} is damaged or not a safetensors file: {first_line(error)}") from None
    with errors_in(folder):
        for name, tensor in tensors.items():
            if tensor.dim() > _MOST_DIMS:
                raise ModelFileError(f"{TENSORS}: {name!r} has {tensor.dim()} dimensions, more than {_MOST_DIMS}")
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise ModelFileError(f"{TENSORS}: {name!r} has NaN or infinite values")
        config = checked(raw, ModelConfig, "")
        detector = detector_class(
            backbone=_backbone(config.backbone, backbone),
            objective=None if config.objective is None else _part(config.objective, objective, Objective),
            scorer=_part(config.scorer, None if scorer is None else as_scorer(scorer), Scorer),
            device=device,
            **asdict(config.settings),
        )
        extra = _take(tensors, _EXTRA)
        for name, value in extra.items():
            _check_tensor(f"{_EXTRA}{name}", value, torch.long, value.shape)
        return _restored(detector, config, tensors), raw, extra


def _backbone(config: str | dict[str, str], given: nn.Module | None) -> str | nn.Module:
    """The backbone of a saved model: its name, or the user's module."""
    facts = {"name": config} if isinstance(config, str) else config
    own = _own(facts, given, "backbone", "make one of the same shape, whose copy gets the saved weights")
    if own is not None:
        return own
    name, plugin = facts.get("name"), facts.get("plugin")
    if name is None or name not in BACKBONES:
        of_plugin = "" if plugin is None else f" of the plugin {show(plugin)}"
        raise ModelFileError(f"backbone is {show(name)}{of_plugin}, expected one of {', '.join(BACKBONES)}")
    return name


def _part(config: dict[str, Any], given: Part | None, base: type[Part]) -> Part:
    """The objective or scorer of a saved model, or the user's."""
    what = base.__name__.lower()
    own = _own(config, given, what, "give it again")
    return decode(config, base, what) if own is None else own


def _own(config: dict[str, Any], given: Any, what: str, advice: str) -> Any:
    """The user's part, which must be given if and only if it was not saved."""
    if "own" not in config and given is not None:
        name = show(config.get("name", config.get("class")))
        raise ValueError(f"{what} was given, but the saved model has its own: {name}")
    if "own" in config and given is None:
        raise ModelFileError(
            f"the model has your own {what} {show(config['own'])}, which is not saved; {advice}: "
            f"Detector.load(..., {what}=...)"
        )
    return given


@gradients_enabled()
def _restored(detector: Detector, config: ModelConfig, tensors: dict[str, Tensor]) -> Detector:
    device = resolve_device(detector.device)
    calibration = _calibration(config, tensors)  # stays on the CPU
    module = _filled_module(detector, config, _take(tensors, "module.")).to(device).eval()
    tensors = {name: value.to(device) for name, value in tensors.items()}
    learnt = {f"scorer.{path}": value for path, value in _take(tensors, "scorer.").items()}
    means = tensors.pop("class_means", None)
    if means is not None:
        _check_tensor("class_means", means, getattr(torch, config.dtype), [config.num_classes] * 2)
    references = _references(_take(tensors, "reference."), detector.ensemble, config.num_networks)
    if tensors:
        raise ModelFileError(f"the tensor {next(iter(tensors))!r} belongs to no part of the model")
    scorer = as_scorer(detector.scorer)
    # Whether the user gave a scorer other than the custom one that the model was saved with.
    is_other = "own" in config.scorer and encode(scorer, "scorer") != config.scorer
    fitted = unfitted_copy(module, scorer)
    set_learnt(fitted, {} if is_other else config.learnt | learnt)
    share_equal(members_of(fitted))
    state = FittedState(
        module=module,
        num_features=config.num_features,
        num_classes=config.num_classes,
        max_abs_feature=config.max_abs_feature,
        profile=GraphProfile(**asdict(config.graph)),
        base_scorer=scorer,
        scorer=fitted,
        class_means=means,
        best_epoch=config.best_epoch,
        advice=config.advice,
        references=references,
    )
    if is_other:
        state = state.with_scorer(scorer)
    else:  # with another scorer it is no longer of the method
        detector._made = config.method, config.hyper_parameters, detector.objective, detector.scorer
    if isinstance(detector.backbone, str):
        _try_out(state, device)
    if calibration is None or not is_other:
        return detector._with_state(state, calibration)
    return detector._with_state(
        state,
        not_calibrated=f"the threshold of the saved model belongs to its scorer {show(config.scorer['own'])}, and this "
        "Detector was loaded with another one: call calibrate(data, false_alarm_rate=0.05) with held-out known nodes",
    )


def _take(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove the tensors whose names have a prefix, and return them without it."""
    return {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}


def _check_tensor(name: str, value: Tensor | None, dtype: torch.dtype, shape: Sequence[int]) -> None:
    expected = f"expected {dtype} of shape {list(shape)}"
    if value is None:
        raise ModelFileError(f"the tensor {name!r} is missing, {expected}")
    if value.dtype != dtype or value.shape != tuple(shape):
        raise ModelFileError(f"the tensor {name!r} is {value.dtype} of shape {list(value.shape)}, {expected}")


def _calibration(config: ModelConfig, tensors: dict[str, Tensor]) -> Calibration | None:
    """The saved calibration; its threshold is computed again from its scores and compared."""
    if config.calibration is None:
        return None
    scores, classes, weights = (tensors.pop(f"calibration.{name}", None) for name in _CALIBRATION)
    num_nodes, threshold = config.calibration.num_nodes, config.calibration.threshold
    is_double = scores is not None and scores.dtype == torch.float64
    _check_tensor("calibration.scores", scores, torch.float64 if is_double else torch.float32, [num_nodes])
    if classes is not None:
        _check_tensor("calibration.classes", classes, torch.long, [num_nodes])
    if weights is not None:
        _check_tensor("calibration.weights", weights, torch.float64, [num_nodes])
    try:
        calibration = Calibration.from_scores(scores, classes, config.calibration.false_alarm_rate, weights)
    except (ValueError, OverflowError) as error:  # the latter for a rate whose inverse is infinite
        raise ModelFileError(f"calibration: {error}") from None
    if calibration.threshold != threshold:
        raise ModelFileError(
            f"calibration: the scores give the threshold {calibration.threshold}, but the config has {threshold}"
        )
    return calibration


def _references(tensors: dict[str, Tensor], ensemble: int, num_networks: int) -> tuple[ReferenceNodes, ...]:
    """The reference nodes of every network from ``0.nodes`` and so on; as many networks as `fit` would train."""
    restored: list[ReferenceNodes] = []
    while tensors:
        names = [f"{len(restored)}.{name}" for name in _REFERENCE]
        nodes, checksums, edges = values = [tensors.pop(name, torch.empty(0)) for name in names]
        shapes = [nodes.shape[:1], nodes.shape[:1], (2, edges.shape[-1])]
        dtypes = (torch.long, torch.float64, torch.long)
        for name, value, dtype, shape in zip(names, values, dtypes, shapes, strict=True):
            _check_tensor(f"reference.{name}", value, dtype, shape)
        if bool((nodes < 0).any()) or bool((edges < 0).any()) or bool((edges >= 2**31).any()):
            raise ModelFileError("the reference nodes have indices below 0, or too large")
        restored.append(ReferenceNodes(nodes, checksums, edges))
    possible = {ensemble, num_cross_fitted(ensemble)} if restored else {ensemble}
    if num_networks not in possible or len(restored) not in (0, num_networks):
        raise ModelFileError(
            f"settings.ensemble is {ensemble}, but there are {num_networks} networks, {len(restored)} of them with "
            "reference nodes"
        )
    return tuple(restored)


def _filled_module(detector: Detector, config: ModelConfig, weights: dict[str, Tensor]) -> nn.Module:
    """The network with its saved weights, which are checked against the config before any memory is allocated."""
    own = detector.backbone if isinstance(detector.backbone, nn.Module) else None
    # A plugin's backbone may ignore this setting, so a few more layers than weights are not an error.
    if own is None and detector.num_layers > max(_FEW_LAYERS, len(weights)):
        raise ModelFileError(f"settings.num_layers is {detector.num_layers}, but there are {len(weights)} weights")
    with torch.device("meta"):
        sketch = _new_network(detector, config) if own is None else own
    _check_weights(sketch, config.num_networks, weights)
    modules = []
    for _ in range(config.num_networks):
        if detector.backbone in _ALL_SAVED:
            # As `torch.nn.Module.to_empty` does, for which torch would import sympy.
            empty = copy.deepcopy(sketch)._apply(lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype))
            modules.append(empty)
        else:
            modules.append(_new_network(detector, config) if own is None else copy.deepcopy(own))
    module = as_module(modules)
    module.load_state_dict(weights)
    return module


def _new_network(detector: Detector, config: ModelConfig) -> nn.Module:
    # Library backbones draw no numbers on the meta device. Redirecting would import torch._dynamo, which is slow.
    with nullcontext() if detector.backbone in _ALL_SAVED else seeded(0), new_weights():
        try:
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
    for key in weights.keys() - expected.keys():
        raise ModelFileError(f"there are weights {key!r}, which {name} does not have")
    for key, value in expected.items():
        _check_tensor(f"module.{key}", weights.get(key), value.dtype, value.shape)


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
