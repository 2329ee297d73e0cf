"""`Detector`, which combines a backbone, an objective and a scorer; methods by name, and saved models.

May import: training, scoring and below.
"""

from oddnode.detector.adaptation import scorer_of
from oddnode.detector.arrival import ArrivalScorer
from oddnode.detector.calibration import Calibration
from oddnode.detector.checked_json import ModelFileError, checked
from oddnode.detector.detector import Detector
from oddnode.detector.evidence_recipes import kinds_of_evidence
from oddnode.detector.explanation import Explanation
from oddnode.detector.fitted import FittedState, TrainingOutputs
from oddnode.detector.fitting import fit_together, start_fitting
from oddnode.detector.model_folder import FORMAT_VERSION, check_target, load, read_config, save
from oddnode.detector.part_config import decode, encode
from oddnode.detector.recipes import MODEL_FREE, Uncertainty, evidential_scorer
from oddnode.detector.registry import RECIPES, Recipe, get_recipe, register_method
from oddnode.detector.training_key import TrainingKey

__all__ = [
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
    "encode",
    "evidential_scorer",
    "fit_together",
    "get_recipe",
    "kinds_of_evidence",
    "load",
    "read_config",
    "register_method",
    "save",
    "scorer_of",
    "start_fitting",
]
