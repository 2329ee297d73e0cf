"""Fast building blocks: sparse products, neighbour means, dropout, batch norm with ReLU, Adam, Triton kernels.

May import: _utils.
"""

from oddnode.ops.adjacency import (
    check_edge_weight,
    direction_sums,
    effective_degree,
    gcn_matrix,
    is_symmetric,
    neighbour_mean_matrix,
    sums_agree,
    weighted_in_degree,
    with_self_loops,
)
from oddnode.ops.block_matrix import BlockMatrix
from oddnode.ops.blocked_mean import BlockedNeighbourMean, neighbour_mean, neighbour_mean_of_sorted
from oddnode.ops.dropout import DropoutStream, dropout_factor, dropout_keys, dropout_scales, stacked_keys
from oddnode.ops.feature_products import FeatureProducts
from oddnode.ops.long_rows import LongRows, sum_neighbours
from oddnode.ops.neighbour_mean import NeighbourMean
from oddnode.ops.norm_relu_dropout import PreNormActivations, ReluDropout
from oddnode.ops.optim import Adam
from oddnode.ops.sparse import SparseMatrix
from oddnode.ops.sparse_pattern import SparsePattern
from oddnode.ops.triton_dropout import relu_dropout
from oddnode.ops.triton_kernels import TILE, Mix, add_block, can_run, mix, sum_ranges

__all__ = [
    "TILE",
    "Adam",
    "BlockMatrix",
    "BlockedNeighbourMean",
    "DropoutStream",
    "FeatureProducts",
    "LongRows",
    "Mix",
    "NeighbourMean",
    "PreNormActivations",
    "ReluDropout",
    "SparseMatrix",
    "SparsePattern",
    "add_block",
    "can_run",
    "check_edge_weight",
    "direction_sums",
    "dropout_factor",
    "dropout_keys",
    "dropout_scales",
    "effective_degree",
    "gcn_matrix",
    "is_symmetric",
    "mix",
    "neighbour_mean",
    "neighbour_mean_matrix",
    "neighbour_mean_of_sorted",
    "relu_dropout",
    "stacked_keys",
    "sum_neighbours",
    "sum_ranges",
    "sums_agree",
    "weighted_in_degree",
    "with_self_loops",
]
