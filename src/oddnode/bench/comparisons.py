"""Paired comparisons of the methods of a benchmark, with a significance test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oddnode._utils.markdown import pipe_table
from oddnode.bench.tables import is_model_free
from oddnode.evaluation import METRIC_TITLES, Result
from oddnode.evaluation.statistics import Comparison, compare, holm

__all__ = ["METRICS_COMPARED", "PairedComparison", "compare_with_first", "comparison_table"]

#: The metrics by which methods are compared.
METRICS_COMPARED = ("auroc", "fpr95")


@dataclass(frozen=True)
class PairedComparison:
    """A method compared with the first one of a benchmark by one metric.

    Parameters
    ----------
    metric, method, reference : str
        The metric, the method, and the first method.
    comparison : Comparison
        The advantage of the method over the first one.
    p_holm : float
        Its p-value, adjusted for the number of methods that are compared by this metric.
    """

    metric: str
    method: str
    reference: str
    comparison: Comparison
    p_holm: float

    def row(self) -> dict[str, str | int | float]:
        """All numbers as one flat row, for CSV; ``note`` says why a p-value says nothing."""
        c = self.comparison
        return {
            "metric": self.metric,
            "method": self.method,
            "reference": self.reference,
            "mean_advantage": c.difference,
            "tasks_won": c.cell_wins,
            "tasks_tied": c.cells - c.cell_wins - c.cell_losses,
            "tasks_lost": c.cell_losses,
            "seeds_won": c.pair_wins,
            "seeds_tied": c.pairs - c.pair_wins - c.pair_losses,
            "seeds_lost": c.pair_losses,
            "p": c.p_value,
            "p_holm": self.p_holm,
            "note": c.note,
        }


def compare_with_first(results: Sequence[Result]) -> list[PairedComparison]:
    """Compare every method with the first one, paired by task and seed; model-free scores are left out.

    Parameters
    ----------
    results : sequence of Result
        Every method on every task, with the same seeds.

    Returns
    -------
    list of PairedComparison
        For each of `METRICS_COMPARED` one per method but the first; none if there is a single method.
    """
    by_method: dict[str, list[Result]] = {}
    for result in results:
        if not is_model_free(result.method):
            by_method.setdefault(result.method, []).append(result)
    first, *others = by_method or [""]
    found = []
    for metric in METRICS_COMPARED:
        numbers = {name: {r.task: [run[metric] for run in r.runs] for r in own} for name, own in by_method.items()}
        higher = METRIC_TITLES[metric].endswith("↑")
        compared = [compare(numbers[name], numbers[first], higher_is_better=higher) for name in others]
        adjusted = holm([comparison.p_value for comparison in compared])
        pairs = zip(others, compared, adjusted, strict=True)
        found += [PairedComparison(metric, name, first, comparison, p) for name, comparison, p in pairs]
    return found


def comparison_table(comparisons: Sequence[PairedComparison]) -> str:
    """Format comparisons as a Markdown table, with the terms of the test below it.

    Parameters
    ----------
    comparisons : sequence of PairedComparison
        At least one.
    """
    head = ["metric", "method", "mean advantage", "tasks won / tied / lost", "seeds won / tied / lost", "p", "p, Holm"]
    body = []
    for each in comparisons:
        row = each.row()
        tasks, seeds = (
            " / ".join(str(row[f"{what}_{end}"]) for end in ("won", "tied", "lost")) for what in ("tasks", "seeds")
        )
        advantage = f"{each.comparison.difference:+.1f}"
        p_values = [f"{each.comparison.p_value:.3f}", f"{each.p_holm:.3f}"]
        body.append([METRIC_TITLES[each.metric], each.method, advantage, tasks, seeds, *p_values])
    notes = dict.fromkeys(each.comparison.note for each in comparisons if each.comparison.note)
    terms = (
        f"Compared with {comparisons[0].reference}, the first method; a positive advantage (percentage points, mean "
        "over tasks) is one over it. p: Wilcoxon's signed-rank test, two-sided, on the differences of the tasks' means "
        "over seeds; Holm: adjusted for the number of methods. Tasks of one data set share its graph, so p is if "
        "anything too small."
    )
    return "\n".join([pipe_table(head, body), "", terms, *(f"Note on p: {note}." for note in notes), ""])
