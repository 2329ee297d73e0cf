"""Fitting of detectors: networks are made and trained, or wrapped, and the scorer is fitted to them."""

from __future__ import annotations

import copy
import hashlib
import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, get_args

import torch
from torch import Tensor, nn

from oddnode._utils.devices import resolve_device
from oddnode._utils.lazy import is_instance
from oddnode._utils.random import new_dropout_seed, new_weights, redirected, seeded
from oddnode._utils.suggestions import unknown
from oddnode.detector.fitted import (
    Calibration,
    FittedState,
    TrainingOutputs,
    as_scorer,
    calibration_nodes,
    check_logits,
    dtype_of,
    gradients_enabled,
    members_of,
)
from oddnode.detector.recipes import default_method
from oddnode.detector.reference import (
    ReferenceNodes,
    checked_references,
    choose_references,
    labelled_nodes,
    without_nodes,
)
from oddnode.functional import CalibrationError
from oddnode.graph import (
    Graph,
    GraphError,
    GraphSource,
    TrainingSet,
    as_one_class,
    as_source,
    check_labels,
    check_mask,
    one_way_share,
    profile_graph,
    training_set,
)
from oddnode.large.graph import FolderGraph
from oddnode.large.graph_arrays import missing_memory
from oddnode.large.ranks import active_ranks
from oddnode.nn import BACKBONES, Ensemble, check_hops, in_blocks, member_seeds, run_backbone
from oddnode.objectives import CrossEntropy
from oddnode.scoring import FolderOutputs, Outputs, advised_scorer, doubt_about
from oddnode.training import (
    BatchNormStatistics,
    FullBatch,
    PackedRows,
    Trainer,
    TrainingConfig,
    TrainingHandle,
    TrainingResult,
)
from oddnode.training.base import is_ours

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector
    from oddnode.large import GraphFolder

_log = logging.getLogger("oddnode")

# Number of nodes of a graph on disk used to check the output of a user's network.
_SOME = 256
# Large graphs may have so many labelled nodes that 200 epochs over all of them would take too long.
_BATCHES_PER_EPOCH = 2
# Smaller graphs in memory are trained in full batches: an epoch takes milliseconds.
_LARGE = 2**16
# With more features than this, their covariance would take much of the time.
_NARROW = 512
# If more than this share of rows is needed, packing would copy most of the graph.
_FEW_ROWS = 0.75
_NEEDS_REFERENCES = "the scorer compares nodes with reference nodes"


@dataclass(frozen=True)
class TrainingKey:
    """Everything that the training of a detector depends on; equal keys give equal networks on the same data.

    Scorer and propagation take effect after training, so they are not included; but a scorer may need reference nodes,
    which are kept out of the training, or exposed nodes.
    """

    backbone: str  #: The name of the network, or the repr of a module.
    weights: str | None  #: A hash of a module's initial weights; ``None`` for a named backbone, and without the seed.
    objective: str  #: The repr of the objective.
    settings: tuple[tuple[str, str], ...]  #: All other settings, by name, as reprs.
    trainer: str  #: The repr of the trainer; ``""`` for the default.
    device: str  #: The device to train on.
    seed: int | None  #: The seed; ``None`` if it is to be ignored.
    sets_reference_aside: bool = False  #: Whether the scorer needs reference nodes, which are kept out of the training.
    needs_exposure: bool = False  #: Whether the objective or the scorer learns from nodes that are known to be OOD.


def hash_of_weights(module: nn.Module) -> str:
    """Hash the names, dtypes, shapes and values of a module's tensors."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().numpy().tobytes())
    return digest.hexdigest()


class Networks(NamedTuple):
    """The networks of one detector and the data to train them on."""

    data: TrainingSet
    parts: list[TrainingSet]  # The data that each network is trained on: the same, or without its reference nodes
    references: list[ReferenceNodes]  # The reference nodes of each network; empty unless the scorer needs them
    modules: list[nn.Module]
    seeds: list[int]  # The seed of each network's training
    advice: list[str]  # Messages on the graph
    calibration: Tensor | None  # The nodes to calibrate on; ``None`` if none are marked, or they are reference nodes


def fit_together(
    detectors: Sequence[Detector],
    data: Sequence[GraphSource],
    exposures: Sequence[GraphSource | None],
    *,
    on_epoch: Callable[[int], None] | None = None,
) -> None:
    """Fit detectors that differ only in seed and scorer, each on its data.

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
    _finish(detectors, *_start(detectors, data, exposures, on_epoch))


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
    return TrainingHandle(partial(_finish, detectors, *_start(detectors, data, exposures, on_epoch)))


