"""Out-of-distribution tasks, and the rules under which they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from oddnode._utils.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

__all__ = ["CLEAN", "RULES", "ScoredNodes", "Task", "TaskRules"]


@dataclass(frozen=True)
class TaskRules:
    """The rules by which a protocol makes tasks. By default nothing leaks into training.

    Parameters
    ----------
    protocol : str
        The protocol of these rules; tasks made under them carry its name.
    keep_left_out_nodes : bool
        In label leave-out, nodes of left-out classes stay in every graph, and the numbers of their classes follow
        those of the ID classes. Otherwise they are absent from training and have the label -1.
    add_self_loops : bool
        On Twitch, every node gets a self-loop.
    keep_future_nodes : bool
        On Arxiv, papers that are newer than a graph stay in it, without citations.
    keep_edge_direction : bool
        On Arxiv, citations keep their direction. Otherwise edges are undirected.
    keep_untrained_classes : bool
        On Arxiv, papers of a class without a training paper keep their label and are test nodes. Otherwise they are
        unlabelled.
    """

    protocol: str = "clean"
    keep_left_out_nodes: bool = False
    add_self_loops: bool = False
    keep_future_nodes: bool = False
    keep_edge_direction: bool = False
    keep_untrained_classes: bool = False


#: The rules of the clean protocol.
CLEAN = TaskRules()

#: The rules of every protocol by its name.
RULES: Registry[TaskRules] = Registry("protocol")
RULES.register("clean", CLEAN)
RULES.register(
    "published",
    TaskRules(
        protocol="published",
        keep_left_out_nodes=True,
        add_self_loops=True,  # the paper's copy of Twitch has them
        keep_future_nodes=True,
        keep_edge_direction=True,
        keep_untrained_classes=True,
    ),
)


class ScoredNodes(NamedTuple):
    """A graph and the nodes of it that are scored.

    Parameters
    ----------
    data : Data
        The graph.
    mask : Tensor
        Mask of its nodes ``[n]``.
    """

    data: Data
    mask: Tensor


@dataclass
class Task:
    """A graph to fit on, ID nodes to recognise and OOD nodes to find.

    Parameters
    ----------
    name : str
        Its name in tables.
    train : Data
        The graph to fit on: ``x``, ``edge_index``, ``y`` in ``0..num_classes-1`` (anything at unlabelled nodes),
        ``train_mask``, ``val_mask``, ``test_mask``.
    id_test : ScoredNodes
        The graph and mask of the ID nodes that are scored; its ``y`` gives their classes.
    tests : dict of str to Data
        Graphs with the OOD nodes to find, marked by ``ood_mask``.
    num_classes : int
        Number of ID classes.
    exposure : Data, optional
        A graph with OOD nodes that methods with exposure may learn from, marked by ``ood_mask``.
    protocol : str
        The protocol under whose rules the task was made, such as ``"clean"`` or ``"published"``.
    num_left_out : int
        Number of left-out classes. Only under the published protocol do networks have logits for them.
    """

    name: str
    train: Data
    id_test: ScoredNodes
    tests: dict[str, Data]
    num_classes: int
    exposure: Data | None = None
    protocol: str = "clean"
    num_left_out: int = field(default=0, kw_only=True)
