"""Networks whose exact outputs are computed for some nodes at a time."""

from __future__ import annotations

from torch import nn

from oddnode.graph import Graph
from oddnode.nn.base import Backbone
from oddnode.nn.batch_norm import batch_norms
from oddnode.nn.layerwise import Layerwise
from oddnode.nn.neighbourhoods import Neighbourhoods

__all__ = ["fit_batch_norm", "in_blocks"]


def in_blocks(module: nn.Module, graph: Graph) -> Layerwise | Neighbourhoods:
    """Prepare a network to be computed for some nodes of a graph at a time, equal to a pass over the whole graph.

    Parameters
    ----------
    module : torch.nn.Module
        As for `oddnode.nn.run_backbone`, in evaluation mode.
    graph : Graph
        A graph in memory or on disk.

    Returns
    -------
    Layerwise or Neighbourhoods
        Its ``hidden_of(rows)`` and ``logits_of(rows)`` compute hidden features and logits of some nodes. A backbone of
        this library is computed layer by layer, any other module on the neighbourhoods of these nodes.

    Examples
    --------
    >>> import torch
    >>> from oddnode.nn import GAT
    >>> path = Graph(torch.eye(3), torch.tensor([[0, 1], [1, 2]]))
    >>> network = GAT(3, 4, 2).eval()
    >>> torch.allclose(in_blocks(network, path).logits_of(slice(1, 3)), network.run(path)[1:])
    True
    """
    if isinstance(module, Backbone) and Layerwise.supports(module):
        return Layerwise(module, graph)
    return Neighbourhoods(module, graph)


def fit_batch_norm(module: nn.Module, graph: Graph) -> None:
    """Give batch norm the statistics of all nodes of a graph, as one pass in training mode over the whole would.

    Parameters
    ----------
    module : torch.nn.Module
        As for `oddnode.nn.run_backbone`, in evaluation mode; it is changed in place.
    graph : Graph
        A graph in memory or on disk.
    """
    norms = batch_norms(module)
    if not norms:
        return
    if isinstance(module, Backbone) and Layerwise.supports(module):
        Layerwise(module, graph, fit_norms=True)
    else:
        Neighbourhoods(module, graph).fit_norms()
    for norm in norms:
        # In training, values are divided by the deviation of the nodes; what is kept is that of their population.
        if norm.running_var is not None:
            norm.running_var.mul_(graph.num_nodes / max(graph.num_nodes - 1, 1))