@gradients_enabled()
def _start(
    detectors: Sequence[Detector],
    data: Sequence[GraphSource],
    exposures: Sequence[GraphSource | None],
    on_epoch: Callable[[int], None] | None,
) -> tuple[list[Networks], TrainingHandle[list[TrainingResult]]]:
    first = detectors[0]
    for other in detectors[1:]:
        if other.training_key(include_seed=False) != first.training_key(include_seed=False):
            raise ValueError(
                "detectors that are fitted together must have the same settings except for seed and scorer"
            )
    networks = [new_networks(detector, d, e) for detector, d, e in zip(detectors, data, exposures, strict=True)]
    training = trainer_for(first, networks).start(
        [module for each in networks for module in each.modules],
        first.objective or CrossEntropy(),
        [part for each in networks for part in each.parts],
        [seed for each in networks for seed in each.seeds],
        TrainingConfig(first.epochs, first.lr, first.weight_decay, first.batch_norm),
        on_epoch,
    )
    return networks, training


@gradients_enabled()
def _finish(
    detectors: Sequence[Detector], networks: list[Networks], training: TrainingHandle[list[TrainingResult]]
) -> None:
    results = iter(training.result())
    for detector, each in zip(detectors, networks, strict=True):
        own = list(islice(results, len(each.modules)))
        if each.data.graph.is_on_disk:  # ranks on other CPUs may have rounded differently
            for module in each.modules:
                active_ranks().broadcast_(list(module.state_dict().values()))
        state = _trained_state(detector, each, own)
        detector._with_state(state, calibration_by_references(state))
        if state.training is not None:
            if each.calibration is not None:
                detector._with_state(state, calibration_on(detector, state.training.outputs, each.calibration))
            state.training.outputs.release()


def trainer_for(detector: Detector, networks: list[Networks]) -> Trainer:
    """Choose the trainer; a message is logged if it takes mini-batches."""
    if detector.trainer is not None:
        return detector.trainer
    blocker = full_batch_blocker(detector)
    if not any(each.data.graph.is_on_disk for each in networks):
        packs = blocker is None and not _objective_blocker(detector)
        packs = packs and all(packing_pays(part) for each in networks for part in each.parts)
        return PackedRows() if packs else FullBatch()
    if blocker is None:
        return PackedRows()
    _log.info("training in mini-batches of sampled neighbourhoods: %s", blocker)
    from oddnode.training import MiniBatch  # imports PyG's loaders

    return MiniBatch(batches_per_epoch=_BATCHES_PER_EPOCH)


def new_networks(detector: Detector, data: GraphSource, exposure: GraphSource | None) -> Networks:
    """Check a detector's settings and data, and make the networks to train."""
    data = as_source(data)
    exposure = None if exposure is None else as_source(exposure, "exposure")
    _check_settings(detector, exposure)
    if getattr(data, "y", None) is None and getattr(data, "train_mask", None) is None:
        data = _without_labels(detector, data)
    device, backbone = device_for(detector.device, data), detector.backbone
    num_spare_logits = detector.num_spare_logits if isinstance(backbone, str) else 0
    dataset = training_set(data, exposure, device, num_spare_logits, detector.val_share, detector.seed)
    blocker = folder_blocker(detector) if dataset.graph.is_on_disk else None
    if blocker is not None:
        raise ValueError(
            f"this method cannot be used on a graph on disk: {blocker}; choose another method (see the table in the "
            "documentation, Large graphs), for example nodesafe, or give the graph in memory"
        )
    if isinstance(backbone, nn.Module):
        if dataset.graph.is_on_disk:
            with_dtype(dataset.graph, dtype_of(backbone))  # an error if it differs
        dataset.to_dtype(dtype_of(backbone))
    chosen = []
    if as_scorer(detector.scorer).needs_reference:
        chosen = choose_references(data, dataset, detector.ensemble, detector.seed)
    modules, seeds = [], []
    for member, seed in enumerate(member_seeds(detector.seed, len(chosen) or detector.ensemble)):
        with seeded(seed), redirected():
            modules.append(_new_module(detector, dataset).to(device))
            if member > 0 and isinstance(backbone, nn.Module):
                reset_parameters(modules[-1])
            seeds.append(new_dropout_seed())
    samples = dataset.graph.is_on_disk or is_instance(detector.trainer, "oddnode.training.mini_batch", "MiniBatch")
    if samples and getattr(detector.trainer, "num_hops", None) is None:
        check_hops(modules[0], dataset.graph)
    references = [ReferenceNodes.of(dataset.graph, nodes) for nodes in chosen]
    parts = [without_nodes(dataset, each) for each in references] or [dataset] * len(modules)
    marked = None
    if not chosen and getattr(data, "calibration_mask", None) is not None:
        marked = calibration_nodes(data, None, dataset.num_classes)
    return Networks(dataset, parts, references, modules, seeds, doubt_about_edges(data, dataset.graph), marked)


