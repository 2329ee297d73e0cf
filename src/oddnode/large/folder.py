"""A graph on disk: a folder of memory-mapped arrays with a manifest."""

from __future__ import annotations

import codecs
import os
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from oddnode.graph import CSR
from oddnode.large.arrays import (
    ANEW,
    FileStamp,
    FolderError,
    check_once,
    check_sum,
    file_stamp,
    map_array,
    mark_checked,
)
from oddnode.large.graph import FolderGraph
from oddnode.large.graph_arrays import LEAST, GraphArrays, missing_memory
from oddnode.large.manifest import Manifest, read_manifest
from oddnode.large.ranks import active_ranks

#: The masks that a graph may have.
MASKS = ("train_mask", "val_mask", "calibration_mask", "reference_mask", "seen_mask", "ood_mask")

#: The arrays that may hold ids.
ID_ARRAYS = ("ids", "id_offsets", "id_bytes")

# Folders whose edges this process has checked, by their file.
_checked_edges: set[FileStamp] = set()

_OFFSETS_AT_ONCE = 2**20
_VALUES_AT_ONCE = 2**24
# The arrays of the graph itself, which every detector needs; the largest come first, so that ranks share the work.
_OF_GRAPH = ("x", "sources", "weights", "offsets", "loop_nodes", "loop_counts", "loop_weights")
# The attributes that are arrays, and their files.
_ATTRIBUTES = {name: name for name in ("x", "offsets", "sources", "y", *MASKS)} | {"edge_weight": "weights"}


