"""Pure functions: energies and their propagation, losses, Dirichlet distributions, metrics, conformal p-values.

May import: ops and below.
"""

from oddnode.functional.conformal import (
    CalibrationError,
    benjamini_hochberg,
    check_rate,
    conformal_p_values,
    conformal_p_values_per_class,
    nodes_needed,
    threshold_at,
)
from oddnode.functional.dirichlet import dirichlet_entropy, dirichlet_kl, expected_cross_entropy, expected_squared_error
from oddnode.functional.energy import Isolated, negative_energy, propagate, propagate_to, support
from oddnode.functional.losses import (
    bound_loss,
    cross_entropy,
    dispersion,
    energy_hinge_loss,
    logit_norm_loss,
    outlier_exposure_loss,
    uniform_loss,
)
from oddnode.functional.metrics import aupr, aupr_ood, auroc, fpr_at_tpr
from oddnode.functional.surprise import surprise

__all__ = [
    "CalibrationError",
    "Isolated",
    "aupr",
    "aupr_ood",
    "auroc",
    "benjamini_hochberg",
    "bound_loss",
    "check_rate",
    "conformal_p_values",
    "conformal_p_values_per_class",
    "cross_entropy",
    "dirichlet_entropy",
    "dirichlet_kl",
    "dispersion",
    "energy_hinge_loss",
    "expected_cross_entropy",
    "expected_squared_error",
    "fpr_at_tpr",
    "logit_norm_loss",
    "negative_energy",
    "nodes_needed",
    "outlier_exposure_loss",
    "propagate",
    "propagate_to",
    "support",
    "surprise",
    "threshold_at",
    "uniform_loss",
]
