"""The registry of methods, and the types of their settings; imports no slow module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from oddnode._utils.registry import Registry
from oddnode.detector.saved_files import Settings

if TYPE_CHECKING:
    from oddnode.objectives import Objective
    from oddnode.scoring import Scorer


@dataclass(frozen=True)
class Recipe:
    """A method: a function that builds its objective and scorer, and facts about it.

    Parameters
    ----------
    name : str
        Its name on the command line and in tables.
    build : callable
        Takes the method's hyper-parameters, all with defaults, and returns ``(objective, scorer)``.
    reference : str
        Authors, venue and year.
    needs_exposure : bool
        Whether it learns from known OOD nodes.
    transductive : bool
        Whether the score of a node depends on more of the scored graph than the network's own receptive field.
    cost : str
        The cost of the method, such as its number of trainings.
    backbone : str, optional
        The network, if the method has its own.
    settings : dict
        Arguments of `Detector` that differ from the defaults.
    summary : str
        What it is and when to use it, for users who choose a method.
    """

    name: str
    build: Callable[..., tuple[Objective, Scorer]]
    reference: str
    needs_exposure: bool = False
    transductive: bool = False
    cost: str = "one training"
    backbone: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    summary: str = ""

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """The hyper-parameters by name, with their default values."""
        return {name: p.default for name, p in inspect.signature(self.build).parameters.items()}

    @property
    def hyper_parameter_types(self) -> dict[str, Any]:
        """The types of the hyper-parameters by name: as annotated, or else those of the default values."""
        parameters = inspect.signature(self.build).parameters.items()
        annotated = {name: p.annotation for name, p in parameters if p.annotation is not inspect.Parameter.empty}
        names = getattr(inspect.unwrap(self.build), "__globals__", {})
        try:
            # Without the annotation of the return value, which would need torch.
            hints = get_type_hints(SimpleNamespace(__annotations__=annotated), names, include_extras=True)
        except NameError:  # a plugin may name types that only a type checker imports
            hints = {}
        return {name: type(p.default) for name, p in parameters} | hints


#: Every method by name.
RECIPES: Registry[Recipe] = Registry("method")


def get_recipe(name: str) -> Recipe:
    """Look up a method by name; the error for an unknown name suggests the nearest one.

    Parameters
    ----------
    name : str
        The method's name.
    """
    return RECIPES[name]


def register_method(recipe: Recipe) -> None:
    """Add a method, so that it can be named in `Detector.from_recipe`, `benchmark` and on the command line.

    Parameters
    ----------
    recipe : Recipe
        The method.
    """
    without = [name for name, value in recipe.hyper_parameters.items() if value is inspect.Parameter.empty]
    if without:
        raise ValueError(f"the method {recipe.name!r} has no default for {', '.join(without)}; give it one in build")
    RECIPES.register(recipe.name, recipe)


#: The types of the arguments of `Detector` that any method can have; the seed is given by itself.
DETECTOR_SETTINGS = {
    name: kind for name, kind in get_type_hints(Settings, include_extras=True).items() if name != "seed"
}


def setting_types(recipe: Recipe) -> dict[str, Any]:
    """Return the type of every setting of a method, its hyper-parameters first.

    Parameters
    ----------
    recipe : Recipe
        The method.
    """
    return recipe.hyper_parameter_types | DETECTOR_SETTINGS
