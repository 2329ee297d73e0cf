"""The table of a soak."""

from __future__ import annotations

from soak.summary import Summary
from soak.trial import Trial


def test_trials_violations_and_shares_are_counted() -> None:
    summary = Summary()
    summary.add("models", Trial("bit", parsed=False, accepted=False))
    summary.add("models", Trial("bit", "it loads", parsed=True, accepted=True))
    summary.add("models", Trial("number", parsed=True, accepted=False))
    summary.add("kills", Trial("save"))
    assert summary.num_violations == 1
    assert summary.total("models") == 3
    assert summary.markdown().splitlines()[2:] == [
        "| **models** | 3 | 1 | 67% | 33% |",
        "| bit | 2 | 1 | 50% | 50% |",
        "| number | 1 | 0 | 100% | 0% |",
        "| **kills** | 1 | 0 |  |  |",
        "| save | 1 | 0 |  |  |",
    ]
