"""PubMed in time: the training graph ends in a year, and later papers arrive, with or without a class that is new."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode.tasks.catalogue import YEARS_FILES
from oddnode.tasks.datasets import CLEAN, DataDir, MissingDataError, ScoredNodes, Task, TaskRules
from oddnode.tasks.planetoid import planetoid_graph
from oddnode.tasks.shifts import induced, renumbered, split_classes

_VAL_PER_CLASS = 40


def years_task(
    name: str,
    until: int,
    arrive: tuple[int, int],
    unknown: int | None = None,
    data_dir: DataDir = None,
    seed: int = 0,
    rules: TaskRules = CLEAN,
) -> Task:
    """Make a task in which papers arrive after the training graph's last year.

    The scored graph has the papers of the training graph, in their order, followed by those of all years up to the last
    of ``arrive``; only papers of the years ``arrive`` are scored. The year of every paper is ``data.time``.

    Parameters
    ----------
    name : str
        Its name in tables.
    until : int
        The last year of the training graph, which has 20 training and 40 validation nodes per class.
    arrive : pair of int
        The first and the last year of the scored papers.
    unknown : int, optional
        A class whose papers of before are left out and whose later papers are unknown. By default no paper is unknown,
        and the false-alarm rate is all there is to measure.
    data_dir : path, optional
        As for `load_task`.
    seed : int
        Seed of the split.
    rules : TaskRules
        The rules of the protocol; needs those of the clean one.
    """
    if rules.keep_left_out_nodes:
        raise ValueError(f"{name}: the protocol {rules.protocol!r} keeps unknown nodes in training; arrivals are new")
    data = planetoid_graph("pubmed", data_dir)
    data = Data(x=data.x, edge_index=data.edge_index, y=data.y, time=_years(data_dir, data.num_nodes))
    is_unknown = data.y == (-1 if unknown is None else unknown)
    data.y = renumbered(data.y, [c for c in data.y.unique().tolist() if c != unknown])
    old = (data.time <= until) & ~is_unknown
    train = induced(data, old)
    train.train_mask, train.val_mask = split_classes(train.y, _VAL_PER_CLASS, np.random.default_rng(seed))
    train.test_mask = torch.zeros_like(train.val_mask)
    new = (data.time > until) & (data.time <= arrive[1])
    scored = induced(data, torch.cat([mask.nonzero().squeeze(1) for mask in (old, new)]))
    in_time = scored.time >= arrive[0]
    scored.ood_mask = in_time & (scored.y < 0)
    return Task(
        name=name,
        train=train,
        id_test=ScoredNodes(scored, in_time & (scored.y >= 0)),
        tests={"arrivals": scored},
        num_classes=int(train.y.max()) + 1,
        protocol=rules.protocol,
    )


def _years(data_dir: DataDir, num_nodes: int) -> Tensor:
    path = YEARS_FILES.require(data_dir) / YEARS_FILES.names[0]
    try:
        years = np.load(path, allow_pickle=False)
        if years.shape != (num_nodes,) or years.dtype.kind != "i":
            raise ValueError(f"it has {years.dtype} numbers of shape {years.shape}, expected {num_nodes} integers")
    except (ValueError, OSError, EOFError) as error:
        raise MissingDataError(f"{path} is damaged or not the years of PubMed: {error}") from error
    return torch.from_numpy(years.astype(np.int64))
