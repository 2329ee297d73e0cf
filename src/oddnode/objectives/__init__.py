"""Objectives, which training minimises: weighted sums of terms.

May import: nn and below.
"""

from oddnode.objectives.base import Objective as Objective
from oddnode.objectives.base import Sum as Sum
from oddnode.objectives.base import Term as Term
from oddnode.objectives.base import Train as Train
from oddnode.objectives.base import TrainingPass as TrainingPass
from oddnode.objectives.base import validation_loss as validation_loss
from oddnode.objectives.gkde import KernelPrior as KernelPrior
from oddnode.objectives.gkde import Teacher as Teacher
from oddnode.objectives.gkde import hop_counts as hop_counts
from oddnode.objectives.gkde import kernel_prior as kernel_prior
from oddnode.objectives.oodgat import EntropyConsistency as EntropyConsistency
from oddnode.objectives.oodgat import KnownCrossEntropy as KnownCrossEntropy
from oddnode.objectives.oodgat import LayerAgreement as LayerAgreement
from oddnode.objectives.oodgat import UniformWhereUnknown as UniformWhereUnknown
from oddnode.objectives.terms import BoundUniform as BoundUniform
from oddnode.objectives.terms import CrossEntropy as CrossEntropy
from oddnode.objectives.terms import EnergyHinge as EnergyHinge
from oddnode.objectives.terms import ExpectedCrossEntropy as ExpectedCrossEntropy
from oddnode.objectives.terms import ExpectedSquaredError as ExpectedSquaredError
from oddnode.objectives.terms import LogitNorm as LogitNorm
from oddnode.objectives.terms import NegativeEntropy as NegativeEntropy
from oddnode.objectives.terms import OutlierExposure as OutlierExposure
from oddnode.objectives.terms import SyntheticExposure as SyntheticExposure
