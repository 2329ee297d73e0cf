"""A fitted detector as a folder: ``config.json`` for people, ``model.safetensors`` for numbers.

Neither can run anything. Parts are rebuilt by name from this library's own classes; every value is checked for its
type, every tensor for its shape, type and finiteness before it is used.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor, nn

from oddnode._version import __version__
from oddnode.advice import GraphProfile
from oddnode.backbones import BACKBONES
from oddnode.calibration import CalibrationError, threshold_at
from oddnode.files import new_folder, sync_file
from oddnode.graph import Graph
from oddnode.objectives import Objective
from oddnode.scorers import Outputs, Scorer
from oddnode.training import seeded

if TYPE_CHECKING:
    from oddnode.detector import Detector

__all__ = ["FORMAT_VERSION", "ModelFileError", "NoTrainingGraph", "check_target", "load", "read_config", "save"]

FORMAT_VERSION = 1
_FORMAT = "oddnode detector"
_CONFIG, _TENSORS = "config.json", "model.safetensors"
_DTYPES = {"float32": torch.float32, "float64": torch.float64}

# Arguments of `Detector` that are saved elsewhere (the three parts) or chosen anew (the device).
_NOT_SETTINGS = {"backbone", "objective", "scorer", "device"}

# Far above any real model's, low enough that a hostile one cannot keep the machine busy.
_LARGEST_CONFIG = 64 * 2**20
_LARGEST_INT = 2**31
_MOST_LAYERS = 1000
_MOST_HOPS = 10_000


class ModelFileError(ValueError):
    """A model folder that cannot be used; the message says what is wrong with it."""


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
        "objective": None if detector.objective is None else _encode(detector.objective, "objective"),
        "scorer": _encode(detector.scorer_, "scorer"),
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
    for key, value in vars(part).items():
        if isinstance(value, Scorer):
            found |= _fitted_tensors(value, f"{name}.{key}")
        elif _is_fitted(key) and isinstance(value, Tensor):
            found[f"{name}.{key}"] = value
    return found


def _is_fitted(key: str) -> bool:
    return key.endswith("_") and not key.endswith("__")


def _encode(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}, which cannot be saved")
        return value
    if isinstance(value, (list, tuple)):
        return [_encode(item, where) for item in value]
    if not isinstance(value, (Scorer, Objective)):
        raise TypeError(f"{where} holds a {type(value).__name__}, which cannot be saved")
    kind = type(value)
    if kind not in _known_classes().values():
        return {"own": kind.__name__}
    config: dict[str, Any] = {"class": kind.__name__}
    config |= {f.name: _encode(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value)}  # type: ignore[arg-type]
    learnt = {k: v for k, v in vars(value).items() if _is_fitted(k) and not isinstance(v, Tensor)}
    if learnt:
        config["fitted"] = {k: _encode(v, f"{where}.{k}") for k, v in learnt.items()}
    return config


def _known_classes() -> dict[str, type]:
    """The objectives and scorers of this library: all that a config may name."""
    import oddnode.recipes  # noqa: F401  every part that a method uses is imported by this

    known: dict[str, type] = {}
    waiting: list[type] = [Objective, Scorer]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if is_dataclass(kind) and kind.__module__.startswith("oddnode."):
            known[kind.__name__] = kind
    return known


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
        tensors = _read_tensors(folder, _of(config, "tensors_sha256", str))
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
        config = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{folder / _CONFIG} is damaged: {_first_line(error)}") from None
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
        raise ModelFileError(f"{_TENSORS} is damaged or not a safetensors file: {_first_line(error)}") from None
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
    settings = _check_settings(_of(config, "settings", dict), cls)
    parts: dict[str, Any] = {
        "backbone": _named_or_given(_get(config, "backbone"), backbone),
        "objective": _decoded_or_given(_get(config, "objective"), objective, "objective", Objective),
        "scorer": _decoded_or_given(_get(config, "scorer"), scorer, "scorer", Scorer),
    }
    detector = cls(**parts, **settings, device=device)
    where = detector._device()
    detector.num_features_in_ = _count(config, "num_features", 1)
    detector.num_classes_ = _count(config, "num_classes", 1)
    detector.best_epoch_ = _count(config, "best_epoch", 0)
    detector.history_ = []
    detector.graph_profile_ = _profile(_of(config, "graph", dict))
    detector.advice_ = [_is(line, str, "advice") for line in _of(config, "advice", list)]
    dtype = _DTYPES.get(str(_get(config, "dtype")))
    if dtype is None:
        raise ModelFileError(f"dtype is {_show(config['dtype'])}, expected one of {', '.join(_DTYPES)}")
    left = dict(tensors)
    detector.module_ = _filled_module(detector, dtype, left).to(where).eval()
    detector.scorer_ = _fitted_scorer(detector.scorer, _get(config, "scorer"), left, where)
    detector.class_means_ = _class_means(left, detector.num_classes_, dtype, where)
    _restore_calibration(detector, _get(config, "calibration"), left)
    if left:
        raise ModelFileError(f"the tensor {next(iter(left))!r} belongs to no part of the model")
    stand_in: Any = NoTrainingGraph("was loaded from files, which do not hold that graph")
    detector._training = (stand_in, stand_in, stand_in)
    if isinstance(detector.backbone, str):
        _try_out(detector, dtype, where)
    return detector


def _named_or_given(config: Any, given: nn.Module | None) -> str | nn.Module:
    if isinstance(config, str):
        if given is not None:
            raise ValueError(f"a module was given, but the saved model has the backbone {config!r} of this library")
        if config not in BACKBONES:
            raise ModelFileError(f"unknown backbone {_show(config)}; known: {', '.join(BACKBONES)}")
        return config
    name = _is(_get(_is(config, dict, "backbone"), "own"), str, "backbone")
    if given is None:
        raise ModelFileError(
            f"the model was built on your own module {_show(name)}, which files cannot hold; make one of the same "
            "shape and call Detector.load(..., backbone=module): its copy gets the saved weights"
        )
    return given


def _decoded_or_given(config: Any, given: Any, what: str, base: type) -> Any:
    if isinstance(config, dict) and "own" in config:
        if given is None:
            raise ModelFileError(
                f"the model uses your own {what} {_show(config['own'])}, which files cannot hold; "
                f"call Detector.load(..., {what}=...)"
            )
        return given
    if given is not None:
        raise ValueError(f"a {what} was given, but the saved model holds its own")
    return None if config is None and base is Objective else _decode(config, base, what)


def _decode(config: Any, base: type, where: str, depth: int = 0) -> Any:
    """An objective or a scorer of this library from its config, every field checked against its annotation."""
    if depth > 20:
        raise ModelFileError(f"{where} is nested too deeply")
    _is(config, dict, where)
    known = _known_classes()
    name = config.get("class")
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None or not issubclass(kind, base):
        names = sorted(n for n, k in known.items() if issubclass(k, base))
        raise ModelFileError(f"{where} has class {_show(name)}, expected one of {', '.join(names)}")
    hints = get_type_hints(kind)
    declared = {f.name: hints[f.name] for f in fields(kind)}  # type: ignore[arg-type]
    for key in config:
        if key not in declared and key not in ("class", "fitted"):
            raise ModelFileError(f"{where} has a field {_show(key)}, which {name} does not")
    values = {
        key: _checked(config[key], hint, f"{where}.{key}", depth + 1) for key, hint in declared.items() if key in config
    }
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"{where} cannot be made: {_first_line(error)}") from None


def _checked(value: Any, hint: Any, where: str, depth: int) -> Any:
    """``value``, if it is what the annotation ``hint`` says."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _checked_union(value, get_args(hint), where, depth)
    if origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in get_args(hint)):
            raise ModelFileError(f"{where} is {_show(value)}, expected one of {', '.join(map(str, get_args(hint)))}")
        return value
    if origin is tuple:
        return _checked_tuple(value, get_args(hint), where, depth)
    if hint is None or hint is type(None):
        if value is not None:
            raise ModelFileError(f"{where} is {_show(value)}, expected null")
        return None
    if hint is float:
        number = _is(value, (int, float), where)
        if not math.isfinite(number) or abs(number) > 1e30:
            raise ModelFileError(f"{where} is {number}, expected a finite number")
        return float(number)
    if hint is int and depth:
        return _in_range(_is(value, int, where), -_LARGEST_INT, _MOST_HOPS, where)
    if isinstance(hint, type) and issubclass(hint, (Scorer, Objective)):
        return _decode(value, hint, where, depth)
    if hint in (int, bool, str):
        return _is(value, hint, where)
    raise ModelFileError(f"{where} is of a kind ({hint}) that cannot be read from files")


