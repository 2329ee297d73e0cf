"""Figures of all nodes of a graph: coloured by score, and in the plane before a network's last layer."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from oddnode.paper.experiments import PLANAR, Run
from oddnode.paper.figures.common import CLASS_COLOURS, CLASS_MARKERS, COLOUR_MAP, canvas, edges_of, first_record
from oddnode.paper.layout import spring_layout
from oddnode.paper.names import METHOD_NAMES
from oddnode.paper.results import Results

__all__ = ["draw_graphs", "draw_plane"]


def draw_graphs(results: Results, protocol: str) -> Any:
    """The graph coloured by score, GNNSafe and NODESAFE, ID and OOD.

    Parameters
    ----------
    results : Results
        The results of a plan.
    protocol : str
        One of the plan's protocols.
    """
    task = results.plan.scope.picture
    figure, axes = canvas(1, 4, (13.0, 3.7))
    places: dict[str, np.ndarray] = {}
    points = None
    for column, method in enumerate(("gnnsafe", "nodesafe")):
        record = first_record(results, Run(task, protocol, method))
        graphs, scores = results.store.graphs(record.training), record.scores(method)
        [test, *_] = graphs.tests
        edges = edges_of(results, record)
        judged = np.concatenate([scores["id"][graphs.id_mask], scores[test][graphs.ood_mask[test]]])
        middle, spread = judged.mean(), judged.std()
        for row, name in enumerate(("id", test)):
            axis = axes[0, 2 * row + column]
            if name not in places:
                places[name] = _layout(edges[name].tobytes(), len(scores[name]))
            points = _coloured_graph(axis, places[name], edges[name], (scores[name] - middle) / spread)
            mask = graphs.id_mask if name == "id" else graphs.ood_mask[name]
            own = ((scores[name] - middle) / spread)[mask]
            kind = "ID" if name == "id" else "OOD"
            axis.set_title(f"{METHOD_NAMES[method]}, {kind}\nspread {own.std():.2f}")
    figure.colorbar(points, ax=axes, shrink=0.75, pad=0.01, label="score, standardised per method")
    figure.suptitle(f"Scores after propagation on {task}, protocol {protocol}, one seed")
    return figure


@lru_cache(maxsize=8)
def _layout(edges: bytes, num_nodes: int) -> np.ndarray:
    """Cache the layout, so that both protocols show the same picture."""
    return spring_layout(np.frombuffer(edges, dtype=np.int64).reshape(2, -1), num_nodes)


def _coloured_graph(axis: Any, place: np.ndarray, edges: np.ndarray, scores: np.ndarray) -> Any:
    from matplotlib.collections import LineCollection

    once = edges[:, edges[0] < edges[1]]
    lines = np.stack([place[once[0]], place[once[1]]], axis=1)
    axis.add_collection(
        LineCollection(list(lines), colors="0.6", linewidths=0.25, alpha=0.35, rasterized=True, zorder=0)
    )
    order = np.argsort(-scores)
    points = axis.scatter(
        *place[order].T, c=scores[order], s=5, cmap=COLOUR_MAP, vmin=-2, vmax=2, linewidths=0, rasterized=True
    )
    axis.set(xticks=[], yticks=[], aspect="equal")
    axis.spines[:].set_visible(False)
    return points


def draw_plane(results: Results, protocol: str) -> Any:
    """Two-dimensional logits of a GAT under three losses.

    Parameters
    ----------
    results : Results
        The results of a plan.
    protocol : str
        One of the plan's protocols.
    """
    task = results.plan.scope.picture
    figure, axes = canvas(1, 3, (10.5, 3.9))
    panels = {"gnnsafe": "cross-entropy", "gnnsafe+logitnorm": "LogitNorm", "nodesafe": "cross-entropy + UB"}
    for axis, (method, title) in zip(axes[0], panels.items(), strict=True):
        record = first_record(results, Run(task, protocol, method, PLANAR))
        graphs, plane = results.store.graphs(record.training), record.plane()["id"]
        y = graphs.y["id"]
        for label in range(graphs.facts["num_classes"]):
            look = label % len(CLASS_COLOURS)
            axis.scatter(
                *plane[y == label].T, s=9, marker=CLASS_MARKERS[look], color=CLASS_COLOURS[look], alpha=0.6,
                linewidths=0, label=f"class {label}", rasterized=True,
            )  # fmt: skip
        length = np.linalg.norm(plane, axis=1)
        accuracy = record.metrics(method)["id_acc"]
        axis.set_title(f"{title}\nstd / mean of norms {length.std() / length.mean():.2f}, ID accuracy {accuracy:.0f} %")
        axis.axhline(0, color="0.8", lw=0.6, zorder=0)
        axis.axvline(0, color="0.8", lw=0.6, zorder=0)
        reach = 1.1 * np.percentile(np.abs(plane), 99.5)  # a few nodes may be outside
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, markerscale=2)
    figure.suptitle(f"Nodes of {task} in the plane before a GAT's last layer, protocol {protocol}, one seed")
    return figure
