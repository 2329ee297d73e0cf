"""Checks of a user's graph. Every tensor is checked once, when a `Graph` is made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from oddnode.ops import check_edge_weight

if TYPE_CHECKING:
    from oddnode.graph.source import GraphSource

# Sparse features are made dense up to this many values: 16 GiB in single precision.
_LARGEST_DENSE = 2**32

_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


class GraphError(ValueError):
    """An invalid graph; the message says what is wrong, what was expected and what to do."""


def exact_array(values: Any, what: str) -> np.ndarray:
    """Read what a user gives as an array that has these values and no others; ``what`` names it in errors."""
    parts = values if isinstance(values, (list, tuple)) else ()
    if any(map(np.ma.is_masked, (values, *parts))):
        raise GraphError(f"{what}: there are masked values, which have no numbers; fill them, or leave them out")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphError(f"{what}: this is no array of numbers of equal shape everywhere: {error}") from None
    if len({getattr(part, "dtype", None) for part in parts} - {array.dtype}) and array.dtype.kind in "biufU":
        own = np.array(values, dtype=object).reshape(-1).tolist()  # numpy makes all values of a list alike
        as_they_are = {*map(type, own)} <= {float}  # quick, and what most lists are
        for given, found in () if as_they_are else zip(own, array.reshape(-1).tolist(), strict=False):
            if given != found and given == given:  # NaN is refused where it matters
                raise GraphError(f"{what}: {given!r} is among values that make it {found!r}; give values of one type")
    return array


def check_exact(found: Any, given: Any, what: str) -> None:
    """Raise an error if integers were changed when they became floating point, as those above 2**24 or 2**53 may be.

    Both are arrays, or both tensors.
    """
    with np.errstate(invalid="ignore"):  # of floats that are larger than any integer
        back = found.astype(given.dtype) if isinstance(found, np.ndarray) else found.to(given.dtype)
    if bool((back != given).any()):
        first, rounded = given[back != given][0].item(), found[back != given][0].item()
        raise GraphError(
            f"{what}: {first} would be rounded to {rounded:.0f} ({found.dtype}); convert it yourself, to double "
            "precision or to smaller numbers"
        )


def _refuse_meta(tensor: Tensor, name: str) -> None:
    if tensor.is_meta:
        raise GraphError(f"{name} is on the meta device, which holds no numbers; move the data to a real device")


def _check_dense(tensor: Tensor, name: str) -> None:
    _refuse_meta(tensor, name)
    if tensor.layout != torch.strided:
        raise GraphError(f"{name} has the layout {tensor.layout}, expected a dense tensor; call its to_dense()")


def _differentiable(tensor: Tensor) -> Tensor:
    """The same tensor, copied if it was made in inference mode, which training cannot use."""
    return tensor.clone() if tensor.is_inference() else tensor


def _checked_features(data: GraphSource) -> Tensor:
    x = data.x
    if not isinstance(x, Tensor):
        raise GraphError(f"data.x is {type(x).__name__}, expected a tensor of node features [nodes, features]")
    _refuse_meta(x, "data.x")
    if x.dim() != 2 or x.shape[1] == 0:
        raise GraphError(f"data.x has shape {list(x.shape)}, expected [nodes, features] with at least one feature")
    if x.layout != torch.strided:
        if x.numel() > _LARGEST_DENSE:
            raise GraphError(
                f"data.x is sparse, {x.shape[0]} x {x.shape[1]}, with {x.numel():.2g} values if made dense; "
                f"reduce the number of features (at most {_LARGEST_DENSE} values are made dense)"
            )
        x = x.to_dense()
    if x.shape[0] == 0:
        raise GraphError("the graph has no nodes")
    if x.is_complex():
        raise GraphError(f"data.x is {x.dtype}, expected real numbers")
    check_features_fit(x, "data.x")
    x = x.to(x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32)
    if not bool(x.sum().isfinite()):  # a sum is quick, and finite only if everything is
        _refuse_infinite(x)
    # The caller's gradients are not ours to compute.
    return _differentiable(x.detach() if x.requires_grad else x)


def check_features_fit(x: Tensor, what: str) -> None:
    """Raise an error for integers that single precision, which features of integers get, cannot hold."""
    if not x.is_floating_point() and x.dtype.itemsize > 2:
        check_exact(x.to(torch.float32), x, what)


def _refuse_infinite(x: Tensor) -> None:
    """Raise an error for the first value that is not finite; large values whose sum overflows are fine."""
    finite = torch.isfinite(x)
    if not bool(finite.all()):
        node, feature = (~finite).nonzero()[0].tolist()
        raise GraphError(
            f"data.x has {int((~finite).sum())} NaN or infinite values, the first at node {node}, "
            f"feature {feature}; fill or remove them before fitting or scoring"
        )


def _checked_edges(data: GraphSource, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """The edges and their weights in a dtype, without edges of weight 0."""
    edges = _checked_edge_index(data)
    weight = getattr(data, "edge_weight", None)
    if weight is None:
        unnamed = getattr(data, "edge_attr", None)
        if isinstance(unnamed, Tensor) and (unnamed.dim() == 1 or unnamed.shape[1:].numel() == 1):
            raise GraphError(
                "data.edge_attr has one number per edge; if these are weights, call them edge_weight "
                "(`data.edge_weight = data.edge_attr.view(-1)`), otherwise remove them (`del data.edge_attr`)"
            )
        return edges, None
    if not isinstance(weight, Tensor):
        raise GraphError(f"data.edge_weight is {type(weight).__name__}, expected a tensor with one number per edge")
    _check_dense(weight, "data.edge_weight")
    try:
        check_edge_weight(weight, edges.shape[1], "data.edge_weight")
    except ValueError as error:
        raise GraphError(str(error)) from None
    if not weight.is_floating_point():
        check_exact(weight.double(), weight, "data.edge_weight")
    total, largest = float(weight.double().sum()), torch.finfo(torch.float32).max
    if total > largest:
        raise GraphError(
            f"data.edge_weight sums to {total:.2g}, but single precision ends at {largest:.2g}; divide the weights by "
            "their mean"
        )
    return positive_edges(edges, _differentiable(weight.detach()).to(edges.device, dtype))


def positive_edges(edge_index: Tensor, edge_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out edges of weight 0, which count as no edges; single precision decides what is 0."""
    counts = edge_weight.float() > 0
    return (edge_index, edge_weight) if bool(counts.all()) else (edge_index[:, counts], edge_weight[counts])


