"""The numbers printed in the NODESAFE paper."""

from __future__ import annotations

import csv
import io
from functools import cache
from importlib import resources

from oddnode.evaluation import METRICS


@cache
def _printed() -> dict[tuple[str, str], dict[str, float]]:
    text = resources.files("oddnode.bench").joinpath("paper.csv").read_text(encoding="utf-8")
    return {
        (row["task"], row["method"]): {m: float(row[m]) for m in METRICS if row[m]}
        for row in csv.DictReader(io.StringIO(text))
    }


def paper_number(task: str, method: str, metric: str) -> float | None:
    """Look up the number printed in the paper, in percent; ``None`` if there is none.

    Parameters
    ----------
    task : str
        For example ``"cora/label"``; one graph of a task is written ``"twitch/es"``.
    method : str
        A method's name, as in `oddnode.RECIPES`.
    metric : str
        One of `oddnode.evaluation.METRICS`.
    """
    return _printed().get((task, method), {}).get(metric)
