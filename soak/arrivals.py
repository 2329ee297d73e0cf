"""Arrivals in a known graph: finite scores that depend on a node and its neighbourhood, and on nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode import Detector
from soak.bases import fitted, small_graph
from soak.trial import Family, Trial, described, is_ours

__all__ = ["Arrivals"]

# Methods whose scores of a node depend on the nodes around it alone, and how far they may be off: how many nodes a
# propagated score averages is estimated with random numbers.
_LOCAL = {"mixhop": 2e-4, "mahalanobis": 2e-4, "knn": 2e-4, "odin": 2e-4, "nodesafe": 0.1, "ensemble": 0.1, "gat": 0.1}


class Arrivals(Family):
    """Graphs that have grown by a few nodes."""

    name = "arrivals"
    quota = 2000
    kinds = ("in another order", "beside strangers", "as a graph of their own", "odd")
    limit = 30.0
    batch = 40

    def prepare(self, folder: Path) -> None:
        for name in _LOCAL:
            fitted(name).save(folder / name)

    def start(self, folder: Path) -> None:
        logging.getLogger("oddnode").setLevel(logging.CRITICAL)
        self.detectors = {name: Detector.load(folder / name) for name in _LOCAL}
        self.known = small_graph()

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        name = rng.choice(sorted(_LOCAL))
        detector, random = self.detectors[name], torch.Generator().manual_seed(rng.getrandbits(32))
        count = rng.randrange(1, 6)
        x = torch.randn(count, 6, generator=random) * rng.choice([0.1, 1.0, 10.0]) + rng.choice([0.0, 1.0])
        ends = torch.randint(60, (2, rng.choice([0, count, 3 * count])), generator=random)
        ends[0] = 60 + ends[0] % count
        grown = _grown(self.known, x, ends)
        if kind == "odd":
            violation = _odd(detector, grown, rng)
        else:
            scores = detector.score_samples(grown)
            violation = None if bool(torch.isfinite(scores).all()) else "scores are not finite"
            if violation is None:
                found, scores, what = self._other(kind, detector, grown, scores, count, random)
                gap = float((found - scores).abs().max()) / (1 + float(scores.abs().max()))
                violation = f"{what} scores by {gap:.2g} of the largest" if gap > _LOCAL[name] else None
        yield Trial(kind, None if violation is None else f"{name}: {violation}")

    def _other(
        self, kind: str, detector: Detector, grown: Data, scores: Tensor, count: int, random: torch.Generator
    ) -> tuple[Tensor, Tensor, str]:
        """Scores of the same nodes in another graph, those in this one, and what may not change them."""
        if kind == "in another order":
            order = torch.cat([torch.arange(60), 60 + torch.randperm(count, generator=random)])
            place = torch.empty_like(order)
            place[order] = torch.arange(len(order))
            other = Data(x=grown.x[order], edge_index=place[grown.edge_index])
            return detector.score_samples(other)[place], scores, "the order of arrivals changes"
        if kind == "beside strangers":  # which have no edge to anybody
            strangers = torch.randn(3, 6, generator=random)
            more = _grown(grown, strangers, torch.empty(2, 0, dtype=torch.long))
            return detector.score_samples(more)[:-3], scores, "strangers change"
        parts = Data(
            x=torch.cat([grown.x, grown.x]), edge_index=torch.cat([grown.edge_index, grown.edge_index + 60 + count], 1)
        )
        return detector.score_samples(parts)[60 + count :], scores, "a second copy of the graph changes"


def _grown(graph: Data, x: Tensor, ends: Tensor) -> Data:
    return Data(x=torch.cat([graph.x, x]), edge_index=torch.cat([graph.edge_index, ends, ends.flip(0)], dim=1))


def _odd(detector: Detector, grown: Data, rng: Random) -> str | None:
    """An arrival that is no node, or an edge that leads nowhere."""
    what = rng.randrange(5)
    if what == 0:
        grown.x[-1, rng.randrange(6)] = rng.choice([float("nan"), float("inf")])
    elif what == 1:
        grown.edge_index = torch.cat([grown.edge_index, torch.tensor([[len(grown.x)], [0]])], dim=1)
    elif what == 2:
        grown.edge_index = grown.edge_index.float() + 0.9
    elif what == 3:
        grown.x = grown.x[:, :5]
    else:
        grown.edge_index = torch.ones(len(grown.x), dtype=torch.bool)
    try:
        detector.score_samples(grown)
    except Exception as error:
        return None if is_ours(error) else f"raised {described(error)}"
    return "what is no graph was scored"
