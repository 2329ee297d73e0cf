"""Chunks of a graph, and their checks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from oddnode.graph import GraphError

__all__ = ["NodeChunk", "check_edges", "check_lengths", "checked_features"]


@dataclass(frozen=True)
class NodeChunk:
    """Some nodes of a graph, in the order of their positions.

    Parameters
    ----------
    x : numpy.ndarray
        Features ``[n, F]``.
    y : numpy.ndarray, optional
        Classes ``[n]``; below 0 = unlabelled.
    ids : numpy.ndarray, optional
        Whole numbers or texts ``[n]``; without them a node's id is its position.
    masks : dict
        Masks ``[n]`` by name: ``train_mask``, ``val_mask``, ``calibration_mask``, ...
    """

    x: np.ndarray
    y: np.ndarray | None = None
    ids: np.ndarray | None = None
    masks: dict[str, np.ndarray] = field(default_factory=dict)


def checked_features(x: np.ndarray, first: int) -> np.ndarray:
    """Check the features of some nodes.

    Parameters
    ----------
    x : numpy.ndarray
        Expected to be finite numbers ``[n, F]``.
    first : int
        The position of the first node, for messages.

    Returns
    -------
    numpy.ndarray
        The features in single or double precision.
    """
    if x.ndim != 2 or x.shape[1] == 0:
        raise GraphError(f"a chunk has features of shape {list(x.shape)}, expected [nodes, features]")
    x = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
    if not np.isfinite(x.sum()):  # a sum is quick, and finite only if everything is
        wrong = ~np.isfinite(x)
        if wrong.any():
            node, feature = np.argwhere(wrong)[0]
            raise GraphError(
                f"the features have {int(wrong.sum())} NaN or infinite values, the first at node {first + node}, "
                f"feature {feature}; fill or remove them"
            )
    return x


def check_lengths(columns: dict[str, np.ndarray], expected: int) -> None:
    """Raise an error if a part of a chunk has not one value per node.

    Parameters
    ----------
    columns : dict
        The parts, by name.
    expected : int
        Number of nodes of the chunk.
    """
    for name, values in columns.items():
        if len(values) != expected:
            raise GraphError(f"a chunk has {expected} nodes, but {len(values)} values of {name!r}; give one per node")


def check_edges(source: np.ndarray, target: np.ndarray, num_nodes: int) -> None:
    """Raise an error if edges name nodes that do not exist.

    Parameters
    ----------
    source, target : numpy.ndarray
        The ends of the edges ``[n]``.
    num_nodes : int
        Number of nodes of the graph.
    """
    for ends in (source, target):
        if len(ends) and (ends.min() < 0 or ends.max() >= num_nodes):
            wrong = int(ends.max() if ends.max() >= num_nodes else ends.min())
            raise GraphError(f"the edges have node {wrong}, but there are only {num_nodes} nodes (0..{num_nodes - 1})")
