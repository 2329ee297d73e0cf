"""Calibration: over many draws, as many false alarms as asked for, within the limits of the binomial distribution."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import ClassVar

import numpy as np
import torch
from scipy.stats import binom
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.detector import Calibration
from soak.trial import Family, Trial

__all__ = ["Statistics", "wrong_count"]

# So small that thousands of trials give no false alarm of their own.
_TAIL = 1e-9
_DRAWS = 2000


def wrong_count(flagged: int, draws: int, rate: float, num_nodes: int, ties: bool) -> str | None:
    """Say what is wrong with a number of false alarms.

    A known node is flagged with probability floor((n + 1) rate) / (n + 1), and with ties at most so.
    """
    exact = np.floor((num_nodes + 1) * rate + 1e-9) / (num_nodes + 1)
    highest, lowest = binom.isf(_TAIL, draws, exact), binom.ppf(_TAIL, draws, exact)
    if flagged > highest or (flagged < lowest and not ties):
        return f"{flagged} false alarms in {draws} draws, expected {exact:.4f} of them ({num_nodes} calibration nodes)"
    return None


class Statistics(Family):
    """Draws of calibration nodes and of one known node."""

    name = "calibration"
    quota = 60
    kinds: ClassVar[tuple[str, ...]] = ("scores", "scores with ties", "detector", "discoveries")
    batch = 4
    limit = 120.0

    def start(self, folder: Path) -> None:
        logging.getLogger("oddnode").setLevel(logging.ERROR)

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        numbers = np.random.default_rng(rng.getrandbits(32))
        num_nodes, rate = rng.choice([19, 39, 99, 250]), rng.choice([0.05, 0.1, 0.2, 0.5])
        if kind == "detector":
            violation = self._detector(numbers, num_nodes, rate)
        elif kind == "discoveries":
            violation = self._discoveries(numbers, num_nodes)
        else:
            violation = self._scores(numbers, num_nodes, rate, kind == "scores with ties")
        yield Trial(kind, violation)

    def _scores(self, numbers: np.random.Generator, num_nodes: int, rate: float, ties: bool) -> str | None:
        flagged = 0
        for _ in range(_DRAWS):
            drawn = numbers.integers(0, 30, num_nodes + 1) if ties else numbers.standard_normal(num_nodes + 1)
            scores = torch.from_numpy(drawn.astype(np.float32))
            calibration = Calibration.from_scores(scores[1:], false_alarm_rate=rate)
            is_flagged = bool(calibration.detect(scores[:1]))
            if is_flagged != bool(calibration.p_values(scores[:1]) <= rate):
                return f"detect and p_values disagree on {float(scores[0])}"
            flagged += is_flagged
        return wrong_count(flagged, _DRAWS, rate, num_nodes, ties)

    def _detector(self, numbers: np.random.Generator, num_nodes: int, rate: float) -> str | None:
        """The held-out nodes of one graph without edges are exchangeable."""
        size = 60 + 2 * num_nodes
        x = torch.from_numpy(numbers.standard_normal((size, 5)).astype(np.float32))
        order = torch.arange(size)
        graph = Data(
            x=x,
            edge_index=torch.empty(2, 0, dtype=torch.long),
            y=order % 3,
            train_mask=order < 40,
            val_mask=(order >= 40) & (order < 60),
        )
        detector = Detector.from_recipe("nodesafe", epochs=3, hidden_channels=8).fit(graph)
        flagged, draws = 0, 300
        for _ in range(draws):
            held_out = 60 + numbers.permutation(size - 60)[: num_nodes + 1]
            mask = torch.zeros(size, dtype=torch.bool)
            mask[held_out[1:]] = True
            flagged += bool(detector.calibrate(graph, rate, mask).detect(graph)[held_out[0]])
        return wrong_count(flagged, draws, rate, num_nodes, ties=False)

    def _discoveries(self, numbers: np.random.Generator, num_nodes: int) -> str | None:
        """The mean share of known nodes among the flagged is at most the rate; its spread gives the limit."""
        fdr, shares = 0.2, []
        for _ in range(400):
            known, odd = numbers.standard_normal(num_nodes + 40), numbers.standard_normal(20) - 3
            calibration = Calibration.from_scores(torch.from_numpy(known[:num_nodes]), false_alarm_rate=0.1)
            flags = calibration.flag(torch.from_numpy(np.concatenate([known[num_nodes:], odd])), fdr)
            shares.append(float(flags[:40].sum()) / max(1, int(flags.sum())))
        mean, error = float(np.mean(shares)), float(np.std(shares)) / 20
        return f"the false discovery rate is {mean:.3f}, asked {fdr}" if mean > fdr + 6 * error else None
