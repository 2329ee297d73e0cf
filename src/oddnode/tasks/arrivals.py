"""Arrivals: new nodes join a known graph. Most of them are known, a few are unknown, alone or in groups.

No arrival, known or unknown, is in the training graph. The scored graph is the training graph followed by
the arrivals, with all edges among them; only arrivals are scored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode.graph.alterations import ALTERATIONS, related_to
from oddnode.tasks.datasets import CLEAN, PLACEMENTS, Placement, ScoredNodes, Task, TaskRules
from oddnode.tasks.shifts import SHIFTS, induced, renumbered, split_classes

_GROUP = 8
_FEWEST_UNKNOWN = 20
_VAL_PER_CLASS = 40


@dataclass(frozen=True)
class Arrivals:
    """How nodes arrive.

    Parameters
    ----------
    kind : str
        ``"label"``, ``"feature"`` (mixed), ``"structure"`` (rewired), or one of
        `oddnode.graph.alterations.ALTERATIONS`.
    placement : {"scattered", "grouped"}
        Where the unknown arrivals are.
    share : float
        Number of unknown arrivals over the number of known nodes; there are at least 20.
    growth : float
        Number of known arrivals over the number of known nodes.
    unknown_classes : tuple of int, optional
        The classes that arrive as unknown if the kind is ``"label"``; by default the lower half of the classes,
        leaving at least two.
    """

    kind: str
    placement: Placement
    share: float = 0.05
    growth: float = 0.3
    unknown_classes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        kinds = ("label", *SHIFTS, *ALTERATIONS)
        if self.kind not in kinds or self.placement not in PLACEMENTS:
            raise ValueError(
                f"arrivals of kind {self.kind!r}, {self.placement!r}: expected one of {', '.join(kinds)}, and one of "
                f"{', '.join(PLACEMENTS)}"
            )
        if not (self.share > 0 and self.growth > 0 and self.share + self.growth < 0.9):
            raise ValueError(
                f"{100 * self.share:g} % unknown and {100 * self.growth:g} % known arrivals, expected positive shares "
                "of the known nodes, with some left for training"
            )

    @property
    def alteration(self) -> str:
        """The name of the alteration; ``""`` for unknown classes."""
        return "" if self.kind == "label" else SHIFTS.get(self.kind, self.kind)


class _Drawn(NamedTuple):
    """A graph and the masks ``[n]`` of its training nodes, of known and unknown arrivals, and of exposed nodes."""

    data: Data
    train: Tensor
    known: Tensor
    unknown: Tensor
    exposed: Tensor


def arrivals_task(name: str, data: Data, arrivals: Arrivals, seed: int = 0, rules: TaskRules = CLEAN) -> Task:
    """Make a task in which nodes arrive in a graph.

    The training graph has 20 training and 40 validation nodes of every class. It is the same for all alterations and
    placements (and for both placements of ``"label"``) if graph, shares and seed are the same.

    Parameters
    ----------
    name : str
        Its name in tables.
    data : Data
        The graph, undirected, with ``x``, ``edge_index``, ``y`` and, if its edges have weights, ``edge_weight``; its
        masks are not used.
    arrivals : Arrivals
        How nodes arrive.
    seed : int
        Seed of all draws.
    rules : TaskRules
        The rules of the protocol; arrivals need those of the clean one.

    Returns
    -------
    Task
        Its scored graph begins with the nodes of the training graph, in their order. Its exposure graph has other
        unknown nodes, scattered in the training graph; it has none if there are no others.
    """
    if rules.keep_left_out_nodes:
        raise ValueError(f"{name}: the protocol {rules.protocol!r} keeps unknown nodes in training; arrivals are new")
    data = Data(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_weight, y=data.y)
    drawn = _draw_classes(data, arrivals, seed) if arrivals.kind == "label" else _draw_altered(data, arrivals, seed)
    # From the edges as given, so that it is the same for alterations of features and of edges.
    train = induced(_with(data, y=drawn.data.y), drawn.train)
    train.train_mask, train.val_mask = split_classes(train.y, _VAL_PER_CLASS, _rng(seed, "split"))
    train.test_mask = torch.zeros_like(train.val_mask)
    nodes = _in_order(drawn.train, drawn.known | drawn.unknown)
    scored = induced(drawn.data, nodes)
    for mask in ("train_mask", "val_mask"):
        scored[mask] = torch.zeros(len(nodes), dtype=torch.bool)
        scored[mask][: train.num_nodes] = train[mask]
    scored.ood_mask = drawn.unknown[nodes]
    return Task(
        name=name,
        train=train,
        id_test=ScoredNodes(scored, drawn.known[nodes]),
        tests={"arrivals": scored},
        num_classes=int(train.y.max()) + 1,
        exposure=_exposure(data, drawn, arrivals, seed),
        protocol=rules.protocol,
        not_rehearsed=related_to(arrivals.alteration),
    )


def _draw_classes(data: Data, arrivals: Arrivals, seed: int) -> _Drawn:
    """Unknown arrivals of classes that the training graph lacks."""
    num_classes = int(data.y.max()) + 1
    unknown_classes = arrivals.unknown_classes or tuple(range(max(1, min(num_classes // 2, num_classes - 2))))
    is_unknown = torch.isin(data.y, torch.tensor(unknown_classes))
    known_classes = [c for c in range(num_classes) if c not in unknown_classes]
    if not known_classes or not bool(is_unknown.any()):
        raise ValueError(f"the unknown classes are {unknown_classes}, expected some of 0..{num_classes - 1}, not all")
    known_nodes = (~is_unknown).nonzero().squeeze(1).numpy()
    known = _mask(_rng(seed, "known").permutation(known_nodes)[: round(arrivals.growth * len(known_nodes))], data)
    count = _num_unknown(arrivals, len(known_nodes))
    chosen = _place(data.edge_index, is_unknown, ~is_unknown, arrivals.placement, count, _rng(seed, arrivals.placement))
    unknown = _mask(chosen, data)
    exposed = _place(data.edge_index, is_unknown & ~unknown, ~is_unknown, "scattered", count, _rng(seed, "exposed"))
    return _Drawn(
        _with(data, y=renumbered(data.y, known_classes)), ~is_unknown & ~known, known, unknown, _mask(exposed, data)
    )


def _draw_altered(data: Data, arrivals: Arrivals, seed: int) -> _Drawn:
    """Unknown arrivals that are altered nodes. Those of both placements arrive, so that they share a training graph."""
    everyone = torch.ones(data.num_nodes, dtype=torch.bool)
    count = _num_unknown(arrivals, data.num_nodes)
    rng = _rng(seed, "altered")
    grouped = _mask(_place(data.edge_index, everyone, everyone, "grouped", count, rng), data)
    scattered = _mask(_place(data.edge_index, ~grouped, ~grouped, "scattered", count, rng), data)
    rest = (~grouped & ~scattered).nonzero().squeeze(1).numpy()
    num_others = round((arrivals.share + arrivals.growth) * data.num_nodes) - int((grouped | scattered).sum())
    arrived = grouped | scattered | _mask(rng.permutation(rest)[: max(0, num_others)], data)
    unknown = grouped if arrivals.placement == "grouped" else scattered
    nodes = unknown.nonzero().squeeze(1)
    graph = _altered(data, nodes, arrivals.alteration, _rng(seed, f"{arrivals.kind} {arrivals.placement}"))
    unlabelled = (~arrived).nonzero().squeeze(1).numpy()
    exposed = _rng(seed, "exposed").permutation(unlabelled)[:count]
    return _Drawn(graph, ~arrived, arrived & ~unknown, unknown, _mask(exposed, data))


def _exposure(data: Data, drawn: _Drawn, arrivals: Arrivals, seed: int) -> Data | None:
    """The training graph with other unknown nodes in it, scattered: new nodes, or altered ones of its own."""
    if not bool(drawn.exposed.any()):
        return None
    if arrivals.kind == "label":
        exposed = induced(drawn.data, _in_order(drawn.train, drawn.exposed))
        exposed.ood_mask = torch.arange(exposed.num_nodes) >= int(drawn.train.sum())
        return exposed
    graph = induced(_with(data, ood_mask=drawn.exposed), drawn.train)
    nodes = graph.ood_mask.nonzero().squeeze(1)
    return _altered(graph, nodes, arrivals.alteration, _rng(seed, f"exposed {arrivals.kind}"))


def _altered(data: Data, nodes: Tensor, alteration: str, rng: np.random.Generator) -> Data:
    altered = ALTERATIONS[alteration].alter(data, nodes, rng)
    if altered.edge_index is not None:
        data = _with(data, edge_index=altered.edge_index, edge_weight=altered.edge_weight)
    return _with(data, x=altered.features(data.x, nodes))


def _with(data: Data, **changes: Tensor | None) -> Data:
    """The same graph with some attributes replaced."""
    return Data(**{**data.to_dict(), **changes})


def _place(
    edge_index: Tensor, allowed: Tensor, known: Tensor, placement: Placement, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw nodes among the allowed ones, fewer than ``count`` if there are not enough."""
    if placement == "grouped":
        return np.array(list(_groups(edge_index, allowed, count, rng)), dtype=np.int64)[:count]
    has_known = torch.zeros_like(allowed)
    has_known[edge_index[1, known[edge_index[0]]]] = True
    return rng.permutation((allowed & has_known).nonzero().squeeze(1).numpy())[:count]


