"""Draws the pictures of docs/gallery.md from what the lines on that page leave behind.

    python docs/draw_gallery.py

The blocks of the page run from top to bottom, like a notebook; then each function here draws one picture. A test does
the same.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

DOCS = Path(__file__).resolve().parent
BLUE, RED, GREY, LIGHT = "#2a6f97", "#c1440e", "#8d99ae", "#d7dee6"
RATES = np.linspace(0, 0.3, 121)


def run_page() -> dict[str, Any]:
    """Run the blocks of the page; returns the names that they have made."""
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "gallery"}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL), 1):
        exec(compile(block, f"gallery.md, block {number}", "exec"), names)
    return names


def draw_found(made: dict[str, Any]) -> Any:
    """The grown graph as a map, on which images that look alike are near each other."""
    from sklearn.manifold import TSNE

    figure, axis = _axes(7.2, 4.6)
    place = TSNE(init="pca", perplexity=25, random_state=0).fit_transform(made["grown"].x.numpy())
    for a, b in made["grown"].edge_index.t().tolist():
        if a < b and (made["unknown"][a] or made["unknown"][b]):
            axis.plot(*place[[a, b]].T, color=RED, lw=0.5, alpha=0.35, zorder=1)
    known, unknown, flagged = (made[name].numpy() for name in ("known", "unknown", "flagged"))
    labelled = ~known & ~unknown
    axis.scatter(*place[labelled].T, s=9, color=LIGHT, label="training graph, digits 5-9", zorder=2)
    axis.scatter(*place[known].T, s=13, color=BLUE, label="arrivals, digits 5-9", zorder=3)
    axis.scatter(*place[unknown].T, s=13, color=RED, label="arrivals, digits 0-4", zorder=3)
    # Below the dots, so that the rings of a dense group do not hide them.
    axis.scatter(*place[flagged].T, s=50, facecolors="white", edgecolors="black", lw=1, label="flagged", zorder=2.5)
    axis.set_axis_off()
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def draw_scores(made: dict[str, Any]) -> Any:
    """The scores of arrivals, and the threshold."""
    figure, axis = _axes(6.6, 3.0)
    scores = made["scores"].numpy()
    bins = np.linspace(scores.min(), scores.max(), 40).tolist()
    for mask, color, label in (("known", BLUE, "digits 5-9, known"), ("unknown", RED, "digits 0-4, unknown")):
        share = 100 * made["flagged"][made[mask]].double().mean()
        axis.hist(scores[made[mask].numpy()], bins, color=color, alpha=0.75, label=f"{label}: {share:.0f} % flagged")
    axis.axvline(made["threshold"], color="black", lw=1)
    axis.annotate(
        "← flagged ",
        (made["threshold"], 0.97),
        xycoords=("data", "axes fraction"),
        ha="right",
        va="top",
        fontsize=9,
    )
    axis.set(xlabel="score (higher = better known)", ylabel="arrivals")
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    return figure


def draw_why(made: dict[str, Any]) -> Any:
    """One flagged digit, the evidence against it, and the sentence."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1,
        2,
        figsize=(7.6, 3.6),
        width_ratios=(1, 4),
        gridspec_kw={"bottom": 0.27, "top": 0.93, "left": 0.02, "wspace": 0.7},
    )
    _show_digit(left, made["grown"].x[made["node"]])
    left.set_title("flagged", fontsize=10)
    kinds = sorted((kind for kind, strength in made["evidence"].items() if strength > 0), key=made["evidence"].get)
    strengths = [made["evidence"][kind] for kind in kinds]
    right.barh(kinds, strengths, color=["black" if strength > -np.log(0.1) else LIGHT for strength in strengths])
    shares = (0.1, 0.01, 0.001, 0.0001)
    right.set_xticks([-np.log(share) for share in shares], [f"1 in {round(1 / share):,}" for share in shares])
    right.tick_params(labelsize=8)
    right.set_xlabel("share of known nodes that are as unusual", fontsize=8)
    right.spines[["top", "right"]].set_visible(False)
    figure.text(0.03, 0.02, textwrap.fill(made["why"], 122), fontsize=8, va="bottom")
    return figure


def draw_roc(made: dict[str, Any]) -> Any:
    """The ROC curves of the methods."""
    from sklearn.metrics import roc_auc_score, roc_curve

    figure, axis = _axes(4.8, 3.6)
    counted = (made["known"] | made["unknown"]).numpy()
    unknown = made["unknown"].numpy()[counted]
    styles = ("-", ":", "--", "-.")
    for style, (method, scores) in zip(styles, made["by_method"].items(), strict=True):
        oddness = -scores.numpy()[counted]
        false_alarms, caught, _ = roc_curve(unknown, oddness)
        area = 100 * roc_auc_score(unknown, oddness)
        axis.plot(100 * false_alarms, 100 * caught, style, color="black", lw=1.3, label=f"{method}: AUROC {area:.1f}")
    axis.plot([0, 100], [0, 100], color=LIGHT, lw=1, ls="--")
    axis.set(xlabel="known arrivals flagged, %", ylabel="unknown arrivals caught, %", xlim=(-1, 100), ylim=(0, 102))
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def draw_drift(made: dict[str, Any]) -> Any:
    """The share of known arrivals that are flagged as they get paler, with one of them."""
    figure, axis = _axes(6.6, 3.4)
    faded, flagged = (100 * np.array(list(values)) for values in (made["alarms"].keys(), made["alarms"].values()))
    axis.axhline(5, color=GREY, lw=1, ls="--")
    axis.text(faded[-1], 6.5, "nominal rate", ha="right", fontsize=8, color="#5c677d")
    axis.plot(faded, flagged, color=BLUE, marker="o", lw=1.5)
    axis.set(xlabel="paler by, %", ylabel="known arrivals flagged, %", ylim=(0, 132), yticks=range(0, 101, 25))
    axis.spines["left"].set_bounds(0, 100)
    image = made["grown"].x[made["known"]][0]
    for place, level in zip(faded, made["alarms"], strict=True):
        inset = axis.inset_axes((place - 2.2, 106, 4.4, 25), transform=axis.transData)
        _show_digit(inset, (1 - level) * image)
    return figure


