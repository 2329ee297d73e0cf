"""What trials start from: a small graph, small tables, and saved models of many kinds."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import torch
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.tables import TableModel

__all__ = ["METHODS", "fitted", "save_models", "save_table_model", "small_graph", "small_tables"]

#: Models by name: a method and settings, which between them have every kind of part that a folder can hold.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "nodesafe": ("nodesafe", {}),
    "ensemble": ("nodesafe", {"ensemble": 2}),
    "gat": ("gnnsafe", {"backbone": "gat"}),
    "mixhop": ("energy", {"backbone": "mixhop"}),
    "mahalanobis": ("mahalanobis", {}),
    "knn": ("knn", {}),
    "grasp": ("grasp", {}),
    "gkde": ("gkde", {}),
    "gpn": ("gpn", {}),
    "odin": ("odin", {}),
    "evidence": ("nodesafe-evidence", {}),
}


def small_graph(seed: int = 0) -> Data:
    """Make a graph of 60 nodes in three classes of plainly different features."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(3).repeat_interleave(20)
    x = torch.nn.functional.one_hot(y, 6).float() + 0.1 * torch.randn(60, 6, generator=generator)
    source = torch.arange(60).repeat_interleave(4)
    target = (source // 20) * 20 + torch.randint(20, (240,), generator=generator)
    edges = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    place = torch.arange(60) % 20
    masks = {"train_mask": place < 8, "val_mask": (place >= 8) & (place < 12), "test_mask": place >= 12}
    return Data(x=x, edge_index=edges, y=y, **masks)


def fitted(name: str, seed: int = 0, epochs: int = 3) -> Detector:
    """Fit one of `METHODS` on the small graph and calibrate it."""
    method, settings = METHODS[name]
    graph = small_graph()
    detector = Detector.from_recipe(method, seed=seed, epochs=epochs, hidden_channels=8, **settings)
    return detector.fit(graph).calibrate(graph, 0.1, graph.test_mask)


def save_models(folder: Path) -> None:
    """Save a model of every kind."""
    for name in METHODS:
        fitted(name).save(folder / name)
    save_table_model(folder / "tables")


def small_tables(rng: Random, num_nodes: int = 90) -> tuple[dict[str, list], dict[str, list]]:
    """Make the columns of a table of nodes and of a table of edges."""
    topics = [f"t{number % 3}" for number in range(num_nodes)]
    ids = [f"n{number}" for number in range(num_nodes)]
    rng.shuffle(ids)
    nodes: dict[str, list] = {
        "id": ids,
        "topic": topics,
        "a": [float(topic[1]) + rng.gauss(0, 0.2) for topic in topics],
        "b": [rng.gauss(0, 1) for _ in topics],
        "c": [rng.choice("xyz") for _ in topics],
        "d": [rng.randrange(100) for _ in topics],
        "known": [rng.random() < 0.8 for _ in topics],
    }
    pairs = [(rng.choice(ids), rng.choice(ids)) for _ in range(3 * num_nodes)]
    return nodes, {"source": [one for one, _ in pairs], "target": [other for _, other in pairs]}


def save_table_model(folder: Path) -> None:
    """Save a model of the small tables."""
    import pyarrow as pa

    nodes, edges = small_tables(Random("base"))
    model, _ = TableModel.fit(
        pa.table(nodes),
        pa.table(edges),
        id_column="id",
        label_column="topic",
        drop_columns=["known"],
        epochs=3,
        hidden_channels=8,
    )
    model.save(folder)
