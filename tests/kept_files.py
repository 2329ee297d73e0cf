"""Files that a version of oddnode wrote, which later versions read: a model, a model of tables and a graph folder.

    python -m tests.kept_files        # writes tests/kept/<version>; run it once for every format that is new

All data is made here. The methods are ones whose scores are not meant to change, and the default, whose scores may.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

import oddnode
from oddnode import Detector
from oddnode.large import GraphFolder, NodeChunk, build_folder
from oddnode.tables import TableModel

KEPT = Path(__file__).parent / "kept"


def known_graph() -> Data:
    """Twelve nodes of two classes on a ring."""
    order = torch.arange(12)
    x = torch.stack([(order % 2).float(), (order % 5) / 4.0, (order % 3) / 2.0], dim=1)
    ring = torch.stack([order, (order + 2) % 12])
    masks = {"train_mask": order < 6, "val_mask": order >= 6}
    return Data(x=x, edge_index=torch.cat([ring, ring.flip(0)], dim=1), y=order % 2, **masks)


def known_tables(num_rows: int = 30) -> tuple[dict[str, list], dict[str, list]]:
    """Rows with a label, a number and a category."""
    rows = range(num_rows)
    nodes: dict[str, list] = {
        "id": [f"n{row}" for row in rows],
        "topic": ["cats" if row % 2 else "dogs" for row in rows],
        "size": [row % 2 + (row % 7) / 10 for row in rows],
        "colour": ["red" if row % 3 else "blue" for row in rows],
    }
    return nodes, {"source": nodes["id"][:-2], "target": nodes["id"][2:]}


def main() -> None:
    """Write the files of this version, and the scores that it gives."""
    place = KEPT / oddnode.__version__
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    graph, (nodes, edges) = known_graph(), known_tables()
    detector = Detector.from_recipe("nodesafe", epochs=5, hidden_channels=4).fit(graph)
    detector.save(place / "model")
    tables, _ = TableModel.fit(
        nodes, edges, id_column="id", label_column="topic", method="msp", epochs=5, false_alarm_rate=0.2
    )
    tables.save(place / "tables")
    roles: dict[str, Any] = {"id_column": "id", "label_column": "topic", "epochs": 5, "hidden_channels": 4}
    TableModel.fit(*known_tables(120), **roles)[0].save(place / "default")
    ids = np.array([f"n{node}" for node in range(12)])
    chunk = NodeChunk(graph.x.numpy(), graph.y.numpy(), ids, {"train_mask": graph.train_mask.numpy()})
    build_folder(place / "graph", [chunk], [graph.edge_index.numpy()], classes=["even", "odd"], made_from="a ring")
    scores = {
        "model": detector.score_samples(graph).tolist(),
        "tables": tables.score_frame(nodes, edges)["score"].to_pylist(),
        "graph": detector.score_samples(GraphFolder(place / "graph")).tolist(),
    }
    (place / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    for path in place.rglob(".lock"):
        path.unlink()


if __name__ == "__main__":
    main()
