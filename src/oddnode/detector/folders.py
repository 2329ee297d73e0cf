"""What a detector can do on graphs on disk, and why not."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import torch

from oddnode._utils.devices import resolve_device
from oddnode.detector.adaptation import scorer_of
from oddnode.graph import Graph, GraphError, GraphSource
from oddnode.large import FolderGraph, GraphFolder, PackedRows, missing_memory
from oddnode.large.ranks import active_ranks
from oddnode.objectives import CrossEntropy
from oddnode.scoring import Scorer
from oddnode.training import MiniBatch

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = [
    "check_folder_support",
    "device_for",
    "folder_blocker",
    "folder_trainer",
    "full_batch_blocker",
    "packing_blocker",
    "with_dtype",
]

_log = logging.getLogger("oddnode")

# Large graphs may have very many labelled nodes. Epochs of all of them would take long, and need not be 200.
_BATCHES_PER_EPOCH = 2


def folder_blocker(detector: Detector) -> str | None:
    """Say why a detector cannot be fitted on a graph on disk.

    Parameters
    ----------
    detector : Detector
        The detector, fitted or not.

    Returns
    -------
    str or None
        The reason; ``None`` if it can.
    """
    return _objective_blocker(detector) or _scorer_blocker(scorer_of(detector))


def packing_blocker(detector: Detector) -> str | None:
    """Say why a detector's networks cannot be trained by `oddnode.large.PackedRows`.

    Parameters
    ----------
    detector : Detector
        The detector, fitted or not.

    Returns
    -------
    str or None
        The reason; ``None`` if they can.
    """
    return full_batch_blocker(detector) or _objective_blocker(detector)


def full_batch_blocker(detector: Detector) -> str | None:
    """Say why a graph on disk cannot be trained on as a whole, so that mini-batches are needed.

    Parameters
    ----------
    detector : Detector
        The detector, fitted or not.

    Returns
    -------
    str or None
        The reason; ``None`` if it can.
    """
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


def folder_trainer(detector: Detector) -> PackedRows | MiniBatch:
    """Choose the trainer for a graph on disk; a message is logged if it takes mini-batches.

    Parameters
    ----------
    detector : Detector
        A detector that `folder_blocker` has nothing against.
    """
    blocker = full_batch_blocker(detector)
    if blocker is None:
        return PackedRows()
    _log.info("training in mini-batches of sampled neighbourhoods: %s", blocker)
    return MiniBatch(batches_per_epoch=_BATCHES_PER_EPOCH)


def _objective_blocker(detector: Detector) -> str | None:
    objective = detector.objective or CrossEntropy()
    if objective.needs_hidden:
        return "the objective reads hidden features of all nodes"
    if objective.needs_all_logits:
        return "the objective reads logits of all nodes"
    return None


def _scorer_blocker(scorer: Scorer) -> str | None:
    if scorer.needs_exposure:
        return "the scorer learns from an exposure graph"
    if not scorer.supports_folders:
        return f"{type(scorer).__name__} needs the edges or the features of all nodes in memory"
    return None


def check_folder_support(detector: Detector) -> None:
    """Raise an error for a detector that cannot be fitted on a graph on disk.

    Parameters
    ----------
    detector : Detector
        The detector.
    """
    blocker = folder_blocker(detector)
    if blocker is not None:
        raise ValueError(
            f"this method cannot be used on a graph on disk: {blocker}; choose another method (see the table in the "
            "documentation, Large graphs), for example nodesafe, or give the graph in memory"
        )


def device_for(setting: str, data: GraphSource) -> torch.device:
    """Choose the device to handle a graph on: for a graph on disk a GPU only if it has room for it.

    Of several ranks that handle a graph on disk, each has a GPU of its own if GPUs are asked for.

    Parameters
    ----------
    setting : str
        The setting of a detector.
    data : GraphSource
        The graph.
    """
    if isinstance(data, GraphFolder) and active_ranks().world_size > 1:
        return torch.device("cpu") if setting == "auto" else _device_of_rank(setting)
    device = resolve_device(setting)
    if isinstance(data, GraphFolder) and setting == "auto":
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
    """Convert the features of a graph to the precision of a network.

    Parameters
    ----------
    graph : Graph
        The graph.
    dtype : torch.dtype
        The precision.
    """
    if graph.x.dtype == dtype:
        return graph
    if isinstance(graph, FolderGraph):
        raise GraphError(
            f"the features of {graph.folder.path} are {graph.x.dtype}, but the network is {dtype}; "
            "prepare the graph with features in that precision"
        )
    return graph.with_features(graph.x.to(dtype))