def _groups(edge_index: Tensor, allowed: Tensor, count: int, rng: np.random.Generator) -> Iterable[int]:
    """Draw connected groups of about eight allowed nodes; smaller ones only if there are not enough."""
    order = edge_index[0].argsort(stable=True)
    ends = edge_index[1, order].tolist()
    starts = [0, *torch.bincount(edge_index[0], minlength=len(allowed)).cumsum(0).tolist()]
    free = set(allowed.nonzero().squeeze(1).tolist())
    drawn = 0
    for smallest in (_GROUP // 2, 1):
        for seed_node in rng.permutation(sorted(free)).tolist():
            if drawn >= count:
                return
            if seed_node not in free:
                continue
            group = [seed_node]
            for node in group:  # grows while it is read: a breadth-first search
                near = [v for v in dict.fromkeys(ends[starts[node] : starts[node + 1]]) if v in free and v not in group]
                group += rng.permutation(near).tolist()[: _GROUP - len(group)] if near else []
            if len(group) >= smallest:
                free.difference_update(group)
                drawn += len(group)
                yield from group


def _num_unknown(arrivals: Arrivals, num_known: int) -> int:
    return max(_FEWEST_UNKNOWN, round(arrivals.share * num_known))


def _in_order(first: Tensor, then: Tensor) -> Tensor:
    """The nodes of two masks, one after the other."""
    return torch.cat([mask.nonzero().squeeze(1) for mask in (first, then)])


def _mask(nodes: np.ndarray, data: Data) -> Tensor:
    mask = torch.zeros(data.num_nodes, dtype=torch.bool)
    mask[torch.from_numpy(np.asarray(nodes, dtype=np.int64))] = True
    return mask


def _rng(seed: int, purpose: str) -> np.random.Generator:
    """An independent stream for each purpose, so that a draw does not depend on how many came before it."""
    return np.random.default_rng([seed, *purpose.encode()])
