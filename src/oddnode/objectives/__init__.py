"""Objectives, which training minimises: weighted sums of terms.

May import: nn and below.
"""

from oddnode.objectives.base import Objective, Sum, Term, Train, TrainingPass, validation_loss
from oddnode.objectives.evidential import ExpectedCrossEntropy, ExpectedSquaredError, NegativeEntropy
from oddnode.objectives.gkde import KernelPrior, Teacher, hop_counts, kernel_prior
from oddnode.objectives.synthetic import SyntheticExposure
from oddnode.objectives.terms import BoundUniform, CrossEntropy, EnergyHinge, LogitNorm, OutlierExposure

__all__ = [
    "BoundUniform",
    "CrossEntropy",
    "EnergyHinge",
    "ExpectedCrossEntropy",
    "ExpectedSquaredError",
    "KernelPrior",
    "LogitNorm",
    "NegativeEntropy",
    "Objective",
    "OutlierExposure",
    "Sum",
    "SyntheticExposure",
    "Teacher",
    "Term",
    "Train",
    "TrainingPass",
    "hop_counts",
    "kernel_prior",
    "validation_loss",
]
