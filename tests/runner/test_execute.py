"""What executing a training adds to fitting and evaluating: scores that are shared."""

from __future__ import annotations

from oddnode import Detector, Energy, MaxSoftmax, Propagated, evaluate, load_task
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
