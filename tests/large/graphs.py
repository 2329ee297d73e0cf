"""Random graphs for the tests of graphs on disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from oddnode.large import GraphFolder, folder_from_data


def random_graph(
    num_nodes: int = 60,
    num_edges: int = 240,
    num_features: int = 5,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    weighted: bool = False,
) -> Data:
    """A graph with repeated edges, self-loops and, in its last fifth, nodes without edges; some weights are 0."""
    generator = torch.Generator().manual_seed(seed)
    linked = max(num_nodes * 4 // 5, 1)
    edges = torch.randint(linked, (2, num_edges), generator=generator)
    edges = torch.cat([edges, edges[:, : num_edges // 8], edges[:1, : num_edges // 8].expand(2, -1)], dim=1)
    y = torch.randint(3, (num_nodes,), generator=generator)
    x = torch.randn(num_nodes, num_features, generator=generator, dtype=dtype) + y.to(dtype).unsqueeze(1) + 2
    role = torch.arange(num_nodes) % 4
    data = Data(x=x, edge_index=edges, y=y, train_mask=role == 0, val_mask=role == 1, calibration_mask=role == 2)
    if weighted:
        weight = torch.rand(edges.shape[1], generator=generator, dtype=torch.float64).mul_(3.0).sub_(0.3)
        data.edge_weight = weight.clamp_min_(0.0).to(dtype)
    return data


# Sums of these depend on the order, the last one is 0 in single precision.
WEIGHTS = [0.0, 0.1, 0.2, 0.3, 1.0, 7.0, 1e-9, 1e9, 1e-50]


@st.composite
def graphs(draw: st.DrawFn, weighted: bool = False) -> Data:
    """Graphs of all kinds, from a single node on."""
    num_nodes = draw(st.integers(1, 12))
    ends = st.tuples(st.integers(0, num_nodes - 1), st.integers(0, num_nodes - 1))
    edges = draw(st.lists(ends, max_size=40))
    seed = draw(st.integers(0, 5))
    x = torch.randn(num_nodes, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    data = Data(x=x, edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous())
    if weighted:
        weights = draw(st.lists(st.sampled_from(WEIGHTS), min_size=len(edges), max_size=len(edges)))
        data.edge_weight = torch.tensor(weights, dtype=torch.float64)
    return data


def as_folder(data: Data, path: Path) -> GraphFolder:
    return folder_from_data(data, path)


def signed(content: dict[str, Any]) -> str:
    """A JSON file of a folder, with the checksum that belongs to its content."""
    rest = json.dumps({name: value for name, value in content.items() if name != "sha256"})[1:]
    return f'{{\n "sha256": "{hashlib.sha256(rest.encode()).hexdigest()}",\n{rest}'


def dense_adjacency(data: Data) -> Tensor:
    """``A[v, u]``: how many edges lead from u to v, or the sum of their weights."""
    adjacency = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.float64)
    source, target = data.edge_index
    weight = torch.ones(len(source)) if data.edge_weight is None else data.edge_weight
    return adjacency.index_put_((target, source), weight.double(), accumulate=True)
