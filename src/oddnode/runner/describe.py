"""The description of a task's graphs that a store keeps: names, sizes, masks, classes and degrees."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode.tasks import Task

__all__ = ["describe_graphs"]


def describe_graphs(task: Task) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Describe the graphs that a task's detectors are scored on.

    Parameters
    ----------
    task : Task
        The task.

    Returns
    -------
    facts : dict
        ``graphs`` (name -> the name under which its arrays are stored; in label leave-out two names share one graph),
        ``nodes``, ``edges``, ``num_classes`` and ``data``, a fingerprint of the task.
    arrays : dict of str to array
        ``id_mask``, and for each graph ``ood_mask/<name>``, ``y/<name>`` and ``degree/<name>``.
    """
    tests = dict(task.tests)
    same = [name for name, data in tests.items() if data is task.id_test.data]
    names = {"id": same[0] if same else "id", **{name: name for name in tests}}
    graphs = {"id": task.id_test.data, **tests}
    arrays = {"id_mask": task.id_test.mask.cpu().numpy()}
    arrays |= {f"ood_mask/{name}": data.ood_mask.cpu().numpy() for name, data in tests.items()}
    for stored in dict.fromkeys(names.values()):
        data = graphs[stored]
        targets = data.edge_index[1].cpu().numpy()
        arrays[f"y/{stored}"] = _classes(data)
        arrays[f"degree/{stored}"] = np.bincount(targets, minlength=data.num_nodes).astype(np.int32)
    facts = {
        "graphs": names,
        "nodes": {name: int(data.num_nodes) for name, data in graphs.items()},
        "edges": {name: int(data.edge_index.shape[1]) for name, data in graphs.items()},
        "num_classes": task.num_classes,
        "data": _fingerprint(task),
    }
    return facts, arrays


def _classes(data: Data) -> np.ndarray:
    """Classes of a graph's nodes; -1 if it has no labels (a shifted copy of a graph)."""
    y = data.y if isinstance(data.get("y"), Tensor) else torch.full((data.num_nodes,), -1)
    return y.cpu().numpy().astype(np.int16)


def _fingerprint(task: Task) -> str:
    """A hash of all tensors that training and scoring read."""
    digest = hashlib.blake2b(digest_size=8)
    graphs = [task.train, *([] if task.exposure is None else [task.exposure]), task.id_test.data, *task.tests.values()]
    for data in {id(g): g for g in graphs}.values():
        for name in sorted(data.keys()):
            if isinstance(data[name], Tensor):
                digest.update(np.ascontiguousarray(data[name].cpu().numpy()).view(np.uint8).data)
    return digest.hexdigest()
