"""Random splits that several data sets share."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["one_one_eight"]


def one_one_eight(num_nodes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split nodes at random into a tenth for training, a tenth for validation and the rest for testing.

    Parameters
    ----------
    num_nodes : int
        Number of nodes.
    seed : int
        Seed of the split.

    Returns
    -------
    tuple of Tensor
        Three masks ``[num_nodes]``.
    """
    order = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    train, val, test = torch.zeros(3, num_nodes, dtype=torch.bool)
    tenth = num_nodes // 10
    for mask, part in zip((train, val, test), order.split([tenth, tenth, num_nodes - 2 * tenth]), strict=True):
        mask[part] = True
    return train, val, test
