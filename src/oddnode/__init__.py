"""oddnode: which nodes of a graph does a model not know?

Every score has one direction: **higher = more like the training distribution**.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oddnode._version import __version__

if TYPE_CHECKING:
    from oddnode.backbones import GCN
    from oddnode.bench import benchmark
    from oddnode.calibration import CalibrationError
    from oddnode.detector import Detector
    from oddnode.evaluation import evaluate
    from oddnode.objectives import BoundUniform, CrossEntropy, EnergyHinge, LogitNorm, OutlierExposure
    from oddnode.recipes import RECIPES
    from oddnode.saving import ModelFileError
    from oddnode.scorers import Energy, MaxSoftmax, Propagated
    from oddnode.tasks import Task, load_task

# Importing torch and PyG takes seconds, so a name brings its module in when it is first used.
_HOME = {
    "BoundUniform": "objectives",
    "CalibrationError": "calibration",
    "CrossEntropy": "objectives",
    "Detector": "detector",
    "Energy": "scorers",
    "EnergyHinge": "objectives",
    "GCN": "backbones",
    "LogitNorm": "objectives",
    "MaxSoftmax": "scorers",
    "ModelFileError": "saving",
    "OutlierExposure": "objectives",
    "Propagated": "scorers",
    "RECIPES": "recipes",
    "Task": "tasks",
    "benchmark": "bench",
    "evaluate": "evaluation",
    "load_task": "tasks",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'oddnode' has no attribute {name!r}")
    return getattr(import_module(f"oddnode.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
