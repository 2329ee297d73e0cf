"""Results as tables, and paired comparisons, from numbers that were written by hand."""

from __future__ import annotations

import csv
import io

import pytest
from scipy.stats import wilcoxon

from oddnode.bench.report import compare_with_first, comparison_table
from oddnode.bench.tables import caption, compare_table, latex_table, markdown_table, to_csv
from oddnode.evaluation import Result
from tests.paper_helpers import result_of

TASKS = [f"t{i}" for i in range(7)]


def test_tables_say_protocol_seeds_spread_and_the_papers_number() -> None:
    table = markdown_table([result_of("cora/structure", "nodesafe", 90.0, 92.0)])
    assert "| cora/structure | nodesafe | 91.0 ± 1.4 (94.1) |" in table
    assert (
        "protocol clean, backbone gcn, 2 seeds, mean ± standard deviation, percent; paper's number in brackets" in table
    )
    assert "backbone gcn, one seed, no spread, percent" in caption([result_of("digits/label", "msp", 90.0)])


def test_comparison_averages_over_the_tasks() -> None:
    table = compare_table([result_of("cora/structure", "msp", 80.0), result_of("cora/label", "msp", 90.0)])
    assert "| msp | 80.0 / 20.0 | 90.0 / 10.0 | **85.0 / 15.0** |" in table
    assert "| *paper* | 70.9 / 87.3 | 91.4 / 35.0 | 81.1 / 61.1 |" in table


def with_decisions(task: str, method: str, caught: float, false_alarms: float) -> Result:
    result = result_of(task, method, 90.0, 92.0)
    for numbers, more in zip(result.runs, (0.0, 2.0), strict=True):
        numbers.update(caught=caught + more, false_alarms=false_alarms)
    return result


def test_tables_show_what_decisions_come_to() -> None:
    table = markdown_table([with_decisions("digits/label", "msp", 40.0, 4.5)])
    head, _, row = table.splitlines()[:3]
    cells = dict(zip(*([cell.strip() for cell in line.split("|")[1:-1]] for line in (head, row)), strict=True))
    assert cells["Caught ↑"].startswith("41.0")
    assert cells["False alarms (5 % asked)"].startswith("4.5")
    assert "Caught" not in markdown_table([result_of("digits/label", "msp", 90.0)])


def test_csv_has_the_columns_of_decisions_where_some_method_has_them() -> None:
    mixed = [with_decisions("a", "msp", 40.0, 4.5), result_of("a", "energy", 80.0)]
    rows = list(csv.DictReader(io.StringIO(to_csv(mixed))))
    assert (float(rows[0]["caught"]), float(rows[0]["false_alarms"])) == (41.0, 4.5)
    assert float(rows[0]["caught_std"]) == pytest.approx(2**0.5, abs=1e-4)
    assert (rows[1]["caught"], rows[1]["auroc"]) == ("", "80.0")
    for order in (mixed, mixed[::-1]):
        assert len(to_csv(order).splitlines()) == 3
    assert "caught" not in to_csv([result_of("a", "energy", 80.0)])


def cells(text: str) -> list[list[str]]:
    """The cells of every line of a table, also of its head."""
    lines = [line.removesuffix(r"\\") for line in text.splitlines() if line.endswith(r"\\")]
    return [[cell.strip() for cell in line.split("&")] for line in lines]


def test_one_task_has_its_metrics_as_columns_and_the_best_in_bold() -> None:
    text = latex_table(
        [result_of("t", "my_method", 90.0, 92.0), result_of("t", "msp", 80.0, 80.0), result_of("t", "degree", 99)]
    )
    head, mine, msp, degree = cells(text)
    assert head == ["", r"AUROC $\uparrow$", r"AUPR $\uparrow$", r"FPR95 $\downarrow$", r"ID acc $\uparrow$"]
    assert mine[:2] == [r"my\_method", r"\textbf{91.0 $\pm$ 1.4}"]
    assert mine[3] == r"\textbf{9.0 $\pm$ 1.4}"  # lower is better
    assert msp[1] == r"80.0 $\pm$ 0.0"
    assert mine[2] == msp[2] == r"\textbf{50.0 $\pm$ 0.0}"  # both are best
    assert degree == ["degree", "99.0", "50.0", "1.0", "-"]  # never bold, and it classifies nothing
    assert text.index(r"\midrule", text.index("msp &")) < text.index("degree &")


def test_several_tasks_have_a_table_per_metric_with_their_mean() -> None:
    text = latex_table(
        [
            result_of("a", "msp", 90.0),
            result_of("a", "knn", 70.0),
            result_of("b", "msp", 80.0),
            result_of("b", "knn", 95.0),
        ]
    )
    assert text.count(r"\begin{tabular}{lrrr}") == 4
    head, msp, knn = cells(text)[:3]
    assert head == ["", "a", "b", "mean"]
    assert msp == ["msp", r"\textbf{90.0}", "80.0", r"\textbf{85.0}"]
    assert knn == ["knn", "70.0", r"\textbf{95.0}", "82.5"]


def benchmark_of(tasks: list[str]) -> list[Result]:
    """``better`` wins every task; ``mixed`` loses two; ``degree`` is not compared."""
    found = []
    for i, task in enumerate(tasks):
        found.append(result_of(task, "base", 50.0, 52.0))
        found.append(result_of(task, "better", 51.0 + i, 53.0 + i))
        found.append(result_of(task, "mixed", 50.0 + i, 47.5 + i))
        found.append(result_of(task, "degree", 99.0, 99.0))
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
    assert "| AUROC ↑ | better | +1.0 | 1 / 0 / 0 | 2 / 0 / 0 | 1 | 1 |" in table
    assert "Compared with base, the first method" in table
    assert table.count("with 1 that differs, p is 1 at best; 6 or more are needed") == 1
    assert "Note" not in comparison_table(compare_with_first(benchmark_of(TASKS)))
    many = comparison_table(compare_with_first(benchmark_of([f"t{i}" for i in range(12)])))
    assert f"| {2 / 2**12:.2g} | {2 * 2 / 2**12:.2g} |" in many  # and not 0.000
    for nothing in ([result_of("t", "base", 1.0), result_of("t", "degree", 2.0)], [result_of("t", "degree", 2.0)]):
        assert compare_with_first(nothing) == []
