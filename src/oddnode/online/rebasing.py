"""A growing graph as it is now, as a graph of its own, in memory or written to a new graph folder; and paths."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oddnode.graph import GraphError
from oddnode.large import FolderBuilder, GraphFolder
from oddnode.large.arrays import row_chunks
from oddnode.large.chunks import NodeChunk
from oddnode.large.folder import MASKS
from oddnode.online.growing import NO_INCOMING, GrowingGraph, Incoming

# Edges that are written at a time, roughly.
_NODES_AT_ONCE = 2**16
#: Number of nodes of each path, on which networks and scorers are tried, and the number of paths.
PATH, _NUM_PATHS = 14, 8


def as_data(whole: GrowingGraph, references: Sequence[np.ndarray], new: Tensor, added: Incoming) -> Any:
    """The graph as it is now, perhaps with arrivals, in memory; its seen and reference nodes are marked."""
    from torch_geometric.data import Data

    nodes = whole.present
    edges, weights = whole.all_edges()
    index = np.full(whole.num_nodes + len(new), -1)
    index[nodes] = np.arange(len(nodes))
    index[whole.num_nodes :] = np.arange(len(nodes), len(nodes) + len(new))
    edges = np.concatenate([edges, np.stack([added.sources, added.owner])], axis=1)
    weights = np.concatenate([weights, added.weights])
    x = torch.cat([whole.get("x", nodes), new])
    data = Data(x=x, edge_index=torch.from_numpy(index[edges]))
    if whole.is_weighted:
        data.edge_weight = torch.from_numpy(weights).to(x.dtype)
    kept = index[np.concatenate(references)] if references else index[:0]
    kept = kept[kept >= 0]
    if len(kept):
        marked = torch.zeros(2, len(x), dtype=torch.bool)
        marked[0, torch.from_numpy(kept)] = True
        marked[1, : len(nodes)] = whole.get("seen", nodes)
        data.reference_mask, data.seen_mask = marked
    return data


def write_graph(
    whole: GrowingGraph, references: Sequence[np.ndarray], source: GraphFolder, out: str | os.PathLike
) -> GraphFolder:
    """Write the graph as it is now to a new folder, with the labels and masks of the folder that its base is in."""
    nodes = whole.present
    index = np.full(whole.num_nodes, -1)
    index[nodes] = np.arange(len(nodes))
    columns = {name: getattr(source, name) for name in ("y", *MASKS)}
    given = {name: values.numpy() for name, values in columns.items() if values is not None}
    kept = np.intersect1d(np.concatenate(references), nodes) if references else nodes[:0]
    if len(kept):
        given["reference_mask"] = np.zeros(whole.num_base, dtype=bool)
        given["reference_mask"][kept] = True
        given["seen_mask"] = whole.get("seen", np.arange(whole.num_base)).numpy()

    def node_chunks() -> Iterator[NodeChunk]:
        for start, stop in row_chunks(len(nodes), source.num_features * source.x.dtype.itemsize):
            own = nodes[start:stop]
            is_known = own < whole.num_base
            parts = {}
            for name, values in given.items():
                parts[name] = np.full(len(own), -1 if name == "y" else False, dtype=values.dtype)
                parts[name][is_known] = values[own[is_known]]
            ids = whole.ids.take(own)
            if isinstance(ids, list):
                raise GraphError("ids of nodes are numbers and strings; a graph folder has one or the other")
            names = ids.to_numpy(zero_copy_only=False)
            yield NodeChunk(whole.get("x", own).numpy(), parts.pop("y", None), names, parts)

    def edge_chunks() -> Iterator[Any]:
        for start in range(0, len(nodes), _NODES_AT_ONCE):
            found = whole.incoming(nodes[start : start + _NODES_AT_ONCE], NO_INCOMING, cap=2**62)
            ends = np.stack([index[found.sources], start + found.owner])
            yield (ends, found.weights) if whole.is_weighted else ends

    facts = {"classes": source.manifest.classes, "table": source.manifest.table}
    with FolderBuilder(out, secrets.token_hex(16)) as builder:
        builder.add_nodes(node_chunks, facts)
        builder.add_edges(edge_chunks)
        return builder.finish(source.manifest.notes)


def path_graph(whole: GrowingGraph) -> Any:
    """Paths to nodes 0, `PATH`, 2 `PATH` and so on, whose features are drawn from those of a base, each by itself."""
    from torch_geometric.data import Data

    rng, count = np.random.default_rng(0), PATH * _NUM_PATHS
    rows = whole.get("x", rng.integers(whole.num_base, size=64))
    x = rows.gather(0, torch.from_numpy(rng.integers(64, size=(count, rows.shape[1]))))
    source = torch.arange(count)[torch.arange(count) % PATH > 0]
    edges, weight = torch.stack([source, source - 1]), torch.from_numpy(rng.uniform(0.5, 2.0, len(source))).to(x)
    if not whole.directed:
        edges, weight = torch.cat([edges, edges.flip(0)], dim=1), weight.repeat(2)
    return Data(x=x, edge_index=edges, **{"edge_weight": weight} if whole.is_weighted else {})
