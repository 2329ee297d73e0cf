"""Fitting of detectors: training networks, or wrapping a trained one."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

import torch
from torch import Tensor, nn

from oddnode._utils.devices import resolve_device
from oddnode._utils.modes import gradients_enabled
from oddnode._utils.random import new_dropout_seed, new_weights, redirected, seeded
from oddnode._utils.suggestions import unknown
from oddnode.detector.fitted import FittedState, TrainingOutputs, dtype_of, refuse_log_probabilities
from oddnode.detector.networks import as_module, new_backbone, reset_parameters
from oddnode.graph import (
    Graph,
    GraphProfile,
    GraphSource,
    TrainingSet,
    check_labels,
    check_mask,
    optional_attribute,
    profile_graph,
    training_set,
)
from oddnode.nn import member_seeds, run_backbone
from oddnode.objectives import CrossEntropy
from oddnode.scoring import Energy, Outputs, Propagated, Scorer, advised_scorer
from oddnode.training import BatchNormStatistics, FullBatch, TrainingConfig, TrainingHandle, TrainingResult

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["fit_together", "labelled_nodes", "start_fitting", "wrapped_state"]

_log = logging.getLogger("oddnode")


class Networks(NamedTuple):
    """The networks of one detector and the data to train them on.

    Parameters
    ----------
    data : TrainingSet
        The checked data.
    modules : list of torch.nn.Module
        New networks.
    seeds : list of int
        The seed of each network's training.
    """

    data: TrainingSet
    modules: list[nn.Module]
    seeds: list[int]


def fit_together(
    detectors: Sequence[Detector],
    data: Sequence[GraphSource],
    exposures: Sequence[GraphSource | None],
    *,
    on_epoch: Callable[[int], None] | None = None,
) -> None:
    """Fit detectors that differ in their seed and scorer only, each on its own data.

    On a GPU their networks are stacked if possible. The results equal those of `Detector.fit` up to the order of
    floating-point sums.

    Parameters
    ----------
    detectors : sequence of Detector
        The detectors, which are fitted in place.
    data : sequence of GraphSource
        A training graph for each, as for `Detector.fit`.
    exposures : sequence of GraphSource or None
        An exposure graph for each, or ``None``.
    on_epoch : callable, optional
        Called with the number of finished epochs, summed over all networks.
    """
    start_fitting(detectors, data, exposures, on_epoch=on_epoch).result()


@gradients_enabled()
def start_fitting(
    detectors: Sequence[Detector],
    data: Sequence[GraphSource],
    exposures: Sequence[GraphSource | None],
    *,
    on_epoch: Callable[[int], None] | None = None,
) -> TrainingHandle[None]:
    """Non-blocking `fit_together`.

    On a GPU, fits that are started before the first ``result()`` run concurrently.

    Parameters
    ----------
    detectors, data, exposures, on_epoch
        As for `fit_together`.

    Returns
    -------
    TrainingHandle
        The detectors are fitted when its ``result()`` returns.
    """
    first = detectors[0]
    if len({detector.training_key(include_seed=False) for detector in detectors}) > 1:
        raise ValueError("detectors that are fitted together must have the same settings except for seed and scorer")
    networks = [new_networks(detector, d, e) for detector, d, e in zip(detectors, data, exposures, strict=True)]
    handle = (FullBatch() if first.trainer is None else first.trainer).start(
        [module for each in networks for module in each.modules],
        first.objective or CrossEntropy(),
        [each.data for each in networks for _ in each.modules],
        [seed for each in networks for seed in each.seeds],
        TrainingConfig(first.epochs, first.lr, first.weight_decay, first.batch_norm),
        on_epoch,
    )

    @gradients_enabled()
    def finish() -> None:
        results = iter(handle.result())
        for detector, each in zip(detectors, networks, strict=True):
            own = [next(results) for _ in each.modules]
            detector._with_state(_trained_state(detector, each.data, each.modules, own))

    return TrainingHandle(finish)


def new_networks(detector: Detector, data: GraphSource, exposure: GraphSource | None) -> Networks:
    """Check a detector's settings and data, and make the networks to train.

    Parameters
    ----------
    detector : Detector
        The detector, which is not changed.
    data : GraphSource
        The training graph.
    exposure : GraphSource or None
        The graph with known OOD nodes, for objectives that use them.
    """
    _check_exposure(detector, exposure)
    _check_settings(detector)
    device, backbone = resolve_device(detector.device), detector.backbone
    num_spare_logits = detector.num_spare_logits if isinstance(backbone, str) else 0
    dataset = training_set(data, exposure, device, num_spare_logits, detector.val_share, detector.seed)
    if isinstance(backbone, nn.Module):
        dataset.to_dtype(dtype_of(backbone))
    modules, seeds = [], []
    for place, seed in enumerate(member_seeds(detector.seed, detector.ensemble)):
        with seeded(seed), redirected():
            modules.append(_new_module(detector, dataset).to(device))
            if place > 0 and isinstance(backbone, nn.Module):
                reset_parameters(modules[-1])
            seeds.append(new_dropout_seed())
    return Networks(dataset, modules, seeds)


def _new_module(detector: Detector, dataset: TrainingSet) -> nn.Module:
    graph = dataset.graph
    if isinstance(detector.backbone, str):
        with new_weights():
            return new_backbone(detector, graph.x.shape[1], dataset.num_classes).to(graph.x.dtype)
    module = copy.deepcopy(detector.backbone).to(graph.device)
    with torch.no_grad():
        logits = run_backbone(module.eval(), graph)
    width = logits.shape[1]
    refuse_log_probabilities(module, logits[:, : dataset.num_classes], _scorer(detector))
    if width < dataset.num_classes:
        raise ValueError(
            f"{type(module).__name__} returns {width} logits, but the data has {dataset.num_classes} classes"
        )
    dataset.num_spare_logits = width - dataset.num_classes
    return module


def _trained_state(
    detector: Detector, data: TrainingSet, modules: list[nn.Module], results: list[TrainingResult]
) -> FittedState:
    module = as_module(modules)
    labelled = torch.cat([data.train, data.val])
    training = TrainingOutputs(Outputs(module, data.graph, data.num_classes, labelled), data.train, data.y_train)
    profile = profile_graph(data.graph, labelled, torch.cat([data.y_train, data.y_val]))
    history = results[0].history
    if len(results) > 1:
        history = [{"member": member} | row for member, result in enumerate(results) for row in result.history]
    scorer, advice = _advised(detector, profile)
    return FittedState(
        module=module,
        num_features=data.graph.x.shape[1],
        num_classes=data.num_classes,
        max_abs_feature=data.graph.max_abs_feature,
        profile=profile,
        base_scorer=scorer,
        scorer=scorer,
        class_means=training.class_means(),
        training=training,
        best_epoch=results[0].best_epoch,
        history=history,
        advice=advice,
    ).with_scorer(scorer)


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
    device = resolve_device(detector.device)
    module = copy.deepcopy(module).to(device).eval()
    graph = Graph.from_data(data, device)
    graph = graph.with_features(graph.x.to(dtype_of(module)))
    with torch.no_grad():
        logits = run_backbone(module, graph)
    nodes, y = _training_nodes(data, device)
    num_classes = _num_classes(module, logits.shape[1], num_classes, y)
    refuse_log_probabilities(module, logits[:, :num_classes], _scorer(detector))
    training = None
    if len(nodes):
        training = TrainingOutputs(Outputs(module, graph, num_classes, labelled_nodes(data, device)), nodes, y)
    profile = profile_graph(graph, nodes, y)
    scorer, advice = _advised(detector, profile)
    return FittedState(
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
    ).with_scorer(scorer)


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


def labelled_nodes(data: GraphSource, device: torch.device) -> Tensor | None:
    """Find the training and validation nodes of a graph.

    Parameters
    ----------
    data : GraphSource
        A graph of N nodes.
    device : torch.device
        The device of the result.

    Returns
    -------
    Tensor or None
        Positions ``[n]``; ``None`` if the graph has no valid mask, or its masks are empty.
    """
    masks = [optional_attribute(data, name) for name in ("train_mask", "val_mask")]
    masks = [m for m in masks if isinstance(m, Tensor) and m.dtype == torch.bool and m.shape == (data.x.shape[0],)]
    if not masks:
        return None
    nodes = torch.stack(masks).any(dim=0).nonzero().squeeze(1)
    return nodes.to(device) if len(nodes) else None


def _scorer(detector: Detector) -> Scorer:
    return Propagated(Energy()) if detector.scorer is None else detector.scorer


def _advised(detector: Detector, profile: GraphProfile) -> tuple[Scorer, list[str]]:
    """Limit the scorer's hops to those that the training graph supports; a message is logged if they are fewer."""
    scorer, message = advised_scorer(_scorer(detector), profile, apply=detector.propagation == "auto")
    if message is None:
        return scorer, []
    _log.warning(message)
    return scorer, [message]


