"""Training in mini-batches against training on the whole graph."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import typing as pyg_typing
from torch_geometric.data import Data
from torch_geometric.nn import GCN as PyGGCN
from torch_geometric.nn import BatchNorm, SAGEConv

from oddnode import BoundUniform, CrossEntropy, Detector, MaxSoftmax
from oddnode.graph import CSRSampler, Graph, TrainingSet, training_set
from oddnode.nn import BACKBONES, GAT, GCN, JKNet, MixHop, receptive_hops
from oddnode.training import (
    FullBatch,
    MiniBatch,
    MiniBatches,
    NeighbourBatch,
    TrainingConfig,
    TrainingError,
    TrainingResult,
)
from tests.training.test_stacked_gcn import with_weights
from tests.training_helpers import check_batch_norm

CONFIG = TrainingConfig(epochs=6)


def data_of(two_groups: Data) -> TrainingSet:
    data = two_groups.clone()
    data.x = data.x.double()
    return training_set(data, None, torch.device("cpu"), num_spare_logits=1)


def trained(module: nn.Module, data: TrainingSet, trainer: Any, config: TrainingConfig = CONFIG) -> TrainingResult:
    objective = CrossEntropy() + BoundUniform(start=2)
    [result] = trainer.start([module], objective, [data], [5], config).result()
    return result


def new(kind: Any) -> Any:
    torch.manual_seed(3)
    return kind(6, 8, 4, dropout=0.0).double()


def losses(result: TrainingResult) -> list[float]:
    return [row["loss"] for row in result.history]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("kind", [GCN, partial(GCN, batch_norm=False), GAT, JKNet, MixHop])
def test_one_batch_with_all_neighbours_is_the_whole_graph(two_groups: Data, kind: Any, weighted: bool) -> None:
    data = data_of(two_groups)
    if weighted:
        data.graph = with_weights(data.graph)
    modules = [new(kind) for _ in range(2)]
    whole = trained(modules[0], data, FullBatch())
    batches = trained(modules[1], data, MiniBatch(num_neighbours=-1, batch_size=100, num_random=60))
    assert losses(batches) == pytest.approx(losses(whole), rel=1e-9)
    assert losses(batches)[-1] < losses(batches)[0]
    assert batches.best_epoch == whole.best_epoch
    assert batches.best_val_loss == pytest.approx(whole.best_val_loss)
    with torch.no_grad():  # biases before batch norm change nothing, and rounding decides them
        torch.testing.assert_close(modules[1].run(data.graph), modules[0].run(data.graph))


def test_batch_norm_is_left_with_the_exact_statistics_of_the_whole_graph(two_groups: Data) -> None:
    data, module = data_of(two_groups), new(GCN)
    trained(module, data, MiniBatch(num_neighbours=2, batch_size=7, num_random=8))
    check_batch_norm(module, data.graph)
    assert module.norms[0].momentum == 0.1
    assert "forward" not in module.norms[0].__dict__


def test_statistics_are_those_of_random_nodes_and_not_of_the_labelled_ones(two_groups: Data) -> None:
    data, module = data_of(two_groups), new(GCN)
    one_class = data.y_train == 0
    data.train, data.y_train = data.train[one_class], data.y_train[one_class]
    module.norms[0].momentum = 1.0
    with torch.no_grad():
        expected = module.convs[0](None, data.graph).mean(dim=0)
    # The weights hardly move, and 60 random nodes are all there are.
    config = TrainingConfig(epochs=1, lr=1e-9, batch_norm="running")
    trained(module, data, MiniBatch(num_neighbours=-1, batch_size=4, num_random=60), config)
    torch.testing.assert_close(module.norms[0].running_mean, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "jknet", "mixhop", "mlp"])
def test_sampled_training_learns_as_well(two_groups: Data, backbone: str) -> None:
    trainer = MiniBatch(num_neighbours=3, batch_size=8)
    detector = Detector.from_recipe("nodesafe", backbone=backbone, trainer=trainer, epochs=30, device="cpu")
    detector.fit(two_groups)
    assert (detector.predict(two_groups) == two_groups.y).float().mean() > 0.95
    far = two_groups.clone()
    far.x = 0.05 * two_groups.x.flip(1)
    assert detector.score_samples(two_groups).median() > detector.score_samples(far).median()


def test_an_epoch_may_have_some_of_the_labelled_nodes(two_groups: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    real = MiniBatches.__iter__

    def noted(batches: MiniBatches) -> Iterator[NeighbourBatch]:
        for batch in real(batches):
            seen.append(batch.seeds)
            yield batch

    monkeypatch.setattr(MiniBatches, "__iter__", noted)
    trainer = MiniBatch(num_neighbours=-1, batch_size=5, num_random=60, batches_per_epoch=2)
    trained(new(GCN), data_of(two_groups), trainer, TrainingConfig(epochs=3))
    # 24 labelled nodes are 5 batches, of which an epoch has 2; 10 of the 12 validation nodes come after.
    steps, checks = seen[0:2] + seen[4:6] + seen[8:9], seen[2:4] + seen[6:8]
    assert sorted(torch.cat(steps).tolist()) == list(range(24))
    assert [len(part) for part in checks] == [5, 5, 5, 5]
    assert torch.equal(torch.cat(checks[:2]), torch.cat(checks[2:]))
    assert len(seen) == 12


def test_a_seed_gives_the_same_scores_and_leaves_the_callers_random_numbers_alone(two_groups: Data) -> None:
    def scores(seed: int) -> Tensor:
        trainer = MiniBatch(num_neighbours=2, batch_size=5)
        detector = Detector.from_recipe("nodesafe", backbone="gat", trainer=trainer, epochs=4, seed=seed, device="cpu")
        return detector.fit(two_groups).score_samples(two_groups)

    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first = scores(0)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(scores(0), first)
    assert not torch.equal(scores(1), first)


def test_exposed_nodes_are_sampled_in_their_graph(two_groups: Data) -> None:
    exposure = two_groups.clone()
    exposure.x = 0.05 * two_groups.x.flip(1)
    trainer = MiniBatch(num_neighbours=3, batch_size=16)
    detector = Detector.from_recipe("energy-ft", trainer=trainer, epochs=30, device="cpu").fit(two_groups, exposure)
    inside, outside = detector.score_samples(two_groups), detector.score_samples(exposure)
    assert float(inside.min()) > float(outside.median())


class _Sage(nn.Module):
    """A user's module that takes no weights, with PyG's batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = SAGEConv(6, 8), BatchNorm(8), SAGEConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x, edge_index)).relu(), edge_index)


