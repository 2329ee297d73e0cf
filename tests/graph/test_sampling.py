"""Samples and neighbourhoods against the edges they come from."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput
from torch_geometric.utils import k_hop_subgraph

from oddnode.graph import CSRSampler, Graph, neighbourhood, node_blocks


def csr(edge_index: Tensor, num_nodes: int) -> tuple[np.ndarray, np.ndarray, Tensor]:
    order = edge_index[1].argsort(stable=True)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(edge_index[1].numpy(), minlength=num_nodes))])
    return offsets, edge_index[0, order].numpy(), order


def sampled(sampler: CSRSampler, seeds: list[int]) -> SamplerOutput:
    return sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor(seeds, dtype=torch.long)))


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=50),
    st.lists(st.integers(-1, 4), max_size=3),
    st.sets(st.integers(0, 8)),
    st.integers(0, 2**32),
)
def test_a_sample_has_edges_of_the_graph_each_once_and_as_many_as_asked(
    pairs: list[tuple[int, int]], counts: list[int], seeds: set[int], seed: int
) -> None:
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    offsets, sources, order = csr(edge_index, 9)
    out = sampled(CSRSampler(offsets, sources, counts, seed, order), sorted(seeds))
    assert out.node[: len(seeds)].tolist() == sorted(seeds)
    assert len(set(out.node.tolist())) == len(out.node)
    edge = order[out.edge] if len(out.edge) else out.edge
    assert len(set(edge.tolist())) == len(edge)
    assert torch.equal(out.node[out.row], edge_index[0, edge])
    assert torch.equal(out.node[out.col], edge_index[1, edge])
    assert out.num_sampled_nodes is not None
    assert out.num_sampled_edges is not None
    assert sum(out.num_sampled_nodes) == len(out.node)
    assert sum(out.num_sampled_edges) == len(edge)
    degree = Counter(edge_index[1].tolist())
    expanded, first = Counter(out.node[out.col].tolist()), 0
    for count, new in zip(counts, out.num_sampled_nodes, strict=False):
        for node in out.node[first : first + new].tolist():
            assert expanded[node] == (degree[node] if count == -1 else min(count, degree[node]))
        first += new
    assert not any(expanded[node] for node in out.node[first:].tolist())


def test_all_edges_of_a_node_are_equally_likely_and_so_are_all_pairs() -> None:
    sampler = CSRSampler([0, 5, 5, 5, 5, 5, 5], [1, 2, 3, 4, 5], [2], seed=3)
    draws = Counter(tuple(sorted(sampled(sampler, [0]).edge.tolist())) for _ in range(4000))
    assert len(draws) == 10
    # A chi-squared variable of 9 degrees of freedom is below 27.9 in 999 of 1000 cases.
    assert sum((count - 400) ** 2 / 400 for count in draws.values()) < 27.9


def test_a_seed_gives_the_same_samples_again() -> None:
    edge_index = torch.randint(50, (2, 600), generator=torch.Generator().manual_seed(0))
    offsets, sources, _ = csr(edge_index, 50)
    first, second, other = (CSRSampler(offsets, sources, [3, 3], seed) for seed in (7, 7, 8))
    for _ in range(3):
        one, two, three = (sampled(each, [4, 9]) for each in (first, second, other))
        assert torch.equal(one.edge, two.edge)
        assert not torch.equal(one.edge, three.edge)
    before = sampled(first, [1]).edge
    first.set_seed(7)
    assert torch.equal(sampled(first, [4, 9]).edge, sampled(CSRSampler(offsets, sources, [3, 3], 7), [4, 9]).edge)
    assert len(before)


def test_pygs_loader_takes_features_of_nodes_and_edges_with_it() -> None:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(30, (2, 200), generator=generator)
    data = Data(x=torch.arange(30.0).unsqueeze(1), edge_index=edge_index, edge_weight=torch.arange(200.0))
    offsets, sources, order = csr(edge_index, 30)
    loader = NodeLoader(data, CSRSampler(offsets, sources, [3, 3], permutation=order), torch.arange(20), batch_size=8)
    seen = []
    for batch in loader:
        seen += batch.x[: batch.batch_size, 0].tolist()
        source, target = batch.x[batch.edge_index, 0].long()
        assert torch.equal(edge_index[:, batch.edge_weight.long()], torch.stack([source, target]))
    assert seen == list(range(20))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="or -1 for all"):
        CSRSampler([0, 0], [], [-2])
    with pytest.raises(ValueError, match="twice among the seeds"):
        sampled(CSRSampler([0, 0, 0], [], [1]), [1, 1])
    with pytest.raises(NotImplementedError, match="not around edges"):
        CSRSampler([0, 0], [], [1]).sample_from_edges(None)


def numbered(pairs: list[tuple[int, int]]) -> Graph:
    """Nine nodes, whose feature is their number; edges weigh one more than theirs."""
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    return Graph(torch.arange(9.0).unsqueeze(1), edge_index, 1.0 + torch.arange(len(pairs)))


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30),
    st.sets(st.integers(0, 8), min_size=1),
    st.integers(0, 3),
)
def test_a_neighbourhood_is_that_of_pyg(pairs: list[tuple[int, int]], chosen: set[int], num_hops: int) -> None:
    graph, nodes = numbered(pairs), torch.tensor(sorted(chosen))
    part, num_inner = neighbourhood(graph, nodes, num_hops)
    expected, _, _, _ = k_hop_subgraph(nodes, num_hops, graph.edge_index, num_nodes=9)
    around = part.x[:, 0].long()
    assert torch.equal(around[: len(nodes)], nodes)
    assert sorted(around.tolist()) == expected.tolist()
    inner = set(k_hop_subgraph(nodes, num_hops - 1, graph.edge_index, num_nodes=9)[0].tolist()) if num_hops else set()
    assert set(around[:num_inner].tolist()) == inner
    assert part.edge_weight is not None
    found = {tuple(row) for row in torch.stack([*around[part.edge_index], part.edge_weight.long()], dim=1).tolist()}
    assert found == {(u, v, 1 + place) for place, (u, v) in enumerate(pairs) if v in inner}


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30), st.integers(1, 12))
def test_blocks_have_all_nodes_in_order_and_no_more_edges_than_asked(pairs: list[tuple[int, int]], most: int) -> None:
    graph = numbered(pairs)
    degree = torch.bincount(graph.edge_index[1], minlength=9)
    blocks = list(node_blocks(graph, most))
    assert [node for block in blocks for node in range(9)[block]] == list(range(9))
    sizes = [int(degree[block].sum()) + block.stop - block.start for block in blocks]
    assert all(size <= most or block.stop - block.start == 1 for size, block in zip(sizes, blocks, strict=True))
    first_of_next = [1 + int(degree[block.start]) for block in blocks[1:]]
    assert all(size + first > most for size, first in zip(sizes, first_of_next, strict=False))
