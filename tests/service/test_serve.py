"""The command, up to the moment at which it listens, and as a process."""

from __future__ import annotations

import queue
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from oddnode.service.app import create_app
from oddnode.service.server import Server
from oddnode.service.state import Source, State
from tests.service.processes import Served


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give --graph, or --nodes and --edges"),
        (["--nodes", "n.csv"], "give --graph, or --nodes and --edges"),
        (["--graph", "g", "--state", "a", "--follow", "b"], "give one of them"),
        (["--graph", "g", "--host", "0.0.0.0"], "set ODDNODE_TOKEN"),
    ],
)
def test_options_that_do_not_fit_are_refused(cli: Callable[..., Any], source: Source, options: Any, said: str) -> None:
    assert said in cli("serve", str(source.model), *options, fails=True).stderr


def test_an_address_that_others_reach_needs_a_token(
    cli: Callable[..., Any], source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("serve", str(source.model), "--graph", "g", "--host", "0.0.0.0")
    assert "set ODDNODE_TOKEN" in cli(*given, fails=True).stderr
    monkeypatch.setenv("ODDNODE_TOKEN", "short")
    assert "expected 16 or more" in cli(*given, fails=True).stderr


def test_a_follower_needs_a_log_and_a_graph_that_is_there(
    cli: Callable[..., Any], source: Source, tmp_path: Path
) -> None:
    tables = ("--nodes", str(source.nodes[0]), "--edges", str(source.edges[0]))
    assert (
        "has no log of changes"
        in cli("serve", str(source.model), *tables, "--follow", str(tmp_path), fails=True).stderr
    )
    missing = cli("serve", str(source.model), "--nodes", "no.csv", "--edges", "no.csv", fails=True)
    assert "no.csv" in missing.stderr


def test_a_graph_that_cannot_be_loaded_ends_the_process_and_says_why(source: Source, tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\np0001,nobody\n")
    served = Served(tmp_path, source.model, "--nodes", source.nodes[0], "--edges", edges, "--state", tmp_path / "s")
    served.process.join(180)
    assert served.process.exitcode == 1
    assert "nobody" in served.text


def test_what_the_service_logs_is_on_standard_error(source: Source, row: Callable[..., Any], tmp_path: Path) -> None:
    given = (source.model, "--nodes", source.nodes[0], "--edges", source.edges[0], "--state", tmp_path / "s")
    served = Served(tmp_path, *given).wait()
    assert served.ask("/v1/changes", {"add_nodes": [row(310, "a")]})[0] == 200
    assert served.ask("/v1/compactions", {})[0] == 202
    until = time.monotonic() + 60
    while not re.search(r"(?m)^\d{4}-\d\d-\d\d \S+ INFO the base is that of version 1$", served.text):
        assert time.monotonic() < until, served.text
        time.sleep(0.02)
    served.stop()


class InThread(Server):
    """A server that takes no signals."""

    def capture_signals(self) -> Any:
        return nullcontext()


def test_a_connection_without_a_whole_request_is_closed(state: State) -> None:
    told: queue.Queue[str] = queue.Queue()
    server = InThread(create_app(state), "127.0.0.1", 0, told.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        port = int(told.get(timeout=60).rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port), 60) as silent,
            socket.create_connection(("127.0.0.1", port), 60) as slow,
        ):
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert slow.recv(4096).startswith(b"HTTP/1.1 200")
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
            server._seconds = 0.5  # not before: this machine may be slow, too
            assert silent.recv(4096) == b""
            with suppress(ConnectionError):
                assert slow.recv(4096) == b""
    finally:
        server.should_exit = True
        thread.join()
