"""The rules a task is run under: clean, and published (what the paper's code does, quirk by quirk).

May import: detector and below, tasks.
"""

from oddnode.protocols.published import (
    METHODS,
    Bound,
    ExposedUniform,
    ForwardedExposure,
    JointBound,
    SignedUniform,
    TruncatedHinge,
    detector,
    fpr_at_nearest_tpr,
    id_accuracy,
)

__all__ = [
    "METHODS",
    "Bound",
    "ExposedUniform",
    "ForwardedExposure",
    "JointBound",
    "SignedUniform",
    "TruncatedHinge",
    "detector",
    "fpr_at_nearest_tpr",
    "id_accuracy",
]
