"""Scorers, which turn what a trained network says of a graph into one number per node, higher = in-distribution.

May import: nn and below.
"""

from oddnode.scoring.advice import advised_hops, advised_scorer
from oddnode.scoring.base import Scorer
from oddnode.scoring.ensemble import MemberMean
from oddnode.scoring.grasp import GRASP
from oddnode.scoring.hidden_space import KNN, Mahalanobis
from oddnode.scoring.logits import ODIN, Energy, MaxLogit, MaxSoftmax
from oddnode.scoring.model_free import Degree, NeighbourCosine, NonZeros
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.propagated import Propagated

__all__ = [
    "GRASP",
    "KNN",
    "ODIN",
    "Degree",
    "Energy",
    "Mahalanobis",
    "MaxLogit",
    "MaxSoftmax",
    "MemberMean",
    "NeighbourCosine",
    "NonZeros",
    "Outputs",
    "Propagated",
    "Scorer",
    "advised_hops",
    "advised_scorer",
]
