"""`Detector`, which combines a backbone, an objective and a scorer; methods by name, and saved models.

May import: training, scoring and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.checked_json import ModelFileError as ModelFileError
from oddnode._utils.checked_json import checked as checked
from oddnode._utils.lazy import exports
from oddnode.detector.recipes import DETECTOR_SETTINGS as DETECTOR_SETTINGS
from oddnode.detector.recipes import MODEL_FREE as MODEL_FREE
from oddnode.detector.recipes import RECIPES as RECIPES
from oddnode.detector.recipes import Recipe as Recipe
from oddnode.detector.recipes import default_method as default_method
from oddnode.detector.recipes import evidential_scorer as evidential_scorer
from oddnode.detector.recipes import get_recipe as get_recipe
from oddnode.detector.recipes import kinds_of_evidence as kinds_of_evidence
from oddnode.detector.recipes import register_method as register_method
from oddnode.detector.recipes import setting_types as setting_types
from oddnode.detector.saved_files import FORMAT_VERSION as FORMAT_VERSION
from oddnode.detector.saved_files import check_target as check_target
from oddnode.detector.saved_files import read_config as read_config
from oddnode.detector.saved_files import read_forecast as read_forecast
from oddnode.detector.saved_files import read_summary as read_summary

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector as Detector
    from oddnode.detector.drift import Drift as Drift
    from oddnode.detector.drift import ScoreShift as ScoreShift
    from oddnode.detector.explanation import Explanation as Explanation
    from oddnode.detector.fitted import Calibration as Calibration
    from oddnode.detector.fitted import FittedState as FittedState
    from oddnode.detector.fitted import TrainingOutputs as TrainingOutputs
    from oddnode.detector.fitted import as_scorer as as_scorer
    from oddnode.detector.fitting import TrainingKey as TrainingKey
    from oddnode.detector.fitting import fit_together as fit_together
    from oddnode.detector.fitting import full_batch_blocker as full_batch_blocker
    from oddnode.detector.fitting import start_fitting as start_fitting
    from oddnode.detector.saving import load as load
    from oddnode.detector.saving import save as save
else:
    __getattr__, __dir__, __all__ = exports(__name__)
