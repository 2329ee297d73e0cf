"""Parts of a saved model as JSON: whatever a file says, it is a part or a `ModelFileError`."""

from __future__ import annotations

from typing import Any

import pytest

from oddnode import ModelFileError
from oddnode.detector.part_config import decode, encode, library, struct_of
from oddnode.objectives import Objective
from oddnode.scoring import Energy, Scorer

ODD_VALUES = [[], [[]], [[0.5, {}]], {}, {"class": "Energy"}, "x", "", 0, -1, 2**70, 0.5, -1e308, True, None]


def sample(kind: type) -> dict[str, Any]:
    """A part of a class as it is saved; where a setting is required, one with an odd value for it."""
    try:
        return encode(kind(), "part")
    except TypeError:
        given = {name: encode(Energy(), "part") for name in struct_of(kind).__struct_fields__}
        return {"class": kind.__name__, **given}


@pytest.mark.parametrize("kind", library().values(), ids=library())
def test_odd_values_of_every_setting_are_parts_or_refused(kind: type) -> None:
    base: Any = Objective if issubclass(kind, Objective) else Scorer
    whole = sample(kind)
    for name in struct_of(kind).__struct_fields__:
        for value in ODD_VALUES:
            try:
                found = decode(whole | {name: value}, base, "part")
            except ModelFileError as refused:
                assert str(refused).startswith("part")  # noqa: PT017, either is right
            else:
                assert type(found) is kind


def test_what_training_adds_to_a_part_is_no_setting() -> None:
    parts = [[1.0, {"class": "KernelPrior", "start": 0, "prior": []}]]
    with pytest.raises(ModelFileError, match=r"part.parts\[0\]\[1\].prior is .*: expected `null`"):
        decode({"class": "Sum", "parts": parts}, Objective, "part")
