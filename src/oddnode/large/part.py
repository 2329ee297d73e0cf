"""A part of a graph on disk, in temporary files: what is left without some nodes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oddnode.large.arrays import map_array, scratch, written
from oddnode.large.sidecars import Write

if TYPE_CHECKING:
    from oddnode.large.graph import FolderGraph

__all__ = ["FolderPart"]


@dataclass(frozen=True, eq=False)
class FolderPart:
    """The arrays of a part of a graph, as those of a `oddnode.large.GraphFolder`.

    Files have no name: the system removes them with the process, however it ends.

    Parameters
    ----------
    path, scratch_folder : Path
        Those of the folder of the whole graph.
    x, offsets, sources, edge_weight, loops
        As for `oddnode.large.GraphFolder`.
    """

    path: Path
    scratch_folder: Path
    x: Tensor
    offsets: Tensor
    sources: Tensor
    edge_weight: Tensor | None
    loops: tuple[Tensor, Tensor, Tensor]
    _sidecars: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, graph: FolderGraph, keep: Tensor, place: Tensor) -> FolderPart:
        """Copy what is left of a graph.

        Parameters
        ----------
        graph : FolderGraph
            The whole graph of N nodes.
        keep : Tensor
            Whether a node is in the part ``[N]``.
        place : Tensor
            The positions in the part ``[N]``; -1 for nodes that are not in it.
        """
        folder, num_nodes = graph.folder, int(keep.sum())
        x = scratch(folder.scratch_folder, (num_nodes, graph.x.shape[1]), graph.x.dtype)
        done = 0
        for rows in graph.row_slices():
            part = graph.x[rows][keep[rows]]
            x[done : done + len(part)] = part
            done += len(part)
        room, num_edges = folder.scratch_folder, len(folder.sources)
        sources = scratch(room, (num_edges,), folder.sources.dtype)
        weights = None if graph.edge_weight is None else scratch(room, (num_edges,), graph.edge_weight.dtype)
        counts, done = torch.zeros(num_nodes, dtype=torch.long), 0
        for source, target, weight in graph.edge_blocks():
            inside = keep[source] & keep[target]
            moved = place[source[inside]]
            sources[done : done + len(moved)] = moved.to(sources.dtype)
            if weights is not None and weight is not None:
                weights[done : done + len(moved)] = weight[inside]
            targets, often = place[target[inside]].unique_consecutive(return_counts=True)
            counts[targets] += often  # a node's edges may be in two blocks
            done += len(moved)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        weights = None if weights is None else weights[:done]
        nodes, *numbers = folder.loops
        stays = keep[nodes.long()]
        own, total = (each[stays] for each in numbers)
        return cls(folder.path, room, x, offsets, sources[:done], weights, (place[nodes.long()][stays], own, total))

    def sidecar(self, name: str, make: Write, dtype: str) -> Tensor:
        """Compute a result that depends on the part alone once, as `oddnode.large.GraphFolder.sidecar` does.

        Parameters
        ----------
        name, make, dtype
            As for `oddnode.large.GraphFolder.sidecar`.
        """
        if name not in self._sidecars:
            with tempfile.TemporaryDirectory(dir=self.scratch_folder) as folder:
                entry = written(Path(folder) / "sidecar.bin", make, dtype)
                self._sidecars[name] = map_array(Path(folder) / "sidecar.bin", entry)
        return self._sidecars[name]