def draw_calibration(made: dict[str, Any]) -> Any:
    """Observed against nominal false-alarm rates."""
    figure, axis = _axes(4.8, 3.6)
    observed = np.array([[(draw <= rate).double().mean().item() for rate in RATES] for draw in made["draws"]])
    for number, line in enumerate(observed):
        label = "single draws of calibration nodes" if number == 0 else None
        axis.plot(100 * RATES, 100 * line, color=BLUE, lw=0.6, alpha=0.3, label=label)
    axis.plot(100 * RATES, 100 * observed.mean(axis=0), color=BLUE, lw=2.5, label="their mean")
    axis.plot([0, 30], [0, 30], color="black", lw=1, ls="--", label="nominal")
    axis.set(xlabel="nominal false-alarm rate, %", ylabel="false alarms, %", xlim=(0, 30), ylim=(0, 42))
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    return figure


def draw_tables(made: dict[str, Any]) -> Any:
    """Some rows of the table of nodes, and what comes back for them."""
    rows = _rows_to_show(made)
    figure, axis = _axes(9.6, 0.52 * (len(rows) + 1.4))
    axis.set(xlim=(0, 100), ylim=(len(rows) + 1, -0.4))
    axis.set_axis_off()
    columns = {"image": 4, "digit": 12, "pixel 2": 17, "predicted": 33, "p_value": 41.5, "is_ood": 49, "why": 56.5}
    for name, x in columns.items():
        axis.text(x, 0.5, name, fontsize=9, weight="bold", va="center")
    axis.text(23.5, 0.5, "…", fontsize=9, va="center")
    for x, text in ((4, "nodes in"), (33, "scores out")):
        axis.text(x, -0.15, text, fontsize=8, va="center", color="#5c677d")
    table = {name: made["table"][name].to_pylist() for name in ("image", "predicted", "p_value", "is_ood", "why")}
    for y, row in enumerate(rows, 1):
        y += 0.5
        if table["is_ood"][row]:
            axis.axhspan(y - 0.48, y + 0.48, color=LIGHT, alpha=0.6, lw=0)
        picture = axis.inset_axes((0.3, y - 0.42, 3.0, 0.84), transform=axis.transData)
        _show_digit(picture, made["digits"].x[row])
        why = textwrap.shorten(table["why"][row] or "", 146, placeholder=" …")
        cells = (
            table["image"][row],
            made["nodes"]["digit"][row] or "",
            f"{made['nodes']['pixel 2'][row]:.2f}",
            table["predicted"][row],
            f"{table['p_value'][row]:.3f}",
            str(table["is_ood"][row]).lower(),
            textwrap.fill(why, 76),
        )
        for x, cell in zip(columns.values(), cells, strict=True):
            axis.text(x, y, cell, fontsize=7 if x == columns["why"] else 8.5, va="center")
        axis.annotate("", (31.5, y), (25.5, y), arrowprops={"arrowstyle": "->", "color": GREY})
    return figure


def _rows_to_show(made: dict[str, Any]) -> list[int]:
    """The first two labelled rows and, of the others, two known, three unknown and flagged, one unknown and missed."""
    unknown = (made["digits"].y >= 6).numpy()
    labelled = np.array([digit is not None for digit in made["nodes"]["digit"]])
    flagged = np.array(made["table"]["is_ood"].to_pylist())
    chosen = (
        (labelled & ~flagged, 2),
        (~labelled & ~unknown & ~flagged, 2),
        (unknown & flagged, 3),
        (unknown & ~flagged, 1),
    )
    return sorted(int(row) for mask, number in chosen for row in np.flatnonzero(mask)[:number])


def _show_digit(axis: Any, pixels: torch.Tensor) -> None:
    axis.imshow(1 - pixels.reshape(8, 8).numpy(), cmap="gray", vmin=0, vmax=1)
    axis.set_axis_off()


def _axes(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(width, height), layout="constrained")
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


PICTURES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gallery_found.png": draw_found,
    "gallery_scores.png": draw_scores,
    "gallery_why.png": draw_why,
    "gallery_roc.png": draw_roc,
    "gallery_drift.png": draw_drift,
    "gallery_calibration.png": draw_calibration,
    "gallery_tables.png": draw_tables,
}


def draw(made: dict[str, Any], folder: Path) -> None:
    """Draw every picture into a folder.

    Parameters
    ----------
    made : dict
        What `run_page` returns.
    folder : Path
        Where the pictures go.
    """
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    for name, function in PICTURES.items():
        figure = function(made)
        # Without the date and the version of matplotlib, the same numbers give the same file.
        figure.savefig(folder / name, dpi=110, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    torch.set_num_threads(1)
    draw(run_page(), DOCS / "images")
