"""Cora, CiteSeer and PubMed with their public split, from Planetoid's raw files."""

from __future__ import annotations

import copy
import hashlib
import os
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
from oddnode.tasks.catalogue import FOLDERS, PLANETOID_PARTS, PLANETOID_URL, YEARS_FILES, planetoid_files
from oddnode.tasks.datasets import DataDir, MissingDataError, cache_dir

#: The environment variable with which a user accepts files that differ from the public ones.
CONSENT = "ODDNODE_ACCEPT_CHANGED_FILES"

#: Far above the public files, the largest of which has 7.6 MB.
_LARGEST_FILE = 64 * 2**20

_SHA256 = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
}

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


def pubmed_with_years(data_dir: DataDir = None) -> Data:
    """Load PubMed with the year of every paper, ``time``."""
    data = planetoid_graph("pubmed", data_dir)
    path = YEARS_FILES.require(data_dir) / YEARS_FILES.names[0]
    try:
        years = np.load(path, allow_pickle=False)
        if years.shape != (data.num_nodes,) or years.dtype.kind != "i":
            raise ValueError(f"it has {years.dtype} numbers of shape {years.shape}, expected {data.num_nodes} integers")
    except (ValueError, OSError, EOFError) as error:
        raise MissingDataError(f"{path} is damaged or not the years of PubMed: {error}") from error
    data.time = torch.from_numpy(years.astype(np.int64))
    return data


def download_planetoid(name: str, data_dir: DataDir) -> Path:
    """Download the files of a citation graph into the cache."""
    from torch_geometric.data import download_url

    files = planetoid_files(name)
    folder = cache_dir() / files.folders_in_cache[0]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as part:  # all files or none: the next run would take a partial download for complete
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


# Reading the files: each is checked against the public checksums and the files read before it


def has_consent() -> bool:
    """Whether the user has set `CONSENT` to 1."""
    return os.environ.get(CONSENT) == "1"


def read_public_file(path: Path, accept_changed: bool) -> bytes:
    """Read a file, and check that it is the public one."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
    except PermissionError:
        raise MissingDataError(f"no permission to read {path}") from None
    if len(raw) > _LARGEST_FILE:
        raise MissingDataError(f"{path} is damaged or not a Planetoid file: it has more than {_LARGEST_FILE} bytes")
    if not accept_changed and hashlib.sha256(raw).hexdigest() != _SHA256[path.name]:
        raise MissingDataError(
            f"{path} is damaged or not a Planetoid file: its checksum is not that of the public file. Get the public "
            f"file again, or, if you changed it yourself, set the environment variable {CONSENT}=1"
        )
    return raw


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
        raise ValueError("expected integers, a row for each node and a column for each class")
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
                raise ValueError(f"it has a {type(node).__name__} as a node, expected a number")
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