def _without_labels(detector: Detector, data: GraphSource) -> GraphSource:
    """Make a graph without labels one of a single class, for a scorer that does not use the network."""
    if as_scorer(detector.scorer).uses_network:
        name = "this detector" if detector.method is None else detector.method
        raise GraphError(
            f"data has no labels (y and train_mask), which {name} learns from; without labels, use "
            f'Detector.from_recipe("{default_method(False, has_labels=False)}")'
        )
    return as_one_class(data, detector.seed)


def packing_pays(data: TrainingSet) -> bool:
    """Whether training on packed rows is faster than in full batches, for a graph in memory."""
    graph = data.graph
    if graph.device.type != "cpu" or graph.num_nodes < _LARGE or graph.x.shape[1] > _NARROW or graph.is_sparse:
        return False
    wanted = torch.zeros(graph.num_nodes, dtype=torch.bool)
    wanted[data.train] = wanted[data.val] = True
    around = wanted.clone()
    source, target = graph.edge_index
    around[source[wanted[target]]] = True
    return int(around.sum()) <= _FEW_ROWS * graph.num_nodes


def _new_module(detector: Detector, dataset: TrainingSet) -> nn.Module:
    graph = dataset.graph
    if isinstance(detector.backbone, str):
        with new_weights():
            return new_backbone(detector, graph.x.shape[1], dataset.num_classes).to(graph.x.dtype)
    module = copy.deepcopy(detector.backbone).to(graph.device).eval()
    with torch.no_grad():
        logits = in_blocks(module, graph).logits_of(slice(_SOME)) if graph.is_on_disk else run_backbone(module, graph)
    if next(module.parameters(), None) is None:
        raise ValueError(f"{type(module).__name__} has no parameters to train")
    width = logits.shape[1]
    if width < dataset.num_classes:
        raise ValueError(
            f"{type(module).__name__} returns {width} logits, but the data has {dataset.num_classes} classes"
        )
    check_logits(module, logits, dataset.num_classes, as_scorer(detector.scorer))
    dataset.num_spare_logits = width - dataset.num_classes
    return module


def _trained_state(detector: Detector, networks: Networks, results: list[TrainingResult]) -> FittedState:
    data, module = networks.data, as_module(networks.modules)
    labelled = torch.cat([data.train, data.val])
    references = [each.nodes for each in networks.references]
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
    state = FittedState(
        module=module,
        num_features=data.graph.x.shape[1],
        num_classes=data.num_classes,
        max_abs_feature=data.graph.max_abs_feature,
        profile=profile,
        base_scorer=as_scorer(detector.scorer),
        scorer=as_scorer(detector.scorer),
        training=training,
        best_epoch=results[0].best_epoch,
        history=history,
        advice=networks.advice,
        references=tuple(networks.references),
    )
    return _with_fitted_scorer(detector, state, data.val)


