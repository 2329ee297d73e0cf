"""Cora, CiteSeer and PubMed with their public split, from Planetoid's raw files."""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from oddnode._utils.atomic_files import new_folder
from oddnode.tasks.array_pickle import read_arrays
from oddnode.tasks.catalogue import FOLDERS, PLANETOID_PARTS, PLANETOID_URL, planetoid_files
from oddnode.tasks.files import DataDir, MissingDataError, cache_dir
from oddnode.tasks.planetoid_files import has_consent, read_public_file

__all__ = ["download_planetoid", "planetoid_graph"]

_NUM_VAL = 500
# Far above the public data sets (12 million numbers), but low enough that a file cannot exhaust the machine.
_MOST_NUMBERS = 2**27


def planetoid_graph(name: str, data_dir: DataDir = None) -> Data:
    """Load a citation graph with row-normalised features and the public split; download it if it is missing.

    All calls share the same tensors; do not change them in place.

    Parameters
    ----------
    name : str
        One of `FOLDERS`.
    data_dir : path, optional
        As for `load_task`.
    """
    folder = planetoid_files(name).find(data_dir) or download_planetoid(name, data_dir)
    return copy.copy(_read(name, folder, has_consent()))


def download_planetoid(name: str, data_dir: DataDir) -> Path:
    """Download the files of a citation graph into the cache.

    Parameters
    ----------
    name, data_dir
        As for `planetoid_graph`; the data directory is only named in messages.

    Returns
    -------
    Path
        The folder with the files.
    """
    from torch_geometric.data import download_url

    files = planetoid_files(name)
    folder = cache_dir() / files.folders_in_cache[0]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as part:  # all files or none: a partial file would count as found the next time
            for file in files.names:
                download_url(f"{PLANETOID_URL}/{file}", str(part), log=False)
                read_public_file(part / file, has_consent())
    except Exception as error:  # a network fails in many ways, and the advice is always the same
        reason = f"could not be downloaded ({type(error).__name__}: {error})"
        raise MissingDataError(f"{FOLDERS[name]} {reason}. {files.missing_message(data_dir)}") from error
    return folder


@lru_cache(maxsize=4)
def _read(name: str, folder: Path, accept_changed: bool) -> Data:
    paths = {part: folder / f"ind.{name}.{part}" for part in PLANETOID_PARTS}
    raw = {part: read_public_file(path, accept_changed) for part, path in paths.items()}
    parts: dict[str, Any] = {}
    for part, read in _READERS.items():
        try:
            parts[part] = read(raw[part], parts)
        except ValueError as error:
            raise MissingDataError(f"{paths[part]} is damaged or not a Planetoid file: {error}") from None
    return _assemble(parts)


def _assemble(parts: dict[str, Any]) -> Data:
    # The rows of tx belong to the nodes in test.index, in the order of that file. CiteSeer has isolated test nodes
    # without a row: their features are zero.
    num_train, num_known, num_nodes = parts["x"].shape[0], parts["allx"].shape[0], _num_nodes(parts)
    x = np.zeros((num_nodes, parts["allx"].shape[1]), dtype=np.float32)
    y = np.zeros((num_nodes, parts["ally"].shape[1]), dtype=np.int64)
    test = parts["test.index"]
    x[:num_known], x[test] = parts["allx"].astype(np.float32).toarray(), parts["tx"].astype(np.float32).toarray()
    y[:num_known], y[test] = parts["ally"], parts["ty"]
    features = torch.from_numpy(x)
    data = Data(
        x=features / features.sum(dim=1, keepdim=True).clamp_min(1.0),
        edge_index=_edges(parts["graph"], num_nodes),
        y=torch.from_numpy(y.argmax(axis=1)),
    )
    nodes = torch.arange(num_nodes)
    data.train_mask = nodes < num_train
    data.val_mask = (nodes >= num_train) & (nodes < num_train + _NUM_VAL)
    data.test_mask = torch.zeros(num_nodes, dtype=torch.bool)
    data.test_mask[torch.from_numpy(test)] = True
    return data