def _checked_union(value: Any, choices: tuple[Any, ...], where: str, depth: int) -> Any:
    problems = []
    for choice in choices:
        try:
            return _checked(value, choice, where, depth)
        except ModelFileError as error:
            problems.append(str(error))
    raise ModelFileError(problems[-1])


def _checked_tuple(value: Any, kinds: tuple[Any, ...], where: str, depth: int) -> tuple[Any, ...]:
    items = _is(value, list, where)
    if len(items) > 1000:
        raise ModelFileError(f"{where} has {len(items)} entries, expected at most 1000")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(items)
    if len(kinds) != len(items):
        raise ModelFileError(f"{where} has {len(items)} entries, expected {len(kinds)}")
    return tuple(_checked(item, kind, where, depth + 1) for item, kind in zip(items, kinds, strict=True))


def _check_settings(settings: dict[str, Any], cls: type[Detector]) -> dict[str, Any]:
    hints = {k: v for k, v in get_type_hints(cls.__init__).items() if k not in _NOT_SETTINGS and k != "return"}
    for key in settings:
        if key not in hints:
            raise ModelFileError(f"settings has {_show(key)}, which this version of oddnode does not know")
    checked = {key: _checked(value, hints[key], f"settings.{key}", 0) for key, value in settings.items()}
    for key, value in checked.items():
        if isinstance(value, int) and key != "seed":
            most = _MOST_LAYERS if key == "num_layers" else _LARGEST_INT
            _in_range(value, 0, most, f"settings.{key}")
    return checked


