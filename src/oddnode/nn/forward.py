"""Runs any network on a graph: ours, and a user's own module in the way that its ``forward`` asks for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from oddnode.graph import Graph
from oddnode.nn.base import Backbone

__all__ = ["embed_with", "run_backbone"]

# What people call the argument of a ``forward`` that takes a whole graph.
_GRAPH_NAMES = ("data", "batch", "graph")


def run_backbone(module: nn.Module, graph: Graph) -> Tensor:
    """Compute the logits of every node with a backbone or with any other module.

    Parameters
    ----------
    module : torch.nn.Module
        A `Backbone`, or a module with ``forward(x, edge_index)``, ``forward(x, edge_index, edge_weight)``, which gets
        a weight of 1 for every edge, or ``forward(data)``, which gets a `torch_geometric.data.Data`.
    graph : Graph
        The graph, with its features.

    Returns
    -------
    Tensor
        Logits ``[N, C]``.
    """
    if isinstance(module, Backbone):
        return module.run(graph)
    logits = _called(module, graph)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != graph.num_nodes:
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"{type(module).__name__}.forward returned {found}, "
            f"expected logits [nodes, classes] with {graph.num_nodes} rows"
        )
    return logits


def _called(module: nn.Module, graph: Graph) -> Any:
    """Call a user's module with what its ``forward`` asks for."""
    x, edge_index = graph.x, graph.edge_index
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):  # Python cannot tell, as for some compiled modules
        return module(x, edge_index)
    first = next(iter(signature.parameters.values()), None)
    if first is not None and _takes_graph(first):
        if _fits(signature, 1):
            return module(Data(x=x, edge_index=edge_index))
    elif _fits(signature, 2):
        return module(x, edge_index)
    elif _fits(signature, 2, "edge_weight"):
        return module(x, edge_index, edge_weight=x.new_ones(edge_index.shape[1]))
    raise TypeError(
        f"{type(module).__name__} has forward{signature}, but a detector calls forward(x, edge_index), forward(x, "
        "edge_index, edge_weight) or forward(data); put it into a module with such a forward, which passes the rest"
    )


def _fits(signature: inspect.Signature, count: int, *names: str) -> bool:
    """Whether a function can be called with so many arguments, and others by name."""
    try:
        signature.bind(*range(count), **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _takes_graph(parameter: inspect.Parameter) -> bool:
    return parameter.name in _GRAPH_NAMES or parameter.annotation in (Data, "Data")


def embed_with(module: nn.Module, graph: Graph) -> Tensor:
    """Compute the features before the last layer.

    For a user's module these are the input of the layer that is called last among those with parameters of their own
    and no layers inside (a `torch.nn.Linear`, a PyG convolution taken as a whole, ...).

    Parameters
    ----------
    module : torch.nn.Module
        As for `run_backbone`.
    graph : Graph
        The graph, with its features.

    Returns
    -------
    Tensor
        Hidden features ``[N, H]``.
    """
    if isinstance(module, Backbone):
        return module.embed(graph)
    name = type(module).__name__
    entered: list[Any] = []

    def note(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entered[:] = [*args, *kwargs.values()][:1]

    handles = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in _layers(module)]
    try:
        run_backbone(module, graph)
    finally:
        for handle in handles:
            handle.remove()
    if not entered:
        raise TypeError(
            f"{name} calls no layer with parameters, so its hidden features cannot be read; build it from layers "
            "(torch.nn.Linear, a PyG convolution, ...), or subclass oddnode.nn.base.Backbone with embed and head"
        )
    [hidden] = entered
    if not isinstance(hidden, Tensor) or hidden.dim() != 2 or hidden.shape[0] != graph.num_nodes:
        found = list(hidden.shape) if isinstance(hidden, Tensor) else type(hidden).__name__
        raise TypeError(
            f"the last layer of {name} takes {found}, expected hidden features [nodes, channels] with "
            f"{graph.num_nodes} rows; subclass oddnode.nn.base.Backbone and say in embed what they are"
        )
    return hidden


def _layers(module: nn.Module, is_root: bool = True) -> Iterator[nn.Module]:
    """Layers with parameters that have no such layers inside; a PyG convolution counts as one."""
    inside = [child for child in module.children() if any(True for _ in child.parameters())]
    if isinstance(module, MessagePassing):
        yield module
    elif inside:
        for child in inside:
            yield from _layers(child, is_root=False)
    elif not is_root:
        yield module