def _with_fitted_scorer(detector: Detector, state: FittedState, held_out: Tensor | None) -> FittedState:
    """Fit the scorer with the advised number of hops, and measure whether it depends on the network at all."""
    scorer, message = advised_scorer(state.base_scorer, state.profile, apply=detector.propagation == "auto")
    state = replace(state, advice=state.advice + _logged(message)).with_scorer(scorer)
    training = state.training
    if training is None:
        return state
    # Logits of the whole graph are computed after the scorers are fitted on a part of it, to save memory.
    state = replace(state, class_means=training.class_means())
    message = None if held_out is None else doubt_about(state.scorer, training.outputs, held_out)
    return replace(state, advice=state.advice + _logged(message))


def _part(module: nn.Module, part: TrainingSet, reference: ReferenceNodes, whole: TrainingSet) -> TrainingOutputs:
    """The outputs of one network on the graph it was trained on, and on the exposure graph."""
    labelled = torch.cat([part.train, part.val])
    exposure = None
    if whole.exposure is not None and whole.exposed is not None:
        # Exposed nodes are compared with the same stored scores as known nodes; nothing is learnt from reference nodes.
        exposed = whole.exposed[~torch.isin(whole.exposed, reference.indices_in(whole.exposure))]
        exposure = outputs_of(module, whole.exposure, part.num_classes), exposed
    outputs = outputs_of(module, part.graph, part.num_classes, labelled)
    return TrainingOutputs(outputs, part.train, part.y_train, val=part.val, exposure=exposure)


def calibration_by_references(state: FittedState) -> Calibration | None:
    """Calibrate a fitted state on its reference nodes.

    A new node is scored by the mean of all networks, and so are reference nodes that all networks share. If the
    networks were cross-fitted, a reference node is scored by those that set it aside: the others have learnt from it
    and its edges, and score it too high. A mean of fewer networks has a higher variance, so that slightly fewer new
    nodes are flagged than the rate allows.
    """
    if not state.references or state.training is None or not state.scorer.needs_reference:
        return None
    outputs = state.training.outputs
    total = outputs.graph.x.new_zeros(outputs.graph.num_nodes)
    count = torch.zeros_like(total)
    wholes = zip(members_of(state.scorer), outputs.members or [outputs], outputs.references, strict=True)
    for scorer, own, nodes in wholes:
        total[nodes] += scorer.score_at(own, nodes).detach()
        count[nodes] += 1
    known = count.nonzero().squeeze(1)
    if len((total[known] / count[known]).unique()) == 1:  # such as of the batch alone, which training does not have
        _log.warning("the detector has no threshold yet: all calibration nodes have the same score")
        return None
    classes = outputs.logits[known].argmax(dim=-1)
    try:
        return Calibration.from_scores(total[known] / count[known], classes)
    except CalibrationError as error:
        _log.warning(f"the detector has no threshold yet: {error}")
        return None


def calibration_on(detector: Detector, outputs: Outputs, nodes: Tensor) -> Calibration | None:
    """Calibrate a fitted detector on marked nodes; if they are too few, a message is logged."""
    nodes = nodes.to(outputs.graph.device)
    try:
        return Calibration.from_scores(detector.score_samples(outputs)[nodes], detector.predict(outputs)[nodes])
    except CalibrationError as error:
        _log.warning(f"the detector has no threshold yet: {error}")
        return None


def doubt_about_edges(data: GraphSource, graph: Graph) -> list[str]:
    """Log a message if most edges have no reverse edge."""
    share = 0.0 if getattr(data, "directed", None) is True else one_way_share(graph)
    message = (
        f"{100 * share:.0f} % of the edges have no reverse edge, so a node sees few of its neighbours; if the graph is "
        "undirected, pass edge_index through torch_geometric.utils.to_undirected; if it is directed, set "
        "data.directed = True"
    )
    return _logged(message if share > 0.5 else None)


def _logged(message: str | None) -> list[str]:
    if message is None:
        return []
    _log.warning(message)
    return [message]


def new_backbone(detector: Detector, num_features: int, num_classes: int) -> nn.Module:
    """Make a backbone with a detector's settings, for training or loading."""
    name = detector.backbone
    if not isinstance(name, str) or name not in BACKBONES:
        raise unknown("backbone", str(name), BACKBONES)
    width = num_classes + detector.num_spare_logits
    return BACKBONES[name](
        num_features, detector.hidden_channels, width, num_layers=detector.num_layers, dropout=detector.dropout
    )


def as_module(networks: list[nn.Module]) -> nn.Module:
    """Return the only network, or an ensemble of several."""
    return networks[0] if len(networks) == 1 else Ensemble(networks).eval()


