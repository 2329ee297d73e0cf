"""The backbones by name."""

from __future__ import annotations

from oddnode.nn.base import Backbone
from oddnode.nn.evidential_gcn import EvidentialGCN
from oddnode.nn.gat import GAT
from oddnode.nn.gcn import GCN
from oddnode.nn.gpn import GPN
from oddnode.nn.jknet import JKNet
from oddnode.nn.mixhop import MixHop
from oddnode.nn.mlp import MLP

__all__ = ["BACKBONES"]

#: Names that stand for a backbone in `Detector` and on the command line.
BACKBONES: dict[str, type[Backbone]] = {
    "gcn": GCN,
    "mlp": MLP,
    "gat": GAT,
    "jknet": JKNet,
    "mixhop": MixHop,
    "evidential-gcn": EvidentialGCN,
    "gpn": GPN,
}
