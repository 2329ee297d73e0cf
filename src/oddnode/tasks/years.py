"""Graphs in time: the training graph ends at some time, and later nodes arrive, with or without a class that is new."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode.tasks.datasets import CLEAN, ScoredNodes, Task, TaskRules
from oddnode.tasks.shifts import induced, renumbered, split_classes

_VAL_PER_CLASS = 40


def years_task(
    name: str,
    data: Data,
    seed: int = 0,
    rules: TaskRules = CLEAN,
    *,
    until: float | str,
    arrive: tuple[float, float] = (-torch.inf, torch.inf),
    unknown: int | None = None,
) -> Task:
    """Make a task in which nodes arrive after the last time of the training graph.

    The scored graph has the nodes of the training graph, in their order, followed by all later ones up to the last time
    of ``arrive``; only later nodes of the times ``arrive`` are scored. Nodes without a time are in neither graph.
    Unlabelled nodes, and those of a known class that the training graph lacks, are not scored.

    Parameters
    ----------
    name : str
        Its name in tables.
    data : Data
        The graph, with ``x``, ``edge_index``, ``y`` (negative for unlabelled nodes), ``time`` ``[n]`` (NaN for nodes
        without a time) and, if its edges have weights, ``edge_weight``; its masks are not used.
    seed : int
        Seed of the split.
    rules : TaskRules
        The rules of the protocol; needs those of the clean one.
    until : float or str
        The last time of the training graph, which has 20 training and 40 validation nodes per class. ``"50%"`` is the
        earliest time by which at least half of the nodes with a time were there.
    arrive : pair of float
        The first and the last time of the scored nodes; by default all later ones.
    unknown : int, optional
        A class whose nodes of before are left out and whose later nodes are unknown. By default no node is unknown,
        and the false-alarm rate is all there is to measure.
    """
    if rules.keep_left_out_nodes:
        raise ValueError(f"{name}: the protocol {rules.protocol!r} keeps unknown nodes in training; arrivals are new")
    time = data.get("time")
    if not isinstance(time, Tensor) or time.shape != (data.num_nodes,) or bool(time.isnan().all()):
        found = "no `time`" if time is None else f"as `time` a {type(time).__name__} {list(np.shape(time))}"
        raise ValueError(
            f"{name}: the graph has {found}, expected a tensor [{data.num_nodes}] of numbers, not all of them NaN; set "
            "`data.time` in `load`, or leave out `years`"
        )
    time = time if time.is_floating_point() else time.double()  # torch would compare integers with a float in 32 bits
    given = time[~time.isnan()].sort().values
    if isinstance(until, str):
        until = float(given[-(-len(given) * int(until[:-1]) // 100) - 1])
    is_unknown = torch.zeros_like(data.y, dtype=torch.bool) if unknown is None else data.y == unknown
    old, new = (time <= until) & ~is_unknown, (time > until) & (time <= arrive[1])
    arrives = new & (time >= arrive[0])
    y = renumbered(data.y, [c for c in data.y[old].unique().tolist() if c >= 0])
    trained, known, ood = old & (y >= 0), arrives & (y >= 0), arrives & is_unknown
    if not (trained.any() and known.any() and (unknown is None or ood.any())):
        raise ValueError(
            f"{name}: {trained.sum()} labelled nodes until {until:.15g}, {known.sum()} later ones of their classes and "
            f"{ood.sum()} of the unknown class, expected some of each; the times are {given[0]:.15g} to "
            f"{given[-1]:.15g}, choose `years` among them"
        )
    data = Data(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_weight, y=y, time=data.time)
    train = induced(data, old)
    train.train_mask, train.val_mask = split_classes(train.y, _VAL_PER_CLASS, np.random.default_rng(seed))
    train.test_mask = torch.zeros_like(train.val_mask)
    nodes = torch.cat([mask.nonzero().squeeze(1) for mask in (old, new)])
    scored = induced(data, nodes)
    scored.ood_mask = ood[nodes]
    return Task(
        name=name,
        train=train,
        id_test=ScoredNodes(scored, known[nodes]),
        tests={"arrivals": scored},
        num_classes=int(train.y.max()) + 1,
        protocol=rules.protocol,
    )
