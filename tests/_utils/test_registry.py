from __future__ import annotations

from fractions import Fraction

import pytest

from oddnode._utils.registry import Registry, undone_registrations
from oddnode._utils.suggestions import UnknownNameError


def test_names_keep_their_order_and_an_item_can_be_registered_by_its_place() -> None:
    shapes: Registry[int] = Registry("shape")
    for corners, name in enumerate(("triangle", "circle", "square")):
        shapes.register(name, corners)
    assert list(shapes) == ["triangle", "circle", "square"]
    assert dict(shapes) == {"triangle": 0, "circle": 1, "square": 2}
    assert len(shapes) == 3
    assert "circle" in shapes
    assert shapes.get("cube") is None
    numbers: Registry[type] = Registry("number")
    numbers.register_place("fraction", "fractions:Fraction")
    assert list(numbers) == ["fraction"]
    assert "fraction" in numbers
    assert numbers["fraction"] is Fraction
    assert dict(numbers) == {"fraction": Fraction}
    numbers.register("fraction", Fraction)
    with pytest.raises(ValueError, match="there is a number named 'fraction' already"):
        numbers.register_place("fraction", "decimal:Decimal")


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


def test_an_unknown_name_is_a_key_error_that_suggests_the_nearest_of_very_many() -> None:
    shapes: Registry[int] = Registry("shape")
    shapes.register("circle", 0)
    with pytest.raises(KeyError, match=r"unknown shape 'cirle'. Did you mean 'circle'\? Known: circle."):
        shapes["cirle"]
    for corners in range(100, 200):
        shapes.register(f"polygon-{corners}", corners)
    with pytest.raises(UnknownNameError, match=r"Known: polygon-1.*, and 89 more\.$") as error:
        shapes["poligon-150"]
    assert "Did you mean 'polygon-150'?" in str(error.value)
    assert str(error.value).count("polygon-") == 1 + 12


@pytest.mark.parametrize("only_after_error", [True, False])
def test_registrations_of_a_block_are_undone(only_after_error: bool) -> None:
    shapes: Registry[int] = Registry("shape")
    colours: Registry[int] = Registry("colour")
    shapes.register("circle", 0)

    def register(red: int = 3, again: int = 3) -> None:
        shapes.register("square", 1)
        shapes.register("circle", 2, replace=True)
        colours.register("red", red)
        colours.register("red", again)

    undone = {"only_after_error": only_after_error}
    with pytest.raises(ValueError, match="named 'red' already"), undone_registrations(**undone):
        register(again=4)
    assert (dict(shapes), dict(colours)) == ({"circle": 0}, {})
    with undone_registrations(**undone):
        register()
        assert dict(shapes) == {"circle": 2, "square": 1}
    assert dict(shapes) == ({"circle": 2, "square": 1} if only_after_error else {"circle": 0})
