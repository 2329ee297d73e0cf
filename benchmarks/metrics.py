"""AUROC and average precision against scikit-learn's, in one run: how long, and whether the last bit agrees.

Run it as ``python benchmarks/metrics.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import seconds, store
from sklearn.metrics import average_precision_score, roc_auc_score

from oddnode.functional import aupr, auroc

SIZES = (3_000, 20_000)
DRAWS = 200


def draw(rng: np.random.Generator, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of as many ID as OOD nodes, in single precision as networks give them."""
    return rng.normal(1, 1, nodes // 2).astype(np.float32), rng.normal(0, 1, nodes // 2).astype(np.float32)


def measure(nodes: int, ours: Callable[..., float], theirs: Callable[..., float]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], nodes // 2)
    inside, outside = draw(rng, nodes)
    our_time = seconds(partial(ours, inside, outside), repeats=15)
    their_time = seconds(partial(theirs, labels, np.concatenate([inside, outside])), repeats=15)
    draws = [draw(rng, nodes) for _ in range(DRAWS)]
    gaps = [abs(ours(*scores) - theirs(labels, np.concatenate(scores))) for scores in draws]
    return {
        "nodes": nodes,
        "metric": ours.__name__,
        "ours_ms": 1e3 * our_time,
        "sklearn_ms": 1e3 * their_time,
        "ratio": their_time / our_time,
        "draws": DRAWS,
        "draws_that_differ": int(np.count_nonzero(gaps)),
        "largest_difference": max(gaps),
    }


def main() -> None:
    rows = []
    for nodes in SIZES:
        for ours, theirs in ((auroc, roc_auc_score), (aupr, average_precision_score)):
            rows.append(measure(nodes, ours, theirs))
            print(json.dumps(rows[-1]), flush=True)
    print(store("metrics", "cpu", rows))


if __name__ == "__main__":
    main()
