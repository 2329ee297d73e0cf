"""The settings of a method by name: its hyper-parameters, and the arguments of `Detector`. Imports no slow module."""

from __future__ import annotations

from typing import Any, get_type_hints

from oddnode.detector.model_config import Settings
from oddnode.detector.registry import Recipe

__all__ = ["DETECTOR_SETTINGS", "setting_types"]

#: The types of the arguments of `Detector` that any method can have; the seed is given by itself.
DETECTOR_SETTINGS = {
    name: kind for name, kind in get_type_hints(Settings, include_extras=True).items() if name != "seed"
}


def setting_types(recipe: Recipe) -> dict[str, Any]:
    """Return the type of every setting of a method, those of its own first.

    Parameters
    ----------
    recipe : Recipe
        The method.
    """
    return recipe.hyper_parameter_types | DETECTOR_SETTINGS
