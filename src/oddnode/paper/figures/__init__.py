"""The paper's figures with our runs, as SVG and PNG.

May import: the other modules of paper.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from oddnode.paper.experiments import ITEMS
from oddnode.paper.figures.common import NothingToDraw
from oddnode.paper.figures.distributions import draw_distributions, draw_motivation
from oddnode.paper.figures.nodes import draw_graphs, draw_plane
from oddnode.paper.figures.settings import draw_backbones, draw_sensitivity
from oddnode.paper.results import Results

__all__ = ["DRAWERS", "NothingToDraw", "draw_figure"]

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
    """Draw a figure for each protocol with finished trainings, and write it as SVG and PNG.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        A key of `DRAWERS`.
    folder : Path
        Where to write; it exists.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    NothingToDraw
        If its data is missing or its trainings failed, under every protocol.
    """
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
