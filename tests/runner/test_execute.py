"""What executing a training adds to fitting and evaluating: scores that are shared."""

from __future__ import annotations

import json

from oddnode import Detector, Energy, MaxSoftmax, Propagated, evaluate, load_task
from oddnode.paper.record import Record
from oddnode.runner.execute import _CachedScorer, execute
from oddnode.runner.work import Training


def test_the_numbers_are_those_of_evaluate() -> None:
    training = Training("digits/label", "clean", "gcn", 1, ("msp", "energy"), (), 5)
    task = load_task("digits/label", seed=1)
    outcome = execute(training, device="cpu")
    fitted = Detector.from_recipe("msp", seed=1, device="cpu", epochs=5, propagation="as-given").fit(task.train)
    assert outcome.metrics == {
        "msp": evaluate(fitted, task),
        "energy": evaluate(fitted.with_scorer(Energy()), task),
    }


def test_a_cached_scorer_says_what_the_other_is() -> None:
    inner = Propagated(Energy(), num_hops=3)
    cached = _CachedScorer(inner)
    assert (cached.num_hops_used, cached.needs_raw_logits) == (3, True)
    assert not _CachedScorer(MaxSoftmax()).needs_raw_logits


def test_flagged_images_are_kept_with_their_reasons() -> None:
    training = Training("digits/feature", "clean", "gcn", 0, ("evidence",), (), 5)
    task = load_task("digits/feature", seed=0)
    outcome = execute(training, device="cpu")
    detector = Detector.from_recipe("evidence", seed=0, device="cpu", epochs=5, propagation="as-given").fit(task.train)
    kept = Record(training, "test", json.loads(json.dumps(outcome.facts)), bytes).reasons("evidence")
    assert list(kept) == ["id", "feature"]
    for name, graph in {"id": task.id_test.data, **task.tests}.items():
        nodes = detector.detect(graph).nonzero().squeeze(1).tolist()
        assert kept[name] == dict(zip(nodes, detector.reasons(graph), strict=True))
    assert len(kept["feature"]) > 100


def test_methods_without_evidence_keep_no_reasons() -> None:
    outcome = execute(Training("digits/label", "clean", "gcn", 0, ("msp",), (), 2), device="cpu")
    assert "reasons" not in outcome.facts
    assert Record(outcome.training, "test", outcome.facts, bytes).reasons("msp") == {"id": {}, "label": {}}
