"""Runs a backbone, or any other module with the same ``forward``, on a graph."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, MixHopConv, Sequential

from oddnode.graph import Graph
from oddnode.nn.base import Backbone
from oddnode.nn.convs import PreparedGCNConv

__all__ = ["embed_with", "receptive_hops", "run_backbone", "takes_edge_weight"]


def run_backbone(module: nn.Module, graph: Graph) -> Tensor:
    """Compute the logits of every node with a backbone or with any other module.

    Parameters
    ----------
    module : torch.nn.Module
        A `Backbone`, or a module with ``forward(x, edge_index)``; with ``forward(x, edge_index, edge_weight)`` for a
        graph whose edges have weights.
    graph : Graph
        The graph, with its features.

    Returns
    -------
    Tensor
        Logits ``[N, C]``.
    """
    if isinstance(module, Backbone):
        return module.run(graph)
    if graph.edge_weight is None:
        logits = module(graph.x, graph.edge_index)
    else:
        if not takes_edge_weight(module):
            raise TypeError(
                f"the edges have weights, which {type(module).__name__}.forward does not use; give it a parameter "
                "edge_weight, or remove the weights (`del data.edge_weight`)"
            )
        logits = module(graph.x, graph.edge_index, edge_weight=graph.edge_weight)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != graph.num_nodes:
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"{type(module).__name__}.forward(x, edge_index) returned {found}, "
            f"expected logits [nodes, classes] with {graph.num_nodes} rows"
        )
    return logits


def takes_edge_weight(module: nn.Module) -> bool:
    """Whether a module uses the weights of edges.

    Parameters
    ----------
    module : torch.nn.Module
        As for `run_backbone`.

    Returns
    -------
    bool
        True for a `Backbone`, and for a module whose ``forward`` has a parameter ``edge_weight`` and uses it.
    """
    if isinstance(module, Backbone):
        return True
    if isinstance(module, Sequential):
        return "edge_weight" in module.signature.param_dict
    # Some of PyG's models accept weights and do not use them.
    uses = getattr(module, "supports_edge_weight", True)
    return bool(uses) and "edge_weight" in inspect.signature(module.forward).parameters


def receptive_hops(module: nn.Module) -> int:
    """Count from how many hops away nodes change a node's logits, by the convolutions of a module.

    Parameters
    ----------
    module : torch.nn.Module
        As for `run_backbone`; every convolution counts once, one of several hops as so many.

    Returns
    -------
    int
        The number of hops; 0 for a module without convolutions.
    """
    if isinstance(module, Backbone) and module.num_hops is not None:
        return module.num_hops
    return sum(_hops_of(layer) for layer in module.modules())


def _hops_of(layer: nn.Module) -> int:
    if isinstance(layer, MixHopConv):
        return max(layer.powers)
    if isinstance(layer, MessagePassing):
        return int(getattr(layer, "K", 1))
    return int(isinstance(layer, PreparedGCNConv))


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
