"""Three ways to make OOD nodes from any graph, as in the paper: other edges, other features, unseen classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from oddnode.graph.alterations import related_to
from oddnode.tasks.datasets import CLEAN, ScoredNodes, Task, TaskRules

#: The alterations of single nodes that are like these shifts of whole graphs.
SHIFTS = {"feature": "mixed", "structure": "rewired"}

#: ID classes, exposed classes and OOD classes.
LabelSplit = tuple[Sequence[int], Sequence[int], Sequence[int]]


def structure_shift(data: Data, num_blocks: int, seed: int = 0) -> Data:
    """Replace the edges by those of a stochastic block model of the same density.

    The nodes are divided, in order, into ``num_blocks`` equal blocks (the last takes the rest). If ``d`` is the density
    of the graph, two nodes of one block are joined with probability ``1.5 d``, and of two blocks with ``0.5 d``. If the
    graph has weights, every pair of joined nodes gets a random one of them.

    Parameters
    ----------
    data : Data
        The graph, with ``x``, ``edge_index`` and, if its edges have weights, ``edge_weight``.
    num_blocks : int
        Number of blocks.
    seed : int
        Seed of the edges.
    """
    num_nodes = data.num_nodes
    if not 1 <= num_blocks <= num_nodes:
        raise ValueError(f"num_blocks is {num_blocks}, expected 1..{num_nodes} (the number of nodes)")
    if num_nodes < 2:
        raise ValueError("a structure shift needs at least two nodes")
    density = data.edge_index.shape[1] / (num_nodes * (num_nodes - 1))
    sizes = [num_nodes // num_blocks] * num_blocks
    sizes[-1] += num_nodes - sum(sizes)
    rng = np.random.default_rng(seed)
    edges = stochastic_block_edges(sizes, min(1.5 * density, 1.0), min(0.5 * density, 1.0), rng)
    weight = None if data.edge_weight is None else _drawn_weights(edges, data.edge_weight, num_nodes, rng)
    return _shifted(data, data.x, edges, weight)


def _drawn_weights(edge_index: Tensor, known: Tensor, num_nodes: int, rng: np.random.Generator) -> Tensor:
    """A random known weight for every pair of joined nodes, the same in both directions."""
    pairs, pair = (edge_index.amin(dim=0) * num_nodes + edge_index.amax(dim=0)).unique(return_inverse=True)
    return known[torch.from_numpy(rng.integers(max(len(known), 1), size=len(pairs)))][pair]


def stochastic_block_edges(sizes: Sequence[int], inside: float, across: float, rng: np.random.Generator) -> Tensor:
    """Draw the edges of an undirected stochastic block model, in both directions, in time linear in their number.

    Parameters
    ----------
    sizes : sequence of int
        Number of nodes of each block.
    inside, across : float
        Probability of an edge between two nodes of one block, and of two blocks.
    rng : numpy.random.Generator
        The source of random numbers.

    Returns
    -------
    Tensor
        Edges ``[2, E]``, sorted by their source.

    Examples
    --------
    >>> stochastic_block_edges([2, 1], inside=1.0, across=0.0, rng=np.random.default_rng(0))
    tensor([[0, 1],
            [1, 0]])
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    pairs = []
    for a in range(len(sizes)):
        for b in range(a, len(sizes)):
            candidates = sizes[a] * (sizes[a] - 1) // 2 if a == b else sizes[a] * sizes[b]
            count = rng.binomial(candidates, inside if a == b else across)
            drawn = rng.choice(candidates, size=count, replace=False, shuffle=False) if count else np.empty(0, int)
            row, col = _triangle_pair(drawn) if a == b else np.divmod(drawn, sizes[b])
            pairs.append(np.stack([row + starts[a], col + starts[b]]))
    low, high = torch.from_numpy(np.concatenate(pairs, axis=1)).long()
    edges = torch.cat([torch.stack([low, high]), torch.stack([high, low])], dim=1)
    order = (edges[0] * int(starts[-1]) + edges[1]).argsort()
    return edges[:, order]


