"""Checked graphs with the matrices that are built once per graph, and training data.

May import: functional and below.
"""

from oddnode.graph.graph import CSR as CSR
from oddnode.graph.graph import Graph as Graph
from oddnode.graph.graph import graph_cache as graph_cache
from oddnode.graph.profile import GraphProfile as GraphProfile
from oddnode.graph.profile import one_way_share as one_way_share
from oddnode.graph.profile import profile_graph as profile_graph
from oddnode.graph.sampling import CSRSampler as CSRSampler
from oddnode.graph.sampling import neighbourhood as neighbourhood
from oddnode.graph.sampling import node_blocks as node_blocks
from oddnode.graph.source import GraphSource as GraphSource
from oddnode.graph.source import as_source as as_source
from oddnode.graph.training_data import TrainingSet as TrainingSet
from oddnode.graph.training_data import as_one_class as as_one_class
from oddnode.graph.training_data import most_recent as most_recent
from oddnode.graph.training_data import split_unlabelled as split_unlabelled
from oddnode.graph.training_data import split_validation as split_validation
from oddnode.graph.training_data import training_set as training_set
from oddnode.graph.validation import GraphError as GraphError
from oddnode.graph.validation import as_labels as as_labels
from oddnode.graph.validation import check_exact as check_exact
from oddnode.graph.validation import check_labels as check_labels
from oddnode.graph.validation import check_mask as check_mask
from oddnode.graph.validation import checked_nodes as checked_nodes
from oddnode.graph.validation import exact_array as exact_array
from oddnode.graph.validation import positive_edges as positive_edges
