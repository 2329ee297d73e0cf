"""Networks that train stacked become what they become alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode.graph import Graph, TrainingSet
from oddnode.nn import GCN
from oddnode.objectives import (
    BoundUniform,
    CrossEntropy,
    EnergyHinge,
    LogitNorm,
    Objective,
    OutlierExposure,
)
from oddnode.training import TrainingError, TrainingResult
from tests.training_helpers import train_together

OBJECTIVES: dict[str, Objective] = {
    "gnnsafe": CrossEntropy(),
    "logit norm": LogitNorm(1.0),
    "nodesafe": CrossEntropy() + BoundUniform(start=4),
    "oe": CrossEntropy() + 0.5 * OutlierExposure(),
    "energy-ft": CrossEntropy() + 0.1 * EnergyHinge(),
    "gnnsafe++": CrossEntropy() + 0.1 * EnergyHinge(-2.0, -1.0, num_hops=3, eta=0.1),
    "nodesafe++": CrossEntropy() + 0.1 * EnergyHinge(num_hops=2) + BoundUniform(start=3),
}


def data_sets(graph: Data, seeds: int, exposure: str, same_nodes: bool) -> list[TrainingSet]:
    sets = []
    shared = Graph(graph.x.double(), graph.edge_index)
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(0 if same_nodes else seed)
        order = torch.randperm(graph.num_nodes, generator=generator)
        train, val = order[:24].sort().values, order[24:36].sort().values
        data = TrainingSet(shared, train, graph.y[train], val, graph.y[val], 3, num_spare_logits=1)
        if exposure != "none":
            generator = torch.Generator().manual_seed(seed if exposure == "each" else 0)
            edges = torch.randint(45, (2, 90 + seed * (exposure == "each")), generator=generator)
            data.exposure = Graph(torch.randn(50, 6, generator=generator, dtype=torch.float64), edges)
            data.exposed = torch.arange(50) if exposure == "each" else torch.arange(5, 45)
        sets.append(data)
    return sets


def networks(count: int, layers: int = 2, dropout: float = 0.5) -> list[GCN]:
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        made.append(GCN(6, 8, 4, num_layers=layers, dropout=dropout).double())
    return made


def trained(
    modules: list[Any], objective: Objective, data: list[TrainingSet], together: bool, **settings: Any
) -> tuple[list[TrainingResult], list[Tensor]]:
    outcomes = train_together(
        modules, objective, data, list(range(10, 10 + len(modules))), epochs=12, stacked=together, **settings
    )
    return outcomes, [module.run(data[0].graph).detach() for module in modules]


@pytest.mark.parametrize("same_nodes", [True, False])
@pytest.mark.parametrize("exposure", ["shared", "each"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_stacked_is_what_one_after_another_is(two_groups: Data, name: str, exposure: str, same_nodes: bool) -> None:
    objective = OBJECTIVES[name]
    sets = data_sets(two_groups, 3, exposure if objective.needs_exposure else "none", same_nodes)
    together, logits = trained(networks(3), objective, sets, together=True)
    alone, expected = trained(networks(3), objective, sets, together=False)
    for a, b in zip(together, alone, strict=True):
        assert a.best_epoch == b.best_epoch
        assert [row["loss"] for row in a.history] == pytest.approx([row["loss"] for row in b.history], rel=1e-9)
        assert [row["val_loss"] for row in a.history] == pytest.approx([row["val_loss"] for row in b.history], rel=1e-9)
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("exposure", ["shared", "each"])
def test_weighted_graphs_train_stacked_as_one_after_another(two_groups: Data, exposure: str) -> None:
    sets, objective = data_sets(two_groups, 3, exposure, same_nodes=False), OBJECTIVES["nodesafe++"]
    graph, seeds = with_weights(sets[0].graph), range(3) if exposure == "each" else [0] * 3
    weighted = [replace(d, graph=graph, exposure=with_weights(d.exposure, s)) for s, d in zip(seeds, sets, strict=True)]
    _, logits = trained(networks(3), objective, weighted, together=True)
    _, expected = trained(networks(3), objective, weighted, together=False)
    torch.testing.assert_close(logits, expected)
    _, plain = trained(networks(3), objective, sets, together=True)
    assert not torch.allclose(logits[0], plain[0])


def with_weights(graph: Graph | None, seed: int = 0) -> Graph:
    assert graph is not None
    generator = torch.Generator().manual_seed(seed)
    weight = 0.1 + torch.rand(graph.edge_index.shape[1], generator=generator, dtype=torch.float64)
    return Graph(graph.x, graph.edge_index, weight)


@pytest.mark.parametrize(("layers", "dropout"), [(3, 0.5), (2, 0.0), (4, 0.3)])
def test_depth_and_dropout(two_groups: Data, layers: int, dropout: float) -> None:
    sets = data_sets(two_groups, 2, "each", same_nodes=False)
    objective = OBJECTIVES["nodesafe++"]
    _, logits = trained(networks(2, layers, dropout), objective, sets, together=True)
    _, expected = trained(networks(2, layers, dropout), objective, sets, together=False)
    torch.testing.assert_close(logits, expected)


def test_batch_norm_is_left_with_statistics_of_the_id_graph(two_groups: Data) -> None:
    sets, modules = data_sets(two_groups, 2, "none", same_nodes=True), networks(2)
    trained(modules, CrossEntropy(), sets, together=True)
    for module in modules:
        assert not module.training
        with torch.no_grad():
            first: Any = module.convs[0]
            before_norm = first(None, sets[0].graph)
        torch.testing.assert_close(module.norms[0].running_mean, before_norm.mean(dim=0))
        torch.testing.assert_close(module.norms[0].running_var, before_norm.var(dim=0))


def test_epochs_are_reported_over_all_networks(two_groups: Data) -> None:
    sets, seen = data_sets(two_groups, 2, "none", same_nodes=True), list[int]()
    trained(networks(2), CrossEntropy(), sets, together=False, on_epoch=seen.append)
    assert seen == list(range(1, 25))


def test_a_loss_that_is_not_a_number_is_reported(two_groups: Data) -> None:
    sets = data_sets(two_groups, 2, "none", same_nodes=True)
    modules = networks(2)
    torch.nn.init.constant_(cast(Any, modules[1].norms[0].weight), float("inf"))
    with pytest.raises(TrainingError, match="became nan in epoch 1 of 12"):
        trained(modules, CrossEntropy(), sets, together=True)
