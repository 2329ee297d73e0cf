"""A GPU computes what the CPU computes: captured steps, stacked networks, the benchmark."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN as PyGGCN

from oddnode import Detector, benchmark, load_task
from oddnode._utils.random import redirected, seeded
from oddnode.graph import Graph, TrainingSet
from oddnode.nn import BACKBONES, GCN
from oddnode.objectives import CrossEntropy, Objective, Term, TrainingPass
from oddnode.training import CapturedSteps, SingleTrainee, StackedGCNs, TrainingError, TrainingResult
from tests.training import test_stacked_gcn
from tests.training_helpers import start_training, train_together

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")

EPOCHS = 14


def objectives() -> dict[str, Objective]:
    from oddnode.detector import RECIPES

    names = ("gnnsafe", "gnnsafe+logitnorm", "nodesafe", "oe", "energy-ft", "gnnsafe++", "nodesafe++")
    return {name: RECIPES[name].build(**({"start": 6} if "nodesafe" in name else {}))[0] for name in names}


def moved(data: TrainingSet, device: str) -> TrainingSet:
    def graph(g: Graph) -> Graph:
        return Graph(g.x.to(device), g.edge_index.to(device))

    names = ("train", "y_train", "val", "y_val", "exposed")
    tensors = {name: getattr(data, name) for name in names if getattr(data, name) is not None}
    return replace(
        data,
        graph=graph(data.graph),
        exposure=None if data.exposure is None else graph(data.exposure),
        **{name: tensor.to(device) for name, tensor in tensors.items()},
    )


def data_sets(graph: Data, count: int, device: str, exposure: bool) -> list[TrainingSet]:
    sets = test_stacked_gcn.data_sets(graph, count, "each" if exposure else "none", same_nodes=False)
    return [moved(data, device) for data in sets]


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each attempt to capture a step has succeeded."""
    made = list[bool]()
    capture = CapturedSteps._capture

    def noted(self: CapturedSteps, epoch: int) -> torch.cuda.CUDAGraph | None:
        graph = capture(self, epoch)
        made.append(graph is not None)
        return graph

    monkeypatch.setattr(CapturedSteps, "_capture", noted)
    return made


