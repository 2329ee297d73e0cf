"""A part of a graph on disk, in temporary files or on a GPU: what is left without some nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oddnode.large.resident import computed
from oddnode.large.sidecars import Write

if TYPE_CHECKING:
    from oddnode.large.folder import GraphFolder
    from oddnode.large.graph import FolderGraph
    from oddnode.large.resident import ResidentFolder

__all__ = ["FolderPart"]


@dataclass(frozen=True, eq=False)
class FolderPart:
    """The arrays of a part of a graph, as those of a `oddnode.large.GraphFolder`.

    Files have no name: the system removes them with the process, however it ends.

    Parameters
    ----------
    whole : GraphFolder, ResidentFolder or FolderPart
        The whole graph.
    x, offsets, sources, edge_weight, loops
        As for `oddnode.large.GraphFolder`.
    """

    whole: GraphFolder | ResidentFolder | FolderPart
    x: Tensor
    offsets: Tensor
    sources: Tensor
    edge_weight: Tensor | None
    loops: tuple[Tensor, Tensor, Tensor]
    _sidecars: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    max_abs_feature = None  # it is not known of a part

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
        x = folder.empty((num_nodes, graph.x.shape[1]), graph.x.dtype)
        done = 0
        for rows in graph.row_slices():
            part = graph.x[rows][keep[rows]]
            x[done : done + len(part)] = part
            done += len(part)
        num_edges = len(folder.sources)
        sources = folder.empty((num_edges,), folder.sources.dtype)
        weights = None if graph.edge_weight is None else folder.empty((num_edges,), graph.edge_weight.dtype)
        counts, done = torch.zeros(num_nodes, dtype=torch.long, device=graph.device), 0
        for source, target, weight in graph.edge_blocks():
            inside = keep[source] & keep[target]
            moved = place[source[inside]]
            sources[done : done + len(moved)] = moved.to(sources.dtype)
            if weights is not None and weight is not None:
                weights[done : done + len(moved)] = weight[inside]
            targets, often = place[target[inside]].unique_consecutive(return_counts=True)
            counts[targets] += often  # a node's edges may be in two blocks
            done += len(moved)
        offsets = folder.empty((num_nodes + 1,), torch.long)
        offsets[0] = 0
        torch.cumsum(counts, 0, out=offsets[1:])
        weights = None if weights is None else weights[:done]
        nodes, *numbers = folder.loops
        stays = keep[nodes.long()]
        own, total = (each[stays] for each in numbers)
        return cls(folder, x, offsets, sources[:done], weights, (place[nodes.long()][stays], own, total))

    @property
    def path(self) -> Path:
        """The folder of the whole graph."""
        return self.whole.path

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Make room for a result where the whole graph does.

        Parameters
        ----------
        shape, dtype
            As for `oddnode.large.GraphFolder.empty`.
        """
        return self.whole.empty(shape, dtype)

    def sidecar(self, name: str, make: Write, dtype: str) -> Tensor:
        """Compute a result that depends on the part alone once, as `oddnode.large.GraphFolder.sidecar` does.

        Parameters
        ----------
        name, make, dtype
            As for `oddnode.large.GraphFolder.sidecar`.
        """
        if name not in self._sidecars:
            self._sidecars[name] = computed(make, dtype)
        return self._sidecars[name]

    def release(self) -> None:
        """Forget what `sidecar` has computed."""
        self._sidecars.clear()
