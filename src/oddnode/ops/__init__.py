"""Fast building blocks: sparse products, neighbour means, dropout, batch norm with ReLU, Adam, Triton kernels.

May import: _utils.
"""

from oddnode.ops.adjacency import check_edge_weight as check_edge_weight
from oddnode.ops.adjacency import direction_sums as direction_sums
from oddnode.ops.adjacency import effective_degree as effective_degree
from oddnode.ops.adjacency import gcn_matrix as gcn_matrix
from oddnode.ops.adjacency import neighbour_mean_matrix as neighbour_mean_matrix
from oddnode.ops.adjacency import sums_agree as sums_agree
from oddnode.ops.adjacency import weighted_in_degree as weighted_in_degree
from oddnode.ops.adjacency import with_self_loops as with_self_loops
from oddnode.ops.dropout import DropoutStream as DropoutStream
from oddnode.ops.dropout import PreNormActivations as PreNormActivations
from oddnode.ops.dropout import ReluDropout as ReluDropout
from oddnode.ops.dropout import dropout_factor as dropout_factor
from oddnode.ops.dropout import dropout_scales as dropout_scales
from oddnode.ops.dropout import stacked_keys as stacked_keys
from oddnode.ops.neighbour_means import BlockedNeighbourMean as BlockedNeighbourMean
from oddnode.ops.neighbour_means import LongRows as LongRows
from oddnode.ops.neighbour_means import NeighbourMean as NeighbourMean
from oddnode.ops.neighbour_means import neighbour_mean as neighbour_mean
from oddnode.ops.neighbour_means import neighbour_mean_of_sorted as neighbour_mean_of_sorted
from oddnode.ops.neighbour_means import sum_neighbours as sum_neighbours
from oddnode.ops.optim import Adam as Adam
from oddnode.ops.sparse import BlockMatrix as BlockMatrix
from oddnode.ops.sparse import FeatureProducts as FeatureProducts
from oddnode.ops.sparse import SparseMatrix as SparseMatrix
from oddnode.ops.sparse import SparsePattern as SparsePattern
from oddnode.ops.triton_kernels import Mix as Mix
from oddnode.ops.triton_kernels import relu_dropout as relu_dropout
