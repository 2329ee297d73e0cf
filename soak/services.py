"""The service: nothing acknowledged is lost, no question fails, and a damaged folder is refused or gives the same."""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from oddnode.large import folder_from_data
from oddnode.service.app import Limits, create_app
from oddnode.service.log import LogError
from oddnode.service.requests import Change
from oddnode.service.state import Source, State
from soak.bases import fitted, small_graph
from soak.trial import Family, Trial, described, is_ours

__all__ = ["Services"]

_PATIENCE = 60.0
_WRITERS = 3
_METHODS = ("mahalanobis", "nodesafe", "evidence")
_PATHS = (
    "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/", "/v1/score", "/v1/nodes/query",
    "/v1/nodes/scores", "/v1/changes", "/v1/batches", "/v1/nodes/3", "/v1/neighbourhood/3", "/v1/arrivals",
    "/v1/alerts", "/v1/alerts/1", "/v1/alerts/1/page", "/v1/alerts/1/feedback", "/v1/alerts/export",
    "/v1/feedback/export", "/v1/replay", "/v1/status", "/v2/health/ready", "/v2/models/oddnode",
    "/v2/models/oddnode/infer",
)  # fmt: skip
_TYPES = ("application/json", "text/csv", "application/x-ndjson", "application/vnd.apache.parquet", "text/plain", "")
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 1e308, "", "3", "a" * 5000, "<b>x</b>", "\x00", "é" * 40, [], {}, [[]], [3, 4], [[3, 4]],
    [[3, 4, -1.0]], [["a", 3]], [3] * 300, {"id": 3}, [{"id": "a", "x": [0.0] * 6}], [{"id": "a", "x": [1e300] * 6}],
    [{"id": 3, "x": [0.0] * 6}], [{"id": "a"}], [{"x": [0.0] * 6}], [{"id": "a", "x": [0.0]}], "-inf", 1.5,
    "1970-01-01",
)  # fmt: skip
_FIELDS = (
    "nodes", "edges", "explain", "ids", "add_nodes", "add_edges", "change_nodes", "remove_nodes", "remove_edges",
    "verdict", "note", "who", "since", "until", "rate", "threshold", "budget", "inputs", "fresh", "other",
)  # fmt: skip


