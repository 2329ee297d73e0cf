"""The outcome of one method on one task over several seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from oddnode.evaluation.task_evaluation import METRICS

__all__ = ["Result"]


@dataclass
class Result:
    """Numbers of every seed; means and standard deviations are computed from them.

    Parameters
    ----------
    task, method, protocol, backbone : str
        What was run.
    runs : list of dict
        What `evaluate` gave for every seed.
    """

    task: str
    method: str
    protocol: str
    backbone: str
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seeds(self) -> int:
        """How many seeds were run."""
        return len(self.runs)

    def mean(self, metric: str) -> float:
        """Mean over the seeds, in percent.

        Parameters
        ----------
        metric : str
            One of `METRICS`.
        """
        return fmean(run[metric] for run in self.runs)

    def std(self, metric: str) -> float:
        """Standard deviation over the seeds (unbiased; 0 for one seed), in percentage points.

        Parameters
        ----------
        metric : str
            One of `METRICS`.
        """
        return stdev(run[metric] for run in self.runs) if self.seeds > 1 else 0.0

    def summary(self) -> dict[str, Any]:
        """The row that ``--json`` prints."""
        row: dict[str, Any] = {
            "task": self.task,
            "method": self.method,
            "protocol": self.protocol,
            "backbone": self.backbone,
            "seeds": self.seeds,
        }
        for metric in METRICS:
            row[metric] = round(self.mean(metric), 4)
            row[f"{metric}_std"] = round(self.std(metric), 4)
        return row
