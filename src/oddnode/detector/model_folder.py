"""A fitted detector as a folder: ``config.json`` for people, ``model.safetensors`` for numbers.

Neither can run anything. Parts are rebuilt by name from this library's own classes; every value is checked for its
type, every tensor for its shape, type and finiteness before it is used.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor, nn

from oddnode._utils.atomic_files import new_folder, sync_file
from oddnode._utils.random import seeded
from oddnode._version import __version__
from oddnode.detector.part_config import (
    LARGEST_INT,
    ModelFileError,
    checked,
    count_of,
    decode,
    encode,
    first_line,
    in_range,
    is_fitted,
    of_type,
    refuse_constant,
    show,
    unique_names,
    value_at,
    value_of,
)
from oddnode.functional import CalibrationError, threshold_at
from oddnode.graph import Graph, GraphProfile
from oddnode.nn import BACKBONES
from oddnode.objectives import Objective
from oddnode.scoring import MemberMean, Outputs, Scorer

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["FORMAT_VERSION", "ModelFileError", "NoTrainingGraph", "check_target", "load", "read_config", "save"]

FORMAT_VERSION = 1
_FORMAT = "oddnode detector"
_CONFIG, _TENSORS = "config.json", "model.safetensors"
_DTYPES = {"float32": torch.float32, "float64": torch.float64}

# Arguments of `Detector` that are saved elsewhere (the three parts) or chosen anew (the device and the trainer).
_NOT_SETTINGS = {"backbone", "objective", "scorer", "device", "trainer"}

# Far above any real model's, low enough that a hostile one cannot keep the machine busy.
_LARGEST_CONFIG = 64 * 2**20
_MOST_LAYERS = 1000
_MOST_MEMBERS = 1000


class NoTrainingGraph:
    """Stands in for the training graph where there is none, and says so when a scorer wants to learn from it."""

    def __init__(self, why: str):
        self.__dict__["_why"] = why

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(
            f"this scorer learns from the training graph, but the detector {self._why}; "
            "fit a new detector with this scorer"
        )


# --- writing ---------------------------------------------------------------------------------------------------------


def save(detector: Detector, path: str | os.PathLike, extra: dict[str, Any] | None = None) -> None:
    """Write a fitted detector; ``extra`` is kept in the config under its own keys."""
    target = Path(path)
    check_target(target)
    tensors = _tensors_of(detector)
    blob = format_tensors(tensors)
    config = _config_of(detector, hashlib.sha256(blob).hexdigest()) | (extra or {})
    text = json.dumps(config, indent=1, allow_nan=False, ensure_ascii=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target) as folder:
        (folder / _TENSORS).write_bytes(blob)
        (folder / _CONFIG).write_text(text + "\n", encoding="utf-8")
        for name in (_TENSORS, _CONFIG):
            sync_file(folder / name)


def check_target(target: Path) -> None:
    """Say why a model could not be written to a folder: for callers that want to know before the work."""
    standing = next(parent for parent in target.absolute().parents if parent.exists())
    if not standing.is_dir():
        raise NotADirectoryError(f"cannot write {target}: {standing} is not a folder")
    if not os.access(standing, os.W_OK):
        raise PermissionError(f"cannot write {target}: no permission to write into {standing}")
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is a file; give a folder for the model")
    others = sorted({entry.name for entry in target.iterdir()} - {_CONFIG, _TENSORS})
    if others:
        raise FileExistsError(
            f"{target} holds other files ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}); "
            "give a new folder, or one that holds a saved model and nothing else"
        )
    if any(target.iterdir()):
        try:
            read_config(target)
        except ModelFileError as error:
            raise FileExistsError(f"{target} is not replaced, because it is not a saved model: {error}") from None


def _config_of(detector: Detector, checksum: str) -> dict[str, Any]:
    own = isinstance(detector.backbone, nn.Module)
    settings = {k: v for k, v in detector.get_params(deep=False).items() if k not in _NOT_SETTINGS}
    config: dict[str, Any] = {
        "format": _FORMAT,
        "format_version": FORMAT_VERSION,
        "oddnode_version": __version__,
        "backbone": {"own": type(detector.backbone).__name__} if own else detector.backbone,
        "objective": None if detector.objective is None else _encoded(detector.objective, "objective"),
        "scorer": _encoded(detector.scorer_, "scorer"),
        "settings": settings,
        "num_features": detector.num_features_in_,
        "num_classes": detector.num_classes_,
        "best_epoch": detector.best_epoch_,
        "dtype": str(detector._dtype()).removeprefix("torch."),
        "graph": {k: v for k, v in detector.graph_profile_.as_dict().items() if k != "adjusted_homophily"},
        "advice": list(detector.advice_),
        "calibration": None,
        "tensors_sha256": checksum,
    }
    if hasattr(detector, "threshold_"):
        config["calibration"] = {
            "false_alarm_rate": detector.false_alarm_rate_,
            "threshold": detector.threshold_,
            "num_nodes": len(detector.calibration_scores_),
        }
    # A setting that could not be read back is found now, while the fitted detector is still there.
    _check_settings(config["settings"], type(detector))
    return config


def _encoded(part: Objective | Scorer, what: str) -> dict[str, Any]:
    """The part as JSON; one with something of the user's own inside is the user's own as a whole."""
    config = encode(part, what)
    return {"own": repr(part)[:200]} if '"own":' in json.dumps(config) else config


def _tensors_of(detector: Detector) -> dict[str, Tensor]:
    tensors = {f"module.{name}": value for name, value in detector.module_.state_dict().items()}
    odd = [name for name, value in tensors.items() if not isinstance(value, Tensor)]
    if odd:
        raise TypeError(f"{type(detector.module_).__name__} keeps {odd[0]!r} that is no tensor; it cannot be saved")
    tensors |= _fitted_tensors(detector.scorer_, "scorer")
    if detector.class_means_ is not None:
        tensors["class_means"] = detector.class_means_
    if hasattr(detector, "threshold_"):
        tensors["calibration.scores"] = detector.calibration_scores_
        tensors["calibration.classes"] = detector.calibration_classes_
    # A copy for each: the format keeps no two names for one memory.
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def _fitted_tensors(part: Any, name: str) -> dict[str, Tensor]:
    """What a scorer and the scorers inside it learnt, by the path of its attribute."""
    found: dict[str, Tensor] = {}
    for key, value in _attributes(part).items():
        if isinstance(value, (Scorer, tuple)):
            found |= _fitted_tensors(value, f"{name}.{key}")
        elif is_fitted(key) and isinstance(value, Tensor):
            found[f"{name}.{key}"] = value
    return found


def _attributes(part: Any) -> dict[str, Any]:
    """What a scorer holds by name, and what a list of scorers holds by number."""
    return {str(n): item for n, item in enumerate(part)} if isinstance(part, tuple) else vars(part)


# --- reading ---------------------------------------------------------------------------------------------------------


def load(
    cls: type[Detector],
    path: str | os.PathLike,
    *,
    backbone: nn.Module | None = None,
    objective: Objective | None = None,
    scorer: Scorer | None = None,
    device: str = "auto",
) -> tuple[Detector, dict[str, Any]]:
    """Read a detector and the whole config it was saved with."""
    folder = Path(path)
    config = read_config(folder)
    try:
        tensors = _read_tensors(folder, value_of(config, "tensors_sha256", str))
        detector = _rebuild(cls, config, tensors, backbone, objective, scorer, device)
    except ModelFileError as error:
        raise ModelFileError(f"{folder}: {error}") from None
    return detector, config


def read_config(folder: Path) -> dict[str, Any]:
    """The checked outer shell of a model's config."""
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is not a folder with a saved model")
    raw = _read_bytes(folder / _CONFIG, _LARGEST_CONFIG)
    try:
        config = json.loads(raw.decode("utf-8"), parse_constant=refuse_constant, object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{folder / _CONFIG} is damaged: {first_line(error)}") from None
    if not isinstance(config, dict) or config.get("format") != _FORMAT:
        raise ModelFileError(f"{folder / _CONFIG} is not the config of a saved oddnode detector")
    version = config.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        made_by = str(config.get("oddnode_version"))[:40]
        raise ModelFileError(
            f"{folder / _CONFIG} has format version {str(version)[:40]} (written by oddnode {made_by}), but this is "
            f"oddnode {__version__}, which reads version {FORMAT_VERSION}; load it with a version that fits"
        )
    return config


def _read_bytes(path: Path, at_most: int | None = None) -> bytes:
    # Only regular files: reading a pipe or a device would never end.
    if not path.is_file():
        raise ModelFileError(f"{path} is missing or not a regular file")
    if at_most is not None and path.stat().st_size > at_most:
        raise ModelFileError(f"{path} has {path.stat().st_size} bytes, expected at most {at_most}")
    try:
        return path.read_bytes()
    except PermissionError:
        raise PermissionError(f"no permission to read {path}") from None


def _read_tensors(folder: Path, checksum: str) -> dict[str, Tensor]:
    blob = _read_bytes(folder / _TENSORS)
    try:
        tensors = parse_tensors(blob)
    except (SafetensorError, ValueError, RuntimeError, KeyError, TypeError, OverflowError) as error:
        raise ModelFileError(f"{_TENSORS} is damaged or not a safetensors file: {first_line(error)}") from None
    if hashlib.sha256(blob).hexdigest() != checksum:
        raise ModelFileError(f"{_TENSORS} does not belong to {_CONFIG} beside it: its checksum differs")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelFileError(f"{_TENSORS}: {name!r} has NaN or infinite values")
    return tensors


def _rebuild(
    cls: type[Detector],
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    backbone: nn.Module | None,
    objective: Objective | None,
    scorer: Scorer | None,
    device: str,
) -> Detector:
    settings = _check_settings(value_of(config, "settings", dict), cls)
    parts: dict[str, Any] = {
        "backbone": _named_or_given(value_at(config, "backbone"), backbone),
        "objective": decoded_or_given(value_at(config, "objective"), objective, "objective", Objective),
        "scorer": decoded_or_given(value_at(config, "scorer"), scorer, "scorer", Scorer),
    }
    detector = cls(**parts, **settings, device=device)
    fitted_scorer = _scorer_of(detector, config)
    where = detector._device()
    detector.num_features_in_ = count_of(config, "num_features", 1)
    detector.num_classes_ = count_of(config, "num_classes", 1)
    detector.best_epoch_ = count_of(config, "best_epoch", 0)
    detector.history_ = []
    detector.graph_profile_ = _profile(value_of(config, "graph", dict))
    detector.advice_ = [of_type(line, str, "advice") for line in value_of(config, "advice", list)]
    dtype = _DTYPES.get(str(value_at(config, "dtype")))
    if dtype is None:
        raise ModelFileError(f"dtype is {show(config['dtype'])}, expected one of {', '.join(_DTYPES)}")
    left = dict(tensors)
    detector.module_ = _filled_module(detector, dtype, left).to(where).eval()
    detector.scorer_ = _fitted_scorer(fitted_scorer, value_at(config, "scorer"), left, where)
    detector.class_means_ = _class_means(left, detector.num_classes_, dtype, where)
    _restore_calibration(detector, value_at(config, "calibration"), left)
    if left:
        raise ModelFileError(f"the tensor {next(iter(left))!r} belongs to no part of the model")
    stand_in: Any = NoTrainingGraph("was loaded from files, which do not hold that graph")
    detector._training = (stand_in, stand_in, stand_in)
    if isinstance(detector.backbone, str):
        _try_out(detector, dtype, where)
    return detector


def _scorer_of(detector: Detector, config: dict[str, Any]) -> Scorer:
    """The scorer to fill with what was learnt; in an ensemble one for each network."""
    in_range(detector.ensemble, 1, _MOST_MEMBERS, "settings.ensemble")
    scorer = detector.scorer
    assert scorer is not None
    if detector.ensemble == 1 and not isinstance(scorer, MemberMean):
        return scorer
    if "own" in value_of(config, "scorer", dict):
        return MemberMean(tuple(copy.deepcopy(scorer) for _ in range(detector.ensemble)))
    if not isinstance(scorer, MemberMean) or len(scorer.scorers) != detector.ensemble:
        raise ModelFileError(f"the scorer does not fit an ensemble of {detector.ensemble}")
    detector.scorer = scorer.scorers[0]
    return scorer


def _named_or_given(config: Any, given: nn.Module | None) -> str | nn.Module:
    if isinstance(config, str):
        if given is not None:
            raise ValueError(f"a module was given, but the saved model has the backbone {config!r} of this library")
        if config not in BACKBONES:
            raise ModelFileError(f"unknown backbone {show(config)}; known: {', '.join(BACKBONES)}")
        return config
    name = of_type(value_at(of_type(config, dict, "backbone"), "own"), str, "backbone")
    if given is None:
        raise ModelFileError(
            f"the model was built on your own module {show(name)}, which files cannot hold; make one of the same "
            "shape and call Detector.load(..., backbone=module): its copy gets the saved weights"
        )
    return given


def decoded_or_given(config: Any, given: Any, what: str, base: type) -> Any:
    if isinstance(config, dict) and "own" in config:
        if given is None:
            raise ModelFileError(
                f"the model uses your own {what} {show(config['own'])}, which files cannot hold; "
                f"call Detector.load(..., {what}=...)"
            )
        return given
    if given is not None:
        raise ValueError(f"a {what} was given, but the saved model holds its own")
    return None if config is None and base is Objective else decode(config, base, what)


def _check_settings(settings: dict[str, Any], cls: type[Detector]) -> dict[str, Any]:
    hints = {k: v for k, v in get_type_hints(cls.__init__).items() if k not in _NOT_SETTINGS and k != "return"}
    for key in settings:
        if key not in hints:
            raise ModelFileError(f"settings has {show(key)}, which this version of oddnode does not know")
    values = {key: checked(value, hints[key], f"settings.{key}", 0) for key, value in settings.items()}
    for key, value in values.items():
        if isinstance(value, int) and key != "seed":
            most = _MOST_LAYERS if key == "num_layers" else LARGEST_INT
            in_range(value, 0 if key == "num_spare_logits" else 1, most, f"settings.{key}")
    return values


def _filled_module(detector: Detector, dtype: torch.dtype, tensors: dict[str, Tensor]) -> nn.Module:
    """The network with its saved weights, which are taken out of ``tensors``."""
    weights = {k.removeprefix("module."): tensors.pop(k) for k in list(tensors) if k.startswith("module.")}
    if isinstance(detector.backbone, nn.Module):
        module = detector._joined([copy.deepcopy(detector.backbone) for _ in range(detector.ensemble)])
        _check_weights(module, weights)
    else:
        # Shapes are compared on a network without memory first: a hostile config may declare any size.
        with torch.device("meta"):
            _check_weights(_new_module(detector, dtype), weights)
        module = _new_module(detector, dtype)
    module.load_state_dict(weights)
    return module


def _new_module(detector: Detector, dtype: torch.dtype) -> nn.Module:
    try:
        with seeded(0, torch.device("cpu")):
            shape = detector.num_features_in_, detector.num_classes_
            return detector._joined([detector._named_module(*shape).to(dtype) for _ in range(detector.ensemble)])
    except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"the backbone cannot be made from these settings: {first_line(error)}") from None


