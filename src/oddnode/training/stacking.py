"""Whether networks can train stacked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oddnode.graph import TrainingSet
from oddnode.nn import GCN
from oddnode.objectives import Objective, Sum, Term
from oddnode.training.stacked_gcn import StackedGCNs
from oddnode.training.stacked_graphs import is_same_graph

__all__ = ["is_ours", "stacking_blocker", "terms_of"]


def stacking_blocker(
    modules: Sequence[nn.Module], objective: Objective, data: Sequence[TrainingSet], batch_norm: str
) -> str | None:
    """Find out what keeps networks from training stacked.

    Parameters
    ----------
    modules : sequence of torch.nn.Module
        The networks.
    objective : Objective
        What they minimise. Terms from outside this library are tried out on made-up logits.
    data : sequence of TrainingSet
        One for each network.
    batch_norm : {"id-graph", "running"}
        Where batch norm takes its evaluation statistics from.

    Returns
    -------
    str or None
        The reason; ``None`` where they can.
    """
    first = data[0]
    if any(type(m) is not GCN or not isinstance(m.norms[0], nn.BatchNorm1d) for m in modules):
        return f"{type(modules[0]).__name__} is not a GCN with batch norm"
    if batch_norm != "id-graph":
        return "batch norm keeps running statistics"
    if not objective.supports_capture or objective.needs_hidden:
        return "a term of the objective does not declare supports_capture = True"
    if any(not is_same_graph(first.graph, other.graph) for other in data[1:]):
        return "their training graphs differ"
    if len({(len(d.train), len(d.val), d.num_logits) for d in data}) > 1:
        return "their numbers of training nodes, validation nodes or classes differ"
    if len({d.exposure.num_nodes if d.exposure else None for d in data}) > 1:
        return "their exposure graphs have different sizes"
    if len({len(d.exposed) if d.exposed is not None else None for d in data}) > 1:
        return "their numbers of exposed nodes differ"
    return _objective_blocker(modules, objective, data)


def terms_of(objective: Objective) -> list[Objective]:
    """List the terms of an objective.

    Parameters
    ----------
    objective : Objective
        A sum, or an objective that counts as one term.
    """
    return [term for _, term in objective.parts] if isinstance(objective, Sum) else [objective]


def is_ours(part: object) -> bool:
    """Whether the class of a network or term is one of this library.

    Parameters
    ----------
    part : object
        A network or a term.
    """
    return type(part).__module__.startswith("oddnode.")


def _objective_blocker(modules: Sequence[nn.Module], objective: Objective, data: Sequence[TrainingSet]) -> str | None:
    """Why an objective cannot be computed for all networks at once, found out by computing it."""
    parts = terms_of(objective)
    for part in parts:
        if type(part).prepare not in (Objective.prepare, Term.prepare):
            return f"{type(part).__name__} is prepared on the data of each network"
    if all(is_ours(part) for part in parts):
        return None  # tested with this library
    try:
        _try_out(StackedGCNs(modules, objective, data, [0] * len(modules), epochs=1))
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return f"the objective fails under torch.vmap: {type(error).__name__}: {lines[0]}"
    return None


def _try_out(stack: StackedGCNs) -> None:
    """Compute the losses of made-up logits of the right shapes, and their gradients, with all terms."""
    shape, exposure_shape = stack.logits_shapes()
    exposure_logits = None if exposure_shape is None else _made_up(exposure_shape, stack.data)
    losses = stack.objective_losses(_made_up(shape, stack.data), exposure_logits, max(stack.starts, default=0))
    if losses.shape != (stack.size,):
        raise ValueError(f"it returns shape {list(losses.shape[1:])} for a network, expected a scalar")
    losses.sum().backward()


def _made_up(shape: tuple[int, ...], data: TrainingSet) -> Tensor:
    x = data.graph.x
    numbers = torch.linspace(-1.0, 1.0, torch.Size(shape).numel(), dtype=x.dtype, device=x.device)
    return numbers.view(shape).requires_grad_()