def outputs_of(module: nn.Module, graph: Graph, *args: object, **kwargs: object) -> Outputs:
    """Make the outputs of a network on a graph in memory or on disk."""
    kind = FolderOutputs if graph.is_on_disk else Outputs
    return kind(module, graph, *args, **kwargs)  # type: ignore[arg-type]


def reset_parameters(module: nn.Module) -> None:
    """Give a user's network new weights, so that the members of an ensemble differ."""
    resets: list[Any] = [layer.reset_parameters for layer in module.modules() if hasattr(layer, "reset_parameters")]
    if not resets:
        raise ValueError(
            f"no layer of {type(module).__name__} has reset_parameters, so all networks of an ensemble would start "
            "from the same weights; build it from layers that have one (torch.nn.Linear, a PyG convolution, ...)"
        )
    for reset in resets:
        reset()


def check_backbone(backbone: object) -> None:
    """Raise an error for anything but a module or a name, such as a class."""
    if not isinstance(backbone, (str, nn.Module)):
        given = f"the class {backbone.__name__}" if isinstance(backbone, type) else type(backbone).__name__
        raise TypeError(f"backbone is {given}, expected a torch.nn.Module (an instance), or a name such as 'gcn'")


def _check_settings(detector: Detector, exposure: GraphSource | None) -> None:
    check_backbone(detector.backbone)
    if detector.needs_exposure and exposure is None:
        parts = {"objective": detector.objective, "scorer": as_scorer(detector.scorer)}
        names = " and the ".join(name for name, part in parts.items() if part is not None and part.needs_exposure)
        raise ValueError(f"the {names} of this detector needs an exposure graph: call fit(data, exposure=...)")
    if exposure is not None and not detector.needs_exposure:
        raise ValueError(
            "exposure was given, but neither the objective nor the scorer of this detector learns from it; leave it "
            "out, or choose a method with exposure"
        )
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


def folder_blocker(detector: Detector) -> str | None:
    """Return why a detector cannot be fitted on a graph on disk."""
    blocker, scorer = _objective_blocker(detector), as_scorer(detector.scorer)
    if blocker is None and scorer.needs_exposure:
        return "the scorer learns from an exposure graph"
    if blocker is None and not scorer.supports_folders:
        foreign = [each for each in (scorer, *getattr(scorer, "scorers", ())) if not is_ours(each)]
        hint = " (if it is your own and reads no edge_index, set `supports_folders = True`)" if foreign else ""
        return f"{type(scorer).__name__} needs the edges or the features of all nodes in memory{hint}"
    return blocker


def full_batch_blocker(detector: Detector) -> str | None:
    """Return why a graph on disk cannot be trained on in full batches, so that mini-batches are needed."""
    if detector.backbone not in ("gcn", "mlp"):
        named = isinstance(detector.backbone, str)
        name = detector.backbone if named else type(detector.backbone).__name__
        return f"the network is {name}, and batch norm is in closed form for 'gcn' and 'mlp' only"
    if detector.num_layers != 2:
        return f"the network has {detector.num_layers} layers, and batch norm is in closed form for two only"
    if detector.batch_norm != "id-graph":
        return "batch norm takes a running average, which needs a pass over all nodes in every epoch"
    if (detector.objective or CrossEntropy()).needs_exposure:
        return "the objective learns from an exposure graph"
    return None


def _objective_blocker(detector: Detector) -> str | None:
    objective = detector.objective or CrossEntropy()
    if objective.needs_hidden:
        return "the objective reads hidden features of all nodes"
    if objective.needs_all_logits:
        return "the objective reads logits of all nodes"
    return None


def _is_folder(data: GraphSource) -> TypeGuard[GraphFolder]:
    return is_instance(data, "oddnode.large.folder", "GraphFolder")


def device_for(setting: str, data: GraphSource) -> torch.device:
    """Choose the device for a graph; a graph on disk uses a GPU only if it fits into its memory.

    With several ranks, each has its own GPU.
    """
    if _is_folder(data) and active_ranks().world_size > 1:
        return torch.device("cpu") if setting == "auto" else _device_of_rank(setting)
    device = resolve_device(setting)
    if _is_folder(data) and setting == "auto":
        missing = missing_memory(data, device)
        if missing is not None:
            _log.info("%s; it is handled on the CPU", missing)
            return torch.device("cpu")
    return device


