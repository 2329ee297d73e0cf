"""The load that `oddnode serve` carries, over the loopback address, on the cores that this process may use.

    taskset -c 0,1 env OMP_NUM_THREADS=1 python benchmarks/service_load.py --nodes 1e6 --seconds 20

The graph is that of ``benchmarks/online.py``: a block model with hubs, 64 dense features and the default method with
its four networks. The service is a process of its own; the clients are threads of this one, on the same cores. In turn:

- *start*: seconds until `/readyz` says so, the first time and with what it then has saved;
- *one*: a single client asks about one arrival with ten edges, again and again, beside scoring the whole graph here;
- *mixed*: 16 clients, four questions to one change that adds a node;
- *batches*: new rows, and the kept scores of known ids, by the thousand;
- *memory* of the service, after every quarter of the changes of ``--changes``.

Every loop is bounded in number or time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from block_model import BlockModel
from common import store, whole_number
from online import EDGES_PER_NODE, FEATURES, arrivals, fitted

from oddnode.large import folder_from_data

#: Features and neighbours of arrivals.
Rows = list[tuple[list[float], list[int]]]


class Client:
    """One connection that stays open."""

    def __init__(self, port: int):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, path: str, body: Any = None, method: str | None = None) -> tuple[int, bytes]:
        raw = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if raw is None else {"Content-Type": "application/json"}
        self._connection.request(method or ("GET" if raw is None else "POST"), path, raw, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


class Service:
    """The process of the service."""

    def __init__(self, folder: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "oddnode", "serve", "model", "--graph", "graph", "--state", "state"]
        self.log = (folder / "service.log").open("ab")
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port)], cwd=folder, stdout=self.log, stderr=self.log
        )

    def ready(self, seconds: float) -> float:
        """Wait until it answers; returns the seconds since its start."""
        while time.perf_counter() - self.began < seconds:
            if self._process.poll() is not None:
                raise RuntimeError(f"the service ended with status {self._process.returncode}; see {self.log.name}")
            try:
                if Client(self.port).ask("/readyz")[0] == 200:
                    return time.perf_counter() - self.began
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"the service was not ready after {seconds:.0f} seconds")

    @property
    def memory(self) -> float:
        """Anonymous memory in MB: what is mapped from files does not count."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(120)
        self.log.close()


def percentiles(seconds: list[float]) -> dict[str, float]:
    return {f"p{q} ms": round(1e3 * float(np.percentile(seconds, q)), 1) for q in (50, 99)}


def timed(client: Client, path: str, body: Any) -> float:
    """The seconds that an answer takes."""
    began = time.perf_counter()
    status, raw = client.ask(path, body)
    if status != 200:
        raise RuntimeError(f"status {status}: {raw[:500].decode(errors='replace')}")
    return time.perf_counter() - began


def bodies(graph: Any, model: BlockModel, count: int) -> Rows:
    """Features and neighbours of arrivals."""
    return [(x[0].tolist(), [node for _, node in edges]) for x, edges in arrivals(graph, model, count)]


def one(client: Client, rows: Rows) -> dict[str, Any]:
    """A single client asks about one arrival after another."""
    seconds = []
    for x, neighbours in rows:
        body = {"nodes": [{"id": "new", "x": x}], "edges": [["new", node] for node in neighbours]}
        seconds.append(timed(client, "/v1/score", body))
    return {"phase": "one", "requests": len(seconds), **percentiles(seconds)}


def mixed(port: int, rows: Rows, clients: int, limit: float) -> dict[str, Any]:
    """Several clients ask and change at the same time."""
    reads: list[float] = []
    writes: list[float] = []
    errors: list[BaseException] = []
    until = time.perf_counter() + limit

    def run(number: int) -> None:
        client = Client(port)
        try:
            for turn in range(100_000):
                if time.perf_counter() > until:
                    return
                x, neighbours = rows[(number * 97 + turn) % len(rows)]
                name = f"client-{number}-{turn}"
                nodes, edges = [{"id": name, "x": x}], [[name, node] for node in neighbours]
                if turn % 5:
                    reads.append(timed(client, "/v1/score", {"nodes": nodes, "edges": edges}))
                else:
                    writes.append(timed(client, "/v1/changes", {"add_nodes": nodes, "add_edges": edges}))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    rate = (len(reads) + len(writes)) / (time.perf_counter() - began)
    times = {
        f"{name} {key}": value
        for name, own in (("read", reads), ("write", writes))
        for key, value in percentiles(own).items()
    }
    return {"phase": "mixed", "clients": clients, "requests/s": round(rate, 1), "writes": len(writes), **times}


