from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import Detector, graph
from oddnode.graph import Graph, TrainingSet
from oddnode.nn import GCN, MLP, EvidentialGCN, JKNet, MixHop, run_backbone
from oddnode.objectives import BoundUniform, CrossEntropy, EnergyHinge, Objective, Term, Train, TrainingPass
from oddnode.training import FullBatch, TrainingConfig, TrainingError, TrainingHandle, TrainingResult, train
from oddnode.training.single import last_pass_statistics
from tests.training_helpers import check_batch_norm


def training_set(data: Data, exposure: Data | None = None, dtype: torch.dtype = torch.float32) -> TrainingSet:
    dataset = graph.training_set(data, exposure, torch.device("cpu"))
    dataset.to_dtype(dtype)
    return dataset


def new_gcn(dropout: float = 0.0) -> GCN:
    torch.manual_seed(0)
    return GCN(6, 8, 4, dropout=dropout)


def plain_loop(module: GCN, data: TrainingSet, epochs: int) -> tuple[dict[str, Tensor], int]:
    """Training written out: step, then validate the weights by a pass with batch statistics, keep the best."""
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=0.01)
    best, best_epoch, weights = float("inf"), 0, {}
    for epoch in range(1, epochs + 1):
        module.train()
        optimiser.zero_grad()
        F.cross_entropy(module(data.graph.x, data.graph.edge_index)[data.train], data.y_train).backward()
        optimiser.step()
        with torch.no_grad():
            logits = module(data.graph.x, data.graph.edge_index)
        loss = F.cross_entropy(logits[data.val], data.y_val).item()
        if loss < best:
            best, best_epoch = loss, epoch
            weights = {k: v.clone() for k, v in module.named_parameters()}
    return weights, best_epoch


def test_training_without_dropout_equals_the_plain_loop(two_groups: Data) -> None:
    data = training_set(two_groups, dtype=torch.float64)
    expected, best_epoch = plain_loop(new_gcn().double(), data, 30)
    module = new_gcn().double()
    outcome = train(module, CrossEntropy(), data, epochs=30)
    assert outcome.best_epoch == best_epoch
    assert len(outcome.history) == 30
    for name, weight in module.named_parameters():
        # A bias before batch norm has no effect and no gradient but rounding errors, which Adam makes large.
        if name != "convs.0.bias":
            torch.testing.assert_close(weight, expected[name])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_batch_norm_is_left_with_statistics_of_the_id_graph(two_groups: Data, dropout: float) -> None:
    module = new_gcn(dropout)
    data = training_set(two_groups)
    train(module, CrossEntropy(), data, epochs=5)
    check_batch_norm(module, data.graph)


@pytest.mark.parametrize("batch_norm", ["id-graph", "running"])
def test_exposure_without_a_loss_leaves_a_trace_in_running_statistics_alone(two_groups: Data, batch_norm: str) -> None:
    """The exposure graph goes through the network; running statistics, as published, see it."""
    far = two_groups.clone()
    far.x = 100 * far.x
    plain, exposed = new_gcn(), new_gcn()
    train(plain, CrossEntropy(), training_set(two_groups), epochs=5, batch_norm=batch_norm)
    train(exposed, CrossEntropy() + 0 * EnergyHinge(), training_set(two_groups, far), epochs=5, batch_norm=batch_norm)
    without, seen = plain.state_dict(), exposed.state_dict()
    if batch_norm == "id-graph":
        torch.testing.assert_close(seen, without)
    else:
        assert seen["norms.0.running_var"].sum() > 10 * without["norms.0.running_var"].sum()


def test_exposed_nodes_are_normalised_like_later_ood_nodes(two_groups: Data) -> None:
    """In a training pass their logits are those that scoring with the ID graph's statistics would give."""
    seen: list[TrainingPass] = []

    class Spy(Term):
        needs_exposure = True

        def __call__(self, step: TrainingPass) -> Tensor:
            seen.append(step)
            return step.logits.new_zeros(())

    other = two_groups.clone()
    other.x = two_groups.x.roll(1, dims=1) + 1
    module, data = new_gcn(), training_set(two_groups, other)
    start = {k: v.clone() for k, v in module.state_dict().items()}
    train(module, CrossEntropy() + Spy(), data, epochs=1)
    module.load_state_dict(start)
    module.train()
    with last_pass_statistics(module):
        module.run(data.graph)
    module.eval()
    assert data.exposure is not None
    torch.testing.assert_close(seen[0].exposure_logits, module.run(data.exposure))


@dataclass(frozen=True, repr=False)
class Everywhere(BoundUniform):
    """The same loss, but it asks for the logits of all nodes."""

    def __call__(self, step: TrainingPass) -> Tensor:
        assert step.logits.shape[0] == step.graph.num_nodes
        return super().__call__(step)


