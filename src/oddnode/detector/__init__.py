"""`Detector`: a backbone, an objective and a scorer; its fitted state, calibration, methods and saved folder.

May import: training, scoring and below.
"""

from oddnode.detector.decisions import Decisions, Explanation
from oddnode.detector.detector import Detector, fit_together, start_fitting
from oddnode.detector.model_folder import (
    FORMAT_VERSION,
    NoTrainingGraph,
    check_target,
    load,
    read_config,
    save,
)
from oddnode.detector.part_config import ModelFileError, checked, decode, encode
from oddnode.detector.recipes import FLOOR, Uncertainty, evidential_scorer
from oddnode.detector.registry import RECIPES, Recipe, get_recipe, register_method

__all__ = [
    "FLOOR",
    "FORMAT_VERSION",
    "RECIPES",
    "Decisions",
    "Detector",
    "Explanation",
    "ModelFileError",
    "NoTrainingGraph",
    "Recipe",
    "Uncertainty",
    "check_target",
    "checked",
    "decode",
    "encode",
    "evidential_scorer",
    "fit_together",
    "get_recipe",
    "load",
    "read_config",
    "register_method",
    "save",
    "start_fitting",
]
