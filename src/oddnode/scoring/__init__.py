"""Scorers, which turn the outputs of a trained network into one number per node, higher = more in-distribution.

May import: nn and below.
"""

from oddnode.scoring.advice import advised_hops as advised_hops
from oddnode.scoring.advice import advised_scorer as advised_scorer
from oddnode.scoring.advice import doubt_about as doubt_about
from oddnode.scoring.advice import rank_agreement as rank_agreement
from oddnode.scoring.advice import spread_left as spread_left
from oddnode.scoring.base import Scorer as Scorer
from oddnode.scoring.batch_differences import BatchDifference as BatchDifference
from oddnode.scoring.batch_differences import batch_differences as batch_differences
from oddnode.scoring.combinations import EnsembleMean as EnsembleMean
from oddnode.scoring.combinations import PropagatingScorer as PropagatingScorer
from oddnode.scoring.combinations import ScorerWrapper as ScorerWrapper
from oddnode.scoring.combinations import TwoSided as TwoSided
from oddnode.scoring.evidence import Evidence as Evidence
from oddnode.scoring.findings import Comparison as Comparison
from oddnode.scoring.findings import Finding as Finding
from oddnode.scoring.findings import Names as Names
from oddnode.scoring.findings import View as View
from oddnode.scoring.folder_outputs import FolderOutputs as FolderOutputs
from oddnode.scoring.gebm import GEBM as GEBM
from oddnode.scoring.grasp import GRASP as GRASP
from oddnode.scoring.hidden_space import KNN as KNN
from oddnode.scoring.hidden_space import Mahalanobis as Mahalanobis
from oddnode.scoring.links import CentredCosine as CentredCosine
from oddnode.scoring.links import LinkPrediction as LinkPrediction
from oddnode.scoring.links import NeighbourhoodCosine as NeighbourhoodCosine
from oddnode.scoring.logits import ODIN as ODIN
from oddnode.scoring.logits import Energy as Energy
from oddnode.scoring.logits import MaxLogit as MaxLogit
from oddnode.scoring.logits import MaxSoftmax as MaxSoftmax
from oddnode.scoring.model_free import Degree as Degree
from oddnode.scoring.model_free import FeatureSum as FeatureSum
from oddnode.scoring.model_free import NeighbourCosine as NeighbourCosine
from oddnode.scoring.model_free import NonZeros as NonZeros
from oddnode.scoring.neighbourhood import ClassAgreement as ClassAgreement
from oddnode.scoring.neighbourhood import FeatureLikelihood as FeatureLikelihood
from oddnode.scoring.neighbourhood import NeighbourhoodFeatures as NeighbourhoodFeatures
from oddnode.scoring.neighbours import NeighbourCloseness as NeighbourCloseness
from oddnode.scoring.neighbours import NeighbourDegree as NeighbourDegree
from oddnode.scoring.outputs import Outputs as Outputs
from oddnode.scoring.propagated import Propagated as Propagated