class Services(Family):
    """A small graph is served and asked, changed, killed, flooded and damaged."""

    name = "service"
    quota = 160
    kinds: ClassVar[tuple[str, ...]] = ("kill", "requests", "kill", "hang-ups", "kill", "damage")
    least = 12
    limit = 120.0
    batch = 6

    def prepare(self, folder: Path) -> None:
        graph = small_graph(2)
        for name in _METHODS:
            fitted(name).save(folder / name)
        del graph.y, graph.train_mask, graph.val_mask, graph.test_mask
        folder_from_data(graph, folder / "graph")

    def start(self, folder: Path) -> None:
        for name in ("oddnode", "uvicorn"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.folder = folder

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        source = Source(self.folder / rng.choice(_METHODS), self.folder / "graph")
        act = {"kill": self._kill, "requests": self._requests, "hang-ups": self._hang_ups, "damage": self._damage}[kind]
        yield Trial(kind, act(source, rng, work))

    # --- kills ---

    def _kill(self, source: Source, rng: Random, work: Path) -> str | None:
        """Changes from several clients, a kill at any moment, and a look at what is there."""
        done: dict[str, int] = {}  # node -> version, as acknowledged
        gone: set[str] = set()
        sent: set[str] = set()
        for _ in range(rng.randrange(1, 4)):
            server = _Server(source, work / "state")
            seeds = [rng.randrange(2**31) for _ in range(_WRITERS)]
            prefix = f"{rng.randrange(10**9)}"
            writers = [
                threading.Thread(target=_write, args=(server.port, f"{prefix}-{n}", seed, done, gone, sent))
                for n, seed in enumerate(seeds)
            ]
            try:
                server.wait()
                for each in writers:
                    each.start()
                time.sleep(rng.uniform(0.0, 1.0))
            finally:
                server.end(signal.SIGKILL)
            for each in writers:
                each.join(_PATIENCE)
        state = State.open(source.model, work / "state", graph=source.graph)
        try:
            return state.read(_missing, state, done, gone, sent).result(_PATIENCE)
        finally:
            state.close()

    # --- requests ---

    def _requests(self, source: Source, rng: Random, work: Path) -> str | None:
        """Senseless requests are refused, and a sensible one is answered as before."""
        server = _Server(source, work / "state")
        try:
            server.wait()
            before = _answers(server.port)
            for _ in range(60):
                method, path, body, headers = _senseless(rng)
                status, answer, kind = _asked(server.port, method, path, body, headers)
                if status >= 500 and status not in (501, 503, 507):
                    return f"status {status} for {method} {path} {body[:300]!r} {headers}: {answer[:300]!r}"
                if 400 <= status < 500 and method != "HEAD" and kind != "application/problem+json":
                    return f"status {status} as {kind!r} for {method} {path} {body[:300]!r} {headers}"
                if str(work).encode() in answer or str(self.folder).encode() in answer:
                    return f"a path of the server is in the answer to {method} {path}: {answer[:300]!r}"
            now = _answers(server.port)
            if now["version"] == before["version"] and now != before:
                return f"the same question was answered {before}, then {now}"
            return None
        finally:
            server.end(signal.SIGTERM)

    def _hang_ups(self, source: Source, rng: Random, work: Path) -> str | None:
        """Clients that stop in the middle of a question or an answer are no trouble for others."""
        server = _Server(source, work / "state")
        held = []
        try:
            server.wait()
            before = _answers(server.port)
            body = json.dumps({"ids": list(range(60))}).encode()
            whole = b"POST /v1/nodes/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            whole += b"Content-Length: %d\r\n\r\n" % len(body) + body
            for _ in range(40):
                one = socket.create_connection(("127.0.0.1", server.port), timeout=10)
                one.sendall(whole[: rng.randrange(1, len(whole) + 1)])
                if rng.random() < 0.5:
                    one.close()
                else:
                    held.append(one)  # neither read nor closed
            if (now := _answers(server.port)) != before:
                return f"the same question was answered {before}, then {now}"
            return None
        finally:
            for one in held:
                one.close()
            server.end(signal.SIGTERM)

    # --- damage ---

    def _damage(self, source: Source, rng: Random, work: Path) -> str | None:
        """A file of the folder is changed while nobody serves it."""
        folder = work / "state"
        state = State.open(source.model, folder, graph=source.graph)
        ids: list[int | str] = [*range(0, 60, 7)]
        for number in range(rng.randrange(1, 12)):
            node = f"n{number}"
            change = Change(add_nodes=[_row(rng, node)], add_edges=[[node, rng.randrange(60)]])
            state.write(state.change, change, node).result(_PATIENCE)
            ids.append(node)
        expected = state.read(state.kept, ids).result(_PATIENCE)
        state.close()
        if rng.random() < 0.5:  # so that caches and checkpoints are there as well
            State.open(source.model, folder, graph=source.graph).close()
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        path = rng.choice(files)
        raw = bytearray(path.read_bytes())
        how = rng.choice(("bit", "cut", "zeros", "removed"))
        if how == "bit":
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        elif how == "cut":
            del raw[rng.randrange(len(raw)) :]
        elif how == "zeros":
            start = rng.randrange(len(raw))
            raw[start : start + 512] = bytes(len(raw[start : start + 512]))
        if how == "removed":
            path.unlink()
        else:
            path.write_bytes(raw)
        if how == "removed" and path.name == "changes.sqlite":
            return None  # without it, the folder is a new one
        name = f"{path.relative_to(folder)}, {how}"
        try:
            state = State.open(source.model, folder, graph=source.graph)
        except Exception as error:
            wrong = not isinstance(error, LogError) and not is_ours(error)
            return f"{name}: {described(error)}" if wrong else None
        try:
            found = state.read(state.kept, ids).result(_PATIENCE)
        except Exception as error:
            return f"{name}: accepted, then {described(error)}"
        finally:
            state.close()
        return None if found == expected else f"{name}: other scores: {expected[:300]!r}, then {found[:300]!r}"


class _Server:
    """A service in a fork of this process, on a free port."""

    def __init__(self, source: Source, folder: Path):
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        self.port: int = listening.getsockname()[1]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _serve(source, folder, listening)
            finally:
                os._exit(0)
        listening.close()

    def wait(self) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                if _asked(self.port, "GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise RuntimeError("the service does not get ready")

    def end(self, sent: signal.Signals) -> None:
        os.kill(self.pid, sent)
        until = time.monotonic() + _PATIENCE
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise RuntimeError(f"the service goes on after {sent.name}")
            time.sleep(0.01)


def _serve(source: Source, folder: Path, listening: socket.socket) -> None:
    import uvicorn

    state = State(source, folder)
    app = create_app(state, limits=Limits(body=2**20, seconds=5.0))
    state.start()
    uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=2)).run([listening])
    state.close()


