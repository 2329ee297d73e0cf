"""Chunks of a graph, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from oddnode.graph import GraphError, check_exact, exact_array

#: Some edges ``[2, n]`` from source to target, as indices of nodes; or a pair of these and their weights ``[n]``.
EdgeChunk = np.ndarray | tuple[np.ndarray, np.ndarray]

_LARGEST_INT64 = 2**63 - 1
# The kinds of types that a part of a chunk may have, in words and as numpy abbreviates them; masks are booleans.
_KINDS = {"y": ("integers", "iu"), "ids": ("integers or strings", "iuUOT")}
_LARGEST_SUM = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class NodeChunk:
    """Some nodes of a graph, in the order of their indices.

    Parameters
    ----------
    x : numpy.ndarray
        Features ``[n, F]``.
    y : numpy.ndarray, optional
        Classes ``[n]``; below 0 = unlabelled.
    ids : numpy.ndarray, optional
        Integers or strings ``[n]``; without them a node's id is its index.
    masks : dict
        Masks ``[n]`` by name: ``train_mask``, ``val_mask``, ``calibration_mask``, ...
    """

    x: np.ndarray
    y: np.ndarray | None = None
    ids: np.ndarray | None = None
    masks: dict[str, np.ndarray] = field(default_factory=dict)


def checked_array(values: Any, what: str) -> np.ndarray:
    """A part of a chunk as an array; in a list, numpy would take booleans among integers for 0 and 1."""
    array = exact_array(values, what)
    own = np.array(values, dtype=object) if isinstance(values, (list, tuple)) and array.dtype.kind in "iu" else array
    if own is not array and any(isinstance(each, bool) for each in own.flat):
        raise GraphError(f"{what}: there are booleans among integers; give values of one type")
    return array


def checked_features(values: Any, first: int) -> np.ndarray:
    """Check the features of some nodes."""
    x = exact_array(values, "the features of a chunk")
    if x.ndim != 2 or x.shape[1] == 0 or x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        raise GraphError(
            f"a chunk has features of type {x.dtype} and shape {list(x.shape)}, expected real numbers [nodes, features]"
        )
    given, x = x, x.astype(np.float64 if x.dtype.kind == "f" and x.dtype.itemsize == 8 else np.float32, copy=False)
    if given.dtype.kind in "iu":
        check_exact(x, given, "the features of a chunk")
    if not np.isfinite(x.sum()):  # a sum is quick, and finite only if everything is
        wrong = ~np.isfinite(x)
        if wrong.any():
            node, feature = np.argwhere(wrong)[0]
            raise GraphError(
                f"the features have {int(wrong.sum())} NaN or infinite values, the first at node {first + node}, "
                f"feature {feature}; fill or remove them"
            )
    return x


def check_columns(columns: dict[str, np.ndarray], expected: int) -> None:
    """Raise an error if a part of a chunk is not one value per node, of the type that is written."""
    for name, values in columns.items():
        if values.shape != (expected,):
            raise GraphError(
                f"a chunk has {expected} nodes, but {name!r} has the shape {list(values.shape)}; give one per node"
            )
        what, kinds = _KINDS.get(name, ("booleans", "b"))
        if values.dtype.kind not in kinds:
            raise GraphError(f"a chunk has {name!r} of type {values.dtype}, expected {what}")
        if values.dtype.kind == "u" and values.size and values.max() > _LARGEST_INT64:
            raise GraphError(f"a chunk has {int(values.max())} in {name!r}, expected at most {_LARGEST_INT64} (int64)")
        odd = [value for value in values if not isinstance(value, str)] if values.dtype == object else []
        if odd:
            raise GraphError(f"a chunk has {odd[0]!r} among the ids, expected {what}")


class CheckedEdges(NamedTuple):
    """Edges in any order."""

    source: np.ndarray  # Indices of nodes `[n]`
    target: np.ndarray  # Indices of nodes `[n]`
    weight: np.ndarray | None  # Their weights `[n]`, in double precision

    def only(self, which: np.ndarray) -> CheckedEdges:
        weight = None if self.weight is None else self.weight[which]
        return CheckedEdges(self.source[which], self.target[which], weight)


def edges_of(
    chunks: Iterable[EdgeChunk], num_nodes: int, both: bool, simple: bool, on_progress: Callable[[int], None]
) -> Iterator[CheckedEdges]:
    """Check chunks of edges, and leave out edges of weight 0."""
    done, total, weighted = 0, 0.0, None
    for chunk in chunks:
        edges = _checked_edges(chunk, num_nodes, done)
        done += len(edges.source)
        if weighted not in (None, edges.weight is not None):
            raise GraphError("some chunks of edges have weights and others have none; give weights with all or none")
        weighted = edges.weight is not None
        if simple:
            edges = edges.only(edges.source != edges.target)
        if edges.weight is not None:
            with np.errstate(over="ignore"):  # infinite weights are refused as well
                total += edges.weight.sum() * (2 if both else 1)
            if total > _LARGEST_SUM:
                raise GraphError(
                    f"the weights of the edges sum to {total:.2g} or more, but single precision ends at "
                    f"{_LARGEST_SUM:.2g}; divide the weights by their mean"
                )
            edges = edges.only(edges.weight > 0)
        yield edges
        if both:
            yield CheckedEdges(edges.target, edges.source, edges.weight)
        on_progress(done)


def _checked_edges(chunk: EdgeChunk, num_nodes: int, first: int) -> CheckedEdges:
    """The edges of a chunk that follows ``first`` other edges."""
    edges, *weights = (
        checked_array(part, "a chunk of edges") for part in (chunk if isinstance(chunk, tuple) else (chunk,))
    )
    if edges.ndim != 2 or len(edges) != 2 or (edges.size and edges.dtype.kind not in "iu") or len(weights) > 1:
        raise GraphError(
            f"a chunk has edges of type {edges.dtype} and shape {list(edges.shape)}, expected integers "
            "[2, edges], or a pair of these and their weights [edges]"
        )
    if edges.size and (edges.min() < 0 or edges.max() >= num_nodes):
        wrong = int(edges.max() if edges.max() >= num_nodes else edges.min())
        raise GraphError(f"the edges have node {wrong}, but there are only {num_nodes} nodes (0..{num_nodes - 1})")
    weight = _checked_weights(weights[0], edges.shape[1], first) if weights else None
    return CheckedEdges(edges[0], edges[1], weight)


def _checked_weights(weight: np.ndarray, num_edges: int, first: int) -> np.ndarray:
    if weight.shape != (num_edges,) or weight.dtype.kind not in "biuf" or weight.dtype.itemsize > 8:
        raise GraphError(
            f"a chunk has {num_edges} edges, but weights of type {weight.dtype} and shape {list(weight.shape)}; give "
            "one real number per edge"
        )
    given, weight = weight, weight.astype(np.float64, copy=False)
    if given.dtype.kind in "iu":
        check_exact(weight, given, "the weights of a chunk")
    wrong = ~((weight >= 0) & (weight < np.inf))  # NaN fails both comparisons
    if wrong.any():
        index = int(wrong.argmax())
        raise GraphError(
            f"the edges have weights that are negative, infinite or NaN, the first is {weight[index]} at edge "
            f"{first + index}; expected finite weights of 0 or more"
        )
    return weight
