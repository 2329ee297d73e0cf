"""False alarms when cells of known rows are empty, or hold a category that the model has not seen.

    python benchmarks/missing_values.py                 # 5 seeds; a minute each on one core

A generated table of products (numbers with holes, categories, words, dates) and their links: a model is fitted on 3,000
rows, then 700 known products arrive. In their rows 1, 5 and 20 % of the cells of each type of column are emptied, or
10 % of the sellers get another name. The table says how many of the 700 are flagged; 5 % are asked.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator

import numpy as np
import pandas as pd

from oddnode.tables import TableModel, TableOptions

_OLD, _NEW, _KINDS, _WORDS, _SELLERS = 3000, 700, 6, 120, 20
_TYPES = {
    "numbers": ["price", "grams"],
    "categories": ["seller", "colour"],
    "words": [f"w_{word:03}" for word in range(_WORDS)],
}


def products(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the tables of nodes and edges; the last 700 rows are the arrivals."""
    count = _OLD + _NEW
    kind = rng.integers(_KINDS, size=count)
    words = rng.dirichlet(np.full(_WORDS, 0.15), size=_KINDS)
    lengths = rng.poisson(12, size=count) + 3
    bags = np.stack([rng.multinomial(n, 0.7 * words[k] + 0.3 / _WORDS) for n, k in zip(lengths, kind, strict=True)])
    price = np.exp(rng.normal(2.0 + 0.5 * kind, 0.6)).round(2)
    price[rng.random(count) < 0.12] = np.nan
    shops = rng.dirichlet(np.full(_SELLERS, 2.0), size=_KINDS)
    colours = np.array(["red", "green", "blue", "black", None], dtype=object)
    days = pd.to_datetime("2024-01-01") + pd.to_timedelta(7 * rng.integers(50, size=count), unit="D")
    nodes = pd.DataFrame(
        {
            "id": [f"p{row:05}" for row in range(count)],
            "label": np.where(rng.random(count) < 0.6, [f"kind {k}" for k in kind], ""),
            "price": price,
            "grams": np.exp(rng.normal(5.0 - 0.3 * kind, 0.5)).round(),
            "seller": [f"shop {rng.choice(_SELLERS, p=shops[k]):02}" for k in kind],
            "colour": rng.choice(colours, size=count, p=[0.3, 0.25, 0.2, 0.2, 0.05]),
            "listed_on": days.strftime("%Y-%m-%d"),
            **{name: bags[:, word] for word, name in enumerate(_TYPES["words"])},
        }
    )
    source = np.repeat(np.arange(count), 4)
    other = rng.integers(count, size=len(source))
    alike = np.array([rng.choice(np.flatnonzero(kind == kind[row])) for row in source])
    target = np.where(rng.random(len(source)) < 0.85, alike, other)
    ids = nodes["id"].to_numpy()
    return nodes, pd.DataFrame({"source": ids[source], "target": ids[target]})


def changes(nodes: pd.DataFrame, rng: np.random.Generator) -> Iterator[tuple[str, pd.DataFrame]]:
    """Make the changed tables, each with its name; only arrivals are changed."""
    yield "unchanged", nodes
    for name, columns in _TYPES.items():
        for share in (0.01, 0.05, 0.2):
            changed = nodes.copy()
            for column in columns:
                is_empty = np.arange(len(nodes)) >= _OLD
                is_empty[_OLD:] &= rng.random(_NEW) < share
                changed[column] = changed[column].mask(is_empty)
            yield f"{name}, {share:.0%} of the cells empty", changed
        empty = nodes.copy()
        empty.loc[_OLD:, columns] = None
        yield f"{name}, all cells empty", empty
    renamed = nodes.copy()
    some = rng.permutation(_SELLERS)[: _SELLERS // 10]
    names = {f"shop {shop:02}": f"Shop-{shop:02}" for shop in some}
    renamed.loc[_OLD:, "seller"] = renamed.loc[_OLD:, "seller"].replace(names)
    yield "10 % of the sellers renamed", renamed
    elsewhere = nodes.copy()
    elsewhere.loc[_OLD:, "seller"] = "New shop"
    yield "every seller unseen", elsewhere


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--method", default=None, help="the default method if none is given")
    options = parser.parse_args()
    logging.getLogger("oddnode").setLevel(logging.ERROR)
    found: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        nodes, edges = products(rng)
        old = set(nodes["id"][:_OLD])
        inside = edges["source"].isin(old) & edges["target"].isin(old)
        roles = TableOptions(id_column="id", label_column="label")
        model, _ = TableModel.fit(nodes[:_OLD], edges[inside], roles, method=options.method, seed=seed, device="cpu")
        for name, changed in changes(nodes, rng):
            flagged = model.score_frame(changed, edges)["is_ood"].to_numpy()[_OLD:]
            found.setdefault(name, []).append(100 * float(flagged.mean()))
    before = np.array(found["unchanged"])
    print(f"| {_NEW} known arrivals, {options.seeds} seeds | flagged, % | more than unchanged, points (largest) |")
    print("| --- | --- | --- |")
    for name, rates in found.items():
        more = np.array(rates) - before
        print(f"| {name} | {np.mean(rates):.1f} | {more.mean():+.1f} ({more.max():+.1f}) |", flush=True)


if __name__ == "__main__":
    main()