@pytest.mark.parametrize("module", [_Sage(), PyGGCN(6, 8, 2, out_channels=3)], ids=["own", "PyG's"])
def test_modules_of_the_user_train_in_mini_batches(two_groups: Data, module: nn.Module) -> None:
    trainer = MiniBatch(num_neighbours=3, batch_size=8)
    detector = Detector(backbone=module, scorer=MaxSoftmax(), trainer=trainer, epochs=30, device="cpu").fit(two_groups)
    assert (detector.predict(two_groups) == two_groups.y).float().mean() > 0.95


@pytest.mark.parametrize(
    ("name", "hops"),
    [("gcn", 2), ("gat", 2), ("jknet", 2), ("mixhop", 4), ("mlp", 0), ("evidential-gcn", 2), ("gpn", 10)],
)
def test_hops_are_those_of_the_convolutions(name: str, hops: int) -> None:
    module = BACKBONES[name](6, 8, 3)
    assert receptive_hops(module) == hops
    # Nodes further away change nothing, and those at the last hop do: a path that ends at node 0.
    path = torch.stack([torch.arange(1, 14), torch.arange(13)])
    x = torch.eye(14, 6)
    x[:, 0] += torch.arange(14.0)

    def logits(changed: int) -> Tensor:
        other = x.clone()
        other[changed] += 1.0
        return module.eval()(other, path)[0]

    assert torch.equal(logits(hops + 1), logits(hops + 2))
    assert not torch.equal(logits(hops), logits(hops + 1))


def test_what_cannot_be_trained_in_batches_is_refused_with_a_reason(two_groups: Data) -> None:
    def fit(recipe: str, exposure: Data | None = None, **settings: Any) -> None:
        trainer = MiniBatch(**settings)
        Detector.from_recipe(recipe, trainer=trainer, epochs=2, device="cpu").fit(two_groups, exposure)

    with pytest.raises(ValueError, match=r"needs the outputs at all nodes.*trainer=FullBatch\(\)"):
        fit("gnnsafe++", two_groups)
    with pytest.raises(ValueError, match="batch_size is 0 and num_random 512, expected 1 and 2 or more"):
        fit("nodesafe", batch_size=0)
    with pytest.raises(ValueError, match="batches_per_epoch is 0, expected 1 or more, or None for all"):
        fit("nodesafe", batches_per_epoch=0)
    with pytest.raises(ValueError, match="or -1 for all"):
        fit("nodesafe", num_neighbours=-3)


def test_a_loss_that_is_not_a_number_is_reported(two_groups: Data) -> None:
    detector = Detector(lr=1e38, epochs=5, trainer=MiniBatch(batch_size=8), device="cpu")
    with pytest.raises(TrainingError, match=r"the loss became (nan|inf) in epoch \d of 5"):
        detector.fit(two_groups)


def test_epochs_are_reported_over_all_networks(two_groups: Data) -> None:
    seen: list[int] = []
    Detector(epochs=3, ensemble=2, trainer=MiniBatch(), device="cpu").fit(two_groups, on_epoch=seen.append)
    assert seen == [1, 2, 3, 4, 5, 6]


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
    tensors = (part.to(kind) for part in (found.row, found.col, found.node, found.edge))
    return *tensors, found.num_sampled_nodes, found.num_sampled_edges


def pretend_to_have_pyg_lib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYG_LIB", "EDGE_TIME_NEIGHBOR_SAMPLE", "WEIGHTED_NEIGHBOR_SAMPLE"):
        monkeypatch.setattr(pyg_typing, f"WITH_{name}", True)
    monkeypatch.setattr(torch.ops, "pyg", SimpleNamespace(neighbor_sample=neighbor_sample), raising=False)


def test_pyg_lib_samples_if_it_is_there(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def batches(seed: int) -> list[Tensor]:
        made = MiniBatches(some_graph(True), torch.arange(20), [2, 2], batch_size=7, num_random=4, seed=seed)
        return [torch.cat([batch.graph.edge_index.flatten(), batch.graph.x.flatten().int()]) for batch in made]

    with caplog.at_level(logging.DEBUG, "oddnode"):
        own = batches(0)
        pretend_to_have_pyg_lib(monkeypatch)
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
    pretend_to_have_pyg_lib(monkeypatch)
    test_with_all_neighbours_the_products_at_the_seeds_are_exact(weighted=True)
