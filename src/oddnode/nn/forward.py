"""Runs any network on a graph: backbones, users' modules with various signatures of ``forward``, and ensembles."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn

from oddnode._utils.lazy import is_instance
from oddnode._utils.random import mixed_bits
from oddnode.graph import Graph
from oddnode.nn.base import Backbone, checked_graph, stages_of
from oddnode.nn.stages import PreparedGCNConv

# Common names for the argument of a ``forward`` that takes a whole graph.
_GRAPH_NAMES = ("data", "batch", "graph")


def run_backbone(module: nn.Module, graph: Graph) -> Tensor:
    """Compute the logits ``[N, C]`` of every node with a backbone or with any other module.

    Parameters
    ----------
    module : torch.nn.Module
        A `Backbone`, or a module with ``forward(x, edge_index)``, for graphs without edge weights only,
        ``forward(x, edge_index, edge_weight)``, which gets ones for a graph without weights if the parameter has no
        default, or ``forward(data)``, which gets a `torch_geometric.data.Data` with the ``edge_weight`` of the graph.
    graph : Graph
        The graph, with its features.
    """
    if isinstance(module, Backbone):
        return module.run(graph)
    # In training, a module may count its passes or keep values between them; in evaluation, threads share it.
    logits = _called(module if module.training else _isolated(module), graph)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != graph.num_nodes:
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"{type(module).__name__}.forward returned {found}, "
            f"expected logits [nodes, classes] with {graph.num_nodes} rows"
        )
    return logits


def _called(module: nn.Module, graph: Graph) -> Any:
    """Call a user's module with the arguments of its ``forward``."""
    x, edge_index = graph.x, graph.edge_index
    weights = {} if graph.edge_weight is None else {"edge_weight": graph.edge_weight}
    if weights and not takes_edge_weight(module):
        raise TypeError(
            f"the edges have weights, which {type(module).__name__}.forward does not use; give it a parameter "
            "edge_weight, or remove the weights (`del data.edge_weight`)"
        )
    signature = _signature(module)
    if signature is None:
        return module(x, edge_index, **weights)
    if _takes_graph(signature):
        if _fits(signature, 1):
            from torch_geometric.data import Data

            return module(Data(x=x, edge_index=edge_index, **weights))
    elif _fits(signature, 2, *weights):
        return module(x, edge_index, **weights)
    elif _fits(signature, 2, "edge_weight"):
        return module(x, edge_index, edge_weight=x.new_ones(edge_index.shape[1]))
    raise TypeError(
        f"{type(module).__name__} has forward{signature}, but a detector calls forward(x, edge_index), forward(x, "
        "edge_index, edge_weight) or forward(data); wrap it in a module with such a forward that passes the rest"
    )


def takes_edge_weight(module: nn.Module) -> bool:
    """Whether a module uses the weights of edges.

    True for a `Backbone`, for a module whose ``forward`` has a parameter ``edge_weight`` and uses it, and for one with
    ``forward(data)``, which gets the weights with the rest of the graph.

    Parameters
    ----------
    module : torch.nn.Module
        As for `run_backbone`.
    """
    if isinstance(module, Backbone):
        return True
    # Some of PyG's models accept weights and do not use them.
    if not getattr(module, "supports_edge_weight", True):
        return False
    signature = _signature(module)
    return signature is not None and (_takes_graph(signature) or "edge_weight" in signature.parameters)


def receptive_hops(module: nn.Module) -> int:
    """Count from how many hops away nodes change a node's logits, by the convolutions of a module; 0 without any.

    Parameters
    ----------
    module : torch.nn.Module
        As for `run_backbone`; every convolution counts once, or by its number of hops. An attribute ``num_hops`` of the
        module overrides the count.
    """
    stated, stages = getattr(module, "num_hops", None), stages_of(module)
    if isinstance(stated, int):
        return stated
    if stages is not None:
        return sum(stage.num_hops for stage in (*stages.hidden, *stages.head))
    return sum(_hops_of(layer) for layer in module.modules())


def _hops_of(layer: nn.Module) -> int:
    if is_instance(layer, "torch_geometric.nn", "MixHopConv"):
        return max(cast(Any, layer).powers)
    if is_instance(layer, "torch_geometric.nn", "MessagePassing"):
        return int(getattr(layer, "K", 1))
    return int(isinstance(layer, PreparedGCNConv))


def _signature(module: nn.Module) -> inspect.Signature | None:
    """The signature of ``forward``; ``None`` if Python cannot tell, as for some compiled modules."""
    if is_instance(module, "torch_geometric.nn", "Sequential"):  # whose forward takes anything
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in cast(Any, module).signature.param_dict])
    try:
        return inspect.signature(module.forward)
    except (TypeError, ValueError):
        return None


