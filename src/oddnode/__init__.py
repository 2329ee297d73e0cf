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
    from oddnode._utils.plugins import PluginError, load_plugins
    from oddnode.bench import benchmark
    from oddnode.detector import RECIPES, ArrivalScorer, Detector, ModelFileError, Recipe, register_method
    from oddnode.evaluation import evaluate
    from oddnode.functional import CalibrationError
    from oddnode.nn import GAT, GCN, GPN, MLP, Backbone, EvidentialGCN, JKNet, MixHop, register_backbone
    from oddnode.objectives import (
        BoundUniform,
        CrossEntropy,
        EnergyHinge,
        LogitNorm,
        OutlierExposure,
        SyntheticExposure,
        Term,
    )
    from oddnode.scoring import (
        GRASP,
        KNN,
        ODIN,
        CentredCosine,
        ClassAgreement,
        Degree,
        Energy,
        Evidence,
        FeatureLikelihood,
        FeatureSum,
        LinkPrediction,
        Mahalanobis,
        MaxLogit,
        MaxSoftmax,
        NeighbourCosine,
        NeighbourhoodCosine,
        NeighbourhoodFeatures,
        NonZeros,
        Outputs,
        Propagated,
        Scorer,
        TwoSided,
    )
    from oddnode.tasks import DatasetSpec, Task, load_task, register_dataset

# Importing torch and PyG takes seconds, so a name brings its module in when it is first used.
_HOME = {
    "ArrivalScorer": "detector",
    "Backbone": "nn",
    "BoundUniform": "objectives",
    "CalibrationError": "functional",
    "CentredCosine": "scoring",
    "ClassAgreement": "scoring",
    "CrossEntropy": "objectives",
    "DatasetSpec": "tasks",
    "Degree": "scoring",
    "Detector": "detector",
    "Energy": "scoring",
    "EnergyHinge": "objectives",
    "Evidence": "scoring",
    "EvidentialGCN": "nn",
    "FeatureLikelihood": "scoring",
    "FeatureSum": "scoring",
    "GAT": "nn",
    "GCN": "nn",
    "GPN": "nn",
    "GRASP": "scoring",
    "JKNet": "nn",
    "KNN": "scoring",
    "LinkPrediction": "scoring",
    "LogitNorm": "objectives",
    "MLP": "nn",
    "Mahalanobis": "scoring",
    "MaxLogit": "scoring",
    "MaxSoftmax": "scoring",
    "MixHop": "nn",
    "ModelFileError": "detector",
    "NeighbourCosine": "scoring",
    "NeighbourhoodCosine": "scoring",
    "NeighbourhoodFeatures": "scoring",
    "NonZeros": "scoring",
    "ODIN": "scoring",
    "OutlierExposure": "objectives",
    "Outputs": "scoring",
    "PluginError": "_utils.plugins",
    "Propagated": "scoring",
    "RECIPES": "detector",
    "Recipe": "detector",
    "Scorer": "scoring",
    "SyntheticExposure": "objectives",
    "Task": "tasks",
    "Term": "objectives",
    "TwoSided": "scoring",
    "benchmark": "bench",
    "evaluate": "evaluation",
    "load_plugins": "_utils.plugins",
    "load_task": "tasks",
    "register_backbone": "nn",
    "register_dataset": "tasks",
    "register_method": "detector",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'oddnode' has no attribute {name!r}")
    return getattr(import_module(f"oddnode.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
