"""The flagged share over time, against scipy's intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from oddnode.service.status import windows_of


@pytest.mark.parametrize("num_changes", [0, 1, 19, 20, 790, 5000])
def test_windows_have_about_equally_many_arrivals_and_exact_intervals(num_changes: int) -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 4, num_changes)
    flagged = rng.binomial(counts, 0.1)
    changes = [(float(time), *each) for time, each in enumerate(zip(counts.tolist(), flagged.tolist(), strict=True))]
    windows = windows_of(changes)
    assert len(windows) <= 41
    assert bool(windows) == bool(num_changes)
    at = 0
    for window in windows:
        inside = slice(int(window.since), int(window.until) + 1)
        assert inside.start == at  # none is left out but, perhaps, the last few
        at = inside.stop
        assert (window.count, window.flagged) == (counts[inside].sum(), flagged[inside].sum())
        interval = binomtest(window.flagged, window.count).proportion_ci(0.95, method="exact")
        assert (window.low, window.high) == pytest.approx(tuple(interval))
    sizes = [window.count for window in windows[:-1]]
    assert max(sizes, default=0) - min(sizes, default=0) <= 3
    assert sum(sizes) + (windows[-1].count if windows else 0) > counts.sum() - max([20, *sizes]) / 2