class GraphFolder(FeatureStore, GraphStore):
    """A graph on disk, for graphs that do not fit into memory.

    Its arrays are mapped into memory: they are read when they are used, and several processes share one copy. They
    never change; the checksum of each is verified once, before its first use. Sidecars (results that depend on the
    graph alone, such as :math:`A X`) are added when they are first needed. Make a folder with
    `oddnode.large.build_folder` or ``oddnode prepare``.

    It has the attributes of a PyG ``Data``, and it is a PyG ``FeatureStore`` and ``GraphStore``: loaders take
    ``(folder, folder)`` as their data.

    Parameters
    ----------
    path : path
        The folder.

    Attributes
    ----------
    num_nodes, num_edges, num_features : int
        Number of nodes, of edges (columns of an ``edge_index``), and of features of a node.
    x : Tensor
        Features ``[N, F]``.
    offsets, sources : Tensor
        Edges sorted by target: the sources of the edges to node ``v`` are ``sources[offsets[v]:offsets[v + 1]]``.
    edge_weight : Tensor or None
        The weights of the edges, in the order of ``sources``; ``None`` if every edge counts as one.
    y, train_mask, val_mask, calibration_mask, reference_mask, seen_mask, ood_mask : Tensor or None
        As for `oddnode.graph.GraphSource`.
    directed : bool
        As for `oddnode.graph.GraphSource`; True if it was made from tables whose edges lead one way.
    """

    x: Tensor
    offsets: Tensor
    sources: Tensor
    edge_weight: Tensor | None
    y: Tensor | None
    train_mask: Tensor | None
    val_mask: Tensor | None
    calibration_mask: Tensor | None
    reference_mask: Tensor | None
    seen_mask: Tensor | None
    ood_mask: Tensor | None

    def __init__(self, path: str | os.PathLike):
        super().__init__()
        self.path = Path(path)
        self.manifest: Manifest = read_manifest(self.path)
        self.num_nodes, self.num_edges = self.manifest.num_nodes, self.manifest.num_edges
        self._arrays = {name: map_array(self._file(name), entry) for name, entry in self.manifest.arrays.items()}
        self.num_features = self.manifest.arrays["x"].shape[1]

    def __getattr__(self, name: str) -> Any:
        if name not in _ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = self._checked(_ATTRIBUTES[name])
        setattr(self, name, value)  # so that it is checked once
        return value

    def _checked(self, name: str) -> Tensor | None:
        """An array whose file is what was written, or one that was given instead."""
        if name in self.manifest.arrays:
            check_once(self._file(name), self.manifest.arrays[name], lambda: self._check_values(name))
        return self._arrays.get(name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers of a loader map the files again; pickling a mapped array would copy it.
        return _reopened, (type(self), self.path, self._given_masks())

    def __repr__(self) -> str:
        return f"GraphFolder({self.path}, {self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features)"

    @property
    def edge_index(self) -> Tensor:
        """Edges ``[2, E]``, all of them in memory: 16 bytes per edge."""
        self._check_edges()
        target = torch.repeat_interleave(torch.arange(self.num_nodes), self.offsets.diff())
        return torch.stack([self.sources.long(), target])

    @property
    def directed(self) -> bool:
        """Whether edges are meant to lead one way only, as given when its tables were read."""
        return bool((self.manifest.table or {}).get("directed", False))

    def with_masks(self, **masks: Tensor) -> GraphFolder:
        """The same folder with other nodes to learn from or to calibrate on; nothing is written.

        Parameters
        ----------
        **masks
            By name (``train_mask``, ``val_mask``, ...), one boolean per node ``[N]``.
        """
        unknown = set(masks) - set(MASKS)
        if unknown:
            raise FolderError(f"{sorted(unknown)[0]!r} is not a mask, expected one of {', '.join(MASKS)}")
        for name, mask in masks.items():
            if mask.dtype != torch.bool or mask.shape != (self.num_nodes,):
                found = f"{mask.dtype} of shape {list(mask.shape)}"
                raise FolderError(f"{name} is {found}, expected one boolean for each of the {self.num_nodes} nodes")
        chosen = self._given_masks() | masks
        other = type(self)(self.path)
        own = {name: entry for name, entry in other.manifest.arrays.items() if name not in chosen}
        other.manifest = replace(other.manifest, arrays=own)
        other._arrays |= chosen
        return other

    def _given_masks(self) -> dict[str, Tensor]:
        """The masks that replace those of the folder."""
        return {name: self._arrays[name] for name in MASKS if name in self._arrays.keys() - self.manifest.arrays.keys()}

    def ids(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read the ids of nodes, integers or strings ``[n]``.

        Parameters
        ----------
        start, stop : int
            The first node, and the one after the last; all by default.
        """
        arrays, stop = self.id_arrays(), self.num_nodes if stop is None else stop
        if "ids" in arrays:
            return arrays["ids"][start:stop]
        if "id_offsets" not in arrays:
            return np.arange(start, stop)
        ends = arrays["id_offsets"][start : stop + 1].tolist()
        text = arrays["id_bytes"][ends[0] : ends[-1]].tobytes()
        return np.array([text[a - ends[0] : b - ends[0]].decode() for a, b in pairwise(ends)], dtype=object)

    def id_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that hold the ids, none if these are the indices.

        They are ``ids`` for integers; ``id_offsets`` and ``id_bytes`` for strings, as in Arrow.
        """
        arrays = {name: self._checked(name) for name in ID_ARRAYS}
        return {name: values.numpy() for name, values in arrays.items() if values is not None}

    def verify(self) -> Self:
        """Read all files now and verify their checksums; without this, each is verified before its first use."""
        for name, entry in self.manifest.arrays.items():
            check_sum(self._file(name), entry)
        return self

    def as_graph(self, device: torch.device | str = "cpu") -> Any:
        """Make the graph that detectors work on; on the CPU, its products stream the edges from disk.

        Parameters
        ----------
        device : torch.device or str
            The device. A GPU must have enough memory for the whole graph.
        """
        ranks, arrays = active_ranks(), self._arrays
        names = [name for name in _OF_GRAPH if name in self.manifest.arrays]
        for name in names[ranks.rank :: ranks.world_size]:
            self._checked(name)
        self._check_edges()
        ranks.barrier()  # no rank uses what another has yet to check
        for name in names:
            mark_checked(self._file(name))
        counts = arrays["loop_counts"]
        loops = arrays["loop_nodes"], counts, arrays.get("loop_weights", counts)
        csr, manifest = CSR(arrays["offsets"], arrays["sources"], arrays.get("weights")), self.manifest
        own = GraphArrays(self.path, arrays["x"], csr, loops, "folder", manifest.max_abs_feature, manifest.graph_key)
        device = torch.device(device)
        missing = missing_memory(self, device, LEAST)
        if missing is not None:
            raise FolderError(f"{missing}; use device='cpu', which reads the graph from disk")
        return FolderGraph(own if device.type == "cpu" else own.copy_to(device))

    def _check_edges(self) -> None:
        """Raise an error for edges with invalid node indices: a product would read out of bounds."""
        key = file_stamp(self._file("sources"))
        if key in _checked_edges:
            return
        ranks = active_ranks()
        parts = self._arrays["sources"].split(_VALUES_AT_ONCE)[ranks.rank :: ranks.world_size]
        bounds = [part.aminmax() for part in (*parts, self._arrays["loop_nodes"]) if len(part)]
        sound = _are_offsets(self._arrays["offsets"], self.num_edges)
        if not sound or any(int(low) < 0 or int(high) >= self.num_nodes for low, high in bounds):
            raise FolderError(f"the edges of {self.path} do not fit its {self.num_nodes} nodes; {ANEW}")
        _checked_edges.add(key)

    def _check_values(self, name: str) -> None:
        """Raise an error for values that are no weights or no text, in a file with a checksum that fits."""
        if name == "id_bytes":
            self._check_strings()
        for part in self._arrays[name].split(_VALUES_AT_ONCE) if name in ("weights", "loop_weights") else ():
            if not bool(((part > 0) & (part < torch.inf)).all()):  # NaN fails both comparisons
                raise FolderError(f"{self._file(name)} has weights that are not finite numbers above 0; {ANEW}")

    def _check_strings(self) -> None:
        """Raise an error for ids that are not strings in UTF-8: Arrow would read out of bounds."""
        offsets, text = self._arrays["id_offsets"], self._arrays["id_bytes"]
        if not _are_offsets(offsets, len(text)):
            raise FolderError(f"the ids of {self.path} do not fit its {len(text)} bytes of text; {ANEW}")
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for part in text.split(_VALUES_AT_ONCE):
                decoder.decode(part.numpy().tobytes())
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise FolderError(f"the ids of {self.path} are not UTF-8 ({error.reason}); {ANEW}") from None
        if bool(((text[offsets[offsets < len(text)]] & 0xC0) == 0x80).any()):  # in the middle of a character
            raise FolderError(f"the ids of {self.path} are not UTF-8 (a character is divided); {ANEW}")

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.bin"

    # PyG's interfaces: a `FeatureStore` and a `GraphStore` of one kind of nodes and edges, read-only.

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        values = self._checked(attr.attr_name or "")
        index = attr.index
        return values if values is None or index is None else values[index]

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        values = self._get_tensor(attr)
        return None if values is None else tuple(values.shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The attributes of the nodes: ``x``, ``y`` and the masks that exist."""
        names = [name for name in ("x", "y", *MASKS) if name in self._arrays]
        return [TensorAttr(group_name=None, attr_name=name) for name in names]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.layout == EdgeLayout.CSC:
            self._check_edges()
            return self.sources, self.offsets
        if edge_attr.layout != EdgeLayout.COO:
            return None
        source, target = self.edge_index
        return source, target

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """The edges, sorted by target."""
        size = self.num_nodes, self.num_nodes
        return [EdgeAttr(edge_type=None, layout=EdgeLayout.CSC, is_sorted=True, size=size)]

    def _refuse(self, *_: Any) -> bool:
        return False

    _put_tensor = _remove_tensor = _put_edge_index = _remove_edge_index = _refuse


def _reopened(kind: type[GraphFolder], path: Path, masks: dict[str, Tensor]) -> GraphFolder:
    return kind(path).with_masks(**masks) if masks else kind(path)


def _are_offsets(offsets: Tensor, end: int) -> bool:
    """Whether offsets ascend from 0 to an end."""
    starts = range(0, len(offsets) - 1, _OFFSETS_AT_ONCE)
    ordered = all(bool((offsets[start:][: _OFFSETS_AT_ONCE + 1].diff() >= 0).all()) for start in starts)
    return ordered and (int(offsets[0]), int(offsets[-1])) == (0, end)
