"""Graphs that do not fit into memory: folders of memory-mapped arrays, training and scoring on them.

May import: training and below.
"""

from oddnode.large.arrays import FolderError
from oddnode.large.build import build_folder, folder_from_data
from oddnode.large.builder import FolderBuilder, NodeChunk
from oddnode.large.folder import GraphFolder
from oddnode.large.graph import FolderGraph
from oddnode.large.product import FolderWalk, NeighbourSum

__all__ = [
    "FolderBuilder",
    "FolderError",
    "FolderGraph",
    "FolderWalk",
    "GraphFolder",
    "NeighbourSum",
    "NodeChunk",
    "build_folder",
    "folder_from_data",
]
