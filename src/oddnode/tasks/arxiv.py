"""Arxiv: papers up to 2015 are ID, later ones OOD. Reads the raw files of OGB's ogbn-arxiv."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph, to_undirected

from oddnode.tasks.base import CLEAN, ScoredNodes, Task, TaskRules
from oddnode.tasks.catalogue import ARXIV_FILES
from oddnode.tasks.csv_gz import DamagedFileError, read_numbers
from oddnode.tasks.files import DataDir, MissingDataError
from oddnode.tasks.shifts import induced
from oddnode.tasks.splits import one_one_eight

__all__ = ["arxiv_graph", "arxiv_task"]

_LAST_ID, _LAST_EXPOSED, _TEST_YEARS = 2015, 2017, (2018, 2019, 2020)

_COUNTS = ("num-node-list.csv.gz", "num-edge-list.csv.gz")


def arxiv_task(data_dir: DataDir = None, seed: int = 0, rules: TaskRules = CLEAN) -> Task:
    """Make the task: ID = papers up to 2015 (split 1:1:8 at random), exposure = 2016 and 2017, OOD = 2018 to 2020.

    Papers that are newer than a graph are absent from it, and edges are undirected. If the rules set
    ``keep_future_nodes``, every graph has the papers of all years, and only newer citations are absent. If they set
    ``keep_edge_direction``, edges point from the citing paper to the cited one.

    Parameters
    ----------
    data_dir : path, optional
        As for `load_task`.
    seed : int
        Seed of the split.
    rules : TaskRules
        The rules of the protocol.
    """
    full, year = arxiv_graph(data_dir)
    is_id = year <= _LAST_ID
    masks = _id_split(is_id, seed)
    full.y, num_classes = _trained_classes_first(full.y, masks[0])
    num_left_out = int(full.y.max()) + 1 - num_classes
    trained = full.y < num_classes
    if not rules.keep_untrained_classes:
        full.y[~trained] = -1
    if not rules.keep_edge_direction:
        full.edge_index = to_undirected(full.edge_index, num_nodes=full.num_nodes)
    full.train_mask, full.val_mask, full.test_mask = masks
    full.val_mask = full.val_mask & trained  # the cross-entropy of a class without training papers is undefined
    if not rules.keep_untrained_classes:
        full.test_mask = full.test_mask & trained
    train = _up_to(full, year, _LAST_ID, rules)
    return Task(
        name="arxiv",
        train=train,
        id_test=ScoredNodes(train, train.test_mask),
        tests={str(last): _with_ood(full, year, last, last, rules) for last in _TEST_YEARS},
        num_classes=num_classes,
        exposure=_with_ood(full, year, _LAST_ID + 1, _LAST_EXPOSED, rules),
        protocol=rules.protocol,
        num_left_out=num_left_out,
    )


def _id_split(is_id: Tensor, seed: int) -> list[Tensor]:
    """The ID papers split 1:1:8, as masks over all papers."""
    nodes = is_id.nonzero().squeeze(1)
    masks = []
    for part in one_one_eight(len(nodes), seed):
        mask = torch.zeros_like(is_id)
        mask[nodes[part]] = True
        masks.append(mask)
    return masks


def _trained_classes_first(y: Tensor, train_mask: Tensor) -> tuple[Tensor, int]:
    """Renumber the labels so that classes without a training paper come last; also return how many have one.

    Some of the forty classes have so few papers that a random tenth may contain none of them.
    """
    trained = torch.unique(y[train_mask])
    others = torch.tensor(sorted(set(range(int(y.max()) + 1)) - set(trained.tolist())), dtype=y.dtype)
    new = torch.empty(len(trained) + len(others), dtype=y.dtype)
    new[torch.cat([trained, others])] = torch.arange(len(new))
    return new[y], len(trained)


def _up_to(full: Data, year: Tensor, last: int, rules: TaskRules) -> Data:
    """The graph at the end of a year, with or without later papers."""
    present = year <= last
    if not rules.keep_future_nodes:
        return induced(full, present)
    edges, _ = subgraph(present, full.edge_index, num_nodes=full.num_nodes)
    return Data(edge_index=edges, **{key: value for key, value in full.items() if key != "edge_index"})


def _with_ood(full: Data, year: Tensor, first: int, last: int, rules: TaskRules) -> Data:
    marked = Data(x=full.x, edge_index=full.edge_index, y=full.y, ood_mask=(year >= first) & (year <= last))
    return _up_to(marked, year, last, rules)


def arxiv_graph(data_dir: DataDir = None) -> tuple[Data, Tensor]:
    """All papers with their 128 features, citations ``[citing, cited]`` and subject as class; and the year of each.

    Parameters
    ----------
    data_dir : path, optional
        As for `load_task`.
    """
    x, edge_index, y, year = _read(ARXIV_FILES.require(data_dir))
    return Data(x=x, edge_index=edge_index, y=y), year


@lru_cache(maxsize=1)
def _read(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, citations, labels and years. Callers share them and must not write into them."""
    try:
        num_nodes, num_edges = (int(read_numbers(folder / name, 1, 1, np.int64)[0, 0]) for name in _COUNTS)
        if num_nodes < 1 or num_edges < 0:
            raise DamagedFileError(f"{num_nodes} nodes and {num_edges} edges are no graph")
        x = read_numbers(folder / "node-feat.csv.gz", num_nodes, None, np.float32)
        edges = read_numbers(folder / "edge.csv.gz", num_edges, 2, np.int64)
        y = read_numbers(folder / "node-label.csv.gz", num_nodes, 1, np.int64)[:, 0]
        year = read_numbers(folder / "node_year.csv.gz", num_nodes, 1, np.int64)[:, 0]
        _check(edges, y, year, num_nodes)
    except DamagedFileError as error:
        raise MissingDataError(f"the files in {folder} are damaged: {error}") from error
    return torch.from_numpy(x), torch.from_numpy(edges).t(), torch.from_numpy(y), torch.from_numpy(year)


def _check(edges: np.ndarray, y: np.ndarray, year: np.ndarray, num_nodes: int) -> None:
    outside = np.flatnonzero(((edges < 0) | (edges >= num_nodes)).any(axis=1))
    if outside.size:
        line = int(outside[0])
        raise DamagedFileError(
            f"line {line + 1} of edge.csv.gz joins {edges[line, 0]} and {edges[line, 1]}, but there are {num_nodes} "
            f"nodes (0..{num_nodes - 1})"
        )
    if (y < 0).any():
        raise DamagedFileError(f"line {int((y < 0).argmax()) + 1} of node-label.csv.gz has a class below 0")
    for name, found in (
        (f"up to {_LAST_ID}", year <= _LAST_ID),
        (f"of {_LAST_ID + 1} and {_LAST_EXPOSED}", (year > _LAST_ID) & (year <= _LAST_EXPOSED)),
        *((f"of {test}", year == test) for test in _TEST_YEARS),
    ):
        if not found.any():
            raise DamagedFileError(f"node_year.csv.gz has no paper {name}")
