"""One network in training: what a step shares dies with it."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oddnode.graph import Graph, TrainingSet
from oddnode.nn import BACKBONES, GAT, GCN, GPN, MLP, Backbone
from oddnode.objectives import CrossEntropy, EnergyHinge, Objective
from oddnode.ops import FeatureProducts
from oddnode.runner.detectors import PlanarGAT
from oddnode.training import SingleTrainee, StackedGCNs, TrainingConfig, TrainingError, TrainingLoop, train


def sparse_set() -> TrainingSet:
    """An ID graph and an exposure graph that share few non-zero features."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(40, 60, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(x.shape, generator=generator) < 0.06)
    y = torch.arange(40) % 3
    x[torch.arange(40), y] = 1.0
    graph, exposure = (Graph(x, torch.randint(40, (2, 100), generator=generator)) for _ in range(2))
    exposure.share_features(graph)
    train_nodes, val = torch.arange(0, 20), torch.arange(20, 30)
    return TrainingSet(graph, train_nodes, y[train_nodes], val, y[val], 3, exposure, torch.arange(40))


def new_module(name: str = "gcn", **settings: Any) -> Any:
    torch.manual_seed(0)
    return BACKBONES[name](60, 8, 3, **settings).double()


OBJECTIVES: dict[str, Objective] = {
    "labelled and exposed nodes": CrossEntropy() + 0.1 * EnergyHinge(),
    "all nodes": CrossEntropy() + 0.1 * EnergyHinge(num_hops=2),
}


