"""Figures of score distributions: of eight methods, and of the effect of the paper's term on extreme scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from oddnode.paper.experiments import DISTRIBUTIONS, Run
from oddnode.paper.figures.common import (
    COLOUR_MAP,
    RED,
    canvas,
    edges_of,
    first_record,
    histograms,
    id_and_ood_scores,
)
from oddnode.paper.layout import spring_layout
from oddnode.paper.names import METHOD_NAMES
from oddnode.paper.results import Results

__all__ = ["draw_distributions", "draw_motivation"]


def draw_distributions(results: Results, protocol: str) -> Any:
    """Score distributions of ID and OOD nodes, eight methods.

    Parameters
    ----------
    results : Results
        The results of a plan.
    protocol : str
        One of the plan's protocols.
    """
    task, test = results.plan.scope.distributions
    figure, axes = canvas(2, 4, (10.5, 4.6))
    for row, methods in zip(axes, DISTRIBUTIONS, strict=True):
        for axis, method in zip(row, methods, strict=True):
            run = Run(task, protocol, method)
            histograms(axis, *id_and_ood_scores(results, run, test))
            fpr = first_record(results, run).metrics(method)["tests"][test]["fpr95"]
            axis.set_title(f"{METHOD_NAMES[method]}\nFPR95 {fpr:.1f} %")
        row[0].set_ylabel("frequency, peak = 1")
    for axis in axes[-1]:
        axis.set_xlabel("score (higher = more ID)")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"Scores of ID test nodes and of OOD nodes ({task}, {test}), protocol {protocol}, one seed")
    return figure


def draw_motivation(results: Results, protocol: str) -> Any:
    """How extreme scores spread to neighbours, and the spread of scores with and without the term.

    Parameters
    ----------
    results : Results
        The results of a plan.
    protocol : str
        One of the plan's protocols.
    """
    task = results.plan.scope.picture
    figure, axes = canvas(1, 4, (13.0, 3.6), width_ratios=[1, 1, 1.15, 1.15])
    energy = Run(task, protocol, "energy")
    record = first_record(results, energy)
    graphs, scores = results.store.graphs(record.training), record.scores("energy")
    [test, *_] = graphs.tests
    edges = edges_of(results, record)
    outside = np.where(graphs.ood_mask[test], scores[test], -np.inf)
    inside = np.where(graphs.id_mask, scores["id"], np.inf)
    _neighbourhood(axes[0, 0], edges[test], scores[test], graphs.degree[test], np.argsort(-outside))
    axes[0, 0].set_title("(a) an OOD node with a high score\nand those its score spreads to")
    _neighbourhood(axes[0, 1], edges["id"], scores["id"], graphs.degree["id"], np.argsort(inside))
    axes[0, 1].set_title("(b) an ID node with a low score\nand those its score spreads to")
    for axis, method, title in zip(
        axes[0, 2:], ("gnnsafe", "nodesafe"), ("(c) without UB (GNNSafe)", "(d) with UB (NODESAFE)"), strict=True
    ):
        id_scores, ood_scores = id_and_ood_scores(results, Run(task, protocol, method))
        histograms(axis, id_scores, ood_scores)
        apart = abs(id_scores.mean() - ood_scores.mean())
        spread = np.sqrt((id_scores.var() + ood_scores.var()) / 2)
        axis.set_title(f"{title}\nspread / distance of means: {spread / max(apart, 1e-9):.2f}")
        axis.set_xlabel("score (higher = more ID)")
    axes[0, 2].set_ylabel("frequency, peak = 1")
    axes[0, 2].legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.22))
    figure.suptitle(f"{task}, protocol {protocol}, one seed; (a), (b): energy before propagation")
    return figure


def _neighbourhood(axis: Any, edges: np.ndarray, scores: np.ndarray, degree: np.ndarray, order: np.ndarray) -> None:
    """Draw the neighbourhood of the first node in ``order`` with a handful of neighbours, with arrows to them."""
    fits = [node for node in order[: len(order) // 4] if 3 <= degree[node] <= 9] or [order[0]]
    centre = int(fits[0])
    first = np.unique(edges[0][edges[1] == centre])
    first = first[first != centre]
    second = np.unique(edges[0][np.isin(edges[1], first[:9])])
    second = np.setdiff1d(second, [centre, *first])[:26]
    nodes = np.concatenate([[centre], first[:9], second]).astype(int)
    number = {int(node): i for i, node in enumerate(nodes)}
    inside = [(number[u], number[v]) for u, v in edges.T.tolist() if u in number and v in number and u != v]
    place = spring_layout(np.array(inside).T, len(nodes), iterations=200)
    for u, v in inside:
        if u == 0:
            axis.annotate(
                "", xytext=place[u], xy=place[v],
                arrowprops={"arrowstyle": "-|>", "color": RED, "lw": 1.4, "shrinkA": 8, "shrinkB": 7},
            )  # fmt: skip
        elif v != 0:
            axis.plot(*zip(place[u], place[v], strict=True), color="0.75", lw=0.7, zorder=1)
    sizes = np.where(np.arange(len(nodes)) == 0, 230, 90)
    low, high = np.percentile(scores, [1, 99])
    points = axis.scatter(
        *place.T, c=scores[nodes], s=sizes, cmap=COLOUR_MAP, vmin=low, vmax=high, edgecolors="black", linewidths=0.7,
        zorder=3,
    )  # fmt: skip
    axis.set(xticks=[], yticks=[], xlim=(-0.12, 1.12), ylim=(-0.12, 1.12))
    axis.spines[:].set_visible(False)
    axis.figure.colorbar(points, ax=axis, orientation="horizontal", shrink=0.8, pad=0.02, label="score")
