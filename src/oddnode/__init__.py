"""oddnode: which nodes of a graph does a model not know?

Every score has one direction: **higher = more like the training distribution**.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports
from oddnode._utils.registry import PART_MODULES
from oddnode._version import __version__ as __version__

if TYPE_CHECKING:
    from oddnode._utils.plugins import PluginError as PluginError
    from oddnode._utils.plugins import load_plugins as load_plugins
    from oddnode.bench import benchmark as benchmark
    from oddnode.detector import RECIPES as RECIPES
    from oddnode.detector import Detector as Detector
    from oddnode.detector import ModelFileError as ModelFileError
    from oddnode.detector import Recipe as Recipe
    from oddnode.detector import register_method as register_method
    from oddnode.evaluation import evaluate as evaluate
    from oddnode.functional import CalibrationError as CalibrationError
    from oddnode.nn import GAT as GAT
    from oddnode.nn import GCN as GCN
    from oddnode.nn import GPN as GPN
    from oddnode.nn import MLP as MLP
    from oddnode.nn import Backbone as Backbone
    from oddnode.nn import EvidentialGCN as EvidentialGCN
    from oddnode.nn import JKNet as JKNet
    from oddnode.nn import MixHop as MixHop
    from oddnode.nn import register_backbone as register_backbone
    from oddnode.objectives import BoundUniform as BoundUniform
    from oddnode.objectives import CrossEntropy as CrossEntropy
    from oddnode.objectives import EnergyHinge as EnergyHinge
    from oddnode.objectives import LogitNorm as LogitNorm
    from oddnode.objectives import OutlierExposure as OutlierExposure
    from oddnode.objectives import SyntheticExposure as SyntheticExposure
    from oddnode.objectives import Term as Term
    from oddnode.online import LiveGraph as LiveGraph
    from oddnode.scoring import GRASP as GRASP
    from oddnode.scoring import KNN as KNN
    from oddnode.scoring import ODIN as ODIN
    from oddnode.scoring import CentredCosine as CentredCosine
    from oddnode.scoring import ClassAgreement as ClassAgreement
    from oddnode.scoring import Degree as Degree
    from oddnode.scoring import Energy as Energy
    from oddnode.scoring import Evidence as Evidence
    from oddnode.scoring import FeatureLikelihood as FeatureLikelihood
    from oddnode.scoring import FeatureSum as FeatureSum
    from oddnode.scoring import LinkPrediction as LinkPrediction
    from oddnode.scoring import Mahalanobis as Mahalanobis
    from oddnode.scoring import MaxLogit as MaxLogit
    from oddnode.scoring import MaxSoftmax as MaxSoftmax
    from oddnode.scoring import NeighbourCloseness as NeighbourCloseness
    from oddnode.scoring import NeighbourCosine as NeighbourCosine
    from oddnode.scoring import NeighbourDegree as NeighbourDegree
    from oddnode.scoring import NeighbourhoodCosine as NeighbourhoodCosine
    from oddnode.scoring import NeighbourhoodFeatures as NeighbourhoodFeatures
    from oddnode.scoring import NonZeros as NonZeros
    from oddnode.scoring import Outputs as Outputs
    from oddnode.scoring import Propagated as Propagated
    from oddnode.scoring import Scorer as Scorer
    from oddnode.scoring import TwoSided as TwoSided
    from oddnode.tasks import DatasetSpec as DatasetSpec
    from oddnode.tasks import Task as Task
    from oddnode.tasks import load_task as load_task
    from oddnode.tasks import register_dataset as register_dataset
else:
    __getattr__, __dir__, __all__ = exports(__name__)

PART_MODULES.register_place("published", "oddnode.protocols.published_terms")