def _triangle_pair(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pair at ``index`` in the list (1,0), (2,0), (2,1), (3,0), ..."""
    row = np.floor((1.0 + np.sqrt(1.0 + 8.0 * index.astype(np.float64))) / 2.0).astype(np.int64)
    row += (row + 1) * row // 2 <= index  # corrects square roots of large numbers that were rounded down or up
    row -= row * (row - 1) // 2 > index
    return row, index - row * (row - 1) // 2


def feature_shift(data: Data, seed: int = 0) -> Data:
    """Replace the features of every node by ``w x_i + (1 - w) x_j`` with random ``i``, ``j`` and ``w``.

    Parameters
    ----------
    data : Data
        The graph, with ``x``, ``edge_index`` and, if its edges have weights, ``edge_weight``.
    seed : int
        Seed of the mixture.
    """
    num_nodes = data.num_nodes
    generator = torch.Generator().manual_seed(seed)
    i = torch.randint(num_nodes, (num_nodes,), generator=generator)
    j = torch.randint(num_nodes, (num_nodes,), generator=generator)
    w = torch.rand(num_nodes, 1, generator=generator, dtype=data.x.dtype)
    return _shifted(data, w * data.x[i] + (1 - w) * data.x[j], data.edge_index, data.edge_weight)


def _shifted(data: Data, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Data:
    everyone = torch.ones(data.num_nodes, dtype=torch.bool)
    return Data(x=x, edge_index=edge_index, edge_weight=edge_weight, ood_mask=everyone)


def structure_task(name: str, data: Data, seed: int = 0, rules: TaskRules = CLEAN) -> Task:
    """Make a task whose ID nodes are the test nodes of the graph, and whose OOD nodes are those of a block model.

    The graphs for exposure and for testing are drawn independently.

    Parameters
    ----------
    name : str
        Its name in tables.
    data : Data
        The graph, with ``y`` and the masks of a split.
    seed : int
        Seed of both draws.
    rules : TaskRules
        The rules of the protocol.
    """
    num_classes = int(data.y.max()) + 1
    return _shift_task(name, data, "structure", lambda s: structure_shift(data, num_classes, s), seed, rules)


def feature_task(name: str, data: Data, seed: int = 0, rules: TaskRules = CLEAN) -> Task:
    """Make a task whose ID nodes are the test nodes of the graph, and whose OOD nodes have mixed features.

    The graphs for exposure and for testing are drawn independently.

    Parameters
    ----------
    name : str
        Its name in tables.
    data : Data
        The graph, with ``y`` and the masks of a split.
    seed : int
        Seed of both draws.
    rules : TaskRules
        The rules of the protocol.
    """
    return _shift_task(name, data, "feature", lambda s: feature_shift(data, s), seed, rules)


def _shift_task(name: str, data: Data, kind: str, shift: Callable[[int], Data], seed: int, rules: TaskRules) -> Task:
    test, exposure = (shift(int(s)) for s in np.random.SeedSequence(seed).generate_state(2))
    return Task(
        name=name,
        train=data,
        id_test=ScoredNodes(data, data.test_mask),
        tests={kind: test},
        num_classes=int(data.y.max()) + 1,
        exposure=exposure,
        protocol=rules.protocol,
        not_rehearsed=related_to(SHIFTS[kind]),
    )


def label_task(
    name: str,
    data: Data,
    id_classes: Sequence[int],
    exposure_classes: Sequence[int],
    ood_classes: Sequence[int],
    rules: TaskRules = CLEAN,
) -> Task:
    """Make a task that leaves classes out: nodes of some classes are ID, of others exposed, of others OOD.

    Training is inductive: left-out nodes and their edges are absent from the training graph, and the exposure graph
    has only ID and exposed nodes. ID test nodes and OOD nodes are then scored together on the full graph. If the rules
    set ``keep_left_out_nodes``, all nodes are in every graph, and left-out classes are numbered after the ID
    classes.

    Parameters
    ----------
    name : str
        Its name in tables.
    data : Data
        The graph, with ``y`` and the masks of a split.
    id_classes, exposure_classes, ood_classes : sequence of int
        Classes in ``y`` that are ID, exposed and OOD. The ID classes are numbered 0, 1, ... in their order.
    rules : TaskRules
        The rules of the protocol.
    """
    is_id, is_exposed, is_ood = (
        torch.isin(data.y, torch.tensor(list(c), dtype=data.y.dtype))
        for c in (id_classes, exposure_classes, ood_classes)
    )
    full = data.clone()
    numbered = [*id_classes, *exposure_classes, *ood_classes] if rules.keep_left_out_nodes else id_classes
    full.y = renumbered(data.y, numbered)
    for mask in ("train_mask", "val_mask", "test_mask"):
        full[mask] = data[mask] & is_id
    full.ood_mask = is_ood
    exposure = full.clone()
    exposure.ood_mask = is_exposed
    train = full.clone()
    del train.ood_mask
    if not rules.keep_left_out_nodes:
        train = induced(train, is_id)
        exposure = induced(exposure, is_id | is_exposed)
    return Task(
        name=name,
        train=train,
        id_test=ScoredNodes(full, full.test_mask),
        tests={"label": full},
        num_classes=len(id_classes),
        exposure=exposure if len(exposure_classes) else None,
        protocol=rules.protocol,
        num_left_out=len(exposure_classes) + len(ood_classes),
    )


def renumbered(y: Tensor, classes: Sequence[int]) -> Tensor:
    """Labels 0, 1, ... in the order of ``classes``; -1 for every other class."""
    numbers = torch.full_like(y, -1)
    for new, old in enumerate(classes):
        numbers[y == old] = new
    return numbers


def induced(data: Data, nodes: Tensor) -> Data:
    """Restrict a graph to some of its nodes.

    Parameters
    ----------
    data : Data
        The graph.
    nodes : Tensor
        Mask of the nodes ``[n]``, or their indices in the new order.
    """
    edge_index, edge_weight = subgraph(
        nodes, data.edge_index, data.edge_weight, relabel_nodes=True, num_nodes=data.num_nodes
    )
    part = {key: value[nodes] for key, value in data.items() if key not in ("edge_index", "edge_weight")}
    return Data(edge_index=edge_index, edge_weight=edge_weight, **part)


def split_classes(y: Tensor, num_val: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draw 20 training and ``num_val`` validation nodes of every class, or a third and the rest of a small one."""
    train, val = torch.zeros(2, len(y), dtype=torch.bool)
    for label in range(int(y.max()) + 1):
        nodes = torch.from_numpy(rng.permutation((y == label).nonzero().squeeze(1).numpy()))
        cut = min(20, max(1, len(nodes) // 3))
        train[nodes[:cut]] = True
        val[nodes[cut : cut + num_val]] = True
    return train, val


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
