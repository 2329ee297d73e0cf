"""Training data: a user's graph after checks and splits."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oddnode.graph.graph import Graph
from oddnode.graph.source import GraphSource
from oddnode.graph.validation import GraphError, check_labels, check_mask

# A bound on weights, to judge whether features are too large to train with.
_LARGEST_WEIGHT = 16.0
# Without labels: the share of the nodes that are reference nodes, and limits of their number. Learning goes on in the
# graph without them, which must not fall apart.
_REFERENCES, _FEWEST_REFERENCES, _MOST_REFERENCES = 0.2, 40, 2000
# One node in this many of the rest validates.
_VALIDATES = 10


@dataclass
class TrainingSet:
    """Training data: the ID graph with labelled and validation nodes and, optionally, known OOD nodes.

    Parameters
    ----------
    graph : Graph
        The ID graph.
    train, val : Tensor
        Indices of the labelled nodes ``[n]`` and of the validation nodes ``[m]``.
    y_train, y_val : Tensor
        Their classes, ``[n]`` and ``[m]``.
    num_classes : int
        Number of ID classes.
    exposure : Graph, optional
        A graph with known OOD nodes.
    exposed : Tensor, optional
        Indices of the known OOD nodes in it.
    num_spare_logits : int
        Number of logits in addition to one per ID class.
    """

    graph: Graph
    train: Tensor
    y_train: Tensor
    val: Tensor
    y_val: Tensor
    num_classes: int
    exposure: Graph | None = None
    exposed: Tensor | None = None
    num_spare_logits: int = 0

    @property
    def num_logits(self) -> int:
        """Number of logits of the network: ID classes first, then spare ones."""
        return self.num_classes + self.num_spare_logits

    def to_dtype(self, dtype: torch.dtype) -> None:
        """Convert the features to the dtype of a network.

        Parameters
        ----------
        dtype : torch.dtype
            The dtype.
        """
        self.graph = self.graph.with_features(self.graph.x.to(dtype))
        if self.exposure is not None:
            self.exposure = self.exposure.with_features(self.exposure.x.to(dtype))


def training_set(
    data: GraphSource,
    exposure: GraphSource | None,
    device: torch.device,
    num_spare_logits: int = 0,
    val_share: float = 0.2,
    seed: int = 0,
) -> TrainingSet:
    """Check the graphs, split off validation nodes if none are given, and move everything to the device.

    Parameters
    ----------
    data : torch_geometric.data.Data
        The ID graph, with ``y``, ``train_mask`` and, if the validation nodes are given, ``val_mask``.
    exposure : torch_geometric.data.Data, optional
        A graph with known OOD nodes: those in its ``ood_mask``, or all.
    device : torch.device
        The device to train on.
    num_spare_logits : int
        Number of logits in addition to one per ID class.
    val_share : float
        Share of the training nodes to split off if there is no ``val_mask``.
    seed : int
        Seed of this split.
    """
    graph = Graph.from_data(data, device)
    train_nodes = check_mask(data, "train_mask")
    val_nodes = check_mask(data, "val_mask", required=False)
    assert train_nodes is not None
    _check_magnitude(graph, "data.x")
    if val_nodes is None:
        train_nodes, val_nodes = split_validation(data, train_nodes, val_share, seed)
    elif len(shared := train_nodes[torch.isin(train_nodes, val_nodes.to(train_nodes.device))]):
        raise GraphError(
            f"{len(shared)} of the {len(train_nodes)} nodes in data.train_mask are also in data.val_mask, the first is "
            f"node {int(shared[0])}; validation nodes choose the epoch, so the network must not be trained on them"
        )
    y_train = check_labels(data, train_nodes, "training")
    y_val = check_labels(data, val_nodes, "validation")
    num_classes = int(y_train.max()) + 1
    _check_classes(y_train, y_val, num_classes, num_spare_logits)
    dataset = TrainingSet(
        graph=graph,
        train=train_nodes.to(device),
        y_train=y_train.to(device),
        val=val_nodes.to(device),
        y_val=y_val.to(device),
        num_classes=num_classes,
        num_spare_logits=num_spare_logits,
    )
    if exposure is not None:
        _add_exposure(dataset, exposure, device)
    return dataset


def split_unlabelled(num_nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw training, validation and reference nodes of a graph without labels at random: sorted indices of each.

    Parameters
    ----------
    num_nodes : int
        The number of nodes, at least 4.
    seed : int
        Seed of the draw.
    """
    if num_nodes < 4:
        raise GraphError(f"the graph has {num_nodes} nodes, too few to set reference nodes aside (at least 4)")
    order = np.random.default_rng([seed, 3]).permutation(num_nodes)
    share = max(round(_REFERENCES * num_nodes), _FEWEST_REFERENCES)
    count = min(share, _MOST_REFERENCES, num_nodes // 2)
    reference, rest = np.split(order, [count])
    return (
        np.sort(rest[len(rest) // _VALIDATES + 1 :]),
        np.sort(rest[: len(rest) // _VALIDATES + 1]),
        np.sort(reference),
    )


def as_one_class(data: GraphSource, seed: int) -> GraphSource:
    """Return a graph without labels as one of a single class, with random reference nodes unless it marks some.

    Parameters
    ----------
    data : GraphSource
        A graph without ``y`` and masks, except that ``reference_mask`` or ``calibration_mask`` may mark nodes to
        compare with.
    seed : int
        Seed of the draw.
    """
    if hasattr(data, "as_graph"):
        raise GraphError("a graph on disk needs labels; give the graph in memory, or prepare it with labels")
    num_nodes, made = data.x.shape[0], copy.copy(data)
    given = check_mask(data, "reference_mask", required=False)
    given = check_mask(data, "calibration_mask", required=False) if given is None else given
    parts = [torch.from_numpy(part) for part in split_unlabelled(num_nodes, seed)]
    if given is not None:
        parts = [*(part[~torch.isin(part, given.cpu())] for part in parts[:2]), given.cpu()]
    for name, part in zip(("train_mask", "val_mask", "reference_mask"), parts, strict=True):
        mask = torch.zeros(num_nodes, dtype=torch.bool)
        mask[part] = True
        setattr(made, name, mask.to(data.x.device))
    made.y = torch.zeros(num_nodes, dtype=torch.long, device=data.x.device)  # type: ignore[attr-defined]
    return made


def most_recent(mask: Tensor, time: Tensor, number: int) -> Tensor:
    """Mark the most recent of some nodes ``[N]``, such as labelled ones to serve as ``data.reference_mask``.

    Where known nodes change over time, recent ones are more like those that arrive next.

    Parameters
    ----------
    mask : Tensor
        The nodes to choose from ``[N]``.
    time : Tensor
        When each node came, as numbers ``[N]``.
    number : int
        How many to mark; of several from the same time, those that come last are taken.

    Examples
    --------
    >>> most_recent(torch.tensor([True, True, False, True]), torch.tensor([2020, 2018, 2024, 2019]), 2)
    tensor([ True, False, False,  True])
    """
    nodes = mask.nonzero().squeeze(1)
    if not 1 <= number <= len(nodes):
        raise GraphError(f"number is {number}, expected 1 to {len(nodes)}, the number of nodes in the mask")
    chosen = torch.zeros_like(mask)
    chosen[nodes[time.to(mask.device)[nodes].argsort(stable=True)[len(nodes) - number :]]] = True
    return chosen


def _add_exposure(dataset: TrainingSet, exposure: GraphSource, device: torch.device) -> None:
    graph = Graph.from_data(exposure, device)
    if graph.x.dtype != dataset.graph.x.dtype:
        graph = graph.with_features(graph.x.to(dataset.graph.x.dtype))
    if graph.x.shape[1] != dataset.graph.x.shape[1]:
        raise GraphError(f"exposure has {graph.x.shape[1]} features, but the training graph {dataset.graph.x.shape[1]}")
    _check_magnitude(graph, "exposure.x")
    exposed = check_mask(exposure, "ood_mask", required=False)
    graph.share_features(dataset.graph)
    dataset.exposure = graph
    dataset.exposed = (torch.arange(graph.num_nodes) if exposed is None else exposed).to(device)


def _check_magnitude(graph: Graph, name: str) -> None:
    """Raise an error if the outputs of a layer could be too large to be squared and summed, as batch norm does."""
    x = graph.x
    num_nodes, num_features = x.shape
    limit = math.sqrt(torch.finfo(x.dtype).max / num_nodes) / (_LARGEST_WEIGHT * num_features)
    if graph.max_abs_feature <= limit:
        return
    low, high = x.aminmax(dim=0)
    largest = torch.maximum(-low, high)
    feature = int(largest.argmax())
    raise GraphError(
        f"feature {feature} of {name} has values up to {float(largest[feature]):.4g} in magnitude, and training in "
        f"{x.dtype} overflows beyond {limit:.2g}; standardise the features (subtract the mean of each, divide by "
        "its standard deviation)"
    )


def _check_classes(y_train: Tensor, y_val: Tensor, num_classes: int, num_spare_logits: int) -> None:
    classes = y_train.unique()
    if len(classes) < num_classes:
        missing = int((classes != torch.arange(len(classes), device=classes.device)).nonzero()[0])
        raise GraphError(
            f"the training nodes have labels up to {num_classes - 1}, but none of class {missing}; "
            "number the classes 0, 1, 2, ... without gaps"
        )
    if int(y_val.max()) >= num_classes:
        raise GraphError(
            f"the validation nodes have class {int(y_val.max())}, which no training node has "
            f"(classes 0..{num_classes - 1})"
        )
    if num_classes == 1 and num_spare_logits == 0:
        raise GraphError(
            "all training nodes have one class, and a softmax over one logit cannot learn; "
            "give a second class, or num_spare_logits=1 for one-class detection"
        )


def split_validation(data: GraphSource, nodes: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Split validation nodes off the training nodes, stratified by class; returns the sorted indices of both.

    Parameters
    ----------
    data : GraphSource
        A graph with the classes in ``y``.
    nodes : Tensor
        Indices of the training nodes, ``[n]``.
    share : float
        The share of them to split off; at least one of each class.
    seed : int
        Seed of the split.
    """
    labels = check_labels(data, nodes, "training")
    classes, counts = labels.unique(return_counts=True)
    if int(counts.min()) < 2:
        lonely = int(classes[counts == 1][0])
        raise GraphError(
            f"class {lonely} has one training node, so no validation node can be split off; "
            "give data.val_mask, or label more nodes"
        )
    num_val = max(round(share * len(nodes)), len(classes))
    from sklearn.model_selection import train_test_split

    kept, held_out = train_test_split(
        nodes.cpu().numpy(), test_size=num_val, stratify=labels.cpu().numpy(), random_state=seed
    )
    return torch.from_numpy(kept).sort().values, torch.from_numpy(held_out).sort().values
