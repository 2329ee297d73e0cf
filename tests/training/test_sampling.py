"""Samples against the edges they come from, and their expected products against those of the whole graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

from oddnode.graph import CSRSampler, Graph
from oddnode.training import MiniBatches


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


def test_arrays_may_be_mapped_from_files(tmp_path: Path) -> None:
    edge_index = torch.randint(50, (2, 600), generator=torch.Generator().manual_seed(0))
    offsets, sources, _ = csr(edge_index, 50)
    np.save(tmp_path / "offsets.npy", offsets.astype(np.uint32))
    np.save(tmp_path / "sources.npy", sources.astype(np.int32))
    mapped = CSRSampler(
        np.load(tmp_path / "offsets.npy", mmap_mode="r"), np.load(tmp_path / "sources.npy", mmap_mode="r"), [4, 2]
    )
    plain = CSRSampler(torch.from_numpy(offsets), torch.from_numpy(sources), [4, 2])
    found, expected = sampled(mapped, [3, 8, 40]), sampled(plain, [3, 8, 40])
    for name in ("node", "row", "col", "edge"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


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


def some_graph(weighted: bool, dtype: torch.dtype = torch.float64) -> Graph:
    """Forty nodes with repeated edges and self-loops; the last two have none."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64).to(dtype)
    edges = torch.randint(38, (2, 300), generator=generator)
    weight = (0.1 + torch.rand(300, generator=generator, dtype=torch.float64)).to(dtype)
    return Graph(x, edges, weight if weighted else None)


@pytest.mark.parametrize("weighted", [True, False])
def test_with_all_neighbours_the_products_at_the_seeds_are_exact(weighted: bool) -> None:
    graph = some_graph(weighted)
    nodes = torch.tensor([39, 3, 17, 8])
    for batch in MiniBatches(graph, nodes, [-1, -1], batch_size=3, shuffle=False):
        seeds, part = nodes[batch.seeds], batch.graph
        assert torch.equal(part.x[: len(seeds)], graph.x[seeds])
        twice = part.gcn_matrix @ (part.gcn_matrix @ part.x)
        expected = graph.gcn_matrix @ (graph.gcn_matrix @ graph.x)
        torch.testing.assert_close(twice[: len(seeds)], expected[seeds])
        means = part.random_walk @ (part.random_walk @ part.x)
        torch.testing.assert_close(means[: len(seeds)], (graph.random_walk @ (graph.random_walk @ graph.x))[seeds])
        assert len(batch.random) == 0


@pytest.mark.parametrize("weighted", [True, False])
def test_sampled_convolutions_are_right_on_average(weighted: bool) -> None:
    graph, nodes = some_graph(weighted), torch.arange(40)
    batches = MiniBatches(graph, nodes, [3], batch_size=40)
    draws = []
    for _ in range(800):
        [batch] = batches
        product = torch.empty(40, 3, dtype=torch.float64)
        product[nodes[batch.seeds]] = (batch.graph.gcn_matrix @ batch.graph.x)[:40]
        draws.append(product)
    found, expected = torch.stack(draws), graph.gcn_matrix @ graph.x
    error = found.std(dim=0) / len(draws) ** 0.5
    assert float(((found.mean(dim=0) - expected).abs() / error.clamp_min(1e-9)).max()) < 5.0
    assert float(error.max()) > 1e-3  # it is a sample


def test_random_nodes_come_from_the_whole_graph_with_their_neighbourhoods() -> None:
    graph, nodes = some_graph(True), torch.tensor([3, 17, 8])
    seen: Counter[int] = Counter()
    expected = graph.gcn_matrix @ graph.x
    for _ in range(60):
        [batch] = MiniBatches(graph, nodes, [-1], batch_size=3, num_random=10, seed=sum(seen.values()))
        assert len(set(batch.random.tolist())) == 10
        chosen = [int((graph.x == row).all(dim=1).nonzero()) for row in batch.graph.x[batch.random]]
        torch.testing.assert_close((batch.graph.gcn_matrix @ batch.graph.x)[batch.random], expected[chosen])
        torch.testing.assert_close(batch.graph.x[:3], graph.x[nodes[batch.seeds]])
        seen.update(chosen)
    assert len(seen) == 40
    [batch] = MiniBatches(graph, nodes, [-1], batch_size=3, num_random=1000)
    assert sorted(batch.random.tolist()) == list(range(40))


def test_unshuffled_batches_are_the_same_in_every_iteration() -> None:
    batches = MiniBatches(some_graph(True), torch.arange(20), [2, 2], batch_size=7, shuffle=False)
    assert len(batches) == 3
    for one, other in zip(batches, list(batches), strict=True):
        assert torch.equal(one.graph.edge_index, other.graph.edge_index)
        assert torch.equal(one.seeds, other.seeds)
    moving = MiniBatches(some_graph(True), torch.arange(20), [2, 2], batch_size=7)
    assert sorted(torch.cat([batch.seeds for batch in moving]).tolist()) == list(range(20))
    assert [b.seeds.tolist() for b in moving] != [b.seeds.tolist() for b in moving]


def test_networks_that_take_no_weights_get_plain_edges() -> None:
    [batch] = MiniBatches(some_graph(False), torch.arange(5), [2], batch_size=5, weighted=False)
    assert batch.graph.edge_weight is None