@pytest.mark.parametrize("kind", [GCN, MLP, JKNet, MixHop, EvidentialGCN])
@pytest.mark.parametrize("layers", [2, 3])
def test_logits_of_some_nodes_train_as_logits_of_all(two_groups: Data, kind: Any, layers: int) -> None:
    logits = []
    data = training_set(two_groups, two_groups, torch.float64)
    for term in (BoundUniform(), Everywhere()):
        torch.manual_seed(0)
        module = kind(6, 8, 4, num_layers=layers, dropout=0.5).double()
        exposed = CrossEntropy() + 0.1 * EnergyHinge() + term
        assert exposed.needs_all_logits == isinstance(term, Everywhere)
        train(module, exposed, data, epochs=12)
        logits.append(module.run(data.graph))
    torch.testing.assert_close(logits[0], logits[1])


def test_a_backbone_with_an_embedding_of_its_own_is_not_bypassed(two_groups: Data) -> None:
    calls = []

    class Mine(GCN):
        def embed(self, graph: Graph) -> Tensor:
            calls.append(self.training)
            return super().embed(graph)

    train(Mine(6, 8, 4, dropout=0.5), CrossEntropy(), training_set(two_groups), epochs=2)
    assert calls.count(True) == 2


def test_a_loss_that_is_not_a_number_is_reported(two_groups: Data) -> None:
    class Broken(Objective):
        def __call__(self, step: TrainingPass) -> Tensor:
            return step.logits.sum() * float("nan")

    with pytest.raises(TrainingError, match="became nan in epoch 1 of 5; lower the learning rate"):
        train(new_gcn(), Broken(), training_set(two_groups), epochs=5)


def test_a_single_term_waits_for_its_epoch_too(two_groups: Data) -> None:
    outcome = train(new_gcn(), CrossEntropy(start=2), training_set(two_groups), epochs=4)
    assert [row["loss"] == 0 for row in outcome.history] == [True, True, False, False]


def test_prepare_is_called_once_before_training(two_groups: Data) -> None:
    calls = []

    class Prepared(CrossEntropy):
        def prepare(self, data: TrainingSet, train: Train) -> CrossEntropy:
            calls.append(data.num_classes)
            return CrossEntropy()

    train(new_gcn(), 1 * Prepared(), training_set(two_groups), epochs=3)
    assert calls == [3]


def test_modules_with_functional_dropout_are_validated_without_it(two_groups: Data) -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return F.dropout(self.layer(x), 0.9, self.training)

    torch.manual_seed(0)
    module = Mine()
    data = training_set(two_groups)
    outcome = train(module, CrossEntropy(), data, epochs=3)
    logits = module(data.graph.x, data.graph.edge_index)[data.val]
    assert F.cross_entropy(logits, data.y_val).item() == pytest.approx(outcome.best_val_loss)


def test_detectors_with_equal_trainers_may_share_a_training() -> None:
    trainers = FullBatch(), FullBatch(), FullBatch(stacked=False)
    one, same, other = (Detector(trainer=trainer).training_key() for trainer in trainers)
    assert one == same != other


class PlainTrainer:
    """Cross-entropy by torch's own SGD, the last epoch kept; all work is done when the result is asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[int], TrainingConfig]] = []

    def start(
        self,
        modules: Sequence[nn.Module],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        config: TrainingConfig,
        on_epoch: Callable[[int], None] | None = None,
    ) -> TrainingHandle[list[TrainingResult]]:
        self.seen.append((len(modules), list(seeds), config))

        def finish() -> list[TrainingResult]:
            return [self._train(module, own, config) for module, own in zip(modules, data, strict=True)]

        return TrainingHandle(finish)

    def _train(self, module: nn.Module, data: TrainingSet, config: TrainingConfig) -> TrainingResult:
        optimiser = torch.optim.SGD(module.parameters(), lr=config.lr)
        history = []
        for epoch in range(1, config.epochs + 1):
            module.train()
            optimiser.zero_grad()
            loss = F.cross_entropy(run_backbone(module, data.graph)[data.train], data.y_train)
            loss.backward()
            optimiser.step()
            history.append({"epoch": epoch, "loss": loss.item(), "val_loss": loss.item()})
        module.eval()
        return TrainingResult(config.epochs, history[-1]["val_loss"], history)


def test_a_trainer_from_outside_trains_the_detectors_networks(two_groups: Data) -> None:
    trainer = PlainTrainer()
    detector = Detector(trainer=trainer, epochs=30, lr=0.5, ensemble=2, seed=7, device="cpu").fit(two_groups)
    [(count, seeds, config)] = trainer.seen
    assert count == 2
    assert len(set(seeds)) == 2
    assert config == TrainingConfig(epochs=30, lr=0.5)
    assert detector.best_epoch_ == 30
    assert [row["epoch"] for row in detector.history_] == [*range(1, 31)] * 2
    assert (detector.predict(two_groups) == two_groups.y).float().mean() > 0.9
    assert detector.score_samples(two_groups).isfinite().all()


def test_a_handle_finishes_once_with_the_same_object_or_error() -> None:
    calls = list[int]()

    def finish() -> list[int]:
        calls.append(1)
        return calls

    def fail() -> None:
        calls.append(2)
        raise TrainingError("failed")

    handle, failing = TrainingHandle(finish), TrainingHandle(fail)
    assert calls == []
    assert handle.result() is handle.result()
    with pytest.raises(TrainingError, match="failed") as first:
        failing.result()
    with pytest.raises(TrainingError) as second:
        failing.result()
    assert first.value is second.value
    assert calls == [1, 2]
