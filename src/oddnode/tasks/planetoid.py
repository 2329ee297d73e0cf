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
from oddnode.tasks.files import MissingDataError, cache_dir, data_dir_of, find_files

__all__ = ["FOLDERS", "planetoid_folders", "planetoid_graph", "planetoid_paths"]

#: Name of a data set -> name of its folder.
FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}

_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_NUM_VAL = 500


def planetoid_graph(name: str, data_dir: Any = None) -> Data:
    """A citation graph with row-normalised features and the public split; downloaded where it is not found.

    Its tensors are those of every other call: not to be changed in place.
    """
    paths = planetoid_paths(name, data_dir) or _download(name, data_dir)
    return copy.copy(_read(name, paths[f"ind.{name}.x"].parent))


def planetoid_paths(name: str, data_dir: Any = None) -> dict[str, Path] | None:
    """The raw files of a data set, or ``None`` where they are not all there."""
    return find_files(_file_names(name), planetoid_folders(name, data_dir))


def _file_names(name: str) -> list[str]:
    return [f"ind.{name}.{part}" for part in _PARTS]


def planetoid_folders(name: str, data_dir: Any = None) -> list[Path]:
    """Where the raw files are looked for, in order."""
    named = data_dir_of(data_dir)
    inside = Path(FOLDERS[name]) / "raw"
    roots = [named / "planetoid", named] if named else []
    return [root / inside for root in [*roots, cache_dir() / "planetoid"]]


def _download(name: str, data_dir: Any) -> dict[str, Path]:
    from torch_geometric.data import download_url

    folder = cache_dir() / "planetoid" / FOLDERS[name] / "raw"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as part:  # all files or none: a half of one would count as found the next time
            for file in _file_names(name):
                download_url(f"{_URL}/{file}", str(part), log=False)
    except Exception as error:  # the network fails in many ways; the user needs the same answer to all of them
        looked = ", ".join(str(path) for path in planetoid_folders(name, data_dir))
        raise MissingDataError(
            f"{FOLDERS[name]} is not here and could not be downloaded ({type(error).__name__}: {error}). "
            f"Looked for ind.{name}.x and {len(_PARTS) - 1} more files in {looked}. Get them from {_URL} and "
            f"put them into <data dir>/planetoid/{FOLDERS[name]}/raw, then pass --data-dir or set ODDNODE_DATA"
        ) from error
    return {file: folder / file for file in _file_names(name)}


@lru_cache(maxsize=4)
def _read(name: str, folder: Path) -> Data:
    raw = {part: _unpickle(folder / f"ind.{name}.{part}") for part in _PARTS[:-1]}
    test = _test_index(folder / f"ind.{name}.test.index")
    try:
        return _assemble(raw, test)
    except (AttributeError, ValueError, IndexError, TypeError) as error:
        raise MissingDataError(f"the files in {folder} do not fit together as {FOLDERS[name]}: {error}") from error


def _assemble(raw: dict[str, Any], test: np.ndarray) -> Data:
    # Rows of tx belong to the nodes of test.index in that file's order. CiteSeer has isolated test nodes that
    # appear nowhere: they get zero features.
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

    A pickle can name any function and have it called; this one finds only the names below.
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
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which data has no need of") from None


def _unpickle(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _ArrayUnpickler(file, encoding="latin1").load()
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise MissingDataError(f"{path} is damaged or not a Planetoid file: {error}") from error