@pytest.fixture
def in_background(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each training replayed in the background."""
    counts = list[int]()
    replay = CapturedSteps._replay_in_background

    def noted(self: CapturedSteps, times: int) -> None:
        counts.append(times)
        replay(self, times)

    monkeypatch.setattr(CapturedSteps, "_replay_in_background", noted)
    return counts


def networks(kind: str, count: int, device: str, features: int = 6, width: int = 8) -> list[Any]:
    made = []
    for seed in range(count):
        with seeded(seed), redirected():
            made.append(BACKBONES[kind](features, width, 4, dropout=0.5).double().to(device))
    return made


def trained(
    kind: str, objective: Objective, data: list[TrainingSet], device: str, **settings: Any
) -> tuple[list[TrainingResult], list[Tensor]]:
    modules = networks(kind, len(data), device)
    outcomes = train_together(modules, objective, data, list(range(len(data))), epochs=EPOCHS, **settings)
    return outcomes, [module.run(d.graph).detach().cpu() for module, d in zip(modules, data, strict=True)]


def check_same(a: tuple[list[TrainingResult], list[Tensor]], b: tuple[list[TrainingResult], list[Tensor]]) -> None:
    for first, second in zip(a[0], b[0], strict=True):
        assert first.best_epoch == second.best_epoch
        for key in ("loss", "val_loss"):
            assert [row[key] for row in first.history] == pytest.approx([row[key] for row in second.history], rel=1e-7)
    torch.testing.assert_close(a[1], b[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", objectives())
def test_captured_and_stacked_is_what_the_cpu_does(two_groups: Data, name: str, captures: list[bool]) -> None:
    objective = objectives()[name]
    needs = objective.needs_exposure
    on_gpu = trained("gcn", objective, data_sets(two_groups, 3, "cuda", needs), "cuda")
    assert captures == [True] * len((1.0 * objective).starts)
    on_cpu = trained("gcn", objective, data_sets(two_groups, 3, "cpu", needs), "cpu")
    check_same(on_gpu, on_cpu)


def test_trainings_at_the_same_time_are_what_the_cpu_does(
    two_groups: Data, captures: list[bool], in_background: list[int]
) -> None:
    started = []
    for objective in objectives().values():
        data = data_sets(two_groups, 3, "cuda", objective.needs_exposure)
        modules = networks("gcn", 3, "cuda")
        finish = start_training(modules, objective, data, list(range(3)), epochs=EPOCHS)
        started.append((objective, modules, data, finish))
    assert len(in_background) == len(started)
    assert all(captures)
    for objective, modules, data, finish in started:
        on_gpu = finish.result(), [module.run(d.graph).detach().cpu() for module, d in zip(modules, data, strict=True)]
        check_same(on_gpu, trained("gcn", objective, data_sets(two_groups, 3, "cpu", objective.needs_exposure), "cpu"))


def sparse_sets(device: str, exposed: bool) -> list[TrainingSet]:
    """Data of four networks that share the graph, its few non-zero features and all nodes, but not the exposure."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(300, 90, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(x.shape, generator=generator) < 0.03)
    y, edges = torch.arange(300) % 3, torch.randint(300, (2, 900), generator=generator)
    x[torch.arange(300), y] = 1.0
    shared = Graph(x.to(device), edges.to(device))
    train, val = torch.arange(0, 60), torch.arange(60, 120)
    sets = []
    for _ in range(4):
        data = TrainingSet(shared, train, y[train], val, y[val], 3, num_spare_logits=1)
        if exposed:
            other = torch.randint(300, (2, 900), generator=generator)
            data.exposure, data.exposed = Graph(shared.x, other.to(device)), torch.arange(300)
        for name in ("train", "y_train", "val", "y_val", "exposed"):
            if getattr(data, name) is not None:
                setattr(data, name, getattr(data, name).to(device))
        sets.append(data)
    return sets


def test_trainings_at_the_same_time_share_a_graph_and_survive_what_happens_to_memory(in_background: list[int]) -> None:
    data = {exposed: sparse_sets("cuda", exposed) for exposed in (False, True)}
    for sets in data.values():
        for own in sets:
            own.graph = data[False][0].graph  # the same for all trainings
    started = []
    for objective in objectives().values():
        modules = networks("gcn", 4, "cuda", 90, 64)
        sets = [replace(own, train=own.train.clone()) for own in data[objective.needs_exposure]]
        started.append((objective, modules, start_training(modules, objective, sets, list(range(4)), epochs=EPOCHS)))
        torch.cuda.empty_cache()
        torch.full((1 << 22,), float("nan"), device="cuda")  # into whatever memory has become free
    assert len(in_background) == len(started)
    for objective, modules, wait in started:
        alone = networks("gcn", 4, "cpu", 90, 64)
        sets = sparse_sets("cpu", objective.needs_exposure)
        expected = train_together(alone, objective, sets, list(range(4)), epochs=EPOCHS), _logits(alone, sets[0].graph)
        check_same((wait.result(), _logits(modules, data[False][0].graph)), expected)


def _logits(modules: list[Any], graph: Graph) -> list[Tensor]:
    return [module.run(graph).detach().cpu() for module in modules]


def test_one_training_that_fails_leaves_the_others_alone(two_groups: Data) -> None:
    objective = objectives()["nodesafe"]
    modules, data = networks("gcn", 3, "cuda"), data_sets(two_groups, 3, "cuda", False)
    good = start_training(modules, objective, data, list(range(3)), epochs=EPOCHS)
    bad = start_training(networks("gcn", 3, "cuda"), 1e300 * CrossEntropy(), data, [0] * 3, epochs=EPOCHS, lr=1e300)
    forgotten = start_training(networks("gcn", 3, "cuda"), objective, data, [0] * 3, epochs=EPOCHS)
    del forgotten
    with pytest.raises(TrainingError, match=r"in epoch \d+ of 14; lower the learning rate"):
        bad.result()
    outcomes = good.result()
    logits = [module.run(d.graph).detach().cpu() for module, d in zip(modules, data, strict=True)]
    check_same((outcomes, logits), trained("gcn", objective, data_sets(two_groups, 3, "cpu", False), "cpu"))


def test_epochs_are_reported_one_by_one(two_groups: Data) -> None:
    seen = list[int]()
    trained("gcn", CrossEntropy(), data_sets(two_groups, 2, "cuda", False), "cuda", on_epoch=seen.append)
    assert seen == list(range(1, EPOCHS + 1))


def test_attention_over_sparse_features_is_captured_and_what_the_cpu_does(captures: list[bool]) -> None:
    both = []
    for device in ("cuda", "cpu"):
        [gat], [own, *_] = networks("gat", 1, device, features=90), sparse_sets(device, False)
        assert own.graph.is_sparse
        both.append((train_together([gat], CrossEntropy(), [own], [3], epochs=EPOCHS), _logits([gat], own.graph)))
    assert captures == [True]
    check_same(*both)


@pytest.mark.parametrize("kind", ["gcn", "gat", "mlp", "jknet", "mixhop", "evidential-gcn"])
def test_captured_steps_of_one_network_are_what_the_cpu_does(two_groups: Data, kind: str, captures: list[bool]) -> None:
    objective = objectives()["nodesafe"]
    on_gpu = trained(kind, objective, data_sets(two_groups, 1, "cuda", False), "cuda", stacked=False)
    assert captures == [True, True]  # before the second term starts, and after
    check_same(on_gpu, trained(kind, objective, data_sets(two_groups, 1, "cpu", False), "cpu"))


@pytest.mark.parametrize("kind", BACKBONES)
def test_every_backbone_trains_and_finds_its_best_epoch(two_groups: Data, kind: str) -> None:
    [outcome], [logits] = trained(kind, CrossEntropy(), data_sets(two_groups, 1, "cuda", False), "cuda")
    losses = [row["val_loss"] for row in outcome.history]
    assert outcome.best_epoch == losses.index(min(losses)) + 1
    assert logits.isfinite().all()


@pytest.mark.parametrize("kind", ["gcn", "mlp", "gat"])
def test_replayed_dropout_differs_from_step_to_step(two_groups: Data, kind: str) -> None:
    """A replayed step must not repeat the masks it was captured with."""
    data = data_sets(two_groups, 1, "cuda", False)
    settings: dict[str, Any] = {"lr": 0.0, "weight_decay": 0.0}
    [outcome], _ = trained(kind, CrossEntropy(), data, "cuda", **settings)
    assert len({row["loss"] for row in outcome.history}) == EPOCHS
    assert len({round(row["val_loss"], 9) for row in outcome.history}) == 1


def test_a_users_module_is_not_captured_and_that_is_logged_once(
    two_groups: Data, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="oddnode"):
        Detector(PyGGCN(6, 8, 2, out_channels=3), epochs=5, device="cuda").fit(two_groups)
    assert [r.message for r in caplog.records if "CUDA graph" in r.message] == [
        "steps are not captured as a CUDA graph: GCN does not declare supports_capture = True"
    ]


class DeclaredBackbone(GCN):
    """A user's backbone that promises to be capturable."""

    supports_capture = True

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return 0.5 * super().head(hidden, graph)


def test_a_users_backbone_that_declares_it_is_captured(two_groups: Data, captures: list[bool]) -> None:
    histories = []
    for device in ("cuda", "cpu"):
        with seeded(0), redirected():
            module = DeclaredBackbone(6, 8, 4, dropout=0.5).double().to(device)
        [outcome] = train_together(
            [module], CrossEntropy(), data_sets(two_groups, 1, device, False), [0], epochs=EPOCHS
        )
        histories.append([row["loss"] for row in outcome.history])
    assert captures == [True]
    assert histories[0] == pytest.approx(histories[1], rel=1e-7)


class Margin(Term):
    """A user's term that promises more than it keeps: a boolean mask gives tensors of a size that changes."""

    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        top = step.train_logits.amax(dim=-1)
        return top[top > 0].sum()


@pytest.mark.parametrize("count", [1, 3])
def test_a_term_that_can_neither_be_stacked_nor_captured_trains_as_on_the_cpu(
    two_groups: Data, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    objective = CrossEntropy() + 0.1 * Margin()
    with caplog.at_level(logging.INFO, logger="oddnode"):
        on_gpu = trained("gcn", objective, data_sets(two_groups, count, "cuda", False), "cuda")
    assert len([r for r in caplog.records if "not captured" in r.message]) == 1
    assert len([r for r in caplog.records if "one after another" in r.message]) == (count > 1)
    check_same(on_gpu, trained("gcn", objective, data_sets(two_groups, count, "cpu", False), "cpu"))


@pytest.mark.parametrize(("trainee", "count"), [(SingleTrainee, 1), (StackedGCNs, 3)])
def test_a_capture_that_fails_falls_back(
    two_groups: Data, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trainee: Any, count: int
) -> None:
    loss = trainee.loss

    def waiting(self: Any, shared: Any, epoch: int) -> Tensor:
        value = loss(self, shared, epoch)
        value.sum().item()  # waits for the device, which a capture cannot do
        return value

    on_cpu = trained("gcn", CrossEntropy(), data_sets(two_groups, count, "cpu", False), "cpu")
    monkeypatch.setattr(trainee, "loss", waiting)
    sets = data_sets(two_groups, count, "cuda", False)
    with caplog.at_level(logging.INFO, logger="oddnode"):
        on_gpu = trained("gcn", CrossEntropy(), sets, "cuda", stacked=trainee is StackedGCNs)
    assert len([r for r in caplog.records if "not captured" in r.message]) == 1
    check_same(on_gpu, on_cpu)


@pytest.mark.parametrize("name", ["nodesafe", "nodesafe++", "gold", "gkde", "gpn", "mahalanobis"])
def test_detectors_score_on_a_gpu_and_move_to_a_cpu(two_groups: Data, name: str, tmp_path: Path) -> None:
    exposure = two_groups.clone()
    exposure.x = -exposure.x
    detector = Detector.from_recipe(name, epochs=20, device="cuda", ensemble=2)
    detector.fit(two_groups, exposure if name.endswith("++") else None)
    scores = detector.score_samples(two_groups)
    assert scores.device.type == "cpu"
    assert (detector.predict(two_groups) == two_groups.y).float().mean() > 0.8
    detector.save(tmp_path / "model")
    elsewhere = Detector.load(tmp_path / "model", device="cpu").score_samples(two_groups)
    torch.testing.assert_close(elsewhere, scores, rtol=1e-3, atol=1e-3)


def test_the_benchmark_gives_the_cpus_numbers() -> None:
    methods = ["msp", "gnnsafe", "nodesafe", "gnnsafe++", "nodesafe++"]
    on_gpu = benchmark("digits/label", methods, seeds=3, device="cuda")
    on_cpu = benchmark("digits/label", methods, seeds=3, device="cpu", jobs=1)
    for a, b in zip(on_gpu, on_cpu, strict=True):
        assert a.mean("auroc") == pytest.approx(b.mean("auroc"), abs=1.0)
        assert a.mean("id_acc") == pytest.approx(b.mean("id_acc"), abs=1.0)


def test_processes_forked_from_one_that_knows_of_a_gpu_train_on_the_cpu() -> None:
    code = """
        import torch
        assert torch.cuda.is_available()
        from oddnode import benchmark
        from oddnode.bench import run as module
        module.num_cores = lambda: 2
        [result] = benchmark("digits/label", "nodesafe", seeds=2, jobs=2, device="cpu")
        assert not torch.cuda.is_initialized()
        assert len(result.runs) == 2
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_explanations_lie_beside_the_data(two_groups: Data) -> None:
    detector = Detector.from_recipe("nodesafe", epochs=10, device="cuda").fit(two_groups)
    why = detector.explain(two_groups)
    assert {why.score.device.type, why.own_score.device.type, why.nearest_class.device.type} == {"cpu"}
    assert detector.explain(two_groups.clone().cuda()).neighbour_contribution.is_cuda


def test_published_protocol_runs() -> None:
    [result] = benchmark("digits/label", "nodesafe++", seeds=2, protocol="published", device="cuda")
    assert result.mean("auroc") > 60


def test_data_may_lie_on_the_gpu() -> None:
    task = load_task("digits/label")
    graph = task.train.clone().cuda()
    detector = Detector.from_recipe("nodesafe", epochs=10, device="cuda").fit(graph)
    assert detector.score_samples(graph).is_cuda