def _checked_edge_index(data: GraphSource) -> Tensor:
    if getattr(data, "adj_t", None) is not None:
        raise GraphError(
            "data.adj_t is set, but edges are expected as [2, edges] in data.edge_index; "
            "remove it (`del data.adj_t`) if they are there"
        )
    edges = data.edge_index
    if not isinstance(edges, Tensor):
        raise GraphError(
            f"data.edge_index is {type(edges).__name__}, expected an integer tensor [2, edges]; "
            "for a graph without edges use torch.empty(2, 0, dtype=torch.long)"
        )
    _refuse_meta(edges, "data.edge_index")
    if edges.layout != torch.strided:
        raise GraphError(
            f"data.edge_index has the layout {edges.layout}, expected a dense tensor [2, edges]; "
            "for a sparse adjacency matrix use torch_geometric.utils.to_edge_index(matrix)[0]"
        )
    edges = edges.as_subclass(Tensor)
    if edges.dim() != 2 or edges.shape[0] != 2:
        hint = "; did you mean edge_index.t()?" if edges.dim() == 2 and edges.shape[1] == 2 else ""
        raise GraphError(f"data.edge_index has shape {list(edges.shape)}, expected [2, edges]{hint}")
    if edges.is_floating_point() or edges.is_complex() or edges.dtype in (torch.bool, *_UNSIGNED):
        raise GraphError(f"data.edge_index is {edges.dtype}, expected integers (torch.long)")
    num_nodes = data.x.shape[0]
    if edges.numel():
        lowest, highest = int(edges.min()), int(edges.max())
        if lowest < 0 or highest >= num_nodes:
            wrong = highest if highest >= num_nodes else lowest
            raise GraphError(f"edge_index has node {wrong}, but x has only {num_nodes} rows (0..{num_nodes - 1})")
    return _differentiable(edges.long())


def check_mask(data: GraphSource, name: str, required: bool = True) -> Tensor | None:
    """Check a mask of a graph, and return the indices of the selected nodes ``[n]``.

    Parameters
    ----------
    data : GraphSource
        A graph of N nodes.
    name : str
        The mask, for example ``"train_mask"``.
    required : bool
        Whether its absence is an error; otherwise ``None`` is returned.
    """
    mask = getattr(data, name, None)
    if mask is None:
        if required:
            raise GraphError(f"data.{name} is missing, expected one boolean per node")
        return None
    return checked_nodes(mask, data.x.shape[0], f"data.{name}")


def checked_nodes(mask: object, num_nodes: int, name: str) -> Tensor:
    """Check a mask that selects at least one node."""
    if not isinstance(mask, Tensor):
        raise GraphError(f"{name} is {type(mask).__name__}, expected a boolean tensor")
    _check_dense(mask, name)
    if mask.dtype != torch.bool or mask.dim() != 1 or mask.shape[0] != num_nodes:
        raise GraphError(
            f"{name} is {mask.dtype} of shape {list(mask.shape)}, "
            f"expected one boolean for each of the {num_nodes} nodes"
        )
    if not bool(mask.any()):
        raise GraphError(f"{name} selects no node")
    return mask.nonzero().squeeze(1)


def as_labels(y: Tensor) -> Tensor:
    """Return labels as a vector."""
    return y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y


def check_labels(data: GraphSource, nodes: Tensor, what: str) -> Tensor:
    """Check that nodes are labelled, and return their classes 0, 1, 2, ... ``[n]``.

    Parameters
    ----------
    data : GraphSource
        A graph with ``y``.
    nodes : Tensor
        Indices of the nodes to check ``[n]``.
    what : str
        What they are, for messages: ``"training"``, ``"validation"``.
    """
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor):
        raise GraphError(f"data.y is {type(y).__name__}, expected one class (0, 1, 2, ...) per node")
    _check_dense(y, "data.y")
    y = as_labels(y)
    if y.dim() != 1 or y.shape[0] != data.x.shape[0] or y.is_floating_point() or y.is_complex():
        raise GraphError(
            f"data.y is {y.dtype} of shape {list(y.shape)}, "
            f"expected one integer for each of the {data.x.shape[0]} nodes"
        )
    labels = y.long()[nodes.to(y.device)]
    if int(labels.min()) < 0:
        node = int(nodes[(labels < 0).nonzero()[0]])
        raise GraphError(
            f"the {what} nodes include node {node} with label {int(y[node])}; "
            "labelled nodes need a class of 0 or more (leave unlabelled nodes out of the masks)"
        )
    return labels
