"""Graphs that are one NumPy archive each: Amazon Photo and Coauthor CS, and graphs for choosing settings."""

from __future__ import annotations

import copy
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data
from torch_geometric.io import read_npz
from torch_geometric.utils import to_undirected

from oddnode.tasks.catalogue import npz_files
from oddnode.tasks.datasets import DataDir, MissingDataError


def npz_graph(name: str, data_dir: DataDir = None) -> Data:
    """Load a graph with row-normalised features and without a split.

    All calls share the same tensors; do not change them in place.

    Parameters
    ----------
    name : str
        ``"photo"``, ``"cs"``, or the name of a file in ``graphs/``: ``"citations-wide"``, ``"campus"``, ``"films"``.
    data_dir : path, optional
        As for `load_task`.
    """
    files = npz_files(name)
    return copy.copy(_read(files.require(data_dir) / files.names[0]))


@lru_cache(maxsize=2)
def _read(path: Path) -> Data:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            data = _prepared(arrays) if "x_data" in arrays else read_npz(str(path))
        data.validate(raise_on_error=True)
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise MissingDataError(f"{path} is damaged or not a graph: {error}") from error
    data.x = data.x / data.x.sum(dim=1, keepdim=True).clamp_min(1.0)
    return data


def _prepared(arrays: np.lib.npyio.NpzFile) -> Data:
    """The graph of an archive with features as CSR arrays, ``edge_index`` and ``y``."""
    sparse = (arrays["x_data"], arrays["x_indices"], arrays["x_indptr"])
    x = scipy.sparse.csr_matrix(sparse, tuple(arrays["x_shape"])).toarray()
    edges = torch.from_numpy(arrays["edge_index"].astype(np.int64))
    return Data(
        x=torch.from_numpy(x).float(),
        edge_index=to_undirected(edges, num_nodes=len(x)),
        y=torch.from_numpy(arrays["y"]).long(),
    )