def _check_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    expected = module.state_dict()
    name = type(module).__name__
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


def _fitted_scorer(scorer: Any, config: Any, tensors: dict[str, Tensor], device: torch.device) -> Any:
    fitted = copy.deepcopy(scorer)
    _restore_values(fitted, config, "scorer")
    for key in [k for k in tensors if k.startswith("scorer.")]:
        owner, *path = fitted, *key.split(".")[1:]
        for step in path[:-1]:
            owner = _attributes(owner).get(step)
            if not isinstance(owner, (Scorer, tuple)):
                raise ModelFileError(f"the tensor {key!r} belongs to no scorer of the model")
        if not is_fitted(path[-1]) or not isinstance(owner, Scorer):
            raise ModelFileError(f"the tensor {key!r} is not what a scorer learns")
        setattr(owner, path[-1], tensors.pop(key).to(device))
    return fitted


def _restore_values(scorer: Any, config: Any, where: str) -> None:
    """Numbers and words that a scorer learnt; its tensors come from the other file."""
    if isinstance(scorer, tuple) and isinstance(config, list):
        for place, (member, own) in enumerate(zip(scorer, config, strict=False)):
            _restore_values(member, own, f"{where}.{place}")
    if not isinstance(config, dict) or isinstance(scorer, tuple):
        return
    for key, value in of_type(config.get("fitted", {}), dict, f"{where}.fitted").items():
        if not is_fitted(key) or not isinstance(value, (bool, int, float, str, type(None))):
            raise ModelFileError(f"{where}.fitted has {show(key)}: {show(value)}, which no scorer learns")
        setattr(scorer, key, value)
    for key, value in vars(scorer).items():
        if isinstance(value, (Scorer, tuple)):
            _restore_values(value, config.get(key), f"{where}.{key}")


