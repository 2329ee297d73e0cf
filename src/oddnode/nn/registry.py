"""The backbones by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import nn

from oddnode._utils.registry import Registry
from oddnode.nn.evidential_gcn import EvidentialGCN
from oddnode.nn.gat import GAT
from oddnode.nn.gcn import GCN
from oddnode.nn.gpn import GPN
from oddnode.nn.jknet import JKNet
from oddnode.nn.mixhop import MixHop
from oddnode.nn.mlp import MLP

__all__ = ["BACKBONES", "register_backbone"]

#: Names that stand for a backbone in `Detector` and on the command line.
BACKBONES: Registry[Callable[..., nn.Module]] = Registry("backbone")


def register_backbone(name: str, backbone: Callable[..., nn.Module]) -> None:
    """Add a backbone, so that it can be named in `Detector` and by ``--backbone``.

    Parameters
    ----------
    name : str
        What it is called.
    backbone : type of torch.nn.Module
        A class whose modules have ``forward(x, edge_index) -> logits``. It is called as
        ``backbone(in_channels, hidden_channels, out_channels, num_layers=..., dropout=...)``: the features of a node,
        the channels of a hidden layer, the logits (classes and spare ones together), the layers, and the share of
        hidden features that training drops. The same arguments must give modules whose parameters have the same names
        and shapes, because a saved model is filled in by them.
    """
    try:
        inspect.signature(backbone).bind(1, 1, 1, num_layers=2, dropout=0.0)
    except TypeError as error:
        raise TypeError(
            f"the backbone {name!r} cannot be called as (in_channels, hidden_channels, out_channels, num_layers=..., "
            f"dropout=...): {error}"
        ) from None
    BACKBONES.register(name, backbone)


for _name, _backbone in {
    "gcn": GCN,
    "mlp": MLP,
    "gat": GAT,
    "jknet": JKNet,
    "mixhop": MixHop,
    "evidential-gcn": EvidentialGCN,
    "gpn": GPN,
}.items():
    register_backbone(_name, _backbone)
