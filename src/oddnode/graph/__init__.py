"""Checked graphs with the matrices that are built once per graph, and the data of a training.

May import: functional and below.
"""

from oddnode.graph.cache import graph_cache
from oddnode.graph.conversion import as_source
from oddnode.graph.graph import Graph
from oddnode.graph.profile import GraphProfile, one_way_share, profile_graph
from oddnode.graph.sampling import CSRSampler, SampledEdges, neighbourhood, node_blocks
from oddnode.graph.source import GraphSource, optional_attribute
from oddnode.graph.training_data import TrainingSet, split_validation, training_set
from oddnode.graph.validation import (
    GraphError,
    as_labels,
    check_labels,
    check_mask,
    checked_nodes,
    positive_edges,
)

__all__ = [
    "CSRSampler",
    "Graph",
    "GraphError",
    "GraphProfile",
    "GraphSource",
    "SampledEdges",
    "TrainingSet",
    "as_labels",
    "as_source",
    "check_labels",
    "check_mask",
    "checked_nodes",
    "graph_cache",
    "neighbourhood",
    "node_blocks",
    "one_way_share",
    "optional_attribute",
    "positive_edges",
    "profile_graph",
    "split_validation",
    "training_set",
]
