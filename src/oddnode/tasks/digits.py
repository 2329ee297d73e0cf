"""The bundled data set: scikit-learn's 1,797 handwritten digits as a nearest-neighbour graph."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch_geometric.data import Data

from oddnode.tasks.shifts import split_classes

_NEIGHBOURS = 5


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
    data.train_mask, data.val_mask = split_classes(data.y, 30, np.random.default_rng(seed))
    data.test_mask = ~(data.train_mask | data.val_mask)
    return data