def _fits(signature: inspect.Signature, count: int, *names: str) -> bool:
    """Whether a function can be called with ``count`` positional arguments and some keyword arguments."""
    try:
        signature.bind(*range(count), **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _takes_graph(signature: inspect.Signature) -> bool:
    first = next(iter(signature.parameters.values()), None)
    if first is None:
        return False
    return first.name in _GRAPH_NAMES or getattr(first.annotation, "__name__", first.annotation) == "Data"


def embed_with(module: nn.Module, graph: Graph) -> Tensor:
    """Compute the features ``[N, H]`` before the last layer.

    For a user's module these are the input of the last layer called, among layers that have parameters and no layers
    inside (a `torch.nn.Linear`, a PyG convolution taken as a whole, ...).

    Parameters
    ----------
    module : torch.nn.Module
        As for `run_backbone`.
    graph : Graph
        The graph, with its features.
    """
    if isinstance(module, Backbone):
        return module.embed(graph)
    name, own, entered = type(module).__name__, _isolated(module), list[Any]()

    def note(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entered[:] = [*args, *kwargs.values()][:1]

    for layer in _layers(own):
        layer.register_forward_pre_hook(note, with_kwargs=True)
    run_backbone(own, graph)
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
            f"{graph.num_nodes} rows; subclass oddnode.nn.base.Backbone and return them in embed"
        )
    return hidden


def _isolated(module: nn.Module, copies: dict[int, nn.Module] | None = None) -> nn.Module:
    """A copy of a module that shares its tensors; hooks and attributes that a pass sets do not reach other threads."""
    # A compiled module calls the module inside it by a reference of its own, and a script runs outside of Python.
    module = getattr(module, "_orig_mod", module)
    copies = {} if copies is None else copies
    if isinstance(module, torch.jit.ScriptModule):
        return module
    if id(module) not in copies:
        copies[id(module)] = own = module.__new__(type(module))
        own.__dict__ = dict(vars(module))
        for name, value in vars(module).items():
            own.__dict__[name] = _isolated_value(value, copies)
    return copies[id(module)]


def _isolated_value(value: Any, copies: dict[int, nn.Module]) -> Any:
    """A copy of a container, a method or a module; any other value is shared."""
    if isinstance(value, nn.Module):
        return _isolated(value, copies)
    if isinstance(value, MethodType):
        return MethodType(value.__func__, _isolated_value(value.__self__, copies))
    if type(value) in (list, tuple, set):
        return type(value)(_isolated_value(item, copies) for item in value)
    if type(value) in (dict, OrderedDict):
        own = value.copy()
        own.update((key, _isolated_value(item, copies)) for key, item in value.items())
        return own
    return value


def _layers(module: nn.Module, is_root: bool = True) -> Iterator[nn.Module]:
    """Layers with parameters that have no such layers inside; a PyG convolution counts as one."""
    inside = [child for child in module.children() if any(True for _ in child.parameters())]
    if is_instance(module, "torch_geometric.nn", "MessagePassing"):
        yield module
    elif inside:
        for child in inside:
            yield from _layers(child, is_root=False)
    elif not is_root:
        yield module


class Ensemble(nn.Module):
    """Several trained networks as one, a deep ensemble (Lakshminarayanan et al., NeurIPS 2017).

    Their probabilities are averaged; its logits are the logarithms of the averages.

    Parameters
    ----------
    members : iterable of torch.nn.Module
        The networks.
    """

    def __init__(self, members: Iterable[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Compute the logarithms of the members' mean probabilities, ``[N, C]``.

        Parameters
        ----------
        x : Tensor
            Features ``[N, F]``.
        edge_index : Tensor
            Edges ``[2, E]``, from source to target.
        edge_weight : Tensor, optional
            Their weights ``[E]``, for members that take weights.
        """
        graph = checked_graph(x, edge_index, edge_weight)
        return mean_log_probabilities([run_backbone(member, graph) for member in self.members])


def mean_log_probabilities(logits: list[Tensor]) -> Tensor:
    """Compute the logarithm of the mean of several networks' probabilities, ``[N, C]``.

    Parameters
    ----------
    logits : list of Tensor
        Logits ``[N, C]`` of every network.
    """
    logs = torch.stack([z.log_softmax(dim=-1) for z in logits])
    return logs.double().exp().mean(dim=0).log().clamp_min(-1e4).to(logs.dtype)


def member_seeds(seed: int, count: int) -> list[int]:
    """Derive a seed for every member; the first is the ensemble's, so that an ensemble of one is a single network.

    Parameters
    ----------
    seed : int
        The seed of the ensemble.
    count : int
        Number of members.

    Examples
    --------
    >>> member_seeds(7, 1)
    [7]
    """
    return [seed, *(mixed_bits(seed, member) >> 1 for member in range(1, count))]
