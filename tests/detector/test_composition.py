"""Any backbone with any objective and any scorer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from oddnode import (
    GRASP,
    KNN,
    ODIN,
    BoundUniform,
    CrossEntropy,
    Degree,
    Detector,
    Energy,
    EnergyHinge,
    LogitNorm,
    Mahalanobis,
    MaxLogit,
    MaxSoftmax,
    NeighbourCosine,
    NonZeros,
    OutlierExposure,
    Propagated,
    SyntheticExposure,
)
from oddnode.nn import BACKBONES
from oddnode.objectives import Objective

SCORERS = [
    MaxSoftmax(),
    MaxLogit(),
    Energy(),
    ODIN(10.0, 0.01),
    Mahalanobis(),
    KNN(2),
    GRASP(Energy(), 2, 0.2),
    Propagated(KNN(2), 2),
    Propagated(GRASP(), 1),
    NonZeros(),
    Degree(),
    NeighbourCosine(),
]

OBJECTIVES = [
    CrossEntropy(),
    LogitNorm(0.1) + 0.1 * SyntheticExposure(),
    CrossEntropy() + 5 * BoundUniform(0.001) + 0.1 * EnergyHinge(num_hops=2) + 0.5 * OutlierExposure(),
]


@pytest.fixture
def data() -> Data:
    """Fourteen nodes in two classes, two without edges."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(14) % 2
    edges = torch.randint(12, (2, 30), generator=generator)
    place = torch.arange(14)
    return Data(
        x=torch.rand(14, 6, generator=generator) + y[:, None],
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=y,
        train_mask=place < 6,
        val_mask=(place >= 6) & (place < 10),
    )


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_combination_gives_finite_scores(backbone: str, objective: Objective, data: Data) -> None:
    detector = Detector(backbone, objective, hidden_channels=4, epochs=3, device="cpu")
    detector.fit(data, Data(x=data.x.flip(1), edge_index=data.edge_index) if objective.needs_exposure else None)
    for scorer in SCORERS:
        scores = detector.with_scorer(scorer).score_samples(data)
        assert scores.shape == (14,)
        assert bool(scores.isfinite().all()), scorer


def test_a_named_backbone_trains_as_an_instance_of_the_same_seed(data: Data) -> None:
    settings: dict[str, Any] = {"epochs": 3, "seed": 5, "device": "cpu"}
    named = Detector("jknet", hidden_channels=4, dropout=0.0, **settings).fit(data)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        instance = BACKBONES["jknet"](6, 4, 3, dropout=0.0)
    given = Detector(instance, **settings).fit(data)
    torch.testing.assert_close(named.score_samples(data), given.score_samples(data))
