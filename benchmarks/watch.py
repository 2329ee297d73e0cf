"""What `oddnode watch` says of graphs that change: PubMed's years, and transfers between Ethereum accounts.

    ODDNODE_DATA=... python benchmarks/watch.py years --seeds 3
    ODDNODE_DATA=... python benchmarks/watch.py ethereum --seeds 3

*years*: tables of PubMed's papers, of which the label is the class. A model is fitted on the papers up to a year and
watches the papers that follow, in windows of a year; no label of theirs is used. A second watch compares them with the
papers of the first two years after the fit rather than with calibration rows.

*ethereum*: tables of the accounts and transfers up to the end of each window of 30 days, with features from the
transfers up to then (`ethereum.py`). A model is fitted without labels on those before a day, and watches the accounts
that are first seen later, in a run per window, as from cron. Accounts with at least five counterparties count.

Needs ``planetoid/PubMed`` with ``years/year.npy``, and ``ethereum/{nodes,edges}.csv.gz`` in the data directory.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from common import store
from ethereum import FEWEST, Transfers, seconds_of

from oddnode.tables import TableModel
from oddnode.tasks.planetoid import planetoid_graph
from oddnode.watch import Alarm, Source, TableRows, Watch, Window, Windows, write_page
from oddnode.watch.answers import CHANGES
from oddnode.watch.page import in_words

BASELINE = 2
COLUMNS = (
    *(f"{name}_{side}" for side in ("sent", "received") for name in ("parties", "count", "total", "largest", "mean")),
    *("life", "longest_pause", "mean_pause", "share_sent"),
)


def years_tables() -> tuple[pa.Table, pa.Table]:
    root = Path(os.environ["ODDNODE_DATA"])
    data = planetoid_graph("pubmed", root)
    year = np.load(root / "planetoid/PubMed/years/year.npy", allow_pickle=False)
    x = data.x.numpy()
    columns = {f"word_{k}": x[:, k] for k in range(x.shape[1])}
    labels = [f"class {each}" for each in data.y.tolist()]
    nodes = pa.table({"id": np.arange(len(x)), "topic": labels, "year": year, **columns})
    source, target = data.edge_index.numpy()
    once = source < target
    return nodes, pa.table({"source": source[once], "target": target[once]})


def watch_years(until: int, seed: int, chance: float, page: Path | None) -> dict[str, Any]:
    nodes, edges = years_tables()
    # Papers that arrive have no label; of the others, 60 of each class have one, as in `benchmarks/years.py`.
    rng, labels = np.random.default_rng(seed), nodes["topic"].to_pylist()
    year = nodes["year"].to_numpy()
    kept: set[int] = set()
    for label in sorted(set(labels)):
        own = np.flatnonzero((year <= until) & np.array([each == label for each in labels]))
        kept |= set(rng.permutation(own)[:400].tolist())
    given = pa.array([each if row in kept else None for row, each in enumerate(labels)])
    nodes = nodes.set_column(1, "topic", given)
    names: dict[str, Any] = {
        "id_column": "id",
        "label_column": "topic",
        "time_column": "year",
        "train_until": str(until),
    }
    model, report = TableModel.fit(nodes, edges, **names, seed=seed, device="cpu")
    rows = Kept(TableRows(model, nodes, edges, Windows.of("1")))
    with tempfile.TemporaryDirectory() as folder:
        found, later = (
            Watch(model, Path(folder) / f"{n}.json", "1", chance=chance, baseline=n, seed=seed).run(rows)
            for n in (0, BASELINE)
        )
    if page is not None:
        write_page(found.state, page)
    about = {"graph": "PubMed", "fit": str(until), "seed": seed, "calibration": report.num_calibration}
    about |= {"alarm_with_baseline": None if later.alarm is None else later.alarm.window}
    return about | described(found.windows, found.alarm)


class Kept:
    """A source that reads every window once, for several watches."""

    def __init__(self, source: Source):
        self.source = source
        self.times, self.read = source.times, cache(source.read)


def ethereum_tables(transfers: Transfers, end: int) -> tuple[pa.Table, pa.Table]:
    graph = transfers.graph(end)
    columns = {name: graph.x[:, k].numpy().astype(np.float64) for k, name in enumerate(COLUMNS)}
    first = pa.array(transfers.first[: graph.num_nodes] * 1_000_000, pa.timestamp("us"))
    nodes = pa.table({"id": np.arange(graph.num_nodes), "first_seen": first, **columns})
    source, target = graph.edge_index[:, : graph.edge_index.shape[1] // 2].numpy()
    mature = pa.array(graph.degree >= FEWEST)
    keep = np.asarray(graph.degree >= FEWEST)
    inside = keep[source] & keep[target] & (source != target)
    return nodes.filter(mature), pa.table({"source": source[inside], "target": target[inside]})


def watch_ethereum(transfers: Transfers, day: str, seed: int, chance: float, page: Path | None) -> dict[str, Any]:
    windows, begin = Windows.of("30d"), seconds_of(day)
    tables = ethereum_tables(transfers, begin)
    names: dict[str, Any] = {"id_column": "id", "time_column": "first_seen", "train_until": day}
    model, report = TableModel.fit(*tables, **names, seed=seed, device="cpu")
    seen: list[Window] = []
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(model, Path(folder) / "state.json", "30d", chance=chance, seed=seed)
        for number in range(int(windows.number_of(np.array([begin]))[0]), 10**6):
            end = windows.start(number + 1)
            if windows.start(number) > transfers.when.max():
                break
            rows = TableRows(model, *ethereum_tables(transfers, int(end)), windows)
            found = watch.run(rows, end)
            seen += found.windows
        if page is not None:
            write_page(found.state, page)
    about = {"graph": "Ethereum", "fit": day, "seed": seed, "calibration": report.num_calibration}
    return about | described(seen, found.alarm)


def described(windows: list[Window], alarm: Alarm | None) -> dict[str, Any]:
    """When the alarm came and what moved, as it is stored."""
    return {
        "alarm": None if alarm is None else alarm.window,
        "rows_until_alarm": None if alarm is None else alarm.num_rows,
        "highest": round(max(each.log10_highest for each in windows), 2),
        "windows": [
            {
                "name": each.name,
                "rows": each.drift.num_nodes,
                "flagged": round(100 * each.drift.share_flagged, 1),
                "interval": [round(100 * end, 1) for end in each.drift.share_interval],
                "weight": round(each.weight, 3),
                "log10_evidence": round(each.log10_evidence, 2),
                "moved": [in_words(first) for kind in CHANGES for first in of_kind(each, kind)],
            }
            for each in windows
        ],
    }


def of_kind(window: Window, kind: str) -> list[Any]:
    """What moved most of a kind."""
    return [change for change in window.changes if change.kind == kind][:1]


def runs(what: str, seeds: int, chance: float, pages: Path | None) -> Iterator[dict[str, Any]]:
    transfers = Transfers.read(Path(os.environ["ODDNODE_DATA"]) / "ethereum") if what == "ethereum" else None
    for fit in (1994, 1999, 2004) if transfers is None else ("2017-06-15", "2017-09-13"):
        for seed in range(seeds):
            page = None if pages is None else pages / f"{what}-{fit}-{seed}.html"
            if transfers is None:
                yield watch_years(int(fit), seed, chance, page)
            else:
                yield watch_ethereum(transfers, str(fit), seed, chance, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("years", "ethereum"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--chance", type=float, default=0.01)
    parser.add_argument("--pages", type=Path, default=None, help="a folder for a page of each run")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for row in runs(options.what, options.seeds, options.chance, options.pages):
        rows.append(row | {"chance": options.chance})
        about, rows_until = f"{row['graph']} until {row['fit']}, seed {row['seed']}", row["rows_until_alarm"]
        print(f"{about}: alarm in {row['alarm']}, after {rows_until} rows")
        for each in row["windows"]:
            print("  ", *(each[name] for name in ("name", "rows", "flagged", "log10_evidence", "weight", "moved")))
    print(store(f"watch-{options.what}", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
