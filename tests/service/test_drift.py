"""The bet on drift, with arrivals that score as known nodes and with some that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from oddnode.detector import Calibration
from oddnode.online import Judgement
from oddnode.service.drift import CHANCE, DriftBet


def arrivals(scores: np.ndarray) -> list[Judgement]:
    facts: dict[str, Any] = {
        "is_ood": False,
        "predicted": 0,
        "confidence": 1.0,
        "evidence": (),
        "reason": None,
        "exact": True,
    }
    facts |= {"num_neighbours": 0, "is_far": False, "unseen": {}, "version": 0, "p_value": 0.5}
    return [Judgement(id=number, score=float(score), **facts) for number, score in enumerate(scores)]


def bet_on(scores: np.ndarray, edges: list[tuple[int, int]], seed: int) -> DriftBet:
    known = torch.from_numpy(np.random.default_rng(seed).normal(size=300))
    bet = DriftBet(Calibration.from_scores(known))
    bet.observe(arrivals(scores), edges, 7.0)
    return bet


def test_alarms_are_as_rare_as_promised_and_a_shift_raises_one() -> None:
    rng = np.random.default_rng(0)
    raised = [bet_on(rng.normal(size=200), [], seed).facts.alarm is not None for seed in range(100)]
    assert np.mean(raised) <= 4 * CHANCE
    shifted = [bet_on(rng.normal(-1, size=200), [], seed).facts for seed in range(10)]
    assert all(each.alarm == 7.0 and each.log10_evidence >= 2 for each in shifted)


def test_linked_arrivals_count_less_and_those_without_a_p_value_not_at_all() -> None:
    scores = np.random.default_rng(1).normal(-1, size=60)
    ring = [(number, (number + 1) % 60) for number in range(60)]
    alone, linked = (bet_on(scores, edges, 0).facts for edges in ([], ring))
    assert 0 < linked.log10_evidence < alone.log10_evidence
    both = ring + [(target, source) for source, target in ring] + [(number, number) for number in range(60)]
    assert bet_on(scores, both, 0).facts.log10_evidence == linked.log10_evidence  # one link, whatever its directions
    assert bet_on(scores, [(0, 1000)], 0).facts.log10_evidence == alone.log10_evidence  # an edge to a known node
    bet = DriftBet(Calibration.from_scores(torch.arange(100.0)))
    bet.observe([replace(each, p_value=None) for each in arrivals(np.zeros(1))], [], 7.0)
    assert (bet.facts.count, bet.facts.log10_evidence) == (0, 0.0)
