"""Two exports of a shop, as an analyst has them: products of known categories, then new ones, some of another kind.

    python benchmarks/shop.py shop      # writes old.csv, new.csv, old_edges.csv and new_edges.csv

The examples of docs/tables.md are about these files. 3,000 products in four categories, 80 % labelled, have a price, a
weight with holes, a seller, the day they were listed and counts of words; each names three others that were bought
with it, mostly of its category. Then 600 of the known categories arrive, and 60 cameras, a category that nobody has
labelled.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

OLD, KNOWN, CAMERAS = 3000, 600, 60
WORDS = {
    "kitchen": ("pan", "knife", "oven"),
    "garden": ("hose", "seed", "spade"),
    "toys": ("puzzle", "doll", "blocks"),
    "books": ("novel", "cover", "pages"),
    "cameras": ("lens", "tripod", "zoom"),
}
PRICES = {"kitchen": 30, "garden": 45, "toys": 20, "books": 12, "cameras": 90}


def products(seed: int) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Make all nodes and edges, old products first, and which products are cameras."""
    rng, known = np.random.default_rng(seed), [*PRICES][:-1]
    kind = np.concatenate([rng.choice(known, OLD + KNOWN), np.full(CAMERAS, "cameras")])
    kind[OLD:] = rng.permutation(kind[OLD:])
    count, is_old = len(kind), np.arange(len(kind)) < OLD
    words = {
        word: (rng.random(count) < np.where(kind == own, 0.6, 0.02)).astype(int) * (1 + rng.poisson(0.5, count))
        for own, names in WORDS.items()
        for word in names
    }
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(rng.integers(120, size=count)), unit="D")
    nodes = pd.DataFrame(
        {
            "id": [f"p{row:04d}" for row in range(count)],
            "category": np.where(is_old & (rng.random(count) < 0.8), kind, ""),
            "price": np.round([PRICES[each] for each in kind] * rng.lognormal(0, 0.3, count), 2),
            "weight": np.where(rng.random(count) < 0.05, np.nan, np.round(rng.normal(5, 1, count), 1)),
            "seller": rng.choice(["ada", "bo", "cy", "di"], count),
            "listed_on": days.strftime("%Y-%m-%d"),
            **words,
        }
    )
    source = np.repeat(np.arange(count), 3)
    alike = [rng.choice(np.flatnonzero((kind == kind[row]) & (is_old | ~is_old[row]))) for row in source]
    anything = rng.integers(np.where(is_old[source], OLD, count))
    target = np.where(rng.random(len(source)) < 0.85, alike, anything)
    edges = pd.DataFrame({"source": nodes["id"].to_numpy()[source], "target": nodes["id"].to_numpy()[target]})
    return nodes, edges[source != target], kind == "cameras"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    nodes, edges, _ = products(options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    is_old = edges["source"].isin(nodes["id"][:OLD])  # old products name old ones only
    tables = {"old": nodes[:OLD], "new": nodes[OLD:], "old_edges": edges[is_old], "new_edges": edges[~is_old]}
    for name, table in tables.items():
        table.to_csv(options.folder / f"{name}.csv", index=False)


if __name__ == "__main__":
    main()
