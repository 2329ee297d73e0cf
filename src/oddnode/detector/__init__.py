"""`Detector`, which combines a backbone, an objective and a scorer; methods by name, and saved models.

May import: training, scoring and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import lazy_names
from oddnode.detector.checked_json import ModelFileError, checked
from oddnode.detector.later_recipes import MODEL_FREE, default_method
from oddnode.detector.model_header import FORMAT_VERSION, check_target, read_config, read_summary
from oddnode.detector.recipes import Uncertainty, evidential_scorer
from oddnode.detector.registry import RECIPES, Recipe, get_recipe, register_method
from oddnode.detector.settings import DETECTOR_SETTINGS, setting_types

if TYPE_CHECKING:
    from oddnode.detector.adaptation import scorer_of
    from oddnode.detector.arrival import ArrivalScorer
    from oddnode.detector.calibration import Calibration
    from oddnode.detector.detector import Detector
    from oddnode.detector.evidence_recipes import kinds_of_evidence
    from oddnode.detector.explanation import Explanation
    from oddnode.detector.fitted import FittedState, TrainingOutputs
    from oddnode.detector.fitting import fit_together, start_fitting
    from oddnode.detector.folders import full_batch_blocker
    from oddnode.detector.model_folder import load, save
    from oddnode.detector.part_config import decode, encode
    from oddnode.detector.training_key import TrainingKey

__all__ = [
    "DETECTOR_SETTINGS",
    "FORMAT_VERSION",
    "MODEL_FREE",
    "RECIPES",
    "ArrivalScorer",
    "Calibration",
    "Detector",
    "Explanation",
    "FittedState",
    "ModelFileError",
    "Recipe",
    "TrainingKey",
    "TrainingOutputs",
    "Uncertainty",
    "check_target",
    "checked",
    "decode",
    "default_method",
    "encode",
    "evidential_scorer",
    "fit_together",
    "full_batch_blocker",
    "get_recipe",
    "kinds_of_evidence",
    "load",
    "read_config",
    "read_summary",
    "register_method",
    "save",
    "scorer_of",
    "setting_types",
    "start_fitting",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "oddnode.detector.adaptation": ["scorer_of"],
        "oddnode.detector.arrival": ["ArrivalScorer"],
        "oddnode.detector.calibration": ["Calibration"],
        "oddnode.detector.detector": ["Detector"],
        "oddnode.detector.evidence_recipes": ["kinds_of_evidence"],
        "oddnode.detector.explanation": ["Explanation"],
        "oddnode.detector.fitted": ["FittedState", "TrainingOutputs"],
        "oddnode.detector.fitting": ["fit_together", "start_fitting"],
        "oddnode.detector.folders": ["full_batch_blocker"],
        "oddnode.detector.model_folder": ["load", "save"],
        "oddnode.detector.part_config": ["decode", "encode"],
        "oddnode.detector.training_key": ["TrainingKey"],
    },
)
