"""The last step of `make demo`: a page about handwritten digits that join a graph, some of a kind nobody has labelled.

The images become two tables, as a user's own data would be: one row per image with a column per pixel, and links
between images that are alike. A model learns 0 to 4 from three quarters of their images; the others arrive later,
together with all images of 7.

    python benchmarks/demo.py demo/arrivals
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from oddnode.tables import TableModel
from oddnode.tables.webpage import make_page, write_page
from oddnode.tasks.digits import digits_graph

KNOWN, UNKNOWN = range(5), 7


def write_tables(folder: Path) -> None:
    """Write the tables of old and of new images, and of their links."""
    folder.mkdir(parents=True, exist_ok=True)
    data = digits_graph()
    digit, rng = data.y.numpy(), np.random.default_rng(0)
    is_new = (digit == UNKNOWN) | (rng.random(len(digit)) < 0.25)
    is_used = np.isin(digit, [*KNOWN, UNKNOWN])
    names = np.array([f"image-{number}" for number in range(len(digit))])
    pixels = np.round(16 * data.x.numpy()).astype(int)
    columns = {"id": names, "digit": np.where(is_new, "", digit.astype(str))}
    columns |= {f"pixel_{row}_{column}": pixels[:, 8 * row + column] for row in range(8) for column in range(8)}
    nodes, edge_index = pa.table(columns), data.edge_index.numpy()
    for name, rows in (("old", is_used & ~is_new), ("new", is_used & is_new)):
        csv.write_csv(nodes.filter(pa.array(rows)), folder / f"{name}.csv")
        # New links are those of new images, to old ones and among each other.
        inside = is_used[edge_index].all(axis=0) & (is_new[edge_index].any(axis=0) == (name == "new"))
        ends = names[edge_index[:, inside]]
        csv.write_csv(pa.table({"source": ends[0], "target": ends[1]}), folder / f"{name}_links.csv")


def fit(folder: Path) -> TableModel:
    """Fit a model to the old images, and save it."""
    model, _ = TableModel.fit(
        folder / "old.csv", folder / "old_links.csv", id_column="id", label_column="digit", device="cpu", epochs=60
    )
    model.save(folder / "model")
    return model


def main(folder: Path) -> None:
    """Write the tables, the scores and the page, and print where the page is."""
    write_tables(folder)
    model = fit(folder)
    both = [folder / "old.csv", folder / "new.csv"], [folder / "old_links.csv", folder / "new_links.csv"]
    model.score(*both, folder / "scores.csv", explain=True)
    page = make_page(model, folder / "scores.csv", *both)
    print(page.headline)
    print(write_page(page, folder / "page.html"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
