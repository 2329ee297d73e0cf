"""The arrays of a graph, and where they live: mapped files of a folder, copies on a GPU, a part in scratch buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from oddnode.graph import CSR
from oddnode.large.arrays import file_stamp
from oddnode.large.buffers import scratch_buffer
from oddnode.large.manifest import MANIFEST
from oddnode.large.sidecars import SidecarSpec, sidecar

if TYPE_CHECKING:
    from oddnode.large.folder import GraphFolder

#: Size in bytes of the random vectors that a GPU propagates together, to estimate the support.
LARGEST_PROBES = 2**33


@dataclass(eq=False)
class GraphArrays:
    """The arrays of a graph, with an allocator of results and a store of those that depend on the graph alone."""

    path: Path  # The folder of the graph, or of the graph that this is a part of
    x: Tensor
    csr: CSR
    loops: tuple[Tensor, Tensor, Tensor]  # The nodes with self-loops, how many each has, and their total weight
    kind: Literal["folder", "copy", "part"]
    max_abs_feature: float | None = None  # None if it is not known
    graph_key: str = ""  # `Manifest.graph_key` of a folder
    _sidecars: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Allocate a result: on the GPU, in memory, or in a temporary file if it is large."""
        if self.kind == "copy" or self.x.device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=self.x.device)
        return scratch_buffer(self.path, shape, dtype)

    def sidecar(self, name: str, make: Callable[[], Tensor], dtype: str, shape: tuple[int, ...]) -> Tensor:
        """Compute a result that depends on the graph alone once; a folder keeps it in a file."""
        if self.kind == "folder":
            return sidecar(SidecarSpec(self.path, self.graph_key, name, dtype, shape), make)
        if name not in self._sidecars:
            self._sidecars[name] = make().to(getattr(torch, dtype))
        return self._sidecars[name]

    def release(self) -> None:
        """Drop results of a part; a copy on a GPU shares them, a folder has them in files."""
        if self.kind == "part":
            self._sidecars.clear()

    def copy_to(self, device: torch.device) -> GraphArrays:
        """Return the copy of a folder on a GPU: the same one as long as it is in use."""
        key = _key(self.path, device)
        known = _copies.get(key)
        if known is None:
            csr = CSR(*(None if each is None else each.to(device) for each in self.csr))  # type: ignore[arg-type]
            nodes, counts, weights = (each.to(device) for each in self.loops)
            known = replace(self, x=self.x.to(device), csr=csr, loops=(nodes, counts, weights), kind="copy")
            _copies[key] = known
        return known


# Copies that are in use, by folder and device.
_copies: WeakValueDictionary[tuple[object, ...], GraphArrays] = WeakValueDictionary()


def _key(path: Path, device: torch.device) -> tuple[object, ...]:
    return (*file_stamp(path / MANIFEST), str(device))


# How many copies of features and edges are in memory at the same time. There are at least the averages over
# neighbours, scaled features for these, and edges in blocks of sources for propagation.
LEAST = 3, 2
# The default method also has features and edges without the reference nodes, and a neighbourhood sum of every node.
_ENOUGH = 6, 4
# Copies of the 64 random vectors: before and after a hop, and as drawn.
_COPIES_OF_PROBES = 3
# Other values per node: degrees, scales, scores, logits.
_VALUES_PER_NODE = 32


def missing_memory(folder: GraphFolder, device: torch.device, copies: tuple[int, int] = _ENOUGH) -> str | None:
    """Say why a folder does not fit into the memory of a GPU."""
    if device.type != "cuda" or _key(folder.path, device) in _copies:
        return None
    itemsize = folder.x.dtype.itemsize
    probes = min(64 * folder.num_nodes * itemsize, LARGEST_PROBES)
    needed = copies[0] * folder.x.nbytes + copies[1] * folder.sources.nbytes
    needed += _VALUES_PER_NODE * folder.num_nodes * itemsize + _COPIES_OF_PROBES * probes
    if folder.edge_weight is not None:
        needed += folder.num_edges * itemsize
    free, _ = torch.cuda.mem_get_info(device)
    # What torch has reserved but does not use is free as well.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if needed <= free:
        return None
    return f"{folder.path} needs about {needed / 1e9:.1f} GB on {device}, where {free / 1e9:.1f} GB are free"
