"""The comparison of numbers: which items patterns name, what differs, and what a saved run holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from same_numbers import Comparison, Items, digest, saved_items, wants_item


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [("*", True), ("tables*", True), ("tables*: score, *", True), ("*: fit, *", False), ("disk*", False)],
)
def test_a_pattern_names_units_or_their_items(pattern: str, wanted: bool) -> None:
    assert wants_item([pattern], "tables python: score, column, p_value") is wanted
    assert wants_item(["nothing", pattern], "tables python: score, column, p_value") is wanted


def test_one_bit_makes_another_hash() -> None:
    one = torch.ones(3)
    next_to_it = torch.nextafter(one, torch.tensor(2.0))
    assert digest(one) == digest(one.clone())
    assert len({digest(value) for value in (one, next_to_it, one.double(), one.reshape(3, 1), one.tolist())}) == 5


def test_failures_are_items_and_other_units_go_on() -> None:
    items = Items(["*"])

    def half(note: Any) -> None:
        note("bad", lambda: [][0])
        note("good", lambda: 1)

    items.run("broken", lambda note: note(1 / 0))
    items.run("half", half)
    assert items.found["broken: as a whole"].startswith("error: ZeroDivisionError")
    assert items.found["half: bad"].startswith("error: IndexError")
    assert items.found["half: good"] == digest(1)


def test_a_saved_run_is_compared_by_the_items_that_patterns_name(tmp_path: Path) -> None:
    file = tmp_path / "base.json"
    file.write_text(json.dumps({"commit": "c", "items": {"a: x": "1", "a: y": "2", "b: x": "3"}}))
    found = Comparison(saved_items(file, ["a"])["items"], {"a: x": "1", "a: z": "2"})
    assert found.different == ["a: y", "a: z"]
    assert found.told("a: z") == "a: z: only in the present source; the same value as a: y"
