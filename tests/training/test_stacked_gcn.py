"""Networks that train stacked become what they become alone."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode.graph import Graph, TrainingSet
from oddnode.nn import GCN, MLP
from oddnode.objectives import (
    BoundUniform,
    CrossEntropy,
    EnergyHinge,
    LogitNorm,
    Objective,
    OutlierExposure,
    SyntheticExposure,
    Term,
    Train,
    TrainingPass,
)
from oddnode.training import TrainingError, TrainingResult, stacking_blocker
from tests.training_helpers import check_batch_norm, train_together

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
        check_batch_norm(module, sets[0].graph)


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


class MyLoss(CrossEntropy):
    """Changes with the epoch, and does not say otherwise."""

    def __call__(self, step: TrainingPass) -> Tensor:
        return step.epoch * super().__call__(step)


class PerNode(Term):
    """Reads the sizes of the graphs, as a user's term may."""

    supports_capture = True
    needs_exposure = True

    def __call__(self, step: TrainingPass) -> Tensor:
        assert step.exposure_graph is not None
        assert step.exposure_logits is not None
        inside = step.logits.square().sum() / step.graph.num_nodes
        outside = step.graph.random_walk.nnz * step.exposure_logits.square().sum()
        return inside + outside / step.exposure_graph.num_nodes / 1000


class OnlyPositive(Term):
    """Keeps logits by a boolean mask, the size of which torch.vmap cannot know."""

    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        return step.logits[step.logits > 0].mean()


class ReadsFeatures(Term):
    """Reads features of the exposure graph, which every network may have its own of."""

    supports_capture = True
    needs_exposure = True

    def __call__(self, step: TrainingPass) -> Tensor:
        assert step.exposure_graph is not None
        assert step.exposure_logits is not None
        return (step.exposure_logits * step.exposure_graph.x[:, :1]).square().mean()


@dataclass(frozen=True, repr=False)
class Prepared(Term):
    """Takes a number from the data before training."""

    supports_capture = True
    scale: float = 0.0

    def prepare(self, data: TrainingSet, train: Train) -> Prepared:
        return replace(self, scale=float(len(data.train)))

    def __call__(self, step: TrainingPass) -> Tensor:
        return self.scale * step.train_logits.square().mean()


def test_reasons(two_groups: Data) -> None:
    sets = data_sets(two_groups, 2, "each", same_nodes=False)
    plain = 1 * CrossEntropy()

    def why(modules: Any = None, objective: Any = plain, data: Any = sets, norm: str = "id-graph") -> str:
        return str(stacking_blocker(modules or networks(2), objective, data, norm))

    assert why() == "None"
    assert "MLP does not consist of graph convolutions" in why([MLP(6, 8, 4)] * 2)
    assert "GCN does not consist of graph convolutions with batch norm" in why([GCN(6, 8, 4, batch_norm=False)] * 2)
    assert "shapes, dropout or batch norm differ" in why([GCN(6, 8, 4), GCN(6, 8, 4, dropout=0.5)])
    assert "running statistics" in why(norm="running")
    assert "does not declare supports_capture" in why(objective=CrossEntropy() + SyntheticExposure())
    other = replace(sets[1], graph=Graph(two_groups.x.double() + 1, two_groups.edge_index))
    assert "training graphs differ" in why(data=[sets[0], other])
    edges = two_groups.edge_index
    weighted = [Graph(sets[0].graph.x, edges, w * torch.ones(edges.shape[1]).double()) for w in (1.0, 1.0, 2.0)]
    assert why(data=[replace(sets[0], graph=weighted[0]), replace(sets[1], graph=weighted[1])]) == "None"
    assert "training graphs differ" in why(data=[replace(sets[0], graph=weighted[0]), sets[1]])
    two = [replace(data, graph=graph) for data, graph in zip(sets, weighted[1:], strict=True)]
    assert "training graphs differ" in why(data=two)
    fewer = replace(sets[1], train=sets[1].train[1:], y_train=sets[1].y_train[1:])
    assert "numbers of training nodes" in why(data=[sets[0], fewer])
    assert sets[1].exposed is not None
    assert "numbers of exposed nodes" in why(data=[sets[0], replace(sets[1], exposed=sets[1].exposed[1:])])


@pytest.mark.parametrize("exposure", ["shared", "each"])
def test_a_users_term_that_reads_sizes_trains_stacked(
    two_groups: Data, exposure: str, caplog: pytest.LogCaptureFixture
) -> None:
    sets = data_sets(two_groups, 2, exposure, same_nodes=False)
    objective = CrossEntropy() + 0.1 * PerNode(start=3)
    assert stacking_blocker(networks(2), objective, sets, "id-graph") is None
    with caplog.at_level(logging.INFO, logger="oddnode"):
        _, logits = trained(networks(2), objective, sets, together=True)
    assert not caplog.records
    torch.testing.assert_close(logits, trained(networks(2), objective, sets, together=False)[1])


@pytest.mark.parametrize(
    ("term", "exposure", "reason"),
    [
        (OnlyPositive(), "none", "the objective fails under torch.vmap: RuntimeError: "),
        (ReadsFeatures(), "each", "x of the exposure graph differs between stacked networks"),
        (Prepared(), "none", "Prepared is prepared on the data of each network"),
        (MyLoss(), "none", "does not declare supports_capture"),
    ],
)
def test_other_terms_fall_back_with_one_line_in_the_log(
    two_groups: Data, term: Term, exposure: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    sets = data_sets(two_groups, 2, exposure, same_nodes=False)
    with caplog.at_level(logging.INFO, logger="oddnode"):
        outcomes, logits = trained(networks(2), CrossEntropy() + 0.1 * term, sets, together=True)
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("training 2 networks one after another: ")
    assert reason in record.getMessage()
    assert "\n" not in record.getMessage()
    expected, expected_logits = trained(networks(2), CrossEntropy() + 0.1 * term, sets, together=False)
    assert [o.history for o in outcomes] == [o.history for o in expected]
    assert all(torch.equal(a, b) for a, b in zip(logits, expected_logits, strict=True))


def test_a_term_that_reads_features_trains_stacked_where_the_exposure_graph_is_shared(two_groups: Data) -> None:
    sets = data_sets(two_groups, 2, "shared", same_nodes=True)
    for data in sets[1:]:
        data.exposure = sets[0].exposure
    assert stacking_blocker(networks(2), 1 * ReadsFeatures(), sets, "id-graph") is None


def test_trying_an_objective_out_leaves_networks_and_random_numbers_alone(two_groups: Data) -> None:
    sets, modules = data_sets(two_groups, 2, "none", same_nodes=True), networks(2)
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in modules]
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    stacking_blocker(modules, 1 * OnlyPositive(), sets, "id-graph")
    assert torch.equal(torch.rand(2), expected)
    for module, state in zip(modules, before, strict=True):
        assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
        assert all(p.grad is None for p in module.parameters())