def _class_means(
    tensors: dict[str, Tensor], num_classes: int, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    means = tensors.pop("class_means", None)
    if means is not None and (means.shape != (num_classes, num_classes) or means.dtype != dtype):
        raise ModelFileError(f"class_means is {means.dtype} {list(means.shape)}, expected {dtype} for every class")
    return None if means is None else means.to(device)


def _restore_calibration(detector: Detector, config: Any, tensors: dict[str, Tensor]) -> None:
    if config is None:
        return
    rate = checked(value_at(of_type(config, dict, "calibration"), "false_alarm_rate"), float, "false_alarm_rate", 0)
    scores, classes = (tensors.pop(f"calibration.{part}", None) for part in ("scores", "classes"))
    if scores is None or classes is None or scores.dim() != 1 or scores.shape != classes.shape:
        raise ModelFileError("the calibration scores and classes are missing or do not fit together")
    if not scores.is_floating_point() or classes.dtype != torch.long:
        raise ModelFileError(f"the calibration scores are {scores.dtype} and their classes {classes.dtype}")
    try:
        detector.threshold_ = threshold_at(scores, rate)
    except (CalibrationError, ValueError) as error:
        raise ModelFileError(f"calibration: {error}") from None
    detector.calibration_scores_, detector.calibration_classes_ = scores, classes
    detector.false_alarm_rate_ = rate


def _profile(config: dict[str, Any]) -> GraphProfile:
    hints = get_type_hints(GraphProfile)
    names = {f.name for f in fields(GraphProfile)}
    if config.keys() != names:
        raise ModelFileError(f"graph has {show(sorted(map(str, config)))}, expected {', '.join(sorted(names))}")
    return GraphProfile(**{k: checked(v, hints[k], f"graph.{k}", 0) for k, v in config.items()})


def _try_out(detector: Detector, dtype: torch.dtype, device: torch.device) -> None:
    """Score three nodes, so that parts that do not fit together are found here and not by the first user."""
    nodes = torch.zeros(3, detector.num_features_in_, dtype=dtype, device=device)
    graph = Graph(nodes, torch.tensor([[0, 1], [1, 0]], device=device))
    try:
        scores = detector.score_samples(Outputs(detector.module_, graph, detector.num_classes_))
    except Exception as error:  # whatever a part does not bear, the folder is what is wrong
        raise ModelFileError(f"the parts do not fit together: {first_line(error)}") from None
    if scores.shape != (3,) or not bool(torch.isfinite(scores).all()):
        raise ModelFileError("the parts do not fit together: they give no finite score per node")
