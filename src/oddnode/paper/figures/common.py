"""Parts that the figures share: colours, a canvas, and node scores.

Colours are those of Okabe and Ito, which colour-blind people can tell apart, and no colour stands alone: lines differ
by style and marker, bars by hatching, and maps grow steadily from dark to light, so that all of it reads in black and
white.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oddnode.paper.experiments import Run
from oddnode.paper.record import Record
from oddnode.paper.results import Results

__all__ = [
    "BLACK",
    "BLUE",
    "CLASS_COLOURS",
    "CLASS_MARKERS",
    "COLOUR_MAP",
    "ORANGE",
    "RED",
    "SERIES",
    "NothingToDraw",
    "canvas",
    "edges_of",
    "first_record",
    "histograms",
    "id_and_ood_scores",
]

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
    """Make a figure and its axes ``[rows, columns]``.

    Parameters
    ----------
    rows, columns : int
        How many plots there are.
    size : pair of float
        Width and height in inches.
    **options
        Passed on to matplotlib's ``Figure.subplots``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def first_record(results: Results, run: Run) -> Record:
    """Find the record of the first finished seed; figures of single nodes show one training.

    Parameters
    ----------
    results : Results
        The results of a plan.
    run : Run
        A method on a task.

    Raises
    ------
    NothingToDraw
        If the task's data is missing, or no seed has a record.
    """
    if run.task in results.plan.absent:
        raise NothingToDraw(f"{run.task} is missing: {results.plan.absent[run.task]}")
    for seed in range(results.plan.seeds):
        record = results.record(run, seed)
        if record is not None:
            return record
    raise NothingToDraw(f"{run.method} on {run.task} has no finished training")


def id_and_ood_scores(results: Results, run: Run, test: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the ID test nodes and of the OOD nodes of a test graph.

    Parameters
    ----------
    results : Results
        The results of a plan.
    run : Run
        A method on a task.
    test : str, optional
        The test graph; the first without it.
    """
    record = first_record(results, run)
    graphs, scores = results.store.graphs(record.training), record.scores(run.method)
    test = test or graphs.tests[0]
    return scores["id"][graphs.id_mask], scores[test][graphs.ood_mask[test]]


def edges_of(results: Results, record: Record) -> dict[str, np.ndarray]:
    """Load the edges ``[2, E]`` of every graph of a record's task from the data.

    Parameters
    ----------
    results : Results
        The results of a plan.
    record : Record
        The record of a training.
    """
    from oddnode.tasks import MissingDataError, load_task

    training = record.training
    try:
        task = load_task(training.task, results.plan.data_dir, training.seed, training.protocol)
    except MissingDataError as error:
        raise NothingToDraw(str(error)) from error
    graphs = {"id": task.id_test.data, **task.tests}
    return {name: data.edge_index.numpy() for name, data in graphs.items()}


def histograms(axis: Any, inside: np.ndarray, outside: np.ndarray) -> None:
    """Draw the distributions of ID and OOD scores into one plot, each scaled to a peak of 1.

    Parameters
    ----------
    axis : matplotlib.axes.Axes
        Where to draw.
    inside, outside : array
        Scores of the ID and of the OOD nodes.
    """
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