def trainee_of(data: TrainingSet, objective: Objective, stacked: bool) -> SingleTrainee | StackedGCNs:
    module = new_module(dropout=0.5)
    if stacked:
        return StackedGCNs([module], objective, [data], [3], epochs=6)
    module.norms[0].momentum = 1.0  # what last_pass_statistics does for a training
    return SingleTrainee(module, objective, data, "id-graph", 3, epochs=6)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_nothing_of_a_step_survives_it(name: str, stacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    trainee = trainee_of(sparse_set(), OBJECTIVES[name], stacked)
    seen: list[weakref.ref[Any]] = []
    make = type(trainee).shared_forward

    def noted(self: Any, epoch: int) -> Any:
        shared: Any = make(self, epoch)
        products = shared.weight.products if stacked else shared.products
        activations = shared.normalised if stacked else shared.pre_norm.values
        seen.extend(weakref.ref(each) for each in (shared, products, products._last[3], activations))
        return shared

    monkeypatch.setattr(type(trainee), "shared_forward", noted)
    loop = TrainingLoop(trainee, TrainingConfig(epochs=6))
    gc.disable()  # nothing may wait for the collector either
    try:
        for epoch in range(3):
            loop.step(epoch)
            assert len(seen) == 4 * (epoch + 1)
            assert all(ref() is None for ref in seen)
    finally:
        gc.enable()


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_weights_changed_in_place_between_steps_are_used(name: str, stacked: bool) -> None:
    """A stale product once spoilt trainings: an optimiser changes a weight in place and leaves no trace of it."""
    data, objective = sparse_set(), OBJECTIVES[name]
    losses = []
    for passes_before in (0, 1):
        trainee = trainee_of(data, objective, stacked)
        for _ in range(passes_before):
            shared: Any = trainee.shared_forward(0)
            trainee.loss(shared, 0)  # without a backward pass, which could have cleaned up
            del shared
        for parameter in trainee.parameters():
            parameter.data.mul_(1.5)  # neither the address nor the version changes
        shared = trainee.shared_forward(1)
        losses.append(torch.cat([trainee.validation_loss(shared), trainee.loss(shared, 1).detach()]))
    torch.testing.assert_close(*losses, rtol=0, atol=0)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_both_graphs_of_a_step_share_one_product_and_train_as_without(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = []
    linear = FeatureProducts.linear

    def noted(self: FeatureProducts, features: Any, weight: Tensor) -> Tensor:
        product = linear(self, features, weight)
        computed.append(product)  # kept, so that their ids differ
        return product

    with monkeypatch.context() as patched:
        patched.setattr(FeatureProducts, "linear", noted)
        shared = train(new_module(dropout=0.5), OBJECTIVES[name], sparse_set(), epochs=4)
    by_step = [{id(product) for product in computed[place : place + 2]} for place in range(0, 8, 2)]
    assert [len(ids) for ids in by_step] == [1] * 4
    monkeypatch.setattr(FeatureProducts, "linear", lambda self, features, weight: features @ weight.t())
    alone = train(new_module(dropout=0.5), OBJECTIVES[name], sparse_set(), epochs=4)
    assert [r["loss"] for r in shared.history] == pytest.approx([r["loss"] for r in alone.history], rel=1e-12)


@pytest.mark.parametrize("batch_norm", ["id-graph", "running"])
@pytest.mark.parametrize("weight", [1.0, float("nan")])
def test_the_momentum_of_batch_norm_is_what_it_was_even_after_an_error(batch_norm: str, weight: float) -> None:
    module = new_module()
    module.norms[0].momentum = 0.3
    with nullcontext() if weight == 1.0 else pytest.raises(TrainingError):
        train(module, weight * CrossEntropy(), sparse_set(), epochs=2, batch_norm=batch_norm)
    assert module.norms[0].momentum == 0.3


class Inheriting(GCN):
    """A user's backbone that overrides a layer and promises nothing."""

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return super().head(hidden, graph) * int(hidden.sum() > 0)


class Promising(Inheriting):
    supports_capture = True


def blocker(module: nn.Module, objective: Objective | None = None) -> str:
    data = sparse_set()
    return str(SingleTrainee(module, objective or CrossEntropy(), data, "id-graph", 0, 5).capture_blocker)


def test_only_what_declares_it_is_captured() -> None:
    kinds: list[type[Backbone]] = [GCN, MLP, GAT, Promising]
    assert [blocker(kind(60, 8, 3)) for kind in kinds] == ["None"] * 4
    assert blocker(Inheriting(60, 8, 3)) == "Inheriting does not declare supports_capture = True"
    assert blocker(new_module("gpn")) == "GPN does not declare supports_capture = True"
    assert blocker(nn.Linear(60, 3)) == "Linear does not declare supports_capture = True"

    class Mine(Objective):
        def __call__(self, step: Any) -> Tensor:
            return step.logits.sum()

    assert blocker(GCN(60, 8, 3), Mine()) == "a term of the objective does not declare supports_capture = True"


class Nested(Backbone):
    """A backbone with another one inside, like the network of the figure of two-dimensional logits."""

    def __init__(self, body: Backbone):
        super().__init__()
        self.body, self.dropout, self.last = body, body.dropout, nn.Linear(4, 3)

    def embed(self, graph: Graph) -> Tensor:
        return self.body.run(graph)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return self.last(hidden)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Nested(GAT(60, 8, 4, dropout=0.5)),
        lambda: PlanarGAT(60, 8, 3, dropout=0.5),
        lambda: GPN(60, 8, 3, dropout=0.5),
    ],
    ids=["nested gat", "planar gat", "gpn"],
)
def test_dropout_does_not_depend_on_what_else_is_drawn(make: Any) -> None:
    def draw(epoch: int) -> None:
        torch.rand(epoch)

    histories = []
    for disturb in (None, draw):
        torch.manual_seed(0)
        module = make().double()
        torch.manual_seed(1)
        histories.append(train(module, CrossEntropy(), sparse_set(), epochs=5, on_epoch=disturb).history)
        assert all(layer.stream is None for layer in module.modules() if isinstance(layer, Backbone))
    assert histories[0] == histories[1]
    assert len({row["loss"] for row in histories[0]}) == 5
