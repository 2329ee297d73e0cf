"""A shop for tests: products of known categories, and arrivals of which some are of a category that nobody labelled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

CATEGORIES = ("kitchen", "garden", "toys", "books")
WORDS = {
    "kitchen": ("pan", "knife", "oven"),
    "garden": ("hose", "seed", "spade"),
    "toys": ("puzzle", "doll", "blocks"),
    "books": ("novel", "cover", "pages"),
    "cameras": ("lens", "tripod", "zoom"),
}
PRICES = {"kitchen": 30, "garden": 45, "toys": 20, "books": 12, "cameras": 90}


@dataclass
class Shop:
    """Products and links; `kind` is the true category, and the last `num_new` products arrive after the fit."""

    nodes: pd.DataFrame
    edges: pd.DataFrame
    kind: np.ndarray
    num_new: int

    @property
    def is_new(self) -> np.ndarray:
        return np.arange(len(self.nodes)) >= len(self.nodes) - self.num_new

    @property
    def old(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        nodes = self.nodes[~self.is_new]
        return nodes, self.edges[self.edges["source"].isin(nodes["id"]) & self.edges["target"].isin(nodes["id"])]


def shop(num_old: int = 600, num_known: int = 120, num_planted: int = 30, seed: int = 0) -> Shop:
    """Old products, arrivals of known categories, and arrivals that are cameras, linked to their own kind mostly."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(CATEGORIES, num_old + num_known)
    kind = np.concatenate([kind, np.full(num_planted, "cameras")])
    order = np.concatenate([np.arange(num_old), num_old + rng.permutation(num_known + num_planted)])
    kind, count = kind[order], len(kind)
    words = {word: (rng.random(count) < 0.02).astype(int) for each in WORDS.values() for word in each}
    for each, its in WORDS.items():
        for word in its:
            words[word] |= ((kind == each) & (rng.random(count) < 0.6)).astype(int)
    nodes = pd.DataFrame(
        {
            "id": [f"p{row:04d}" for row in range(count)],
            "category": [each if each in CATEGORIES and rng.random() < 0.8 else None for each in kind],
            "price": np.round([PRICES[each] * rng.lognormal(0, 0.3) for each in kind], 2),
            "weight": np.round(rng.normal(5, 1, count), 1),
            "seller": rng.choice(["ada", "bo", "cy", "di"], count),
            **words,
        }
    )
    nodes.loc[rng.random(count) < 0.05, "weight"] = None
    nodes.loc[np.arange(count) >= num_old, "category"] = None
    pairs = [
        (row, int(rng.choice(np.flatnonzero(kind == kind[row]) if rng.random() < 0.85 else count)))
        for row in range(count)
        for _ in range(3)
    ]
    edges = pd.DataFrame([(f"p{a:04d}", f"p{b:04d}") for a, b in pairs if a != b], columns=["source", "target"])
    return Shop(nodes, edges, kind, num_known + num_planted)
