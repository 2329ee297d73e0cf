"""Twitch: users of one language are ID, of others OOD. Read from the raw MUSAE files."""

from __future__ import annotations

import copy
import csv
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import add_remaining_self_loops, to_undirected

from oddnode.tasks.base import Protocol, ScoredNodes, Task
from oddnode.tasks.files import MissingDataError, cache_dir, data_dir_of, find_files
from oddnode.tasks.splits import one_one_eight

__all__ = ["SOURCE", "twitch_folders", "twitch_graph", "twitch_paths", "twitch_task"]

#: Where to get the files.
SOURCE = "https://snap.stanford.edu/data/twitch-social-networks.html"

_ID, _EXPOSURE, _TESTS = "DE", "ENGB", ("ES", "FR", "RU")
_NUM_FEATURES = 3170


def twitch_task(data_dir: Any = None, seed: int = 0, protocol: Protocol = "clean") -> Task:
    """ID = DE (training, validation and test nodes 1:1:8 at random), exposure = EN, OOD test = ES, FR and RU."""
    graphs = {region: twitch_graph(region, data_dir) for region in (_ID, _EXPOSURE, *_TESTS)}
    if protocol == "published":
        for graph in graphs.values():  # the paper's copy of the data has a self-loop at every node
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
        protocol=protocol,
    )


def twitch_graph(region: str, data_dir: Any = None) -> Data:
    """Users of one region: row-normalised games as features, mutual follows as edges, ``mature`` as class.

    Its tensors are those of every other call: not to be changed in place.
    """
    paths = find_files(_file_names(region), twitch_folders(data_dir))
    if paths is None:
        raise MissingDataError(_missing_message(region, data_dir))
    return copy.copy(_read(region, next(iter(paths.values())).parent))


def twitch_paths(data_dir: Any = None) -> dict[str, Path] | None:
    """All raw files of the task, or ``None`` where they are not all there."""
    names = [name for region in (_ID, _EXPOSURE, *_TESTS) for name in _file_names(region)]
    return find_files(names, twitch_folders(data_dir))


def _file_names(region: str) -> list[str]:
    return [f"musae_{region}_{part}" for part in ("edges.csv", "features.json", "target.csv")]


def twitch_folders(data_dir: Any = None) -> list[Path]:
    """Where the raw files are looked for, in order."""
    named = data_dir_of(data_dir)
    return [*([named / "twitch", named] if named else []), cache_dir() / "twitch"]


def _missing_message(region: str, data_dir: Any) -> str:
    folders = twitch_folders(data_dir)
    missing = [n for n in _file_names(region) if not any((folder / n).is_file() for folder in folders)]
    return (
        f"Twitch is missing {', '.join(missing) or 'files in one folder'}; looked in "
        f"{', '.join(map(str, folders))}. Get the raw files from {SOURCE}, put all of them into "
        "<data dir>/twitch, then pass --data-dir or set ODDNODE_DATA"
    )


@lru_cache(maxsize=8)
def _read(region: str, folder: Path) -> Data:
    edges_file, features_file, target_file = (folder / name for name in _file_names(region))
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
    # Rows come in any order, and some twice: new_id is the node.
    with path.open(newline="", encoding="utf-8") as file:
        mature = {int(row["new_id"]): row["mature"] == "True" for row in csv.DictReader(file)}
    if sorted(mature) != list(range(len(mature))):
        raise ValueError(f"new_id in {path.name} does not count 0..{len(mature) - 1}")
    return torch.tensor([mature[node] for node in range(len(mature))]).long()


def _features(path: Path, num_nodes: int) -> Tensor:
    games = json.loads(path.read_text(encoding="utf-8"))
    x = torch.zeros(num_nodes, _NUM_FEATURES)
    for node, ids in games.items():
        x[int(node), ids] = 1.0
    return x / x.sum(dim=1, keepdim=True).clamp_min(1.0)
