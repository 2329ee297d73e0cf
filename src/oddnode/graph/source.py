"""The protocol of graphs that a detector accepts: any object with the attributes of PyG's ``Data``."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

__all__ = ["GraphSource", "optional_attribute"]


class GraphSource(Protocol):
    """A graph to read: node features and edges, with labels and masks where they are needed.

    `torch_geometric.data.Data` meets this protocol, and so does any class with these attributes; nothing has to be
    inherited. A source is not checked yet: `oddnode.graph.Graph.from_data` makes a checked graph from ``x``,
    ``edge_index`` and ``edge_weight``, and `oddnode.graph.training_set` a checked `oddnode.graph.TrainingSet` from all
    of it.

    `oddnode.graph.as_source` makes such a graph of a ``HeteroData`` with one type of nodes and of a NetworkX graph, so
    that these can be given as well.

    Other attributes are optional, absent or ``None``; each mask has one boolean per node, ``[N]``:

    - ``edge_weight``: one weight per edge ``[E]``, 0 or more; an edge of weight 0 counts as no edge;
    - ``y``: classes 0, 1, 2, ... ``[N]``, read at the nodes of the first three masks only;
    - ``train_mask``, ``val_mask``: the labelled nodes to train on and to choose the epoch by;
    - ``calibration_mask``: held-out known nodes for `oddnode.Detector.calibrate`;
    - ``reference_mask``: labelled nodes that nothing was learnt from, for methods that compare nodes with such nodes;
    - ``seen_mask``: the nodes that were in the training graph, for scoring; needed only if these do not come first;
    - ``ood_mask``: the known OOD nodes of an exposure graph;
    - ``directed``: True if edges are meant to lead one way only, so that `oddnode.Detector.fit` does not doubt it.

    A source whose edges are not in memory, such as `oddnode.large.GraphFolder`, has a method ``as_graph(device)`` that
    returns a `oddnode.graph.Graph` of its own; its ``edge_index`` is then not read.

    Attributes
    ----------
    x : Tensor
        Features ``[N, F]``. Results are moved to the device of this tensor.
    edge_index : Tensor
        Edges ``[2, E]``, from source to target, as positions of nodes.

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
        """Features ``[N, F]``."""
        ...

    @property
    def edge_index(self) -> Tensor:
        """Edges ``[2, E]``."""
        ...


def optional_attribute(source: GraphSource, name: str) -> Any:
    """Read an attribute that a source need not have.

    Parameters
    ----------
    source : GraphSource
        Any graph.
    name : str
        The attribute, for example ``"train_mask"``.

    Returns
    -------
    object
        Its value; ``None`` if the source has no such attribute.
    """
    return getattr(source, name, None)