def _check_exposure(detector: Detector, exposure: GraphSource | None) -> None:
    objective = detector.objective or CrossEntropy()
    if objective.needs_exposure and exposure is None:
        raise ValueError(f"the objective {objective!r} needs exposure: call fit(data, exposure=...)")
    if exposure is not None and not objective.needs_exposure:
        raise ValueError(
            f"exposure was given, but the objective {objective!r} does not use it; leave it out, "
            "or choose a method with exposure"
        )


def _check_settings(detector: Detector) -> None:
    for name, least in (("epochs", 1), ("hidden_channels", 1), ("num_spare_logits", 0), ("ensemble", 1)):
        if getattr(detector, name) < least:
            raise ValueError(f"{name} is {getattr(detector, name)}, expected {least} or more")
    for name in ("lr", "weight_decay"):
        if not 0.0 <= getattr(detector, name) < math.inf:
            raise ValueError(f"{name} is {getattr(detector, name)}, expected a number of 0 or more")
    if not 0.0 < detector.val_share < 1.0:
        raise ValueError(f"val_share is {detector.val_share}, expected a share between 0 and 1")
    if detector.batch_norm not in get_args(BatchNormStatistics):
        raise unknown("batch_norm", detector.batch_norm, get_args(BatchNormStatistics))
    if detector.propagation not in ("auto", "as-given"):
        raise unknown("propagation", detector.propagation, ("auto", "as-given"))
