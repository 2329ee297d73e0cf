"""Exact outputs of a network for some nodes at a time.

A backbone that consists of stages is computed layer by layer, so that no layer of all nodes has to be in memory. Any
other network is run on the complete neighbourhoods of some nodes at a time. The number of hops is that of the network's
convolutions, and is then verified: nodes further away must not change an output. If they do (in a network that
normalises over all nodes, or calls a layer twice), the network is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import Graph, neighbourhood
from oddnode.nn.base import batch_norms, stages_of
from oddnode.nn.forward import embed_with, receptive_hops, run_backbone
from oddnode.nn.stages import ColumnMoments, Jump, Stages, Stream

# A block of nodes is made smaller if its neighbourhood has more nodes than this.
_NODES_AT_ONCE = 2**17
# A single node whose neighbourhood has more nodes than this is refused.
_MOST_NODES = 2**22
_FIRST_BLOCK = 256
# Number of nodes on which the number of hops is verified.
_NUM_TRIED = 8


class Layerwise:
    """A backbone in evaluation mode on a graph; its convolutions are computed here, once."""

    def __init__(self, stages: Stages, graph: Graph, fit_norms: bool = False):
        stream = Stream(graph, fit_norms)
        with torch.no_grad():
            hidden = stream.through(stages.hidden, None)
            logits = stream.through(stages.head, hidden)
        self.hidden_of, self.logits_of = torch.no_grad()(hidden), torch.no_grad()(logits)


class Neighbourhoods:
    """A network in evaluation mode on a graph; outputs are computed when they are needed."""

    def __init__(self, module: nn.Module, graph: Graph):
        self._module, self._graph = module, graph
        self._block = _FIRST_BLOCK
        self.num_hops = sufficient_hops(module, graph)

    def hidden_of(self, rows: Tensor | slice) -> Tensor:
        return self._run(rows, embed_with)

    def logits_of(self, rows: Tensor | slice) -> Tensor:
        return self._run(rows, run_backbone)

    @torch.no_grad()
    def _run(self, rows: Tensor | slice, run: Callable[[nn.Module, Graph], Tensor]) -> Tensor:
        nodes = torch.arange(self._graph.num_nodes)[rows] if isinstance(rows, slice) else rows
        different, place = nodes.unique(return_inverse=True)
        return torch.cat([run(self._module, part)[:count] for part, count in self._parts(different)])[place]

    @torch.no_grad()
    def fit_norms(self) -> None:
        """Give batch norm the statistics of all nodes; one pass for each layer, in the order of their calls."""
        nodes = torch.arange(self._graph.num_nodes)
        part, _ = next(self._parts(nodes[:1]))
        for norm in _calls(self._module, part):
            moments = ColumnMoments()
            for part, count in self._parts(nodes):
                moments.update(_calls(self._module, part)[norm][:count])
            moments.set_to(norm)

    def _parts(self, nodes: Tensor) -> Iterator[tuple[Graph, int]]:
        """Neighbourhoods of some nodes at a time, and the number of these nodes, which come first."""
        first = 0
        while first < len(nodes):
            some = nodes[first : first + self._block]
            part, _ = neighbourhood(self._graph, some, self.num_hops)
            if part.num_nodes > _NODES_AT_ONCE and len(some) > 1:
                self._block = len(some) // 2
                continue
            if part.num_nodes > _MOST_NODES:
                raise ValueError(
                    f"the {self.num_hops} hops around node {int(some[0])} reach {part.num_nodes} nodes, too many to "
                    f"compute {type(self._module).__name__} exactly for one node at a time; use fewer layers, or one "
                    "of oddnode's networks, which are computed layer by layer"
                )
            yield part, len(some)
            first += len(some)
            self._block *= 2 if 4 * part.num_nodes < _NODES_AT_ONCE else 1


def _calls(module: nn.Module, part: Graph) -> dict[_BatchNorm, Tensor]:
    """The inputs of the batch norms of a network, in the order of their calls."""
    inputs: dict[_BatchNorm, Tensor] = {}

    def note(norm: _BatchNorm, _called: nn.Module, args: tuple[Any, ...]) -> None:
        inputs[norm] = args[0]  # the one that is called may be a copy, see `run_backbone`

    handles = [norm.register_forward_pre_hook(partial(note, norm)) for norm in batch_norms(module)]
    try:
        run_backbone(module, part)
    finally:
        for handle in handles:
            handle.remove()
    return inputs


def check_hops(module: nn.Module, graph: Graph) -> None:
    """Verify the number of hops of a backbone with stages that are not defined by this library."""
    stages = [stage for part in stages_of(module) or () for stage in part]
    stages += [inner for stage in stages if isinstance(stage, Jump) for inner in stage.stages]
    if not all(type(stage).__module__.startswith("oddnode.") for stage in stages):
        sufficient_hops(copy.deepcopy(module).eval(), graph)


def sufficient_hops(module: nn.Module, graph: Graph) -> int:
    """Find how many hops around a node determine its logits."""
    counted = receptive_hops(module)
    for num_hops in (counted, counted + 1) if counted else (0,):
        if _suffices(module, graph, num_hops):
            return num_hops
    raise ValueError(
        f"the logits of {type(module).__name__} depend on nodes that are more than {counted} hops away, the number of "
        "its convolutions, so they cannot be computed for some nodes at a time. If it calls a layer several times or "
        "passes messages by itself, give it an attribute num_hops with the number of hops, or each of its stages; if "
        "it normalises or pools over all nodes, use a graph in memory and FullBatch()"
    )


@torch.no_grad()
def _suffices(module: nn.Module, graph: Graph, num_hops: int) -> bool:
    """Whether two additional nodes, unlike all others and linked to the outermost nodes, leave the logits unchanged."""
    nodes = tried_nodes(graph)
    part, num_inner = neighbourhood(graph, nodes, num_hops)
    # One has larger features than all others, and the other has smaller ones; their sum is not 0.
    unlike = (1.0 + 2.0 * part.x.abs().max()) * torch.linspace(1.0, 2.0, part.x.shape[1]).to(part.x)
    outer = torch.arange(num_inner, part.num_nodes + 2)  # and to each other, for paths of any length
    more = torch.cartesian_prod(torch.arange(part.num_nodes, part.num_nodes + 2), outer).t()
    weight = None
    if part.edge_weight is not None:
        weight = torch.cat([part.edge_weight, part.edge_weight.new_ones(more.shape[1])])
    x = torch.cat([part.x, torch.stack([unlike, -2.0 * unlike])])
    changed = Graph(x, torch.cat([part.edge_index, more.to(graph.device)], dim=1), weight)
    found, expected = (run_backbone(module, each)[: len(nodes)] for each in (changed, part))
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def tried_nodes(graph: Graph) -> Tensor:
    """Some nodes with few edges, from all over the graph."""
    spread = torch.linspace(0, graph.num_nodes - 1, min(16 * _NUM_TRIED, graph.num_nodes)).long().unique()
    offsets = graph.incoming[0]
    degree = offsets[spread + 1] - offsets[spread]
    order = torch.where(degree > 0, degree, degree.max() + 1).argsort(stable=True)
    return spread[order[:_NUM_TRIED]]


def in_blocks(module: nn.Module, graph: Graph) -> Layerwise | Neighbourhoods:
    """Prepare a network to be computed for some nodes at a time, with the same outputs as for the whole graph."""
    stages = stages_of(module)
    return Neighbourhoods(module, graph) if stages is None else Layerwise(stages, graph)


def fit_batch_norm(module: nn.Module, graph: Graph) -> None:
    """Give batch norm the statistics of all nodes of a graph, as one training-mode pass over the whole graph would."""
    norms, stages = batch_norms(module), stages_of(module)
    if not norms:
        return
    if stages is None:
        Neighbourhoods(module, graph).fit_norms()
    else:
        Layerwise(stages, graph, fit_norms=True)
    for norm in norms:
        # In training, batch norm divides by the biased standard deviation, but stores the unbiased variance.
        if norm.running_var is not None:
            norm.running_var.mul_(graph.num_nodes / max(graph.num_nodes - 1, 1))
