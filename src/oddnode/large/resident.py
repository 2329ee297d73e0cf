"""A graph folder in the memory of a GPU, where computing something again is faster than reading it from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from oddnode.large.arrays import ArrayWriter, FolderError, NoWriter
from oddnode.large.file_checks import file_stamp
from oddnode.large.manifest import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from oddnode.large.folder import GraphFolder

__all__ = ["LARGEST_PROBES", "ResidentFolder", "RowsInMemory", "computed", "missing_memory"]

#: How large random vectors are at most that a GPU propagates together, to estimate the support.
LARGEST_PROBES = 2**33


class _Copies(NamedTuple):
    """How often the features and the edges of a graph are in memory at the same time."""

    features: int
    edges: int


# At least the averages over neighbours, scaled features for these, and edges in blocks of sources for propagation.
_LEAST = _Copies(3, 2)
# The default method has features and edges without the reference nodes besides, and surroundings of every node.
_ENOUGH = _Copies(6, 4)
# Copies of random vectors, of which there are 64: before and after a hop, and as they were drawn.
_COPIES_OF_PROBES = 3
# Numbers per node beside these: degrees, scales, scores, logits.
_NUMBERS_PER_NODE = 32


class RowsInMemory:
    """Stands for the writer of a result that is kept in memory."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def append(self, rows: np.ndarray | Tensor) -> None:
        """Keep more rows.

        Parameters
        ----------
        rows : numpy.ndarray or Tensor
            Shape ``[n]`` or ``[n, columns]``, with as many columns as before.
        """
        self._parts.append(torch.as_tensor(rows))

    @property
    def rows(self) -> Tensor:
        """All rows."""
        return self._parts[0] if len(self._parts) == 1 else torch.cat(self._parts)


def computed(make: Callable[[ArrayWriter | NoWriter | RowsInMemory], None], dtype: str) -> Tensor:
    """Compute an array that is not written to the folder.

    Parameters
    ----------
    make, dtype
        As for `oddnode.large.sidecars.Sidecars.get`.
    """
    kept = RowsInMemory()
    make(kept)
    return kept.rows.to(getattr(torch, dtype))


class ResidentFolder:
    """The arrays of a `oddnode.large.GraphFolder` on a device; nothing is written to the folder.

    Parameters
    ----------
    folder : GraphFolder
        The folder, which has been checked.
    device : torch.device
        The device.
    """

    @classmethod
    def of(cls, folder: GraphFolder, device: torch.device) -> ResidentFolder:
        """Return the copy of a folder on a device: the same one as long as somebody uses it.

        Parameters
        ----------
        folder, device
            As for the class.
        """
        known = _copies.get(_key(folder, device))
        if known is not None:
            return known
        missing = missing_memory(folder, device, _LEAST)
        if missing is not None:
            raise FolderError(f"{missing}; use device='cpu', which reads the graph from disk")
        made = _copies[_key(folder, device)] = cls(folder, device)
        return made

    def __init__(self, folder: GraphFolder, device: torch.device):
        self.path = folder.path
        self.max_abs_feature = folder.max_abs_feature
        self.device = device
        self.x = folder.x.to(device)
        self.offsets, self.sources = folder.offsets.to(device), folder.sources.to(device)
        self.edge_weight = None if folder.edge_weight is None else folder.edge_weight.to(device)
        nodes, counts, weights = (each.to(device) for each in folder.loops)
        self.loops = nodes, counts, weights
        self._sidecars: dict[str, Tensor] = {}

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Make room for a result.

        Parameters
        ----------
        shape : tuple of int
            The shape.
        dtype : torch.dtype
            The type of the numbers.
        """
        return torch.empty(shape, dtype=dtype, device=self.device)

    def sidecar(self, name: str, make: Callable[[ArrayWriter | NoWriter | RowsInMemory], None], dtype: str) -> Tensor:
        """Compute a result that depends on the graph alone once for this copy of the folder.

        Parameters
        ----------
        name, make, dtype
            As for `oddnode.large.GraphFolder.sidecar`.
        """
        if name not in self._sidecars:
            self._sidecars[name] = computed(make, dtype)
        return self._sidecars[name]

    def __repr__(self) -> str:
        return f"ResidentFolder({self.path}, {self.device})"


# Copies that are in use, by folder and device.
_copies: WeakValueDictionary[tuple[object, ...], ResidentFolder] = WeakValueDictionary()


def _key(folder: GraphFolder, device: torch.device) -> tuple[object, ...]:
    return (*file_stamp(folder.path / MANIFEST), str(device))


def missing_memory(folder: GraphFolder, device: torch.device, copies: _Copies = _ENOUGH) -> str | None:
    """Say why a folder does not fit into the memory of a GPU.

    Parameters
    ----------
    folder : GraphFolder
        The folder.
    device : torch.device
        The device.
    copies : tuple of int
        How often the features and the edges are in memory at the same time; by default as in the default method.

    Returns
    -------
    str or None
        The reason; ``None`` if it fits or is there already, or if the device does not tell how much memory it has.
    """
    if device.type != "cuda" or _key(folder, device) in _copies:
        return None
    itemsize = folder.x.dtype.itemsize
    probes = min(64 * folder.num_nodes * itemsize, LARGEST_PROBES)
    needed = copies.features * folder.x.nbytes + copies.edges * folder.sources.nbytes
    needed += _NUMBERS_PER_NODE * folder.num_nodes * itemsize + folder.num_edges * itemsize * folder.has_weights
    needed += _COPIES_OF_PROBES * probes
    free, _ = torch.cuda.mem_get_info(device)
    # What torch has reserved without using it is free as well.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if needed <= free:
        return None
    return f"{folder.path} needs about {needed / 1e9:.1f} GB on {device}, where {free / 1e9:.1f} GB are free"
