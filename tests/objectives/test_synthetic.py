from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import Backbone, CrossEntropy, Detector, SyntheticExposure
from oddnode.graph import Graph
from oddnode.objectives import TrainingPass


def _step(hidden: Tensor, y: Tensor, num_classes: int) -> TrainingPass:
    graph = Graph(hidden, torch.empty(2, 0, dtype=torch.long))
    return TrainingPass(0, num_classes, graph, 2 * hidden, torch.arange(len(y)), y, hidden=hidden, head=lambda h: 2 * h)


def test_every_channel_of_an_outlier_comes_from_one_of_two_nodes() -> None:
    torch.manual_seed(0)
    hidden = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])  # two nodes: the pair is known
    seen: list[Tensor] = []
    step = _step(hidden, torch.tensor([0, 1]), 2)

    def head(hidden: Tensor) -> Tensor:
        seen.append(hidden)
        return hidden

    step.head = head
    for _ in range(20):
        SyntheticExposure()(step)
    outliers = torch.cat(seen)
    assert bool(((outliers == hidden[0]) | (outliers == hidden[1])).all())
    assert len(outliers.unique(dim=0)) > 4


def test_the_loss_is_the_hinge_between_labelled_nodes_and_outliers() -> None:
    # All nodes alike, so that an outlier is any of them: energies are known.
    hidden = torch.tensor([[1.0, 1.0]]).repeat(4, 1)
    y = torch.tensor([0, 1, 0, 1])
    energy = -(2 + math.log(2))
    adaptive = SyntheticExposure()(_step(hidden, y, 2))  # m_in = the mean energy, m_out = -log 2
    assert adaptive.item() == pytest.approx((-math.log(2) - energy) ** 2)
    fixed = SyntheticExposure(m_in=-5.0, m_out=-1.0)(_step(hidden, y, 2))
    assert fixed.item() == pytest.approx((energy + 5) ** 2 + (-1 - energy) ** 2)


class _Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x)


def _data() -> Data:
    y = torch.arange(20) % 2
    x = torch.eye(4)[y] + 0.1 * torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    place = torch.arange(20)
    return Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long), y=y, train_mask=place < 10, val_mask=place >= 10)


def test_made_up_outliers_get_less_confident_logits_than_without() -> None:
    data = _data()
    energies = []
    for weight in (0.0, 1.0):
        objective = CrossEntropy() + weight * SyntheticExposure()
        detector = Detector("mlp", objective, hidden_channels=8, epochs=40, dropout=0.0, device="cpu").fit(data)
        module = detector.module_
        assert isinstance(module, Backbone)
        hidden = module.embed(Graph(data.x, data.edge_index)).detach()
        mask = torch.rand(hidden.shape, generator=torch.Generator().manual_seed(1)) < 0.5
        crossed = torch.where(mask, hidden, hidden.roll(1, dims=0))
        logits = module.head(crossed, Graph(crossed, data.edge_index))[:, :2]
        energies.append(torch.logsumexp(logits, dim=1).mean().item())
    assert energies[1] < energies[0]


def test_a_users_module_is_told_why_it_cannot() -> None:
    with pytest.raises(TypeError, match="_Own is not a Backbone"):
        Detector(_Own(), CrossEntropy() + SyntheticExposure(), epochs=1, device="cpu").fit(_data())