def _num_nodes(parts: dict[str, Any]) -> int:
    return max(int(parts["test.index"].max()) + 1, parts["allx"].shape[0] + parts["tx"].shape[0])


def _edges(neighbours: dict[int, list[int]], num_nodes: int) -> torch.Tensor:
    pairs = [(source, target) for source, targets in neighbours.items() for target in targets]
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    edges, _ = remove_self_loops(edges)
    return coalesce(to_undirected(edges, num_nodes=num_nodes), num_nodes=num_nodes)


# --- the files, each checked against those that were read before it --------------------------------------------------


def _features(raw: bytes, parts: dict[str, Any]) -> scipy.sparse.csr_matrix:
    matrix = read_arrays(raw)
    if not isinstance(matrix, scipy.sparse.csr_matrix) or 0 in matrix.shape:
        raise ValueError("expected a sparse matrix with a row for each node")
    if matrix.shape[0] * matrix.shape[1] > _MOST_NUMBERS:
        raise ValueError(f"it has {matrix.shape[0]} x {matrix.shape[1]} features, expected at most {_MOST_NUMBERS}")
    known = parts.get("allx")
    if known is not None and matrix.shape[1] != known.shape[1]:
        raise ValueError(f"it has {matrix.shape[1]} features, but allx has {known.shape[1]}")
    return matrix


def _training_features(raw: bytes, parts: dict[str, Any]) -> scipy.sparse.csr_matrix:
    matrix, known = _features(raw, parts), parts["allx"].shape[0]
    if matrix.shape[0] > known:
        raise ValueError(f"it has {matrix.shape[0]} nodes, but allx, which includes them, has {known}")
    return matrix


def _labels(raw: bytes, features: scipy.sparse.csr_matrix, num_classes: int | None) -> np.ndarray:
    labels = read_arrays(raw)
    if not isinstance(labels, np.ndarray) or labels.ndim != 2 or labels.dtype.kind != "i":
        raise ValueError("expected whole numbers, a row for each node and a column for each class")
    if len(labels) != features.shape[0] or labels.shape[1] != (num_classes or max(labels.shape[1], 1)):
        expected = f"{features.shape[0]} nodes and {num_classes or 'some'} classes"
        raise ValueError(f"it has {len(labels)} nodes and {labels.shape[1]} classes, expected {expected}")
    return labels


def _test_index(raw: bytes, parts: dict[str, Any]) -> np.ndarray:
    nodes = [int(line) for line in raw.decode("ascii").split()]
    num_known, num_features = parts["allx"].shape
    limit = _MOST_NUMBERS // max(num_features, parts["ally"].shape[1])
    if len(nodes) != parts["tx"].shape[0] or len(set(nodes)) != len(nodes):
        raise ValueError(f"it has {len(nodes)} node numbers, expected {parts['tx'].shape[0]} different ones, as in tx")
    for node in nodes:
        if not num_known <= node < limit:
            raise ValueError(f"it has the node number {str(node)[:20]}, expected {num_known} to {limit - 1}")
    return np.array(nodes, dtype=np.int64)


def _graph(raw: bytes, parts: dict[str, Any]) -> dict[int, list[int]]:
    neighbours, num_nodes = read_arrays(raw), _num_nodes(parts)
    if not isinstance(neighbours, dict) or not all(isinstance(targets, list) for targets in neighbours.values()):
        raise ValueError("expected a list of neighbours for each node")
    for nodes in (neighbours, *neighbours.values()):
        for node in nodes:
            if type(node) is not int:
                raise ValueError(f"it has a {type(node).__name__} as node, expected a number")
            if not 0 <= node < num_nodes:
                raise ValueError(f"it has the node number {str(node)[:20]}, expected 0 to {num_nodes - 1}")
    return neighbours


_READERS = {
    "allx": _features,
    "x": _training_features,
    "tx": _features,
    "ally": lambda raw, parts: _labels(raw, parts["allx"], None),
    "y": lambda raw, parts: _labels(raw, parts["x"], parts["ally"].shape[1]),
    "ty": lambda raw, parts: _labels(raw, parts["tx"], parts["ally"].shape[1]),
    "test.index": _test_index,
    "graph": _graph,
}
