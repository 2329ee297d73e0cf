"""Fitting of detectors: the networks are made and trained, and the scorer is fitted to them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, get_args

import torch
from torch import nn

from oddnode._utils.modes import gradients_enabled
from oddnode._utils.random import new_dropout_seed, new_weights, redirected, seeded
from oddnode._utils.suggestions import unknown
from oddnode.detector.adaptation import adapted_scorer, doubt_about_edges, scorer_of, with_doubts
from oddnode.detector.fitted import FittedState, TrainingOutputs, dtype_of
from oddnode.detector.folders import check_folder_support, device_for, folder_trainer, packing_blocker, with_dtype
from oddnode.detector.networks import as_module, new_backbone, reset_parameters
from oddnode.detector.own_parts import check_logits
from oddnode.detector.reference import ReferenceNodes, choose_references, without_nodes
from oddnode.detector.reference_calibration import calibration_by_references
from oddnode.graph import GraphSource, TrainingSet, as_source, profile_graph, training_set
from oddnode.large import PackedRows, outputs_of, packing_pays
from oddnode.large.ranks import active_ranks
from oddnode.nn import in_blocks, member_seeds, run_backbone
from oddnode.objectives import CrossEntropy
from oddnode.training import BatchNormStatistics, FullBatch, Trainer, TrainingConfig, TrainingHandle, TrainingResult

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["fit_together", "start_fitting"]

# Nodes of a graph on disk that show what a user's network returns.
_SOME = 256


class Networks(NamedTuple):
    """The networks of one detector and the data to train them on.

    Parameters
    ----------
    data : TrainingSet
        The checked data.
    parts : list of TrainingSet
        The data that each network is trained on: the same, or without its reference nodes.
    references : list of ReferenceNodes
        The reference nodes of each network; empty unless the scorer needs them.
    modules : list of torch.nn.Module
        New networks.
    seeds : list of int
        The seed of each network's training.
    advice : list of str
        Messages on the graph.
    """

    data: TrainingSet
    parts: list[TrainingSet]
    references: list[ReferenceNodes]
    modules: list[nn.Module]
    seeds: list[int]
    advice: list[str]


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
    handle = _trainer(first, networks).start(
        [module for each in networks for module in each.modules],
        first.objective or CrossEntropy(),
        [part for each in networks for part in each.parts],
        [seed for each in networks for seed in each.seeds],
        TrainingConfig(first.epochs, first.lr, first.weight_decay, first.batch_norm),
        on_epoch,
    )

    @gradients_enabled()
    def finish() -> None:
        results = iter(handle.result())
        for detector, each in zip(detectors, networks, strict=True):
            own = [next(results) for _ in each.modules]
            if each.data.graph.is_on_disk:  # ranks on other processors may have rounded differently
                for module in each.modules:
                    active_ranks().use_those_of_first(list(module.state_dict().values()))
            state = _trained_state(detector, each, own)
            detector._with_state(state, calibration_by_references(state))
            if state.training is not None:
                state.training.outputs.release()

    return TrainingHandle(finish)


def _trainer(detector: Detector, networks: list[Networks]) -> Trainer:
    if detector.trainer is not None:
        return detector.trainer
    if any(each.data.graph.is_on_disk for each in networks):
        return folder_trainer(detector)
    packs = packing_blocker(detector) is None and all(packing_pays(part) for each in networks for part in each.parts)
    return PackedRows() if packs else FullBatch()


def new_networks(detector: Detector, data: GraphSource, exposure: GraphSource | None) -> Networks:
    """Check a detector's settings and data, and make the networks to train.

    Parameters
    ----------
    detector : Detector
        The detector, which is not changed.
    data : GraphSource
        The training graph.
    exposure : GraphSource or None
        The graph with known OOD nodes, for objectives and scorers that learn from them.
    """
    data = as_source(data)
    exposure = None if exposure is None else as_source(exposure, "exposure")
    _check_exposure(detector, exposure)
    _check_settings(detector)
    device, backbone = device_for(detector.device, data), detector.backbone
    num_spare_logits = detector.num_spare_logits if isinstance(backbone, str) else 0
    dataset = training_set(data, exposure, device, num_spare_logits, detector.val_share, detector.seed)
    if dataset.graph.is_on_disk:
        check_folder_support(detector)
    if isinstance(backbone, nn.Module):
        if dataset.graph.is_on_disk:
            with_dtype(dataset.graph, dtype_of(backbone))  # refused if it is another one
        dataset.to_dtype(dtype_of(backbone))
    chosen = []
    if scorer_of(detector).needs_reference:
        chosen = choose_references(data, dataset, detector.ensemble, detector.seed)
    modules, seeds = [], []
    for place, seed in enumerate(member_seeds(detector.seed, len(chosen) or detector.ensemble)):
        with seeded(seed), redirected():
            modules.append(_new_module(detector, dataset).to(device))
            if place > 0 and isinstance(backbone, nn.Module):
                reset_parameters(modules[-1])
            seeds.append(new_dropout_seed())
    references = [ReferenceNodes.of(dataset.graph, nodes) for nodes in chosen]
    parts = [without_nodes(dataset, each) for each in references] or [dataset] * len(modules)
    return Networks(dataset, parts, references, modules, seeds, doubt_about_edges(data, dataset.graph))


def _new_module(detector: Detector, dataset: TrainingSet) -> nn.Module:
    graph = dataset.graph
    if isinstance(detector.backbone, str):
        with new_weights():
            return new_backbone(detector, graph.x.shape[1], dataset.num_classes).to(graph.x.dtype)
    module = copy.deepcopy(detector.backbone).to(graph.device).eval()
    with torch.no_grad():
        logits = in_blocks(module, graph).logits_of(slice(_SOME)) if graph.is_on_disk else run_backbone(module, graph)
    width = logits.shape[1]
    if width < dataset.num_classes:
        raise ValueError(
            f"{type(module).__name__} returns {width} logits, but the data has {dataset.num_classes} classes"
        )
    check_logits(module, logits, dataset.num_classes, scorer_of(detector))
    dataset.num_spare_logits = width - dataset.num_classes
    return module


def _trained_state(detector: Detector, networks: Networks, results: list[TrainingResult]) -> FittedState:
    data, module = networks.data, as_module(networks.modules)
    labelled = torch.cat([data.train, data.val])
    references = tuple(each.nodes for each in networks.references)
    parts = [
        _part(own, part, reference, data)
        for own, part, reference in zip(networks.modules, networks.parts, networks.references, strict=bool(references))
    ]
    everyone = torch.ones(data.graph.num_nodes, dtype=torch.bool, device=data.graph.device)
    training = TrainingOutputs(
        outputs_of(module, data.graph, data.num_classes, labelled, references, seen=everyone),
        data.train,
        data.y_train,
        tuple(parts),
    )
    profile = profile_graph(data.graph, labelled, torch.cat([data.y_train, data.y_val]))
    history = results[0].history
    if len(results) > 1:
        history = [{"member": member} | row for member, result in enumerate(results) for row in result.history]
    scorer, advice = adapted_scorer(detector, profile)
    state = FittedState(
        module=module,
        num_features=data.graph.x.shape[1],
        num_classes=data.num_classes,
        max_abs_feature=data.graph.max_abs_feature,
        profile=profile,
        base_scorer=scorer,
        scorer=scorer,
        class_means=None,
        training=training,
        best_epoch=results[0].best_epoch,
        history=history,
        advice=networks.advice + advice,
        references=tuple(networks.references),
    ).with_scorer(scorer)
    # Logits of the whole graph come after the scorers have learnt from a part of it: both together take more memory.
    return with_doubts(replace(state, class_means=training.class_means()), data.val)


def _part(module: nn.Module, part: TrainingSet, reference: ReferenceNodes, whole: TrainingSet) -> TrainingOutputs:
    """The outputs of one network on the graph it was trained on, and on the exposure graph."""
    labelled = torch.cat([part.train, part.val])
    exposure = None
    if whole.exposure is not None and whole.exposed is not None:
        # Exposed nodes are compared with the same stored scores as known nodes; reference nodes teach nothing.
        exposed = whole.exposed[~torch.isin(whole.exposed, reference.places_in(whole.exposure))]
        exposure = outputs_of(module, whole.exposure, part.num_classes), exposed
    outputs = outputs_of(module, part.graph, part.num_classes, labelled)
    return TrainingOutputs(outputs, part.train, part.y_train, val=part.val, exposure=exposure)


def _check_exposure(detector: Detector, exposure: GraphSource | None) -> None:
    if detector.needs_exposure and exposure is None:
        parts = {"objective": detector.objective, "scorer": scorer_of(detector)}
        names = " and the ".join(name for name, part in parts.items() if part is not None and part.needs_exposure)
        raise ValueError(
            f"exposure is missing, from which the {names} of this detector learns: call fit(data, exposure=...)"
        )
    if exposure is not None and not detector.needs_exposure:
        raise ValueError(
            "exposure was given, but neither the objective nor the scorer of this detector learns from it; leave it "
            "out, or choose a method with exposure"
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
