"""The metrics of a method on a task over several seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


#: The metrics of every table, in percent, and their titles; the arrow shows which direction is better.
METRIC_TITLES = {"auroc": "AUROC ↑", "aupr": "AUPR ↑", "fpr95": "FPR95 ↓", "id_acc": "ID acc ↑"}

METRICS = tuple(METRIC_TITLES)

#: The flagged shares of OOD nodes and of ID nodes at a false-alarm rate of 5 %, in percent.
DECISION_TITLES = {"caught": "Caught ↑", "false_alarms": "False alarms (5 % asked)"}


@dataclass
class Result:
    """The metrics of one method on one task, for every seed."""

    task: str  #: `task`, `method`, `protocol`, `backbone`: names of what was run.
    method: str
    protocol: str
    backbone: str
    runs: list[dict[str, Any]] = field(default_factory=list)  #: The return value of `oddnode.evaluate` for each seed.
    #: Settings used instead of the protocol's, in methods that have them.
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.runs)

    def mean(self, metric: str) -> float:
        """Mean over the seeds, in percent.

        Parameters
        ----------
        metric : str
            One of `metrics`.
        """
        return fmean(run[metric] for run in self.runs)

    @property
    def metrics(self) -> list[str]:
        """Those of `METRICS` and `DECISION_TITLES` that every run has; a task without OOD nodes has few."""
        return [metric for metric in (*METRICS, *DECISION_TITLES) if all(metric in run for run in self.runs)]

    def std(self, metric: str) -> float:
        """Standard deviation over the seeds (unbiased; 0 for one seed), in percentage points.

        Parameters
        ----------
        metric : str
            One of `metrics`.
        """
        return stdev(run[metric] for run in self.runs) if self.seeds > 1 else 0.0

    def summary(self) -> dict[str, Any]:
        """Names, number of seeds, and mean and standard deviation of every metric, as one flat row."""
        row = self._names() | {"seeds": self.seeds}
        for metric in self.metrics:
            row[metric] = round(self.mean(metric), 4)
            row[f"{metric}_std"] = round(self.std(metric), 4)
        return row

    def per_seed(self) -> list[dict[str, Any]]:
        """Names, seed and every metric, unrounded, as one flat row per seed.

        Examples
        --------
        >>> result = Result("digits/label", "msp", "clean", "gcn", [dict.fromkeys(METRICS, 90.0)] * 2)
        >>> [(row["method"], row["seed"], row["auroc"]) for row in result.per_seed()]
        [('msp', 0, 90.0), ('msp', 1, 90.0)]
        """
        return [
            self._names() | {"seed": seed} | {metric: run[metric] for metric in self.metrics}
            for seed, run in enumerate(self.runs)
        ]

    def to_pandas(self, means: bool = False) -> pandas.DataFrame:
        """Make a data frame; ``pandas.concat`` joins those of several results.

        Parameters
        ----------
        means : bool
            Whether to return one row, that of `summary`, instead of one row per seed, those of `per_seed`.

        Raises
        ------
        ImportError
            If pandas is not installed, which oddnode does not need otherwise.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        return pandas.DataFrame([self.summary()] if means else self.per_seed())

    def _names(self) -> dict[str, Any]:
        names = {"task": self.task, "method": self.method, "protocol": self.protocol, "backbone": self.backbone}
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return names | ({"settings": settings} if settings else {})
