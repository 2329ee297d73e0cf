"""Graphs that a detector accepts: objects with the attributes of PyG's ``Data``, and what is converted to one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from oddnode._utils.lazy import is_instance
from oddnode.graph.validation import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

# The attributes of a NetworkX graph's nodes that are read, with the value of a node that lacks one.
_NODE_ATTRIBUTES: dict[str, int | bool] = {"y": -1} | dict.fromkeys(
    ("train_mask", "val_mask", "calibration_mask", "reference_mask", "ood_mask"), False
)


class GraphSource(Protocol):
    """A graph to read: node features and edges, with labels and masks where they are needed.

    `torch_geometric.data.Data` meets this protocol, and so does any class with these attributes; nothing has to be
    inherited. A source is not checked yet: `oddnode.graph.Graph.from_data` makes a checked graph from ``x``,
    ``edge_index`` and ``edge_weight``, and `oddnode.graph.training_set` a checked `oddnode.graph.TrainingSet` from all
    of it.

    `oddnode.graph.as_source` makes such a graph from a ``HeteroData`` with one type of nodes or a NetworkX graph, so
    that these can be given as well.

    Other attributes are optional, absent or ``None``; each mask has one boolean per node, ``[N]``:

    - ``edge_weight``: one weight per edge ``[E]``, 0 or more; an edge of weight 0 counts as no edge;
    - ``y``: classes 0, 1, 2, ... ``[N]``, read at the nodes of the first three masks only;
    - ``train_mask``, ``val_mask``: the labelled nodes to train on and to choose the epoch by;
    - ``calibration_mask``: held-out known nodes for `oddnode.Detector.calibrate`;
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
        `torch_geometric.data.HeteroData` with one type of nodes and one of edges; or a NetworkX graph. Every node of
        the latter has an attribute ``x``, its features. Nodes may have ``y`` (-1 where it is missing) and masks
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
    ends = {end for source, _, target in data.edge_types for end in (source, target)}
    num_types = len(ends.union(data.node_types))
    if num_types != 1 or len(data.edge_types) > 1:
        raise GraphError(
            f"{name} is a HeteroData with {num_types} types of nodes and {len(data.edge_types)} of edges, but a "
            "detector knows one type of each; convert it with its to_homogeneous()"
        )
    from torch_geometric.data import Data

    stores = [*data.node_stores, *data.edge_stores]
    return Data.from_dict({key: value for store in stores for key, value in store.items()})


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
        tensor = torch.from_numpy(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        raise GraphError(f"{what} of the NetworkX graph must be numbers of equal shape everywhere") from None
    return tensor.float() if tensor.is_floating_point() else tensor
