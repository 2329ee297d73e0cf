"""`make serve`: the live page on handwritten digits that arrive one by one, at first those that the model knows.

It fits a model to old images, starts `oddnode serve` with it, and posts the new images with their links, as a program
of one's own would. After the first twenty, images of 7 are among them, which the model has never seen.

    python benchmarks/serve_demo.py build/serve --port 8080 --seconds 1
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
from demo import UNKNOWN, fit, write_tables

from oddnode.tasks.digits import digits_graph

# So many known digits arrive before the first unknown one, this many times faster than the others.
BEFORE, FASTER = 20, 4
# So many new images are kept as a table to drop on the page.
DROPPED = 12


def main(folder: Path, port: int, seconds: float, count: int | None) -> None:
    """Run the service until it is interrupted."""
    with socket.socket() as own:
        if own.connect_ex(("127.0.0.1", port)) == 0:
            sys.exit(f"port {port} is taken; choose another: make serve PORT={port + 1}")
    print("Fitting a model to handwritten digits (0 to 4) ...", flush=True)
    write_tables(folder)
    fit(folder)
    rows, links = _read(folder / "new.csv"), _read(folder / "new_links.csv")
    order = _in_order(rows)
    _write_sample([rows[place] for place in order[-DROPPED:]], links, folder)
    address = f"http://127.0.0.1:{port}"
    state = folder / f"state-{int(time.time())}"  # each demonstration begins anew
    command = ["serve", str(folder / "model"), "--nodes", str(folder / "old.csv")]
    command += ["--edges", str(folder / "old_links.csv"), "--state", str(state), "--port", str(port)]
    with subprocess.Popen([sys.executable, "-m", "oddnode", *command], env=_without_token()) as service:
        try:
            _wait_until_ready(address, service)
            print(f"\nOpen {address} and watch images arrive; Ctrl-C ends it.", flush=True)
            print(f"To drop on the page: {folder / 'try_nodes.csv'} and {folder / 'try_edges.csv'}\n", flush=True)
            known = {row["id"] for row in _read(folder / "old.csv")}
            _post_all([rows[place] for place in order[:-DROPPED]][:count], links, known, address, seconds)
            service.wait()
        except KeyboardInterrupt:
            pass
        finally:
            service.terminate()


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _in_order(rows: list[dict[str, str]]) -> list[int]:
    """Known images first, then a third of unknown ones among them."""
    rng, digit = np.random.default_rng(1), digits_graph().y.numpy()
    kind = np.array([digit[int(row["id"].removeprefix("image-"))] for row in rows])
    known, unknown = (rng.permutation(np.flatnonzero(each)).tolist() for each in (kind != UNKNOWN, kind == UNKNOWN))
    order, known = known[:BEFORE], known[BEFORE:]
    while known and unknown:
        order.append(unknown.pop() if rng.random() < 1 / 3 else known.pop())
    return order + known


def _write_sample(rows: list[dict[str, str]], links: list[dict[str, str]], folder: Path) -> None:
    ids = {row["id"] for row in rows}
    own = [link for link in links if link["source"] in ids]
    for name, table in (("try_nodes", rows), ("try_edges", own)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, table[0].keys())
            writer.writeheader()
            writer.writerows(table)


def _without_token() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ODDNODE_")}


def _wait_until_ready(address: str, service: subprocess.Popen[bytes]) -> None:
    while service.poll() is None:
        try:
            with urlopen(f"{address}/readyz", timeout=5):
                return
        except (HTTPError, URLError, OSError):
            time.sleep(0.1)
    sys.exit(service.returncode or 1)


def _post_all(
    rows: list[dict[str, str]], links: list[dict[str, str]], known: set[str], address: str, seconds: float
) -> None:
    """Post one image after another, each with its links to those that are there."""
    near = defaultdict(set)
    for link in links:
        near[link["source"]].add(link["target"])
        near[link["target"]].add(link["source"])
    for place, row in enumerate(rows):
        node = {name: value if name == "id" else int(value) for name, value in row.items() if name != "digit"}
        edges = [[row["id"], other] for other in sorted(near[row["id"]] & known)]
        body = json.dumps({"add_nodes": [node], "add_edges": edges}).encode()
        with urlopen(Request(f"{address}/v1/changes", body, {"Content-Type": "application/json"}), timeout=60):
            known.add(row["id"])
        time.sleep(seconds / (FASTER if place < BEFORE else 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--seconds", type=float, default=1.0, help="between two arrivals")
    parser.add_argument("--count", type=int, help="how many arrive at most")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the service ends with this program
    main(options.folder, options.port, options.seconds, options.count)
