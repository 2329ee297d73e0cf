"""Graphs that do not fit into memory: folders of memory-mapped arrays, training and scoring on them.

May import: training and below.
"""

from oddnode.large.arrays import FolderError
from oddnode.large.build import build_folder, folder_from_data
from oddnode.large.builder import FolderBuilder
from oddnode.large.chunks import EdgeChunk, NodeChunk
from oddnode.large.features import changed_features
from oddnode.large.folder import GraphFolder
from oddnode.large.graph import FolderGraph
from oddnode.large.heartbeat import RankLost
from oddnode.large.network import network_blocker
from oddnode.large.outputs import FolderOutputs, outputs_of
from oddnode.large.packed import packing_pays
from oddnode.large.product import NeighbourSum
from oddnode.large.resident import ResidentFolder, missing_memory
from oddnode.large.torchrun import joined
from oddnode.large.training import PackedRows
from oddnode.large.walk import FolderWalk

__all__ = [
    "EdgeChunk",
    "FolderBuilder",
    "FolderError",
    "FolderGraph",
    "FolderOutputs",
    "FolderWalk",
    "GraphFolder",
    "NeighbourSum",
    "NodeChunk",
    "PackedRows",
    "RankLost",
    "ResidentFolder",
    "build_folder",
    "changed_features",
    "folder_from_data",
    "joined",
    "missing_memory",
    "network_blocker",
    "outputs_of",
    "packing_pays",
]
