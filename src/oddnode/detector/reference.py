"""Reference nodes: labelled nodes that are held out from training, so that they are as new as an arrival.

A scorer that `needs_reference` compares every node with them. They are recognised again in graphs that contain the
training graph, so that a graph that has grown is compared with its own known nodes, not with those at training time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from oddnode.graph import Graph, GraphError, GraphSource, TrainingSet, check_mask
from oddnode.graph.graph import feature_checksums

# If less than this share of the reference nodes or of their edges is found again, it is a different graph.
_SAME_GRAPH = 0.9
# Where the user has marked them, so many are enough: others may have been removed.
_FEWEST_MARKED = 19
# At most about this many edges are remembered to recognise a graph.
_MOST_EDGES = 10_000
# More reference nodes than about this slow down scoring without making small p-values more precise.
_MOST = 2000
# With at least this many reference nodes, all networks share the same ones.
_ENOUGH = 200
# With fewer, the validation nodes are halved at least this many times, to average over random splits.
_FEWEST_SPLITS = 2
# Checksums that differ by less are equal: the order of summation depends on the machine.
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class ReferenceNodes:
    """The reference nodes of one network."""

    nodes: Tensor  # Their indices in the training graph `[r]`, ascending
    checksums: Tensor  # A weighted sum of the features of each `[r]`, float64, to recognise them
    edges: Tensor  # Some of the edges that lead to them in the training graph `[2, m]`, to recognise the graph

    @classmethod
    def of(cls, graph: Graph, nodes: Tensor) -> ReferenceNodes:
        nodes = nodes.sort().values
        edges = graph.edges_to(nodes)
        return cls(nodes, feature_checksums(graph.x[nodes]), edges[:, :: 1 + edges.shape[1] // _MOST_EDGES])

    def find(self, graph: Graph, among: Tensor | None = None, fewest: int | None = None) -> Tensor | None:
        """Find the nodes where they were, or by their features among others; ``None`` if too few are there."""
        nodes, checksums = self.nodes.to(graph.device), self.checksums.to(graph.device)
        if among is None:
            here = nodes[nodes < graph.num_nodes]
            same = here[_equal(feature_checksums(graph.x[here]), checksums[: len(here)])]
            if not self._has_edges(graph, same):
                return None
        else:
            same = among[self._places(graph.x[among]) >= 0]
        enough = max(1, round(_SAME_GRAPH * len(nodes)))
        return same if len(same) >= (enough if fewest is None else min(fewest, enough)) else None

    def find_renumbered(self, graph: Graph) -> Tensor | None:
        """Find the nodes in a graph in which they have other indices: by their features and numbers of edges."""
        if graph.is_on_disk or 2 * self.edges.shape[1] >= _MOST_EDGES:  # perhaps not all edges are remembered
            return None
        places = self._places(graph.x)
        same = (places >= 0).nonzero().squeeze(1)
        if not round(_SAME_GRAPH * len(self.nodes)) <= len(same) <= len(self.nodes) or not len(same):
            return None
        targets = torch.searchsorted(self.nodes, self.edges[1])
        before = torch.bincount(targets, minlength=len(self.nodes)).to(graph.device)[places[same]]
        now = torch.bincount(graph.edges_to(same)[1], minlength=graph.num_nodes)[same]
        return same if float((now >= before).double().mean()) >= _SAME_GRAPH else None

    def _places(self, x: Tensor) -> Tensor:
        """The place of the reference node that has the features of a row, for every row; -1 if there is none."""
        known, order = self.checksums.to(x.device).sort()
        own = feature_checksums(x)
        right = torch.searchsorted(known, own).clamp_max(len(known) - 1)
        left = (right - 1).clamp_min(0)
        nearest = torch.where(_equal(own, known[right]), right, left)
        return torch.where(_equal(own, known[nearest]), order[nearest], -1)

    def indices_in(self, graph: Graph) -> Tensor:
        """Find the indices of the nodes in an exposure graph, altered nodes included.

        Exposure is often the training graph with some nodes altered. Reference nodes must not be learnt from even if
        they are altered.
        """
        nodes, checksums = self.nodes.to(graph.device), self.checksums.to(graph.device)
        here = nodes[nodes < graph.num_nodes]
        same = _equal(feature_checksums(graph.x[here]), checksums[: len(here)])
        return here if 2 * int(same.sum()) >= len(nodes) else here[:0]

    def _has_edges(self, graph: Graph, nodes: Tensor) -> bool:
        """Whether most of the remembered edges are in a graph; nodes with the same features can have other edges."""
        if not self.edges.shape[1]:
            return True
        size = max(graph.num_nodes, int(self.edges.max()) + 1)
        pairs = self.edges.to(graph.device), graph.edges_to(nodes)
        before, now = (source * size + target for source, target in pairs)
        return float(torch.isin(before, now).double().mean()) >= _SAME_GRAPH


def choose_references(data: GraphSource, dataset: TrainingSet, ensemble: int, seed: int) -> list[Tensor]:
    """Choose the reference nodes of every network among the labelled nodes.

    If the data has a ``reference_mask`` or a ``calibration_mask``, all networks share its nodes. Otherwise they come
    from the validation nodes: half of them for all networks, if that is at least 200, or else the networks are
    cross-fitted in pairs: the
    validation nodes are split at random into halves, and each network of a pair sets one half aside. There are at
    least two pairs, so that every validation node is a reference node of two networks or more.
    """
    given = checked_references(data, torch.cat([dataset.train, dataset.val]), dataset.num_classes)
    if given is not None:
        return [given.to(dataset.graph.device)] * ensemble
    if len(dataset.val) < 4:
        raise GraphError(
            f"there are {len(dataset.val)} validation nodes, too few to set reference nodes aside (at least 4 are "
            "needed); label more nodes, or choose a method without reference nodes"
        )
    if len(dataset.val) >= 2 * _ENOUGH:
        half = _halves(dataset, [seed, 1])[0]
        return [half[:: 1 + len(half) // _MOST]] * ensemble
    num_splits = num_cross_fitted(ensemble) // 2
    return [half for split in range(num_splits) for half in _halves(dataset, [seed, 1 + split])]


def num_cross_fitted(ensemble: int) -> int:
    """Return how many networks are trained if they are cross-fitted, in pairs."""
    return 2 * max(_FEWEST_SPLITS, (ensemble + 1) // 2)


def _halves(dataset: TrainingSet, seed: list[int]) -> list[Tensor]:
    """Two halves of the validation nodes, each with its share of every class."""
    shuffled = torch.from_numpy(np.random.default_rng(seed).permutation(len(dataset.val))).to(dataset.val.device)
    order = shuffled[dataset.y_val[shuffled].argsort(stable=True)]
    return [dataset.val[order[half::2]].sort().values for half in range(2)]


def checked_references(data: GraphSource, used: Tensor, num_classes: int) -> Tensor | None:
    """Check the reference nodes that a user has marked; without a mask for them, the calibration nodes."""
    name = "calibration_mask" if getattr(data, "reference_mask", None) is None else "reference_mask"
    nodes = check_mask(data, name, required=False)
    if nodes is None:
        return None
    if len(nodes) < 2:
        raise GraphError(f"data.{name} marks one node, expected at least two to compare with")
    shared = int(torch.isin(nodes, used.to(nodes.device)).sum())
    if shared:
        raise GraphError(
            f"{shared} of the {len(nodes)} nodes in data.{name} are also training or validation nodes; "
            "reference nodes must be labelled nodes that nothing was learnt from"
        )
    y = getattr(data, "y", None)
    labels = y.reshape(-1)[nodes.to(y.device)] if isinstance(y, Tensor) else torch.full_like(nodes, -1)
    unknown = int(((labels < 0) | (labels >= num_classes)).sum())
    if unknown:
        raise GraphError(
            f"{unknown} of the {len(nodes)} nodes in data.{name} have no label among the {num_classes} "
            "classes; an unlabelled node may be out-of-distribution"
        )
    return nodes


def without_nodes(dataset: TrainingSet, references: ReferenceNodes) -> TrainingSet:
    """Remove reference nodes with their edges from everything that a network learns from."""
    graph, new_index = dataset.graph.without(references.nodes)
    train, val = new_index[dataset.train], new_index[dataset.val]
    exposure, exposed = dataset.exposure, dataset.exposed
    inside = None if exposure is None else references.indices_in(exposure)
    if exposure is not None and exposed is not None and inside is not None and len(inside):
        exposure, moved = exposure.without(inside)
        exposed = moved[exposed][moved[exposed] >= 0]
    return TrainingSet(
        graph=graph,
        train=train[train >= 0],
        y_train=dataset.y_train[train >= 0],
        val=val[val >= 0],
        y_val=dataset.y_val[val >= 0],
        num_classes=dataset.num_classes,
        exposure=exposure,
        exposed=exposed,
        num_spare_logits=dataset.num_spare_logits,
    )


def references_in(references: Sequence[ReferenceNodes], data: GraphSource, graph: Graph) -> list[Tensor]:
    """Find the reference nodes of every network in a graph."""
    if not references:
        return []
    marked = check_mask(data, "reference_mask", required=False)
    # A part of a graph, such as its new nodes, may have no validation node.
    validated = labelled_nodes(data, graph.device, ("val_mask",))
    tried = [(None, None), *([] if validated is None else [(validated, None)])]
    for among, fewest in tried if marked is None else [(marked.to(graph.device), _FEWEST_MARKED), *tried]:
        matches = [reference.find(graph, among, fewest) for reference in references]
        present = [nodes for nodes in matches if nodes is not None]
        if len(present) == len(matches):
            return present
    matches = [reference.find_renumbered(graph) for reference in references]
    return [] if any(nodes is None for nodes in matches) else matches  # type: ignore[return-value]


def seen_in(references: Sequence[ReferenceNodes], num_nodes: int, data: GraphSource, graph: Graph) -> Tensor | None:
    """Find the nodes of the training graph in a graph."""
    if not references:
        return None
    seen = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    marked = check_mask(data, "seen_mask", required=False)
    if marked is not None:
        seen[marked.to(graph.device)] = True
        return seen
    if any(reference.find(graph) is None for reference in references):
        return None
    seen[:num_nodes] = True
    return seen


def labelled_nodes(
    data: GraphSource, device: torch.device, masks: Sequence[str] = ("train_mask", "val_mask")
) -> Tensor | None:
    """Find the training and validation nodes of a graph."""
    given = [getattr(data, name, None) for name in masks]
    valid = [mask.to(device) for mask in given if _is_mask(mask, data.x.shape[0])]
    if not valid:
        return None
    nodes = torch.stack(valid).any(dim=0).nonzero().squeeze(1)
    return nodes if len(nodes) else None


def _is_mask(mask: object, num_nodes: int) -> TypeGuard[Tensor]:
    if not isinstance(mask, Tensor) or mask.is_meta or mask.layout != torch.strided:
        return False
    return mask.dtype == torch.bool and mask.shape == (num_nodes,)


def _equal(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).abs() <= _TOLERANCE * (1.0 + b.abs())
