"""Backbones, which turn the nodes of a graph into logits, and ensembles of them.

May import: graph and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import lazy_names
from oddnode.nn.registry import BACKBONES, register_backbone

if TYPE_CHECKING:
    from oddnode.nn.base import Backbone
    from oddnode.nn.blocks import fit_batch_norm, in_blocks
    from oddnode.nn.convs import PreparedGATConv, PreparedGCNConv, PreparedMixHopConv
    from oddnode.nn.ensemble import Ensemble, mean_log_probabilities, member_seeds
    from oddnode.nn.evidential_gcn import EvidentialGCN
    from oddnode.nn.flows import RadialFlows
    from oddnode.nn.forward import embed_with, receptive_hops, run_backbone, takes_edge_weight
    from oddnode.nn.gat import GAT
    from oddnode.nn.gcn import GCN
    from oddnode.nn.gpn import GPN, personalised_page_rank
    from oddnode.nn.jknet import JKNet
    from oddnode.nn.layerwise import Layerwise
    from oddnode.nn.mixhop import MixHop
    from oddnode.nn.mlp import MLP
    from oddnode.nn.neighbourhoods import Neighbourhoods

__all__ = [
    "BACKBONES",
    "GAT",
    "GCN",
    "GPN",
    "MLP",
    "Backbone",
    "Ensemble",
    "EvidentialGCN",
    "JKNet",
    "Layerwise",
    "MixHop",
    "Neighbourhoods",
    "PreparedGATConv",
    "PreparedGCNConv",
    "PreparedMixHopConv",
    "RadialFlows",
    "embed_with",
    "fit_batch_norm",
    "in_blocks",
    "mean_log_probabilities",
    "member_seeds",
    "personalised_page_rank",
    "receptive_hops",
    "register_backbone",
    "run_backbone",
    "takes_edge_weight",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "oddnode.nn.base": ["Backbone"],
        "oddnode.nn.blocks": ["fit_batch_norm", "in_blocks"],
        "oddnode.nn.convs": ["PreparedGATConv", "PreparedGCNConv", "PreparedMixHopConv"],
        "oddnode.nn.ensemble": ["Ensemble", "mean_log_probabilities", "member_seeds"],
        "oddnode.nn.evidential_gcn": ["EvidentialGCN"],
        "oddnode.nn.flows": ["RadialFlows"],
        "oddnode.nn.forward": ["embed_with", "receptive_hops", "run_backbone", "takes_edge_weight"],
        "oddnode.nn.gat": ["GAT"],
        "oddnode.nn.gcn": ["GCN"],
        "oddnode.nn.gpn": ["GPN", "personalised_page_rank"],
        "oddnode.nn.jknet": ["JKNet"],
        "oddnode.nn.layerwise": ["Layerwise"],
        "oddnode.nn.mixhop": ["MixHop"],
        "oddnode.nn.mlp": ["MLP"],
        "oddnode.nn.neighbourhoods": ["Neighbourhoods"],
    },
)
