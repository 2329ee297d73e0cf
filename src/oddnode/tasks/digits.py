"""The bundled data set: scikit-learn's 1,797 handwritten digits as a nearest-neighbour graph."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch_geometric.data import Data

_NEIGHBOURS = 5
_TRAIN_PER_CLASS = 20
_VAL_PER_CLASS = 30


def digits_graph(seed: int = 0) -> Data:
    """Build a graph of images (64 pixels from 0 to 1), each connected to its five nearest neighbours.

    The split is random: 20 training and 30 validation nodes per class, and the rest for testing.

    Parameters
    ----------
    seed : int
        Seed of the split.
    """
    digits = load_digits()
    pixels = digits.data / 16.0
    near = kneighbors_graph(pixels, _NEIGHBOURS, mode="connectivity")
    source, target = near.maximum(near.T).nonzero()
    data = Data(
        x=torch.from_numpy(pixels).float(),
        edge_index=torch.from_numpy(np.stack([source, target])).long(),
        y=torch.from_numpy(digits.target).long(),
    )
    data.train_mask, data.val_mask, data.test_mask = _split(digits.target, seed)
    return data


def _split(y: np.ndarray, seed: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    masks = np.zeros((3, y.size), dtype=bool)
    for label in np.unique(y):
        nodes = rng.permutation(np.flatnonzero(y == label))
        cuts = [_TRAIN_PER_CLASS, _TRAIN_PER_CLASS + _VAL_PER_CLASS]
        for mask, part in zip(masks, np.split(nodes, cuts), strict=True):
            mask[part] = True
    return tuple(torch.from_numpy(mask) for mask in masks)