def _filled_module(detector: Detector, dtype: torch.dtype, tensors: dict[str, Tensor]) -> nn.Module:
    """The network with its saved weights, which are taken out of ``tensors``."""
    weights = {k.removeprefix("module."): tensors.pop(k) for k in list(tensors) if k.startswith("module.")}
    if isinstance(detector.backbone, nn.Module):
        module = copy.deepcopy(detector.backbone)
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
            return detector._named_module(detector.num_features_in_, detector.num_classes_).to(dtype)
    except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"the backbone cannot be made from these settings: {_first_line(error)}") from None


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
            owner = vars(owner).get(step)
            if not isinstance(owner, Scorer):
                raise ModelFileError(f"the tensor {key!r} belongs to no scorer of the model")
        if not _is_fitted(path[-1]):
            raise ModelFileError(f"the tensor {key!r} is not what a scorer learns")
        setattr(owner, path[-1], tensors.pop(key).to(device))
    return fitted


def _restore_values(scorer: Any, config: Any, where: str) -> None:
    """Numbers and words that a scorer learnt; its tensors come from the other file."""
    if not isinstance(config, dict):
        return
    for key, value in _is(config.get("fitted", {}), dict, f"{where}.fitted").items():
        if not _is_fitted(key) or not isinstance(value, (bool, int, float, str, type(None))):
            raise ModelFileError(f"{where}.fitted has {_show(key)}: {_show(value)}, which no scorer learns")
        setattr(scorer, key, value)
    for key, value in vars(scorer).items():
        if isinstance(value, Scorer):
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
    rate = _checked(_get(_is(config, dict, "calibration"), "false_alarm_rate"), float, "false_alarm_rate", 0)
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
        raise ModelFileError(f"graph has {_show(sorted(map(str, config)))}, expected {', '.join(sorted(names))}")
    return GraphProfile(**{k: _checked(v, hints[k], f"graph.{k}", 0) for k, v in config.items()})


def _try_out(detector: Detector, dtype: torch.dtype, device: torch.device) -> None:
    """Score three nodes, so that parts that do not fit together are found here and not by the first user."""
    nodes = torch.zeros(3, detector.num_features_in_, dtype=dtype, device=device)
    graph = Graph(nodes, torch.tensor([[0, 1], [1, 0]], device=device))
    try:
        scores = detector.score_samples(Outputs(detector.module_, graph, detector.num_classes_))
    except Exception as error:  # whatever a part does not bear, the folder is what is wrong
        raise ModelFileError(f"the parts do not fit together: {_first_line(error)}") from None
    if scores.shape != (3,) or not bool(torch.isfinite(scores).all()):
        raise ModelFileError("the parts do not fit together: they give no finite score per node")


# --- checks of single values -----------------------------------------------------------------------------------------


def _get(config: dict[str, Any], key: str) -> Any:
    if key not in config:
        raise ModelFileError(f"{_CONFIG} has no {key!r}")
    return config[key]


def _of(config: dict[str, Any], key: str, kind: type) -> Any:
    return _is(_get(config, key), kind, key)


def _is(value: Any, kind: Any, where: str) -> Any:
    """``value``, if it is of that type; a JSON true is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = kind.__name__ if isinstance(kind, type) else "number"
        raise ModelFileError(f"{where} is {_show(value)}, expected a value of type {names}")
    return value


def _in_range(value: int, least: int, most: int, where: str) -> int:
    if not least <= value <= most:
        raise ModelFileError(f"{where} is {_show(value)}, expected {least}..{most}")
    return value


def _count(config: dict[str, Any], key: str, least: int) -> int:
    return _in_range(_of(config, key, int), least, _LARGEST_INT, key)


def _show(value: Any) -> str:
    """A value as a message may quote it: short, whatever it is."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _first_line(error: BaseException) -> str:
    text = str(error).splitlines()
    return (text[0] if text else type(error).__name__)[:200]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}, which is no number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return dict(pairs)
