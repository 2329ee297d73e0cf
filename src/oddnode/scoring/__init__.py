"""Scorers, which turn the outputs of a trained network into one number per node, higher = more in-distribution.

May import: nn and below.
"""

from oddnode.scoring.advice import advised_hops, advised_scorer, doubt_about, rank_agreement, spread_left
from oddnode.scoring.base import Scorer
from oddnode.scoring.ensemble import EnsembleMean
from oddnode.scoring.evidence import Evidence
from oddnode.scoring.findings import Comparison, Finding, Names, View
from oddnode.scoring.grasp import GRASP
from oddnode.scoring.hidden_space import KNN, Mahalanobis
from oddnode.scoring.likelihood import FeatureLikelihood
from oddnode.scoring.link_prediction import LinkPrediction
from oddnode.scoring.links import CentredCosine, NeighbourhoodCosine
from oddnode.scoring.logits import ODIN, Energy, MaxLogit, MaxSoftmax
from oddnode.scoring.model_free import Degree, FeatureSum, NeighbourCosine, NonZeros
from oddnode.scoring.neighbourhood import ClassAgreement, NeighbourhoodFeatures
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.propagated import Propagated
from oddnode.scoring.two_sided import TwoSided
from oddnode.scoring.wrappers import PropagatingScorer, ScorerWrapper

__all__ = [
    "GRASP",
    "KNN",
    "ODIN",
    "CentredCosine",
    "ClassAgreement",
    "Comparison",
    "Degree",
    "Energy",
    "EnsembleMean",
    "Evidence",
    "FeatureLikelihood",
    "FeatureSum",
    "Finding",
    "LinkPrediction",
    "Mahalanobis",
    "MaxLogit",
    "MaxSoftmax",
    "Names",
    "NeighbourCosine",
    "NeighbourhoodCosine",
    "NeighbourhoodFeatures",
    "NonZeros",
    "Outputs",
    "Propagated",
    "PropagatingScorer",
    "Scorer",
    "ScorerWrapper",
    "TwoSided",
    "View",
    "advised_hops",
    "advised_scorer",
    "doubt_about",
    "rank_agreement",
    "spread_left",
]
