"""The paper's figures with our runs, as SVG and PNG.

Colours are those of Okabe and Ito, which colour-blind people can tell apart, and nothing depends on colour alone: lines
differ by style and marker, bars by hatching, and maps go steadily from dark to light, so that all of them can be read
in black and white.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np

from oddnode.paper.experiments import CORE, DISTRIBUTIONS, ITEMS, METHOD_NAMES, NETWORK_NAMES, PLANAR, Run
from oddnode.paper.record import Record
from oddnode.paper.results import Results
from oddnode.webpage import spring_layout

BLUE, ORANGE, RED, BLACK = "#0072B2", "#E69F00", "#D55E00", "#000000"
_GREEN, _SKY, _PURPLE = "#009E73", "#56B4E9", "#CC79A7"

#: Colour and hatching of the bars of each method.
SERIES = ((BLUE, ""), (ORANGE, "///"), (_GREEN, "..."), (_PURPLE, "xxx"))

CLASS_COLOURS = (BLUE, ORANGE, _GREEN, RED, _SKY, _PURPLE, BLACK, "#999999", "#8C510A", "#5E4FA2")
CLASS_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")

COLOUR_MAP = "viridis"


class NothingToDraw(Exception):
    """There are no finished trainings for the figure; the message says why."""


def canvas(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, np.ndarray]:
    """Make a figure and its axes ``[rows, columns]``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def first_record(results: Results, run: Run) -> Record:
    """Find the record of the first finished seed; figures of single nodes show one training."""
    if run.task in results.plan.absent:
        raise NothingToDraw(f"{run.task} is missing: {results.plan.absent[run.task]}")
    for seed in range(results.plan.seeds):
        record = results.record(run, seed)
        if record is not None:
            return record
    raise NothingToDraw(f"{run.method} on {run.task} has no finished training")


def id_and_ood_scores(results: Results, run: Run, test: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the ID test nodes and of the OOD nodes of a test graph."""
    record = first_record(results, run)
    graphs, scores = results.store.graphs(record.training), record.scores(run.method)
    test = test or graphs.tests[0]
    return scores["id"][graphs.id_mask], scores[test][graphs.ood_mask[test]]


def edges_of(results: Results, record: Record) -> dict[str, np.ndarray]:
    """Load the edges ``[2, E]`` of every graph of a record's task from the data."""
    from oddnode.tasks import MissingDataError, load_task

    training = record.training
    try:
        task = load_task(training.task, results.plan.data_dir, training.seed, training.protocol)
    except MissingDataError as error:
        raise NothingToDraw(str(error)) from error
    graphs = {"id": task.id_test.data, **task.tests}
    return {name: data.edge_index.numpy() for name, data in graphs.items()}


def histograms(axis: Any, inside: np.ndarray, outside: np.ndarray) -> None:
    """Draw the distributions of ID and OOD scores into one plot, each scaled to a peak of 1."""
    both = np.concatenate([inside, outside])
    low, high = np.percentile(both, [0.2, 99.8])
    bins = np.linspace(low, max(high, low + 1e-6), 45)
    looks = ((inside, "ID", BLUE, "-", None), (outside, "OOD", ORANGE, "--", "////"))
    for scores, label, colour, line, hatch in looks:
        heights, _ = np.histogram(scores.clip(low, high), bins)
        axis.stairs(
            heights / heights.max(), bins, fill=True, label=label, hatch=hatch, linewidth=1.2,
            facecolor=(colour, 0.30), edgecolor=colour, linestyle=line,
        )  # fmt: skip
    axis.set_yticks([])
    axis.spines[["top", "right", "left"]].set_visible(False)


def draw_distributions(results: Results, protocol: str) -> Any:
    """Score distributions of ID and OOD nodes, eight methods."""
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
    """How extreme scores spread to neighbours, and the spread of scores with and without the term."""
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


def draw_graphs(results: Results, protocol: str) -> Any:
    """The graph coloured by score, GNNSafe and NODESAFE, ID and OOD."""
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
    """Two-dimensional logits of a GAT under three losses."""
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


def draw_sensitivity(results: Results, protocol: str) -> Any:
    """FPR95 and ID accuracy of NODESAFE over the settings of its term."""
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
    """AUROC and FPR95 of four methods under several networks."""
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


_DPI = 150

#: How each figure is drawn.
DRAWERS: dict[str, Callable[[Results, str], Any]] = {
    "figure1": draw_motivation,
    "figure2": draw_plane,
    "figure3": draw_distributions,
    "figure4": draw_graphs,
    "figure5": draw_sensitivity,
    "figure6": draw_backbones,
}


def draw_figure(results: Results, name: str, folder: Path) -> list[Path]:
    """Draw a figure for each protocol with finished trainings, and write it as SVG and PNG."""
    import matplotlib

    written, reasons = [], []
    # Keep text as text, and make the files reproducible.
    style = {"svg.fonttype": "none", "svg.hashsalt": "oddnode", "font.size": 9, "axes.titlesize": 9.5}
    for protocol in results.plan.protocols_of(ITEMS[name]):
        with matplotlib.rc_context(style):
            try:
                figure = DRAWERS[name](results, protocol)
            except NothingToDraw as reason:
                reasons.append(str(reason))
                continue
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # the layout is computed once for both files
            for kind in ("svg", "png"):
                path = folder / f"{name}-{protocol}.{kind}"
                metadata = {"Date": None} if kind == "svg" else {"Software": None}
                figure.savefig(path, dpi=_DPI, metadata=cast(Any, metadata), facecolor="white")
                written.append(path)
    if not written:
        raise NothingToDraw("; ".join(dict.fromkeys(reasons)))
    return written
