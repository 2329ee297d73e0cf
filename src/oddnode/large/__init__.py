"""Graphs that do not fit into memory: folders of memory-mapped arrays, and products that stream their edges.

May import: graph and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports

if TYPE_CHECKING:
    from oddnode.large.arrays import FolderError as FolderError
    from oddnode.large.builder import FolderBuilder as FolderBuilder
    from oddnode.large.builder import build_folder as build_folder
    from oddnode.large.builder import folder_from_data as folder_from_data
    from oddnode.large.chunks import EdgeChunk as EdgeChunk
    from oddnode.large.chunks import NodeChunk as NodeChunk
    from oddnode.large.folder import GraphFolder as GraphFolder
    from oddnode.large.graph import FolderGraph as FolderGraph
    from oddnode.large.graph_arrays import missing_memory as missing_memory
    from oddnode.large.heartbeat import RankLost as RankLost
    from oddnode.large.product import FolderWalk as FolderWalk
    from oddnode.large.product import NeighbourSum as NeighbourSum
    from oddnode.large.torchrun import joined as joined
else:
    __getattr__, __dir__, __all__ = exports(__name__)
