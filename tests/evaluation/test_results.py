from __future__ import annotations

import sys
from dataclasses import replace
from statistics import fmean, stdev

import pandas
import pytest

from oddnode.evaluation import METRICS, Result


def result_of(*aurocs: float, **more: float) -> Result:
    runs = [dict.fromkeys(METRICS, 50.0) | {"auroc": auroc, "tests": {}} | more for auroc in aurocs]
    return Result("digits/label", "msp", "clean", "gcn", runs)


def test_a_row_per_seed_has_names_settings_and_unrounded_numbers() -> None:
    first, second = result_of(90.123456789, 80.0).per_seed()
    assert list(first) == ["task", "method", "protocol", "backbone", "seed", *METRICS]
    assert (first["seed"], first["auroc"]) == (0, 90.123456789)
    assert (second["seed"], second["auroc"]) == (1, 80.0)
    changed = replace(result_of(90.0, 80.0), settings={"num_hops": 2})
    assert [row["settings"] for row in (changed.summary(), *changed.per_seed())] == ["num_hops=2"] * 3
    assert "settings" not in result_of(90.0).summary()


def test_a_result_has_decisions_if_all_of_its_runs_have_them() -> None:
    result = result_of(90.0, 80.0, caught=20.0, false_alarms=5.0)
    result.runs[1] |= {"caught": 40.0}
    assert result.metrics == [*METRICS, "caught", "false_alarms"]
    assert [row["caught"] for row in result.per_seed()] == [20.0, 40.0]
    keys = ["task", "method", "protocol", "backbone", "seeds"]
    metrics = [m + end for m in (*METRICS, "caught", "false_alarms") for end in ("", "_std")]
    summary = result.summary()
    assert list(summary) == keys + metrics
    assert (summary["caught"], summary["caught_std"]) == (30.0, pytest.approx(stdev([20.0, 40.0]), abs=1e-4))
    del result.runs[1]["caught"]
    assert result.metrics == [*METRICS, "false_alarms"]
    assert "caught" not in result.summary()


def test_data_frames_of_seeds_and_of_means(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of(90.0, 80.0, 85.0)
    frame = pandas.concat([result.to_pandas(), result_of(70.0).to_pandas()])
    assert list(frame["auroc"]) == [90.0, 80.0, 85.0, 70.0]
    assert list(frame["seed"]) == [0, 1, 2, 0]
    means = result.to_pandas(means=True)
    assert means.shape[0] == 1
    assert means.loc[0, "seeds"] == 3
    assert means.loc[0, "auroc"] == fmean([90.0, 80.0, 85.0])
    assert means.loc[0, "auroc_std"] == stdev([90.0, 80.0, 85.0])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        result.to_pandas()
