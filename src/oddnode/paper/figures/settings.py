"""Figures of numbers over settings: sensitivity to the term's settings, and four methods under several networks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from oddnode.paper.experiments import CORE, Run
from oddnode.paper.figures.common import BLACK, BLUE, ORANGE, SERIES, NothingToDraw, canvas
from oddnode.paper.names import METHOD_NAMES, NETWORK_NAMES
from oddnode.paper.results import Results

__all__ = ["draw_backbones", "draw_sensitivity"]


def draw_sensitivity(results: Results, protocol: str) -> Any:
    """FPR95 and ID accuracy of NODESAFE over the settings of its term.

    Parameters
    ----------
    results : Results
        The results of a plan.
    protocol : str
        One of the plan's protocols.
    """
    scope = results.plan.scope
    if scope.sensitivity in results.plan.absent:
        raise NothingToDraw(f"{scope.sensitivity} is missing: {results.plan.absent[scope.sensitivity]}")
    figure, axes = canvas(2, 3, (10.5, 5.2), sharex="col", sharey="row")
    titles = {"start": "epoch where UB starts", "lambda1": "λ1", "lambda2": "λ2"}
    metrics = {"fpr95": "FPR95 ↓ (%)", "id_acc": "ID accuracy ↑ (%)"}
    baseline = Run(scope.sensitivity, protocol, "gnnsafe")
    for column, (name, values) in enumerate(scope.sweeps.items()):
        for row, metric in enumerate(metrics):
            axis = axes[row, column]
            runs = [Run(scope.sensitivity, protocol, "nodesafe", settings=((name, value),)) for value in values]
            _curve(axis, values, [results.values(run, metric) for run in runs])
            level = results.values(baseline, metric)
            if level:
                axis.axhline(fmean(level), color=BLACK, linestyle="--", lw=1.2, label="GNNSafe")
            if name != "start":
                axis.set_xscale("log")
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
        axes[1, column].set_xlabel(titles[name])
    for row, label in enumerate(metrics.values()):
        axes[row, 0].set_ylabel(label)
        low, high = axes[row, 0].get_ylim()
        axes[row, 0].set_ylim(max(low, -2), min(high, 102))  # error bars may exceed the range of percentages
    axes[0, 0].legend(frameon=False)
    count = results.plan.seeds
    figure.suptitle(
        f"NODESAFE on {scope.sensitivity}, protocol {protocol}, {count} seed{'s' if count > 1 else ''}: mean ± "
        "standard deviation; crosses: single seeds"
    )
    return figure


def _curve(axis: Any, values: Sequence[float], numbers: list[list[float]]) -> None:
    there = [(x, n) for x, n in zip(values, numbers, strict=True) if n]
    if not there:
        return
    xs = [x for x, _ in there]
    means = [fmean(n) for _, n in there]
    spread = [_spread(n) for _, n in there]
    axis.errorbar(xs, means, spread, color=BLUE, marker="o", lw=1.6, capsize=3, label="NODESAFE", zorder=3)
    for x, many in there:
        axis.plot([x] * len(many), many, "x", color=ORANGE, ms=4, zorder=4)


def draw_backbones(results: Results, protocol: str) -> Any:
    """AUROC and FPR95 of four methods under several networks.

    Parameters
    ----------
    results : Results
        The results of a plan.
    protocol : str
        One of the plan's protocols.
    """
    scope = results.plan.scope
    tasks = [task for task in scope.backbones if task not in results.plan.absent]
    if not tasks:
        raise NothingToDraw(f"{scope.backbones[0]} is missing: {results.plan.absent[scope.backbones[0]]}")
    figure, axes = canvas(2, len(tasks), (max(4.2 * len(tasks), 6.4), 5.4), sharex=True, sharey="row")
    ends: dict[str, list[float]] = {"auroc": [100.0], "fpr95": [0.0]}
    for column, task in enumerate(tasks):
        for axis, metric in zip(axes[:, column], ends, strict=True):
            for place, method in enumerate(CORE):
                numbers = [results.values(Run(task, protocol, method, network), metric) for network in scope.networks]
                ends[metric] += _bars(axis, place, METHOD_NAMES[method], numbers)
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(axis="y", alpha=0.3)
            axis.set_axisbelow(True)
        axes[0, column].set_title(task)
        axes[1, column].set_xticks(range(len(scope.networks)), [NETWORK_NAMES[name] for name in scope.networks])
    axes[0, 0].set_ylabel("AUROC ↑ (%)")
    axes[1, 0].set_ylabel("FPR95 ↓ (%)")
    axes[0, 0].set_ylim(max(0.0, 5 * np.floor(min(ends["auroc"]) / 5)), 100)
    axes[1, 0].set_ylim(0, min(100.0, 5 * np.ceil(max(ends["fpr95"]) / 5 + 0.2)))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Backbones, protocol {protocol}, {results.plan.seeds} seeds, mean ± standard deviation")
    return figure


def _bars(axis: Any, place: int, label: str, numbers: Sequence[Sequence[float]]) -> list[float]:
    """Draw a method's bar for every network; return the ends of the error bars."""
    colour, hatch = SERIES[place]
    xs = np.arange(len(numbers)) + 0.2 * (place - 1.5)
    means, spread = [fmean(n) if n else np.nan for n in numbers], [_spread(n) for n in numbers]
    axis.bar(
        xs, means, 0.2, label=label, facecolor=(colour, 0.55), edgecolor="black", hatch=hatch, linewidth=0.7,
        yerr=spread, error_kw={"lw": 0.9, "capsize": 2},
    )  # fmt: skip
    return [m + sign * s for m, s in zip(means, spread, strict=True) for sign in (-1, 1) if not np.isnan(m)]


def _spread(numbers: Sequence[float]) -> float:
    return float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
