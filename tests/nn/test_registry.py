from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import Detector, register_backbone
from oddnode.nn import BACKBONES


class Linear(nn.Module):
    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int = 2, dropout: float = 0.0
    ):
        super().__init__()
        self.sizes = (in_channels, hidden_channels, out_channels, num_layers, dropout)
        self.layer = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x)


@pytest.fixture
def registered(own_registries: None) -> None:
    register_backbone("linear", Linear)


def test_a_backbone_is_made_by_name_with_the_detectors_settings(registered: None, two_groups: Data) -> None:
    settings = {"hidden_channels": 7, "num_layers": 5, "dropout": 0.25, "num_spare_logits": 2, "epochs": 2}
    detector = Detector("linear", device="cpu", **settings).fit(two_groups)  # type: ignore[arg-type]
    assert isinstance(detector.module_, Linear)
    assert detector.module_.sizes == (6, 7, 3 + 2, 5, 0.25)
    logits = two_groups.x @ detector.module_.layer.weight.t() + detector.module_.layer.bias
    torch.testing.assert_close(detector.outputs(two_groups).all_logits, logits.detach())


def test_a_constructor_with_other_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match=r"the backbone 'bad' cannot be called as \(in_channels.*'num_layers'"):
        register_backbone("bad", nn.Bilinear)
    assert "bad" not in BACKBONES


def test_an_unknown_name_gets_the_nearest(two_groups: Data) -> None:
    with pytest.raises(ValueError, match=r"unknown backbone 'gcm'. Did you mean 'gcn'"):
        Detector("gcm").fit(two_groups)