def _asked(
    port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    try:
        connection.request(method, path, body or None, headers or {})
        answer = connection.getresponse()
        if path.startswith("/v1/events") and answer.status == 200:
            return answer.status, b"", "text/event-stream"
        return answer.status, answer.read(), answer.headers.get_content_type()
    finally:
        connection.close()


def _row(rng: Random, node: int | str) -> dict[str, Any]:
    return {"id": node, "x": [round(rng.gauss(0, 1), 3) for _ in range(6)]}


def _json(port: int, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    named = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    status, answer, _ = _asked(port, "POST", path, json.dumps(body).encode(), named)
    return status, json.loads(answer)


def _answers(port: int) -> dict[str, Any]:
    """Answers to some questions, and the version of the graph that they are about."""
    question = {"nodes": [{"id": "?", "x": [0.5, 0.0, 1.0, 0.0, 0.0, 0.2]}], "edges": [["?", 3], ["?", 31]]}
    scored = _json(port, "/v1/score", question)
    kept = _json(port, "/v1/nodes/scores", {"ids": list(range(0, 60, 5))})
    return {"version": scored[1].get("graph"), "score": scored, "kept": kept}


def _write(port: int, name: str, seed: int, done: dict[str, int], gone: set[str], sent: set[str]) -> None:
    """Add nodes with two edges each, and remove some of them, until the service is gone."""
    rng, own = random.Random(seed), list[str]()
    for number in range(10_000):
        node = f"{name}-{number}"
        body: dict[str, Any] = {"add_nodes": [_row(rng, node)]}
        body["add_edges"] = [[node, other] for other in rng.sample(range(60), 2)]
        removed = own.pop(0) if len(own) > 3 and rng.random() < 0.4 else None
        if removed is not None:
            body["remove_nodes"] = [removed]
            sent.add(removed)
        try:
            status, answer = _json(port, "/v1/changes", body, Idempotency_Key=node)
        except (OSError, http.client.HTTPException, ValueError):  # killed
            return
        if status != 200:
            raise RuntimeError(f"status {status}: {answer}")
        done[node] = answer["version"]
        own.append(node)
        if removed is not None:
            gone.add(removed)


def _missing(state: State, done: dict[str, int], gone: set[str], sent: set[str]) -> str | None:
    """What was acknowledged and is not there, or is there by half."""
    if done and state.live.version < max(done.values()):
        return f"version {max(done.values())} was acknowledged, now it is {state.live.version}"
    for node in done:
        if node in gone and node in state.live:
            return f"{node} was removed, and is there"
        if node not in gone and node not in sent and node not in state.live:
            return f"{node} was added, and is not there"
        if node in state.live and len(state.live.neighbours(node)) != 2:
            return f"{node} has {state.live.neighbours(node)}, expected two neighbours"
    return None


def _senseless(rng: Random) -> tuple[str, str, bytes, dict[str, str]]:
    method = rng.choice(("GET", "POST", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"))
    path = rng.choice(_PATHS)
    if rng.random() < 0.3:
        asked = rng.choice(("limit", "before", "hops", "flagged", "kind", "format", "explain", "commit", "since"))
        path += f"?{asked}={rng.choice(('0', '-1', 'x', '1e9', '%00', 'true', '9' * 30, 'string', 'integer', ''))}"
    if rng.random() < 0.2:
        path += rng.choice(("/", "/..", "/%2e%2e/x", "/%00", "//", "/a/b/c", "%ff", "/" + "a" * 3000))
    body = b""
    if method in ("POST", "PUT", "DELETE"):
        fields = {rng.choice(_FIELDS): rng.choice(_VALUES) for _ in range(rng.randrange(4))}
        body = json.dumps(rng.choice((fields, fields, fields, rng.choice(_VALUES)))).encode()
        broken = rng.random()
        if broken < 0.1:
            body = body[: rng.randrange(len(body) + 1)]
        elif broken < 0.2:
            body = bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
        elif broken < 0.25:
            body = b"[" * rng.choice((50, 5000, 100_000))
    headers = {"Content-Type": rng.choice(_TYPES)} if rng.random() < 0.3 else {"Content-Type": "application/json"}
    for name, values in (
        ("Idempotency-Key", ("k", "", "x" * 400)),
        ("Accept", ("*/*", "text/csv", "nothing")),
        ("Authorization", ("Bearer", "Bearer x", "Basic eDp5")),
        ("Host", ("localhost", "evil.example", "")),
        ("Origin", ("null", "https://evil.example")),
        ("X-Request-Id", ("1", "\t", "y" * 2000)),
    ):
        if rng.random() < 0.1:
            headers[name] = rng.choice(values)
    return method, path, body, headers
