"""Backbones, which turn the nodes of a graph into logits, and ensembles of them.

May import: large and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports
from oddnode.nn.registry import BACKBONES as BACKBONES
from oddnode.nn.registry import register_backbone as register_backbone

if TYPE_CHECKING:
    from oddnode.nn.backbones import GAT as GAT
    from oddnode.nn.backbones import GCN as GCN
    from oddnode.nn.backbones import MLP as MLP
    from oddnode.nn.backbones import EvidentialGCN as EvidentialGCN
    from oddnode.nn.backbones import JKNet as JKNet
    from oddnode.nn.backbones import MixHop as MixHop
    from oddnode.nn.base import Backbone as Backbone
    from oddnode.nn.base import RegularLayers as RegularLayers
    from oddnode.nn.base import batch_norms as batch_norms
    from oddnode.nn.base import rest_of as rest_of
    from oddnode.nn.base import shared_layer as shared_layer
    from oddnode.nn.blocks import Layerwise as Layerwise
    from oddnode.nn.blocks import Neighbourhoods as Neighbourhoods
    from oddnode.nn.blocks import check_hops as check_hops
    from oddnode.nn.blocks import fit_batch_norm as fit_batch_norm
    from oddnode.nn.blocks import in_blocks as in_blocks
    from oddnode.nn.forward import Ensemble as Ensemble
    from oddnode.nn.forward import embed_with as embed_with
    from oddnode.nn.forward import mean_log_probabilities as mean_log_probabilities
    from oddnode.nn.forward import member_seeds as member_seeds
    from oddnode.nn.forward import receptive_hops as receptive_hops
    from oddnode.nn.forward import run_backbone as run_backbone
    from oddnode.nn.forward import takes_edge_weight as takes_edge_weight
    from oddnode.nn.gpn import GPN as GPN
    from oddnode.nn.gpn import RadialFlows as RadialFlows
    from oddnode.nn.gpn import personalised_page_rank as personalised_page_rank
    from oddnode.nn.oodgat import OODGAT as OODGAT
    from oddnode.nn.stages import Activation as Activation
    from oddnode.nn.stages import Attention as Attention
    from oddnode.nn.stages import Convolution as Convolution
    from oddnode.nn.stages import Jump as Jump
    from oddnode.nn.stages import Linear as Linear
    from oddnode.nn.stages import Norm as Norm
    from oddnode.nn.stages import PreparedGCNConv as PreparedGCNConv
    from oddnode.nn.stages import RowWise as RowWise
    from oddnode.nn.stages import Stage as Stage
    from oddnode.nn.stages import Stages as Stages
else:
    __getattr__, __dir__, __all__ = exports(__name__)
