"""The pictures of docs/digits.md: scores and p-values of known and unknown digits, and what was flagged.

python benchmarks/digits_example.py --out docs/images
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

from oddnode import Detector
from oddnode.tables import split_labelled
from oddnode.tasks import digits_graph

UNKNOWN = (6, 7, 8, 9)
BLUE, RED, GREY = "#2a6f97", "#c1440e", "#8d99ae"


def fitted(seed: int = 0) -> tuple[Any, Detector, np.ndarray, np.ndarray]:
    """The digits with 30 % of the known labels, a calibrated detector, and which nodes are fresh and unknown."""
    data = digits_graph()
    y = data.y.numpy()
    unknown = np.isin(y, UNKNOWN)
    rng = np.random.default_rng(seed)
    labelled = ~unknown & (rng.random(len(y)) < 0.3)
    data.y = torch.from_numpy(np.where(labelled, y, -1))
    split = split_labelled(data.y.numpy(), range(6), seed)
    for name, nodes in (
        ("train_mask", split.train),
        ("val_mask", split.validation),
        ("calibration_mask", split.calibration),
    ):
        data[name] = torch.zeros(len(y), dtype=torch.bool)
        data[name][torch.from_numpy(nodes)] = True
    detector = Detector.from_recipe("nodesafe", seed=seed).fit(data).calibrate(data, false_alarm_rate=0.05)
    return data, detector, ~labelled & ~unknown, unknown


def draw_scores(path: Path, data: Any, detector: Detector, fresh: np.ndarray, unknown: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    scores, p_values = detector.score_samples(data).numpy(), detector.p_values(data).numpy()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    bins = np.linspace(scores.min(), scores.max(), 50).tolist()
    left.hist(scores[fresh], bins, color=BLUE, alpha=0.75, label="digits 0-5, not labelled")
    left.hist(scores[unknown], bins, color=RED, alpha=0.75, label="digits 6-9, never labelled")
    left.set_ylim(0, 1.45 * left.get_ylim()[1])  # room for the legend above the bars
    left.axvline(detector.threshold_, color="black", lw=1)
    left.annotate(
        "flagged below",
        (detector.threshold_, left.get_ylim()[1] * 0.74),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
    )
    left.set(xlabel="score (higher = better known)", ylabel="nodes")
    left.legend(fontsize=8, frameon=False, loc="upper left")
    rates = np.linspace(0, 0.3, 200)
    right.plot([0, 30], [0, 30], color=GREY, lw=1, ls="--", label="nominal rate")
    right.plot(
        100 * rates, [100 * (p_values[fresh] <= r).mean() for r in rates], color=BLUE, label="known: false alarms"
    )
    right.plot(100 * rates, [100 * (p_values[unknown] <= r).mean() for r in rates], color=RED, label="unknown: caught")
    right.set(xlabel="nominal false-alarm rate, %", ylabel="flagged, %", xlim=(0, 30), ylim=(0, 102))
    right.legend(fontsize=8, frameon=False, loc="center right")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_digits(path: Path, data: Any, detector: Detector, fresh: np.ndarray, unknown: np.ndarray) -> None:
    """Caught, missed and wrongly flagged images, with the digit they were taken for."""
    import matplotlib.pyplot as plt

    scores, flags = detector.score_samples(data).numpy(), detector.detect(data).numpy()
    predicted = detector.predict(data).numpy()
    rows = {
        "unknown, flagged": np.flatnonzero(unknown & flags)[np.argsort(scores[unknown & flags])],
        "unknown, missed": np.flatnonzero(unknown & ~flags),
        "known, flagged\n(false alarms)": np.flatnonzero(fresh & flags)[np.argsort(scores[fresh & flags])],
        "known, accepted": np.flatnonzero(fresh & ~flags),
    }
    figure, axes = plt.subplots(len(rows), 10, figsize=(9, 4.4), layout="constrained")
    rng = np.random.default_rng(0)
    for row, (name, nodes) in zip(axes, rows.items(), strict=True):
        chosen = rng.permutation(nodes)[:10]
        for axis in row:
            axis.set_axis_off()
        for axis, node in zip(row, chosen, strict=False):
            axis.imshow(1 - data.x[node].reshape(8, 8), cmap="gray", vmin=0, vmax=1)
            axis.set_title(f"as {predicted[node]}", fontsize=8, pad=2)
        row[0].text(
            -0.25, 0.5, f"{name}\n{len(nodes)}", transform=row[0].transAxes, ha="right", va="center", fontsize=9
        )
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    mpl.use("Agg")
    options.out.mkdir(parents=True, exist_ok=True)
    data, detector, fresh, unknown = fitted()
    draw_scores(options.out / "digits_scores.png", data, detector, fresh, unknown)
    draw_digits(options.out / "digits_flagged.png", data, detector, fresh, unknown)
    flags = detector.detect(data).numpy()
    print(f"false alarms {100 * flags[fresh].mean():.1f} %, caught {100 * flags[unknown].mean():.1f} %")


if __name__ == "__main__":
    main()
