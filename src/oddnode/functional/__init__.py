"""Pure functions: energies and their propagation, losses, Dirichlet distributions, metrics, conformal p-values.

May import: ops and below.
"""

from oddnode.functional.conformal import CalibrationError as CalibrationError
from oddnode.functional.conformal import benjamini_hochberg as benjamini_hochberg
from oddnode.functional.conformal import check_rate as check_rate
from oddnode.functional.conformal import conformal_p_values as conformal_p_values
from oddnode.functional.conformal import conformal_p_values_per_class as conformal_p_values_per_class
from oddnode.functional.conformal import expected_precision as expected_precision
from oddnode.functional.conformal import known_share as known_share
from oddnode.functional.conformal import nodes_needed as nodes_needed
from oddnode.functional.conformal import rate_interval as rate_interval
from oddnode.functional.conformal import share_interval as share_interval
from oddnode.functional.conformal import surprise as surprise
from oddnode.functional.conformal import threshold_at as threshold_at
from oddnode.functional.dirichlet import dirichlet_entropy as dirichlet_entropy
from oddnode.functional.dirichlet import dirichlet_kl as dirichlet_kl
from oddnode.functional.dirichlet import expected_cross_entropy as expected_cross_entropy
from oddnode.functional.dirichlet import expected_squared_error as expected_squared_error
from oddnode.functional.energy import Isolated as Isolated
from oddnode.functional.energy import negative_energy as negative_energy
from oddnode.functional.energy import propagate as propagate
from oddnode.functional.energy import propagate_to as propagate_to
from oddnode.functional.energy import support as support
from oddnode.functional.losses import bound_loss as bound_loss
from oddnode.functional.losses import cross_entropy as cross_entropy
from oddnode.functional.losses import dispersion as dispersion
from oddnode.functional.losses import energy_hinge_loss as energy_hinge_loss
from oddnode.functional.losses import logit_norm_loss as logit_norm_loss
from oddnode.functional.losses import outlier_exposure_loss as outlier_exposure_loss
from oddnode.functional.losses import uniform_loss as uniform_loss
from oddnode.functional.metrics import aupr as aupr
from oddnode.functional.metrics import aupr_ood as aupr_ood
from oddnode.functional.metrics import auroc as auroc
from oddnode.functional.metrics import fpr_at_tpr as fpr_at_tpr
