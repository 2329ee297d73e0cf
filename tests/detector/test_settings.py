from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import pytest

from oddnode import Detector, Recipe
from oddnode.detector import DETECTOR_SETTINGS, RECIPES, setting_types
from oddnode.detector.model_config import Settings
from oddnode.training import BatchNormStatistics


def test_every_argument_of_a_detector_is_a_setting_except_its_parts() -> None:
    arguments = set(inspect.signature(Detector.__init__).parameters)
    apart = {"self", "backbone", "objective", "scorer", "seed", "device", "trainer"}
    assert set(DETECTOR_SETTINGS) == arguments - apart


def test_choices_are_those_of_training() -> None:
    assert get_args(get_type_hints(Settings)["batch_norm"]) == get_args(BatchNormStatistics)


@pytest.mark.parametrize("name", RECIPES)
def test_a_default_has_the_type_that_is_stated(name: str) -> None:
    types = setting_types(RECIPES[name])
    for setting, default in RECIPES[name].hyper_parameters.items():
        kinds = get_args(types[setting]) or (types[setting],)
        assert default in kinds or type(default) in kinds, setting


def test_without_annotations_the_default_tells_the_type() -> None:
    recipe = Recipe("own", lambda scale=2.0, steps=3: None, "here")  # type: ignore[arg-type, return-value]
    assert recipe.hyper_parameter_types == {"scale": float, "steps": int}


def test_annotations_that_only_a_type_checker_knows_are_passed_over() -> None:
    def build(scale: Unknown = 2.0) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    assert Recipe("own", build, "here").hyper_parameter_types == {"scale": float}  # type: ignore[arg-type]
