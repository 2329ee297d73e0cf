"""Cora, CiteSeer and PubMed with their public split, from Planetoid's raw files."""

from __future__ import annotations

import copy
import pickle
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from oddnode._utils.atomic_files import new_folder
from oddnode.tasks.datasets import FEATURE, STRUCTURE, DatasetSpec, leave_out
from oddnode.tasks.files import DataDir, DataFiles, MissingDataError, cache_dir

__all__ = ["FOLDERS", "PLANETOID", "planetoid_graph"]

#: Name of a data set -> name of its folder.
FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}

_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_NUM_VAL = 500


# ID, exposed and OOD classes in label leave-out. The published split has one rule: classes above t are ID, t is exposed
# and classes below t are OOD. This leaves PubMed a single ID class; see docs/tasks.md.
_LABEL_SPLITS = {
    "cora": ([4, 5, 6], [3], [0, 1, 2]),
    "citeseer": ([4, 5], [3], [0, 1, 2]),
    "pubmed": ([2], [1], [0]),
}
_SECONDS = {"cora": 0.9, "citeseer": 1.3, "pubmed": 5.5}


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
    folder = _files(name).find(data_dir) or _download(name, data_dir)
    return copy.copy(_read(name, folder))


def _files(name: str) -> DataFiles:
    inside = f"{FOLDERS[name]}/raw"
    return DataFiles(
        FOLDERS[name],
        tuple(f"ind.{name}.{part}" for part in _PARTS),
        how_to_get=f"get them from {_URL} and put them into <data dir>/planetoid/{inside}",
        folders_in_data_dir=(f"planetoid/{inside}", inside),
        folders_in_cache=(f"planetoid/{inside}",),
    )


def _download(name: str, data_dir: DataDir) -> Path:
    from torch_geometric.data import download_url

    files = _files(name)
    folder = cache_dir() / files.folders_in_cache[0]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as part:  # all files or none: a partial file would count as found the next time
            for file in files.names:
                download_url(f"{_URL}/{file}", str(part), log=False)
    except Exception as error:  # a network fails in many ways, and the advice is always the same
        reason = f"could not be downloaded ({type(error).__name__}: {error})"
        raise MissingDataError(f"{FOLDERS[name]} {reason}. {files.missing_message(data_dir)}") from error
    return folder


@lru_cache(maxsize=4)
def _read(name: str, folder: Path) -> Data:
    raw = {part: _unpickle(folder / f"ind.{name}.{part}") for part in _PARTS[:-1]}
    test = _test_index(folder / f"ind.{name}.test.index")
    try:
        return _assemble(raw, test)
    except (AttributeError, ValueError, IndexError, TypeError) as error:
        raise MissingDataError(f"the files in {folder} are not consistent as {FOLDERS[name]}: {error}") from error


def _assemble(raw: dict[str, Any], test: np.ndarray) -> Data:
    # The rows of tx belong to the nodes in test.index, in the order of that file. CiteSeer has isolated test nodes
    # without a row: their features are zero.
    num_train, num_known = raw["x"].shape[0], raw["allx"].shape[0]
    num_nodes = max(int(test.max()) + 1, num_known + raw["tx"].shape[0])
    x = scipy.sparse.lil_matrix((num_nodes, raw["allx"].shape[1]), dtype=np.float32)
    x[:num_known] = raw["allx"]
    x[test] = raw["tx"]
    y = np.zeros((num_nodes, raw["ally"].shape[1]), dtype=np.int64)
    y[:num_known] = raw["ally"]
    y[test] = raw["ty"]
    features = torch.from_numpy(np.asarray(x.todense(), dtype=np.float32))
    data = Data(
        x=features / features.sum(dim=1, keepdim=True).clamp_min(1.0),
        edge_index=_edges(raw["graph"], num_nodes),
        y=torch.from_numpy(y.argmax(axis=1)),
    )
    nodes = torch.arange(num_nodes)
    data.train_mask = nodes < num_train
    data.val_mask = (nodes >= num_train) & (nodes < num_train + _NUM_VAL)
    data.test_mask = torch.zeros(num_nodes, dtype=torch.bool)
    data.test_mask[torch.from_numpy(test)] = True
    return data


def _edges(neighbours: dict[int, list[int]], num_nodes: int) -> torch.Tensor:
    pairs = [(source, target) for source, targets in neighbours.items() for target in targets]
    edges = torch.tensor(pairs, dtype=torch.long).t()
    edges, _ = remove_self_loops(edges)
    return coalesce(to_undirected(edges, num_nodes=num_nodes), num_nodes=num_nodes)


def _test_index(path: Path) -> np.ndarray:
    try:
        return np.array([int(line) for line in path.read_text().split()], dtype=np.int64)
    except ValueError as error:
        raise MissingDataError(f"{path} is damaged: expected one node number per line ({error})") from error


class _ArrayUnpickler(pickle.Unpickler):
    """Reads arrays, sparse matrices and adjacency lists, and refuses everything else.

    A pickle can call any function by name; this unpickler resolves only the names below.
    """

    _ALLOWED: ClassVar = {
        ("numpy", "dtype"): np.dtype,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy.core.multiarray", "_reconstruct"): np.ndarray.__reduce__(np.empty(0))[0],
        ("numpy._core.multiarray", "_reconstruct"): np.ndarray.__reduce__(np.empty(0))[0],
        ("scipy.sparse.csr", "csr_matrix"): scipy.sparse.csr_matrix,
        ("scipy.sparse._csr", "csr_matrix"): scipy.sparse.csr_matrix,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
        ("builtins", "list"): list,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which data does not need") from None


def _unpickle(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _ArrayUnpickler(file, encoding="latin1").load()
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise MissingDataError(f"{path} is damaged or not a Planetoid file: {error}") from error


def _spec(name: str) -> DatasetSpec:
    return DatasetSpec.from_graph(
        name,
        lambda data_dir, seed: planetoid_graph(name, data_dir),
        families={"structure": STRUCTURE, "feature": FEATURE, "label": leave_out(*_LABEL_SPLITS[name])},
        fixed_split=True,
        licence="no licence stated; cite Sen et al. 2008 and Yang et al. 2016",
        files=_files(name),
        download=lambda data_dir: _download(name, data_dir),
        seconds=_SECONDS[name],
    )


#: Cora, CiteSeer and PubMed.
PLANETOID = tuple(_spec(name) for name in FOLDERS)
