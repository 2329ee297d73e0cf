"""Backbones, which turn the nodes of a graph into logits, and ensembles of them.

May import: graph and below.
"""

from oddnode.nn.base import Backbone
from oddnode.nn.convs import PreparedGATConv, PreparedGCNConv, PreparedMixHopConv
from oddnode.nn.ensemble import Ensemble, mean_log_probabilities, member_seeds
from oddnode.nn.evidential_gcn import EvidentialGCN
from oddnode.nn.flows import RadialFlows
from oddnode.nn.forward import embed_with, run_backbone
from oddnode.nn.gat import GAT
from oddnode.nn.gcn import GCN
from oddnode.nn.gpn import GPN, personalised_page_rank
from oddnode.nn.jknet import JKNet
from oddnode.nn.mixhop import MixHop
from oddnode.nn.mlp import MLP
from oddnode.nn.registry import BACKBONES, register_backbone

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
    "MixHop",
    "PreparedGATConv",
    "PreparedGCNConv",
    "PreparedMixHopConv",
    "RadialFlows",
    "embed_with",
    "mean_log_probabilities",
    "member_seeds",
    "personalised_page_rank",
    "register_backbone",
    "run_backbone",
]
