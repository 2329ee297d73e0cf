"""Makes the state of a detector from a network that is trained already."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from oddnode._utils.devices import resolve_device
from oddnode._utils.modes import gradients_enabled
from oddnode.detector.adaptation import adapted_scorer, labelled_nodes, scorer_of, with_doubts
from oddnode.detector.fitted import FittedState, TrainingOutputs, dtype_of
from oddnode.detector.own_parts import check_logits
from oddnode.detector.reference import ReferenceNodes, checked_references
from oddnode.graph import Graph, GraphError, GraphSource, check_labels, check_mask, optional_attribute, profile_graph
from oddnode.large import GraphFolder
from oddnode.nn import run_backbone
from oddnode.scoring import Outputs

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["wrapped_state"]

_NAMES_ITS_NEEDS = "the scorer compares nodes with reference nodes"


@gradients_enabled()
def wrapped_state(detector: Detector, module: nn.Module, data: GraphSource, num_classes: int | None) -> FittedState:
    """Make the state of a detector from a trained network.

    Parameters
    ----------
    detector : Detector
        The detector, with its scorer and device.
    module : torch.nn.Module
        The trained network, which is copied.
    data : GraphSource
        A graph of the kind it was trained on. If it has ``train_mask`` and ``y``, scorers can learn from it.
    num_classes : int or None
        Number of classes; ``None`` stands for that of the labels, or else the number of logits.
    """
    if isinstance(data, GraphFolder):
        raise GraphError(
            "Detector.wrap needs a graph in memory, to see what the network returns; pass a part of the graph, and "
            "score the folder with the detector"
        )
    device = resolve_device(detector.device)
    module = copy.deepcopy(module).to(device).eval()
    graph = Graph.from_data(data, device)
    graph = graph.with_features(graph.x.to(dtype_of(module)))
    with torch.no_grad():
        logits = run_backbone(module, graph)
    nodes, y = _training_nodes(data, device)
    num_classes = _num_classes(module, logits.shape[1], num_classes, y)
    check_logits(module, logits, num_classes, scorer_of(detector))
    labelled = labelled_nodes(data, device)
    references = _references(detector, data, graph, labelled, num_classes)
    training = None
    if len(nodes):
        own = [each.nodes for each in references]
        parts = [_without(module, graph, nodes, y, num_classes, each) for each in own]
        training = TrainingOutputs(Outputs(module, graph, num_classes, labelled, own), nodes, y, tuple(parts))
    profile = profile_graph(graph, nodes, y)
    scorer, advice = adapted_scorer(detector, profile)
    state = FittedState(
        module=module,
        num_features=graph.x.shape[1],
        num_classes=num_classes,
        max_abs_feature=graph.max_abs_feature,
        profile=profile,
        base_scorer=scorer,
        scorer=scorer,
        class_means=None if training is None else training.class_means(),
        training=training,
        advice=advice,
        references=tuple(references),
    ).with_scorer(scorer)
    held_out = labelled_nodes(data, device, ("val_mask",))
    return state if training is None or held_out is None else with_doubts(state, held_out)


def _references(
    detector: Detector, data: GraphSource, graph: Graph, labelled: Tensor | None, num_classes: int
) -> list[ReferenceNodes]:
    """The reference nodes that the user has marked; empty if the scorer needs none."""
    if not scorer_of(detector).needs_reference:
        return []
    if labelled is None:
        raise ValueError(f"{_NAMES_ITS_NEEDS}, but data has no train_mask and y")
    nodes = checked_references(data, labelled, num_classes)
    if nodes is None:
        raise ValueError(
            f"{_NAMES_ITS_NEEDS}; data.reference_mask must mark them. They are labelled nodes of known classes that "
            "the network was neither trained nor validated on, for example its test nodes"
        )
    return [ReferenceNodes.of(graph, nodes.to(graph.device))]


def _without(
    module: nn.Module, graph: Graph, nodes: Tensor, y: Tensor, num_classes: int, references: Tensor
) -> TrainingOutputs:
    """The outputs on the graph without the reference nodes, which scorers learn from."""
    rest, place = graph.without(references)
    return TrainingOutputs(Outputs(module, rest, num_classes, place[nodes]), place[nodes], y)


def _training_nodes(data: GraphSource, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions and classes of the training nodes; empty if the graph has no ``train_mask`` or no ``y``."""
    has_labels = isinstance(optional_attribute(data, "y"), Tensor)
    nodes = check_mask(data, "train_mask", required=False) if has_labels else None
    if nodes is None:
        empty = torch.empty(0, dtype=torch.long, device=device)
        return empty, empty
    return nodes.to(device), check_labels(data, nodes, "training").to(device)


def _num_classes(module: nn.Module, width: int, asked: int | None, y: Tensor) -> int:
    labels = int(y.max()) + 1 if len(y) else 0
    num_classes = asked if asked is not None else labels or width
    if not 1 <= num_classes <= width or labels > num_classes:
        raise ValueError(
            f"{type(module).__name__} returns {width} logits, but the data has {max(num_classes, labels)} classes"
        )
    return num_classes
