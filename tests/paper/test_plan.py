"""From tables and figures to trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import roc_auc_score

from oddnode import Detector, Task, load_task
from oddnode.detector import RECIPES
from oddnode.objectives import BoundUniform
from oddnode.paper import plan as planning
from oddnode.paper.experiments import SCOPES, Run, choose_items
from oddnode.paper.plan import estimate_seconds, make_plan
from oddnode.paper.store import Store
from oddnode.protocols.published_terms import Bound, ExposedUniform, JointBound, SignedUniform
from oddnode.runner.detectors import build_detector
from oddnode.runner.work import Training
from tests.paper_helpers import TINY, execute, tiny_plan


def test_methods_and_items_share_trainings() -> None:
    plan = tiny_plan("table1")
    trained = {training.methods for training in plan.trainings}
    [shared] = [methods for methods in trained if "msp" in methods]
    assert {"msp", "energy", "gnnsafe", "odin", "mahalanobis", "knn", "grasp", "degree"} <= set(shared)
    assert sorted(m for methods in trained for m in methods) == sorted(RECIPES)
    assert {("nodesafe", "nodesafe-msp"), ("nodesafe-ensemble",), ("nodesafe++",)} <= trained
    published = tiny_plan("table1", protocols=("published",))
    assert {("energy", "gnnsafe"), ("mahalanobis",)} <= {training.methods for training in published.trainings}
    alone = [len(tiny_plan(name).trainings) for name in ("table1", "table6", "claims")]
    assert len(tiny_plan("table1", "table6", "claims").trainings) == max(alone)


def test_settings_that_are_the_methods_own_are_no_training_of_their_own() -> None:
    plan = tiny_plan("figure5", "table1")
    own = plan.training(Run("digits/label", "clean", "nodesafe"), 0)
    assert own is not None
    for setting in (("start", 20), ("lambda1", 0.001), ("lambda2", 1.0)):
        assert plan.training(Run("digits/label", "clean", "nodesafe", settings=(setting,)), 0) is own
    # Pictures of one training need one seed.
    assert len(tiny_plan("figure2", seeds=3).trainings) == 3
    assert len(tiny_plan("figure5", seeds=3).trainings) == 3 * len(tiny_plan("figure5").trainings)


def test_the_whole_paper_is_planned_without_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_absent", lambda tasks, data_dir: {"arxiv": "no"})
    plan = make_plan(SCOPES["paper"], choose_items(None), seeds=5)
    assert {t.task.split("/")[0] for t in plan.trainings} == {"cora", "citeseer", "pubmed", "twitch"}
    assert len({t.identity for t in plan.trainings}) == len(plan.trainings) > 1000
    costs = [planning.estimate_cost(t) for t in plan.trainings]
    assert costs == sorted(costs, reverse=True)
    assert estimate_seconds(plan.trainings, [], 16) < estimate_seconds(plan.trainings, [], 1) / 10


def test_missing_data_is_a_reason_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_CACHE", str(tmp_path))
    plan = make_plan(SCOPES["paper"], choose_items(["table2"]), data_dir=tmp_path)
    assert "musae" in plan.absent["twitch"]
    assert "arxiv" in plan.absent
    assert plan.trainings == []


def named_task(name: str, protocol: Any) -> Task:
    """A task of another name: the published settings go by that, and by nothing in the data."""
    return replace(load_task("digits/label", protocol=protocol), name=name)


def published(method: str, task: str, **settings: float) -> dict[str, tuple[float, int]]:
    training = Training(task, "published", "gcn", 0, (method,), tuple(settings.items()))
    objective = build_detector(training, method, named_task(task, "published"), "cpu").objective
    terms = (Bound, JointBound, SignedUniform, ExposedUniform)
    return {type(t).__name__: (round(w, 9), t.start) for w, t in objective.parts if type(t) in terms}  # type: ignore


def test_terms_take_other_weights() -> None:
    assert published("nodesafe", "cora/structure") == {"SignedUniform": (0.012, 21), "Bound": (11.988, 21)}
    assert published("nodesafe", "cora/structure", lambda1=0.0) == {"Bound": (12.0, 21)}
    assert published("nodesafe", "cora/structure", lambda1=1.0) == {"SignedUniform": (12.0, 21)}
    assert published("nodesafe", "twitch", lambda2=10.0) == {"SignedUniform": (0.01, 21), "Bound": (9.99, 21)}
    assert published("nodesafe", "twitch", start=50) == {"SignedUniform": (0.001, 51), "Bound": (0.999, 51)}
    assert published("nodesafe", "twitch", start=0) == {"SignedUniform": (0.001, 0), "Bound": (0.999, 0)}
    assert published("nodesafe++", "cora/feature", lambda1=1.0) == {"ExposedUniform": (10.0, 121)}
    training = Training("digits/label", "clean", "gcn", 0, ("nodesafe",), (("lambda1", 1.0),))
    objective = build_detector(training, "nodesafe", load_task("digits/label"), "cpu").objective
    assert [t.lambda1 for _, t in objective.parts if isinstance(t, BoundUniform)] == [1.0]  # type: ignore


def test_a_training_gives_what_the_library_gives(tmp_path: Path) -> None:
    plan = tiny_plan("table1")
    training = next(t for t in plan.trainings if "gnnsafe" in t.methods)
    outcome = execute(training)
    task = load_task("digits/label")
    detector = Detector.from_recipe("gnnsafe", device="cpu", epochs=TINY.epochs, propagation="as-given").fit(task.train)
    assert outcome.arrays["scores/gnnsafe/label"].tolist() == detector.score_samples(task.id_test.data).tolist()
    with Store(tmp_path) as store:
        store.save(training, "x", outcome.facts, outcome.arrays)
        store.save_graphs(training, outcome.graph_facts, outcome.graph_arrays)
        graphs = store.graphs(training)
        [record] = store.records()
    assert (graphs.y["id"][graphs.ood_mask["label"]] == -1).all()
    assert graphs.id_mask.sum() == int(task.id_test.mask.sum())
    assert len(record.facts["history"]["val_loss"]) == TINY.epochs
    # Metrics can be computed anew from the kept scores.
    inside, outside = graphs.id_mask, graphs.ood_mask["label"]
    again = roc_auc_score(inside[inside | outside], outcome.arrays["scores/msp/label"][inside | outside])
    assert 100 * again == pytest.approx(record.metrics("msp")["auroc"], abs=1e-9)


def test_a_training_that_explodes_is_an_outcome() -> None:
    training = Training("digits/label", "clean", "gcn", 0, ("nodesafe",), (("lambda2", float("inf")), ("start", 0)), 3)
    outcome = execute(training)
    assert "loss became" in outcome.facts["error"]
    assert outcome.facts["retry"] is False