def _device_of_rank(setting: str) -> torch.device:
    device, local = resolve_device(setting), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type != "cuda":
        return device
    ranks, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if ranks > gpus:
        raise ValueError(f"{ranks} ranks share {gpus} GPUs; start one rank for each GPU, or use the device cpu")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def with_dtype(graph: Graph, dtype: torch.dtype) -> Graph:
    """Convert the features of a graph to the dtype of a network."""
    if graph.x.dtype == dtype:
        return graph
    if isinstance(graph, FolderGraph):
        raise GraphError(
            f"the features of {graph.folder.path} are {graph.x.dtype}, but the network is {dtype}; "
            "prepare the graph with features of that dtype"
        )
    return graph.with_features(graph.x.to(dtype))


@gradients_enabled()
def wrapped_state(detector: Detector, module: nn.Module, data: GraphSource, num_classes: int | None) -> FittedState:
    """Make the state of a detector from a trained network."""
    check_backbone(module)
    if _is_folder(data):
        raise GraphError(
            "Detector.wrap needs a graph in memory, to check the output of the network; pass a part of the graph, and "
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
    check_logits(module, logits, num_classes, as_scorer(detector.scorer))
    labelled = labelled_nodes(data, device)
    references = _references(detector, data, graph, labelled, num_classes)
    training = None
    if len(nodes):
        own = [each.nodes for each in references]
        parts = [_without(module, graph, nodes, y, num_classes, each) for each in own]
        training = TrainingOutputs(Outputs(module, graph, num_classes, labelled, own), nodes, y, tuple(parts))
    state = FittedState(
        module=module,
        num_features=graph.x.shape[1],
        num_classes=num_classes,
        max_abs_feature=graph.max_abs_feature,
        profile=profile_graph(graph, nodes, y),
        base_scorer=as_scorer(detector.scorer),
        scorer=as_scorer(detector.scorer),
        training=training,
        references=tuple(references),
    )
    return _with_fitted_scorer(detector, state, labelled_nodes(data, device, ("val_mask",)))


def _references(
    detector: Detector, data: GraphSource, graph: Graph, labelled: Tensor | None, num_classes: int
) -> list[ReferenceNodes]:
    """The reference nodes that the user has marked; empty if the scorer needs none."""
    if not as_scorer(detector.scorer).needs_reference:
        return []
    if labelled is None:
        raise ValueError(f"{_NEEDS_REFERENCES}, but data has no train_mask and y")
    nodes = checked_references(data, labelled, num_classes)
    if nodes is None:
        raise ValueError(
            f"{_NEEDS_REFERENCES}; data.reference_mask must mark them. They are labelled nodes of known classes that "
            "the network was neither trained nor validated on, for example its test nodes"
        )
    return [ReferenceNodes.of(graph, nodes.to(graph.device))]


def _without(
    module: nn.Module, graph: Graph, nodes: Tensor, y: Tensor, num_classes: int, references: Tensor
) -> TrainingOutputs:
    """The outputs on the graph without the reference nodes, which scorers learn from."""
    rest, new_index = graph.without(references)
    train = new_index[nodes]
    return TrainingOutputs(Outputs(module, rest, num_classes, train), train, y)


def _training_nodes(data: GraphSource, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices and classes of the training nodes; empty if the graph has no ``train_mask`` or no ``y``."""
    has_labels = isinstance(getattr(data, "y", None), Tensor)
    nodes = check_mask(data, "train_mask", required=False) if has_labels else None
    if nodes is None:
        empty = torch.empty(0, dtype=torch.long, device=device)
        return empty, empty
    return nodes.to(device), check_labels(data, nodes, "training").to(device)


def _num_classes(module: nn.Module, width: int, given: int | None, y: Tensor) -> int:
    labels = int(y.max()) + 1 if len(y) else 0
    num_classes = given if given is not None else labels or width
    if not 1 <= num_classes <= width or labels > num_classes:
        raise ValueError(
            f"{type(module).__name__} returns {width} logits, but the data has {max(num_classes, labels)} classes"
        )
    return num_classes
