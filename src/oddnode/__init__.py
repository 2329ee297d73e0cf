"""oddnode: which nodes of a graph does a model not know?

Every score has one direction: **higher = more like the training distribution**.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from oddnode._version import __version__

# On Linux torch then takes large pages for large tensors, which more than halves an epoch over ten million edges. Torch
# looks when the first tensor is made, so oddnode is to be imported before that.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:
    from oddnode.backbones import GAT, GCN, MLP, Backbone, JKNet, MixHop
    from oddnode.bench import benchmark
    from oddnode.calibration import CalibrationError
    from oddnode.detector import Detector
    from oddnode.evaluation import evaluate
    from oddnode.features import KNN, Mahalanobis
    from oddnode.gkde import EvidentialGCN
    from oddnode.gpn import GPN
    from oddnode.grasp import GRASP
    from oddnode.objectives import (
        BoundUniform,
        CrossEntropy,
        EnergyHinge,
        LogitNorm,
        OutlierExposure,
        Term,
    )
    from oddnode.recipes import RECIPES
    from oddnode.saving import ModelFileError
    from oddnode.scorers import ODIN, Energy, MaxLogit, MaxSoftmax, Outputs, Propagated, Scorer
    from oddnode.synthetic import SyntheticExposure
    from oddnode.tasks import Task, load_task
    from oddnode.trivial import Degree, NeighbourCosine, NonZeros

# Importing torch and PyG takes seconds, so a name brings its module in when it is first used.
_HOME = {
    "Backbone": "backbones",
    "BoundUniform": "objectives",
    "CalibrationError": "calibration",
    "CrossEntropy": "objectives",
    "Degree": "trivial",
    "Detector": "detector",
    "Energy": "scorers",
    "EnergyHinge": "objectives",
    "EvidentialGCN": "gkde",
    "GAT": "backbones",
    "GCN": "backbones",
    "GPN": "gpn",
    "GRASP": "grasp",
    "JKNet": "backbones",
    "KNN": "features",
    "LogitNorm": "objectives",
    "MLP": "backbones",
    "Mahalanobis": "features",
    "MaxLogit": "scorers",
    "MaxSoftmax": "scorers",
    "MixHop": "backbones",
    "ModelFileError": "saving",
    "NeighbourCosine": "trivial",
    "NonZeros": "trivial",
    "ODIN": "scorers",
    "OutlierExposure": "objectives",
    "Outputs": "scorers",
    "Propagated": "scorers",
    "RECIPES": "recipes",
    "Scorer": "scorers",
    "SyntheticExposure": "synthetic",
    "Task": "tasks",
    "Term": "objectives",
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
