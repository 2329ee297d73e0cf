"""What an out-of-distribution task is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import Tensor
from torch_geometric.data import Data

__all__ = ["Protocol", "ScoredNodes", "Task"]

#: ``clean``: nothing leaks. ``published``: what the paper's code does, quirk by quirk.
Protocol = Literal["clean", "published"]


class ScoredNodes(NamedTuple):
    """A graph, and which of its nodes are looked at."""

    data: Data
    mask: Tensor


@dataclass
class Task:
    """A graph to fit on, ID nodes to recognise and OOD nodes to find.

    Parameters
    ----------
    name : str
        What tables call it.
    train : Data
        The graph to fit on: ``x``, ``edge_index``, ``y`` in ``0..num_classes-1`` (anything at unlabelled nodes),
        ``train_mask``, ``val_mask``, ``test_mask``.
    id_test : ScoredNodes
        The graph and mask of the ID nodes that are scored; its ``y`` gives their classes.
    tests : dict of str to Data
        Graphs with the OOD nodes to find, marked by ``ood_mask``.
    num_classes : int
        How many ID classes there are.
    exposure : Data, optional
        A graph with OOD nodes that methods with exposure may learn from, marked by ``ood_mask``.
    protocol : {"clean", "published"}
        The rules it was made under.
    num_left_out : int
        How many classes were taken out of the data. Only the published protocol's head knows of them.
    """

    name: str
    train: Data
    id_test: ScoredNodes
    tests: dict[str, Data]
    num_classes: int
    exposure: Data | None = None
    protocol: Protocol = "clean"
    num_left_out: int = field(default=0, kw_only=True)
