"""The backbones by name. Their modules are imported on first use, so that listing names does not import torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from oddnode._utils.registry import Registry

if TYPE_CHECKING:
    from torch import nn


#: Names that stand for a backbone in `Detector` and on the command line.
BACKBONES: Registry[Callable[..., nn.Module]] = Registry("backbone")


def register_backbone(name: str, backbone: Callable[..., nn.Module]) -> None:
    """Add a backbone, so that it can be named in `Detector` and by ``--backbone``.

    Parameters
    ----------
    name : str
        Its name.
    backbone : type of torch.nn.Module
        A class whose modules have ``forward(x, edge_index) -> logits``. It is called as
        ``backbone(in_channels, hidden_channels, out_channels, num_layers=..., dropout=...)``: the features of a node,
        the channels of a hidden layer, the logits (classes and spare ones together), the layers, and the share of
        hidden features that training drops. The same arguments must give modules whose parameters have the same names
        and shapes, because saved weights are loaded into them.
    """
    try:
        inspect.signature(backbone).bind(1, 1, 1, num_layers=2, dropout=0.0)
    except TypeError as error:
        raise TypeError(
            f"the backbone {name!r} cannot be called as (in_channels, hidden_channels, out_channels, num_layers=..., "
            f"dropout=...): {error}"
        ) from None
    BACKBONES.register(name, backbone)


for _name, _place in {
    "gcn": "oddnode.nn.backbones:GCN",
    "mlp": "oddnode.nn.backbones:MLP",
    "gat": "oddnode.nn.backbones:GAT",
    "jknet": "oddnode.nn.backbones:JKNet",
    "mixhop": "oddnode.nn.backbones:MixHop",
    "evidential-gcn": "oddnode.nn.backbones:EvidentialGCN",
    "gpn": "oddnode.nn.gpn:GPN",
    "oodgat": "oddnode.nn.oodgat:OODGAT",
}.items():
    BACKBONES.register_place(_name, _place)
