"""Twitch: users of one language are ID, users of others OOD. Reads the raw MUSAE files."""

from __future__ import annotations

import copy
import csv
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import add_remaining_self_loops, to_undirected

from oddnode.tasks.catalogue import TWITCH_REGIONS, twitch_file_names, twitch_files
from oddnode.tasks.datasets import CLEAN, DataDir, MissingDataError, ScoredNodes, Task, TaskRules
from oddnode.tasks.shifts import one_one_eight

_ID, _EXPOSURE, *_TESTS = TWITCH_REGIONS
_NUM_FEATURES = 3170


def twitch_task(data_dir: DataDir = None, seed: int = 0, rules: TaskRules = CLEAN) -> Task:
    """Make the task: ID = DE (split 1:1:8 at random), exposure = EN, OOD test = ES, FR and RU.

    Parameters
    ----------
    data_dir : path, optional
        As for `load_task`.
    seed : int
        Seed of the split.
    rules : TaskRules
        The rules of the protocol.
    """
    graphs = {region: twitch_graph(region, data_dir) for region in (_ID, _EXPOSURE, *_TESTS)}
    if rules.add_self_loops:
        for graph in graphs.values():
            graph.edge_index, _ = add_remaining_self_loops(graph.edge_index, num_nodes=graph.num_nodes)
    train = graphs[_ID]
    train.train_mask, train.val_mask, train.test_mask = one_one_eight(train.num_nodes, seed)
    for region in (_EXPOSURE, *_TESTS):
        graphs[region].ood_mask = torch.ones(graphs[region].num_nodes, dtype=torch.bool)
    return Task(
        name="twitch",
        train=train,
        id_test=ScoredNodes(train, train.test_mask),
        tests={region.lower(): graphs[region] for region in _TESTS},
        num_classes=2,
        exposure=graphs[_EXPOSURE],
        protocol=rules.protocol,
    )


def twitch_graph(region: str, data_dir: DataDir = None) -> Data:
    """Load the users of a region: row-normalised games as features, mutual follows as edges, ``mature`` as class.

    All calls share the same tensors; do not change them in place.

    Parameters
    ----------
    region : str
        ``"DE"``, ``"ENGB"``, ``"ES"``, ``"FR"`` or ``"RU"``.
    data_dir : path, optional
        As for `load_task`.
    """
    return copy.copy(_read(region, twitch_files(region).require(data_dir)))


@lru_cache(maxsize=8)
def _read(region: str, folder: Path) -> Data:
    edges_file, features_file, target_file = (folder / name for name in twitch_file_names(region))
    try:
        y = _labels(target_file)
        x = _features(features_file, y.shape[0])
        pairs = torch.from_numpy(np.loadtxt(edges_file, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)).t()
        if int(pairs.max()) >= y.shape[0]:
            raise ValueError(f"an edge names node {int(pairs.max())}, but there are {y.shape[0]} nodes")
    except (ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise MissingDataError(f"the {region} files in {folder} are damaged: {error}") from error
    return Data(x=x, edge_index=to_undirected(pairs, num_nodes=y.shape[0]), y=y)


def _labels(path: Path) -> Tensor:
    # Rows are in any order, and some are repeated: new_id is the node.
    with path.open(newline="", encoding="utf-8") as file:
        mature = {int(row["new_id"]): row["mature"] == "True" for row in csv.DictReader(file)}
    if sorted(mature) != list(range(len(mature))):
        raise ValueError(f"new_id in {path.name} is not 0..{len(mature) - 1}")
    return torch.tensor([mature[node] for node in range(len(mature))]).long()


def _features(path: Path, num_nodes: int) -> Tensor:
    games = json.loads(path.read_text(encoding="utf-8"))
    x = torch.zeros(num_nodes, _NUM_FEATURES)
    for node, ids in games.items():
        x[int(node), ids] = 1.0
    return x / x.sum(dim=1, keepdim=True).clamp_min(1.0)
