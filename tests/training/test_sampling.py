"""Mini-batches: their products on average are those of the whole graph."""

from __future__ import annotations

import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import typing as pyg_typing

from oddnode.graph import CSRSampler, Graph
from oddnode.training import MiniBatches


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


def neighbor_sample(*arguments: Any) -> tuple[Any, ...]:
    """Stands in for pyg-lib: its arguments and results, and random numbers from torch's own generator."""
    offsets, sources, seeds, num_neighbours, *nothing = arguments[:-6]
    assert arguments[-6:] == (True, False, True, False, "uniform", True)
    assert nothing == [None] * 4
    assert offsets.dtype == sources.dtype == seeds.dtype
    found = CSRSampler(offsets, sources, num_neighbours, int(torch.randint(2**31, ()))).draw(seeds.long())
    kind = sources.dtype
    return (*(part.to(kind) for part in (found.row, found.col, found.nodes, found.edge)), *found[4:])


def test_pyg_lib_samples_if_it_is_there(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def batches(seed: int) -> list[Tensor]:
        made = MiniBatches(some_graph(True), torch.arange(20), [2, 2], batch_size=7, num_random=4, seed=seed)
        return [torch.cat([batch.graph.edge_index.flatten(), batch.graph.x.flatten().int()]) for batch in made]

    with caplog.at_level(logging.DEBUG, "oddnode"):
        own = batches(0)
        for name in ("PYG_LIB", "EDGE_TIME_NEIGHBOR_SAMPLE", "WEIGHTED_NEIGHBOR_SAMPLE"):
            monkeypatch.setattr(pyg_typing, f"WITH_{name}", True)
        monkeypatch.setattr(torch.ops, "pyg", SimpleNamespace(neighbor_sample=neighbor_sample), raising=False)
        state = torch.get_rng_state()
        first, again, other = batches(0), batches(0), batches(1)
    assert [record.message for record in caplog.records[:2]] == [
        "neighbours are sampled by oddnode",
        "neighbours are sampled by pyg-lib",
    ]
    assert torch.equal(torch.get_rng_state(), state)
    for one, two, three, four in zip(first, again, other, own, strict=True):
        assert torch.equal(one, two)
        assert not torch.equal(one, three)
        assert not torch.equal(one, four)


def test_pyg_lib_gives_whole_neighbourhoods_their_exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyg_typing, "WITH_PYG_LIB", True)
    monkeypatch.setattr(pyg_typing, "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", True)
    monkeypatch.setattr(pyg_typing, "WITH_WEIGHTED_NEIGHBOR_SAMPLE", True)
    monkeypatch.setattr(torch.ops, "pyg", SimpleNamespace(neighbor_sample=neighbor_sample), raising=False)
    test_with_all_neighbours_the_products_at_the_seeds_are_exact(weighted=True)
