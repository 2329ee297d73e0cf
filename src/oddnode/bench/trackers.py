"""Results in experiment trackers. Each tracker is an optional dependency and imported only if it is named.

MLflow and Weights & Biases get one run per task and method, TensorBoard one folder. A run has the names as parameters,
every metric per seed (``per_seed/auroc``, with the seed as step), and the means and deviations of `Result.summary`.
Importing this module loads no torch, so that a misspelt name fails at once.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oddnode._utils.suggestions import unknown
from oddnode._version import __version__
from oddnode.evaluation import Result

_NAMES = ("task", "method", "protocol", "backbone", "settings", "seeds", "seed")


class Tracker(ABC):
    """A tracker of benchmark results.

    Parameters
    ----------
    place : str
        Where to log; by default the tracker's settings decide.
    """

    @abstractmethod
    def __init__(self, place: str = ""): ...

    def log(self, result: Result) -> None:
        """Add the run of one method on one task.

        Parameters
        ----------
        result : Result
            Its metrics for every seed.
        """
        from oddnode.bench.tables import per_seed_rows, summaries

        [means], seeds = summaries([result]), per_seed_rows([result])
        names = {name: means[name] for name in _NAMES if name in means} | {"oddnode": __version__}
        self._log(names, _metrics(means), [_metrics(row) for row in seeds])

    @abstractmethod
    def _log(self, names: dict[str, Any], means: dict[str, float], seeds: list[dict[str, float]]) -> None:
        """Add a run: its parameters, its means, and its metrics for the seeds 0, 1, ..."""


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in row.items() if name not in _NAMES}


class MLflow(Tracker):
    """Logs to the experiment ``MLFLOW_EXPERIMENT_NAME``, or else ``oddnode``."""

    def __init__(self, place: str = ""):
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=place or None)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "oddnode")
        known = self.client.get_experiment_by_name(name)
        self.experiment = self.client.create_experiment(name) if known is None else known.experiment_id

    def _log(self, names: dict[str, Any], means: dict[str, float], seeds: list[dict[str, float]]) -> None:
        run = self.client.create_run(self.experiment, run_name=f"{names['task']} {names['method']}").info.run_id
        for name, value in names.items():
            self.client.log_param(run, name, value)
        for seed, row in enumerate(seeds):
            for metric, value in row.items():
                self.client.log_metric(run, f"per_seed/{metric}", value, step=seed)
        for metric, value in means.items():
            self.client.log_metric(run, metric, value)
        self.client.set_terminated(run)


class WandB(Tracker):
    """Logs to Weights & Biases; ``WANDB_MODE=offline`` writes files only."""

    def __init__(self, place: str = ""):
        import wandb

        self.wandb = wandb
        self.project = place or os.environ.get("WANDB_PROJECT", "oddnode")
        if os.environ.get("WANDB_MODE", "online") == "online":
            wandb.login()

    def _log(self, names: dict[str, Any], means: dict[str, float], seeds: list[dict[str, float]]) -> None:
        name, quiet = f"{names['task']} {names['method']}", self.wandb.Settings(quiet=True, console="off")
        with self.wandb.init(project=self.project, name=name, config=names, settings=quiet) as run:
            run.define_metric("per_seed/*", step_metric="seed")
            for seed, row in enumerate(seeds):
                run.log({"seed": seed} | {f"per_seed/{metric}": value for metric, value in row.items()})
            run.summary.update(means)


class TensorBoard(Tracker):
    """Writes event files into a new folder, named by the time."""

    def __init__(self, place: str = ""):
        from torch.utils.tensorboard import SummaryWriter

        from oddnode.bench.report import check_writable

        self.writer = SummaryWriter
        self.folder = Path(place or "runs") / datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S.%f")
        check_writable(self.folder)

    def _log(self, names: dict[str, Any], means: dict[str, float], seeds: list[dict[str, float]]) -> None:
        with self.writer(str(self.folder / names["task"] / names["method"])) as writer:
            writer.add_text("settings", ", ".join(f"{name} {value}" for name, value in names.items()))
            for seed, row in enumerate(seeds):
                for metric, value in row.items():
                    writer.add_scalar(f"per_seed/{metric}", value, seed)
            for metric, value in means.items():
                writer.add_scalar(metric, value, 0)


#: The trackers by the names that ``oddnode bench --log`` takes; each is also the name of an extra of the package.
TRACKERS: dict[str, Callable[[str], Tracker]] = {"mlflow": MLflow, "wandb": WandB, "tensorboard": TensorBoard}


def open_tracker(text: str) -> Tracker:
    """Make a tracker and check that it can be used, so that mistakes show before the work, not after it.

    Parameters
    ----------
    text : str
        One of `TRACKERS`, or ``NAME=PLACE``: ``"mlflow=sqlite:///mlflow.db"``, ``"wandb=my-project"``,
        ``"tensorboard=my-folder"``.

    Raises
    ------
    ValueError
        If the name is unknown, the tracker is not installed, or it cannot be used.
    """
    name, _, place = text.partition("=")
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    try:
        return TRACKERS[name](place)
    except ImportError as error:
        raise ValueError(f"{name} cannot be imported ({error}): pip install 'oddnode[{name}]'") from None
    except OSError:
        raise
    except Exception as error:  # from a third-party package
        raise ValueError(f"{name} cannot be used: {_first_line(error)}") from error


def log_results(results: Sequence[Result], trackers: Sequence[Tracker]) -> None:
    """Log results to trackers.

    Parameters
    ----------
    results : sequence of Result
        One run each.
    trackers : sequence of Tracker
        From `open_tracker`.

    Raises
    ------
    RuntimeError
        If a tracker fails.
    """
    for tracker in trackers:
        for result in results:
            try:
                tracker.log(result)
            except Exception as error:  # from a third-party package
                what = f"{result.method} on {result.task}"
                raise RuntimeError(f"{type(tracker).__name__} could not log {what}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
