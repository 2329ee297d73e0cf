"""Graphs that a detector accepts: objects with the attributes of PyG's ``Data``, and what is converted to one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from oddnode._utils.lazy import is_instance
from oddnode.graph.validation import GraphError, check_features_fit, exact_array

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

# The attributes of nodes that are read from a NetworkX graph or a type of nodes, with the value where one is lacking.
_NODE_ATTRIBUTES: dict[str, int | bool] = {"y": -1} | dict.fromkeys(
    ("train_mask", "val_mask", "calibration_mask", "reference_mask", "seen_mask", "ood_mask"), False
)


class GraphSource(Protocol):
    """A graph to read: node features and edges, with labels and masks where they are needed.

    `torch_geometric.data.Data` meets this protocol, and so does any class with these attributes; nothing has to be
    inherited. A source is not checked yet: `oddnode.graph.Graph.from_data` makes a checked graph from ``x``,
    ``edge_index`` and ``edge_weight``, and `oddnode.graph.training_set` a checked `oddnode.graph.TrainingSet` from all
    of it.

    `oddnode.graph.as_source` makes such a graph from a ``HeteroData`` or a NetworkX graph, so that these can be given,
    too.

    Other attributes are optional, absent or ``None``; each mask has one boolean per node, ``[N]``:

    - ``edge_weight``: one weight per edge ``[E]``, 0 or more; an edge of weight 0 counts as no edge;
    - ``y``: classes 0, 1, 2, ... ``[N]``, read at the nodes of the first three masks only;
    - ``train_mask``, ``val_mask``: the labelled nodes to train on and to choose the epoch by;
    - ``calibration_mask``: held-out known nodes that calibrate the threshold;
    - ``reference_mask``: labelled nodes that nothing was learnt from, for methods that compare nodes with such nodes;
    - ``seen_mask``: the nodes that were in the training graph, for scoring; needed only if these do not come first;
    - ``ood_mask``: the known OOD nodes of an exposure graph;
    - ``directed``: True if edges are meant to lead one way only, so that `oddnode.Detector.fit` does not warn.

    A source whose edges are not in memory, such as `oddnode.large.GraphFolder`, has a method ``as_graph(device)`` that
    returns a `oddnode.graph.Graph` of its own; its ``edge_index`` is then not read.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import torch
    >>> from oddnode.graph import Graph
    >>> @dataclass
    ... class Path:
    ...     x: torch.Tensor
    ...     edge_index: torch.Tensor
    >>> Graph.from_data(Path(torch.eye(3), torch.tensor([[0, 1], [1, 2]]))).num_nodes
    3
    """

    @property
    def x(self) -> Tensor:
        """Features ``[N, F]``. Results are moved to the device of this tensor."""
        ...

    @property
    def edge_index(self) -> Tensor:
        """Edges ``[2, E]``, from source to target, as indices of nodes."""
        ...


def as_source(source: Any, name: str = "data") -> GraphSource:
    """Return what a user gave as a graph, its tensors not checked yet, or raise an error that says what to give.

    Parameters
    ----------
    source : object
        An object with ``x`` and ``edge_index``, or with ``as_graph``, which is returned as it is; a
        `torch_geometric.data.HeteroData`; or a NetworkX graph. Several types of nodes of the former become one graph:
        nodes in the order of ``node_types``, features side by side (0 for other types), each block followed by a
        feature that marks the type, edges of all types together. One type may have labels. Every node of a NetworkX
        graph has an attribute ``x``, its features. Nodes may have ``y`` (-1 where it is missing) and masks
        (``train_mask`` and so on; False where they are missing), and edges a ``weight`` (1 where it is missing). Nodes
        are numbered in the order of ``graph.nodes``; an undirected edge counts both ways.
    name : str
        Its name in messages.

    Examples
    --------
    >>> import networkx
    >>> graph = networkx.path_graph(3)
    >>> networkx.set_node_attributes(graph, [0.5, 1.0], "x")
    >>> as_source(graph)
    Data(x=[3, 2], edge_index=[2, 4])
    """
    if is_instance(source, "torch_geometric.data", "HeteroData"):
        return _from_hetero_data(source, name)
    if is_instance(source, "networkx", "Graph"):
        return _from_networkx(source, name)
    if hasattr(source, "as_graph"):  # reading the edges of such a source could fill the memory
        return source
    if not (hasattr(source, "x") and hasattr(source, "edge_index")):
        raise GraphError(
            f"{name} is {type(source).__name__}, expected a graph with x and edge_index, for example a "
            f"torch_geometric.data.Data{_hint(source)}"
        )
    return source


def _hint(source: Any) -> str:
    """What to do with some other objects that people pass."""
    if isinstance(source, DataLoader):
        return "; give the whole graph that the loader was made from (Detector(trainer=MiniBatch()) samples it)"
    if isinstance(source, (list, tuple)):
        return "; give one graph at a time, or join several with torch_geometric.data.Batch.from_data_list"
    if isinstance(source, (Tensor, np.ndarray)):
        return "; a graph also needs edges: make Data(x=..., edge_index=..., y=..., train_mask=...)"
    if isinstance(source, (str, os.PathLike)) or hasattr(source, "__dataframe__"):
        return "; tables of nodes and edges go into oddnode.tables.TableModel"
    return ""


def _from_hetero_data(data: HeteroData, name: str) -> Data:
    """Join all types into one graph: features side by side, with one that marks each type, and edges of all types."""
    from torch_geometric.data import Data

    nodes, edges = dict(zip(data.node_types, data.node_stores, strict=True)), data.edge_stores
    if len(nodes) == 1 and len(edges) < 2 and {end for kind in data.edge_types for end in kind[::2]} <= nodes.keys():
        return Data.from_dict({key: value for store in (*nodes.values(), *edges) for key, value in store.items()})
    _check_types(data, nodes, name)
    sizes = [store.num_nodes for store in nodes.values()]
    starts = dict(zip(nodes, np.cumsum([0, *sizes]).tolist(), strict=False))
    blocks = [store.x if "x" in store else torch.empty(store.num_nodes, 0) for store in nodes.values()]
    for kind, block in zip(nodes, blocks, strict=True):
        check_features_fit(block, f"{name}: x of type {kind!r}")
    marked = [torch.cat([block, block.new_ones(len(block), 1)], dim=1) for block in blocks]
    columns = {"x": torch.block_diag(*marked) if len(nodes) > 1 else blocks[0]}
    for key, missing in _NODE_ATTRIBUTES.items():
        given = [store[key] for store in nodes.values() if key in store]
        if given:
            own = [
                store[key] if key in store else given[0].new_full((n,), missing)
                for store, n in zip(nodes.values(), sizes, strict=True)
            ]
            columns[key] = torch.cat(own)
    ends = [torch.tensor([[starts[kind[0]]], [starts[kind[2]]]]) for kind in data.edge_types]
    moved = [store.edge_index + first.to(store.edge_index.device) for store, first in zip(edges, ends, strict=True)]
    columns["edge_index"] = torch.cat(
        [torch.empty((2, 0), dtype=torch.long, device=columns["x"].device), *moved], dim=1
    )
    if any("edge_weight" in store for store in edges):
        columns["edge_weight"] = torch.cat(
            [store.get("edge_weight", columns["x"].new_ones(store.edge_index.shape[1])) for store in edges]
        )
    joined = Data(**columns)
    joined.directed = getattr(data, "directed", False)
    return joined


def _check_types(data: HeteroData, nodes: dict[str, Any], name: str) -> None:
    lacking = [kind for kind, store in nodes.items() if store.num_nodes is None]
    lacking += [end for kind in data.edge_types for end in (kind[0], kind[2]) if end not in nodes]
    if lacking:
        raise GraphError(
            f"{name} has no nodes of type {lacking[0]!r}: give them x, or num_nodes if they have no features"
        )
    for kind, store in nodes.items():
        for key in ("x", *_NODE_ATTRIBUTES):
            if key in store and len(store[key]) != store.num_nodes:
                fault = f"{store.num_nodes} nodes of type {kind!r}, but {len(store[key])} values in {key!r}"
                raise GraphError(f"{name} has {fault}; give one per node")
    labelled = [kind for kind, store in nodes.items() if "y" in store]
    if len(labelled) > 1:
        raise GraphError(
            f"{name} has labels of several types ({', '.join(map(repr, labelled))}), whose classes may have the same "
            "numbers; give y to one type of nodes, or number the classes of all types jointly and use to_homogeneous()"
        )
    for kind, store in zip(data.edge_types, data.edge_stores, strict=True):
        unnamed = store.get("edge_attr") if "edge_weight" not in store else None
        if "edge_index" not in store or (unnamed is not None and unnamed.shape[1:].numel() == 1):
            fault = "have no edge_index" if "edge_index" not in store else "have one number each, edge_attr"
            advice = "" if unnamed is None else "; if these are weights, call them edge_weight, otherwise remove them"
            raise GraphError(f"{name}: the edges of type {kind} {fault}{advice}")
        _check_edges_of_type(store, [nodes[end].num_nodes for end in kind[::2]], f"{name}: the edges of type {kind}")


def _check_edges_of_type(store: Any, sizes: list[int], what: str) -> None:
    """Raise an error for what would be an edge, or a weight, of another type once all types are one graph."""
    edges, weight = store.edge_index, store.get("edge_weight")
    if edges.dtype == torch.bool or edges.dim() != 2 or len(edges) != 2:
        raise GraphError(f"{what} are {edges.dtype} of shape {list(edges.shape)}, expected integers [2, edges]")
    for own, size in zip(edges, sizes, strict=True):
        wrong = own[(own < 0) | (own >= size)]
        if len(wrong):
            raise GraphError(
                f"{what} have node {wrong[0]}, but there are only {size} nodes (0..{size - 1}) of its type"
            )
    if weight is not None and len(weight) != edges.shape[1]:
        raise GraphError(f"{what} are {edges.shape[1]}, with {len(weight)} weights; give one per edge")


def _from_networkx(graph: Any, name: str) -> Data:
    from torch_geometric.data import Data

    index = {node: number for number, node in enumerate(graph)}
    facts = [values for _, values in graph.nodes(data=True)]
    lacking = next((node for node, values in graph.nodes(data=True) if "x" not in values), None)
    if not facts or lacking is not None:
        fault = "has no nodes" if not facts else f"has the node {lacking!r} without the attribute 'x'"
        raise GraphError(
            f"{name} is a NetworkX graph that {fault}; give every node its features as 'x', or name the attributes "
            "that are features with torch_geometric.utils.from_networkx(graph, group_node_attrs=[...])"
        )
    columns = {"x": [values["x"] for values in facts]} | {
        key: [values.get(key, missing) for values in facts]
        for key, missing in _NODE_ATTRIBUTES.items()
        if any(key in values for values in facts)
    }
    edges = list(graph.to_directed(as_view=True).edges(data="weight"))
    pairs = [(index[a], index[b]) for a, b, _ in edges]
    if any(weight is not None for _, _, weight in edges):
        columns["edge_weight"] = [1.0 if weight is None else weight for _, _, weight in edges]
    tensors = {key: _as_tensor(values, f"{name}: the attribute {key!r}") for key, values in columns.items()}
    return Data(edge_index=torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous(), **tensors)


def _as_tensor(values: list[Any], what: str) -> Tensor:
    try:
        if isinstance(values[0], Tensor):
            return torch.stack(values)
        tensor = torch.from_numpy(exact_array(values, f"{what} of the NetworkX graph"))
    except (TypeError, RuntimeError):
        raise GraphError(f"{what} of the NetworkX graph must be numbers of equal shape everywhere") from None
    return tensor.float() if tensor.is_floating_point() else tensor
