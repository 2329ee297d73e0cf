from __future__ import annotations

from oddnode.bench.tables import latex_table
from oddnode.evaluation import Result


def result(task: str, method: str, *aurocs: float) -> Result:
    runs = [{"auroc": a, "aupr": 50.0, "fpr95": 100 - a, "id_acc": 80.0, "tests": {}} for a in aurocs]
    return Result(task, method, "clean", "gcn", runs)


def cells(text: str) -> list[list[str]]:
    """The cells of every line of a table, also of its head."""
    lines = [line.removesuffix(r"\\") for line in text.splitlines() if line.endswith(r"\\")]
    return [[cell.strip() for cell in line.split("&")] for line in lines]


def test_one_task_has_its_metrics_as_columns_and_the_best_in_bold() -> None:
    text = latex_table(
        [result("t", "my_method", 90.0, 92.0), result("t", "msp", 80.0, 80.0), result("t", "degree", 99)]
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
        [result("a", "msp", 90.0), result("a", "knn", 70.0), result("b", "msp", 80.0), result("b", "knn", 95.0)]
    )
    assert text.count(r"\begin{tabular}{lrrr}") == 4
    head, msp, knn = cells(text)[:3]
    assert head == ["", "a", "b", "mean"]
    assert msp == ["msp", r"\textbf{90.0}", "80.0", r"\textbf{85.0}"]
    assert knn == ["knn", "70.0", r"\textbf{95.0}", "82.5"]
