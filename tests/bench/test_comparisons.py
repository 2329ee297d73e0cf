from __future__ import annotations

import pytest
from scipy.stats import wilcoxon

from oddnode.bench.report import compare_with_first, comparison_table
from oddnode.evaluation import Result

TASKS = [f"t{i}" for i in range(7)]


def result(task: str, method: str, *aurocs: float) -> Result:
    runs = [{"auroc": a, "aupr": 50.0, "fpr95": 100 - a, "id_acc": 80.0, "tests": {}} for a in aurocs]
    return Result(task, method, "clean", "gcn", runs)


def benchmark_of(tasks: list[str]) -> list[Result]:
    """``better`` wins every task; ``mixed`` loses two; ``degree`` is not compared."""
    found = []
    for i, task in enumerate(tasks):
        found.append(result(task, "base", 50.0, 52.0))
        found.append(result(task, "better", 51.0 + i, 53.0 + i))
        found.append(result(task, "mixed", 50.0 + i, 47.5 + i))
        found.append(result(task, "degree", 99.0, 99.0))
    return found


def test_methods_are_compared_with_the_first_by_every_metric() -> None:
    found = compare_with_first(benchmark_of(TASKS))
    assert [(c.metric, c.method, c.reference) for c in found] == [
        (metric, method, "base") for metric in ("auroc", "fpr95") for method in ("better", "mixed")
    ]
    better, mixed = (c.row() for c in found[:2])
    assert better["mean_advantage"] == pytest.approx(4.0)
    assert (better["tasks_won"], better["tasks_tied"], better["tasks_lost"]) == (7, 0, 0)
    assert (better["seeds_won"], better["seeds_tied"], better["seeds_lost"]) == (14, 0, 0)
    gains = [i - 2.25 for i in range(7)]
    assert (mixed["tasks_won"], mixed["tasks_lost"]) == (sum(g > 0 for g in gains), sum(g < 0 for g in gains))
    assert (better["p"], mixed["p"]) == (2 / 2**7, pytest.approx(wilcoxon(gains).pvalue))
    assert (better["p_holm"], mixed["p_holm"]) == (2 * 2 / 2**7, mixed["p"])  # the larger one stays as it is
    assert better["note"] == ""
    assert [c.row() | {"metric": "auroc"} for c in found[2:]] == [better, mixed]  # FPR95 mirrors AUROC here


def test_the_table_says_what_it_compares_and_why_p_is_one() -> None:
    table = comparison_table(compare_with_first(benchmark_of(TASKS[:1])))
    assert "| AUROC ↑ | better | +1.0 | 1 / 0 / 0 | 2 / 0 / 0 | 1.000 | 1.000 |" in table
    assert "Compared with base, the first method" in table
    assert table.count("with 1 that differs, p is 1 at best; 6 or more are needed") == 1
    assert "Note" not in comparison_table(compare_with_first(benchmark_of(TASKS)))


def test_nothing_to_compare() -> None:
    assert compare_with_first([result("t", "base", 1.0), result("t", "degree", 2.0)]) == []
    assert compare_with_first([result("t", "degree", 2.0)]) == []