def batches(client: Client, model: BlockModel, num_nodes: int, count: int) -> Iterator[dict[str, Any]]:
    """New rows without edges and with one each, and kept scores of known ids."""
    rng = np.random.default_rng(1)
    x = (model.means[rng.integers(len(model.means), size=count)] + rng.normal(size=(count, FEATURES))).round(4).tolist()
    nodes = [{"id": f"row-{n}", "x": row} for n, row in enumerate(x)]
    links = [[f"row-{n}", int(node)] for n, node in enumerate(rng.integers(num_nodes, size=count))]
    ids = rng.integers(num_nodes, size=200_000).tolist()
    asked = [
        ("new rows, isolated", "/v1/score", {"nodes": nodes}, count),
        ("new rows, one edge each", "/v1/score", {"nodes": nodes, "edges": links}, count),
        ("known ids", "/v1/nodes/scores", {"ids": ids}, len(ids)),
    ]
    for name, path, body, size in asked:
        raw = json.dumps(body).encode()
        seconds = min(timed(client, path, raw) for _ in range(3))
        yield {"phase": name, "rows": size, "MB sent": round(len(raw) / 1e6, 1), "rows/s": round(size / seconds)}


def memory(service: Service, rows: Rows, changes: int, limit: float) -> Iterator[dict[str, Any]]:
    """Nodes come and go; the memory of the service after every quarter."""
    client, began, kept = Client(service.port), time.perf_counter(), 200
    done, quarter = 0, max(changes // 4, 1)
    while done < changes and time.perf_counter() - began < limit:
        x, neighbours = rows[done % len(rows)]
        name = f"passing-{done}"
        body: dict[str, Any] = {"add_nodes": [{"id": name, "x": x}], "add_edges": [[name, node] for node in neighbours]}
        if done >= kept:
            body["remove_nodes"] = [f"passing-{done - kept}"]
        timed(client, "/v1/changes", body)
        done += 1
        if done % quarter == 0:
            yield {"phase": "memory", "changes": done, "MB": round(service.memory)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=whole_number, default=10**6)
    parser.add_argument("--arrivals", type=int, default=300, help="requests of the single client")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the mixed load")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a batch")
    parser.add_argument("--changes", type=whole_number, default=2000, help="changes while memory is watched")
    parser.add_argument("--watched", type=float, default=1200.0, help="at most this many seconds of changes")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def report(row: dict[str, Any]) -> None:
        rows.append(row)
        print(row, flush=True)

    cores = sorted(os.sched_getaffinity(0))
    model = BlockModel(options.nodes, EDGES_PER_NODE * options.nodes, features=FEATURES, labelled=0)
    graph = model.data()
    report({"phase": "graph", "nodes": graph.num_nodes, "edges": graph.num_edges, "cores": len(cores)})
    detector = fitted(graph, "nodesafe-evidence", options.epochs)
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        folder = Path(name)
        detector.save(folder / "model")
        folder_from_data(graph, folder / "graph")
        began = time.perf_counter()
        detector.score_samples(graph)
        whole = time.perf_counter() - began
        own = bodies(graph, model, options.arrivals)
        num_nodes = graph.num_nodes
        del graph, detector
        torch.set_num_threads(1)
        service = Service(folder)
        try:
            report({"phase": "first start", "seconds": round(service.ready(3600), 1)})
            service.stop()
            service = Service(folder)
            report({"phase": "start", "seconds": round(service.ready(3600), 1), "MB": round(service.memory)})
            client = Client(service.port)
            found = one(client, own)
            ratio = round(1e3 * whole / found["p50 ms"])
            report({**found, "whole graph s": round(whole, 1), "ratio": ratio})
            report({**mixed(service.port, own, options.clients, options.seconds), "MB": round(service.memory)})
            for row in batches(client, model, num_nodes, options.rows):
                report({**row, "MB": round(service.memory)})
            for row in memory(service, own, options.changes, options.watched):
                report(row)
            service.stop()
            service = Service(folder)
            report({"phase": "start after changes", "seconds": round(service.ready(3600), 1)})
        finally:
            service.stop()
    print(store("service_load", "cpu", rows, options.out))


if __name__ == "__main__":
    main()
