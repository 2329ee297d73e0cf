"""The backbones by name."""

from __future__ import annotations

from oddnode.backbones import GAT, GCN, MLP, Backbone, JKNet, MixHop
from oddnode.gkde import EvidentialGCN
from oddnode.gpn import GPN

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
