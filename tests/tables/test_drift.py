"""A threshold that does not fit the scored tables gets a note; unknown nodes alone do not."""

from __future__ import annotations

import numpy as np
import pytest

from oddnode.detector import Calibration, Drift
from oddnode.tables.scores import note_on_threshold

RNG = np.random.default_rng(0)
CALIBRATION = Calibration.from_scores(RNG.normal(size=300))


def notes(known: np.ndarray, new: np.ndarray) -> list[str]:
    return note_on_threshold(*(Drift.of(scores, CALIBRATION) if len(scores) else None for scores in (known, new)))


def known(number: int, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(number).normal(size=number) + shift


NONE = np.empty(0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.15])
def test_unknown_nodes_alone_give_no_note(share: float) -> None:
    unknown = known(round(1000 * share), -5)
    assert notes(NONE, np.concatenate([known(1000 - len(unknown)), unknown])) == []


def test_tables_with_the_calibration_rows_may_have_any_number_of_unknown_nodes() -> None:
    assert notes(known(300), np.concatenate([known(400), known(60, -5)])) == []
    [note] = notes(known(300), known(400, -5))
    assert "100 % of the 400 rows that the model was not fitted on are flagged; of known rows 2.8 % to 7.7 %" in note
    assert "the threshold may not fit" in notes(NONE, known(400, -5))[0]


@pytest.mark.parametrize("shift", [-2.0, 2.0])
def test_a_shifted_graph_is_noticed(shift: float) -> None:
    [note] = notes(NONE, known(500, shift))
    scores = known(500, shift)
    below = 100 * np.mean(scores < CALIBRATION.threshold)
    above = 100 * np.mean(scores > CALIBRATION.scores.max().item())
    assert f"of the 500 rows that the model was not fitted on, {below:.2g} % score below it" in note
    assert f"(of known rows about 5 % do) and {above:.2g} % above all calibration rows" in note
    assert "`oddnode calibrate`" in note
    assert ("unless that many are unknown" in note) == (shift < 0)


def test_calibration_rows_that_score_otherwise_now_are_noticed() -> None:
    [note] = notes(known(300, -1), known(50))
    below = 100 * np.mean(known(300, -1) < CALIBRATION.threshold)
    assert f"of the 300 calibration rows in them, {below:.2g} % score below it, where about 5 % should" in note


def test_new_rows_that_all_score_higher_are_noticed_beside_calibration_rows() -> None:
    assert "may not fit" in notes(known(300), known(200, 2))[0]


def test_few_rows_are_no_evidence() -> None:
    assert notes(NONE, known(3, -2)) == []
    assert notes(NONE, NONE) == []
