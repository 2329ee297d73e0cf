"""Replicas on a local Ray cluster."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oddnode.service.ray_serve import replicas
from oddnode.service.requests import Change
from oddnode.service.state import Source, State

pytestmark = [
    pytest.mark.slow,
    # Ray, which is not ours, leaves sockets and files to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture
def port() -> Iterator[int]:
    """A local cluster, and a free port for its proxy."""
    pytest.importorskip("ray.serve", reason="REPLICAS ON RAY NOT TESTED: install ray[serve]")
    import ray
    from ray import serve

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    serve.start(http_options={"host": "127.0.0.1", "port": number})
    yield number
    serve.shutdown()
    ray.shutdown()


def test_replicas_on_ray_answer_as_the_service_does(
    port: int, source: Source, started: Callable[..., State], row: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    from ray import serve

    state = started()
    serve.run(replicas(source, tmp_path / "state"))
    state.write(state.change, Change(add_nodes=[row(310, "a")], add_edges=[["a", "p0001"]])).result()
    expected = json.loads(state.read(state.kept, ["a", "p0001"]).result())
    body = json.dumps({"ids": ["a", "p0001"]}).encode()
    url, headers = f"http://127.0.0.1:{port}/v1/nodes/scores", {"Content-Type": "application/json"}
    until, same = time.monotonic() + 30, 0
    while same < 8:  # both replicas, most likely
        assert time.monotonic() < until
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            found = json.load(answer)
        assert found["graph"]["version"] in (0, 1)
        same += found == expected
    assert found == expected
