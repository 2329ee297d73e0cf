"""Statistics of a graph."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from oddnode.graph import Graph, one_way_share, profile
from oddnode.large import folder_from_data


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_the_share_of_one_way_edges_is_that_of_pairs(pairs: list[tuple[int, int]]) -> None:
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    different = {(a, b) for a, b in pairs if a != b}
    alone = sum((b, a) not in different for a, b in different)
    assert one_way_share(Graph(torch.ones(6, 1), edges)) == pytest.approx(alone / max(len(different), 1))


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_large_graph_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    there = torch.randint(1000, (2, 9000), generator=generator)
    edges = torch.cat([there, there[:, :3000].flip(0)], dim=1)
    data = Data(x=torch.ones(1000, 1), edge_index=edges[:, torch.randperm(12_000, generator=generator)])
    graph = Graph.from_data(folder_from_data(data, tmp_path) if on_disk else data)
    monkeypatch.setattr(profile, "_ENOUGH_EDGES", 20_000)
    everything = one_way_share(graph)
    assert everything == pytest.approx(0.5, abs=0.01)
    monkeypatch.setattr(profile, "_ENOUGH_EDGES", 1000)
    assert one_way_share(graph) == pytest.approx(everything, abs=0.05)
    assert one_way_share(graph) != everything
