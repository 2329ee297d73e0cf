from __future__ import annotations

from fractions import Fraction

import pytest

from oddnode._utils.registry import Registry, all_or_nothing, for_a_while
from oddnode._utils.suggestions import UnknownNameError


def test_names_keep_the_order_in_which_they_were_registered() -> None:
    shapes: Registry[int] = Registry("shape")
    for corners, name in enumerate(("triangle", "circle", "square")):
        shapes.register(name, corners)
    assert list(shapes) == ["triangle", "circle", "square"]
    assert dict(shapes) == {"triangle": 0, "circle": 1, "square": 2}
    assert len(shapes) == 3
    assert "circle" in shapes
    assert shapes.get("cube") is None


def test_a_second_thing_of_the_same_name_is_refused_unless_it_is_the_same() -> None:
    shapes: Registry[list[int]] = Registry("shape")
    first: list[int] = []
    shapes.register("circle", first)
    shapes.register("circle", first)
    with pytest.raises(ValueError, match=r"there is a shape named 'circle' already; choose another name"):
        shapes.register("circle", [])
    assert shapes["circle"] is first
    shapes.register("circle", [1], replace=True)
    assert shapes["circle"] == [1]


@pytest.mark.parametrize("name", ["", "two words", "a,b", " a", None, 3])
def test_names_that_the_command_line_could_not_read_are_refused(name: object) -> None:
    with pytest.raises(ValueError, match="cannot name a shape: expected a string without spaces or commas"):
        Registry("shape").register(name, 1)  # type: ignore[arg-type]


def test_an_unknown_name_is_a_key_error_that_suggests_the_nearest() -> None:
    shapes: Registry[int] = Registry("shape")
    shapes.register("circle", 0)
    with pytest.raises(KeyError, match=r"unknown shape 'cirle'. Did you mean 'circle'\? Known: circle."):
        shapes["cirle"]
    with pytest.raises(UnknownNameError):
        shapes["cirle"]


def test_of_very_many_names_an_error_lists_the_nearest() -> None:
    shapes: Registry[int] = Registry("shape")
    for corners in range(100, 200):
        shapes.register(f"polygon-{corners}", corners)
    with pytest.raises(UnknownNameError, match=r"Known: polygon-1.*, and 88 more\.$") as error:
        shapes["poligon-150"]
    assert "Did you mean 'polygon-150'?" in str(error.value)
    assert str(error.value).count("polygon-") == 1 + 12


def test_a_block_that_fails_leaves_no_registration() -> None:
    shapes: Registry[int] = Registry("shape")
    colours: Registry[int] = Registry("colour")
    shapes.register("circle", 0)

    def fail_late() -> None:
        shapes.register("square", 1)
        shapes.register("circle", 2, replace=True)
        colours.register("red", 3)
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), all_or_nothing():
        fail_late()
    assert dict(shapes) == {"circle": 0}
    assert dict(colours) == {}
    with all_or_nothing():
        shapes.register("square", 1)
    assert dict(shapes) == {"circle": 0, "square": 1}


def test_what_is_registered_for_a_while_is_gone_afterwards() -> None:
    registry: Registry[int] = Registry("thing")
    registry.register("old", 1)
    with for_a_while():
        registry.register("new", 2)
        registry.register("old", 3, replace=True)
        assert dict(registry) == {"old": 3, "new": 2}
    assert dict(registry) == {"old": 1}
    with pytest.raises(ValueError, match="named 'old' already"), for_a_while():
        registry.register("old", 2)
    assert dict(registry) == {"old": 1}


def test_an_item_can_be_registered_by_its_place() -> None:
    numbers: Registry[type] = Registry("number")
    numbers.register_place("fraction", "fractions:Fraction")
    assert list(numbers) == ["fraction"]
    assert "fraction" in numbers
    assert numbers["fraction"] is Fraction
    assert dict(numbers) == {"fraction": Fraction}
    numbers.register("fraction", Fraction)
    with pytest.raises(ValueError, match="there is a number named 'fraction' already"):
        numbers.register_place("fraction", "decimal:Decimal")
