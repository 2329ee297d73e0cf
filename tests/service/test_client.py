"""The client, as a file that is copied, against a real service."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oddnode.service import client as module
from oddnode.service.app import create_app
from oddnode.service.guard import Access
from oddnode.service.state import State
from tests.service.processes import Running

TOKEN = "a-long-enough-token-0123"


@pytest.fixture
def copied(tmp_path: Path) -> Any:
    """The file in another folder."""
    path = shutil.copy(str(module.__file__), tmp_path / "copied_client.py")
    spec = importlib.util.spec_from_file_location("copied_client", path)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


@pytest.fixture
def address(state: State) -> Iterator[str]:
    server = Running(create_app(state, Access(TOKEN)))
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


def test_the_client_asks_and_changes(copied: Any, address: str, row: Callable[..., dict[str, Any]]) -> None:
    service = copied.Client(address, TOKEN)
    [answer] = service.score([row(310, "a/ü")], [["a/ü", "p0001"]], explain=True)["answers"]
    made = service.change(key="k", add_nodes=[row(310, "a/ü")], add_edges=[["a/ü", "p0001"]])
    assert made["answers"][0]["score"] == answer["score"]
    assert service.change(key="k", add_nodes=[row(310, "a/ü")], add_edges=[["a/ü", "p0001"]]) == made
    assert service.node("a/ü")["answer"]["id"] == "a/ü"
    assert service.query(["a/ü", "p0001"])["answers"][1]["id"] == "p0001"
    rows = [row(311 + number, f"b{number}") | {"neighbours": ["a/ü"]} for number in range(3)]
    assert [each["id"] for each in service.batch(rows, commit=True)] == ["b0", "b1", "b2"]
    assert service.scores_of(["b2"])["scores"]["ids"] == ["b2"]
    assert [each["answer"]["id"] for each in service.arrivals()] == ["b0", "b1", "b2", "a/ü"]
    assert service.status()["graph"]["version"] == 2
    service.close()


def test_events_are_told_once_they_are_on_disk(copied: Any, address: str, row: Callable[..., dict[str, Any]]) -> None:
    request = urllib.request.Request(f"{address}/v1/events", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=60) as stream:
        service = copied.Client(address, TOKEN)
        made = service.change(add_nodes=[row(310, "a\nb")])
        service.close()
        lines = list(itertools.islice((line.decode().rstrip("\r\n") for line in stream), 2))
    assert lines[0] == "event: arrival"
    told = json.loads(lines[1].removeprefix("data: "))
    assert (told["version"], told["answer"]) == (1, made["answers"][0])


def test_who_has_the_headers_of_the_events_misses_none(state: State) -> None:
    async def listen() -> int:
        subscribed = asyncio.get_running_loop().create_future()
        asked: dict[str, Any] = {"type": "http", "method": "GET", "path": "/v1/events", "query_string": b""}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                subscribed.set_result(state.num_subscribers)
                await asyncio.Event().wait()  # a client that reads nothing further, until it hangs up

        answering = asyncio.ensure_future(
            create_app(state)(asked | {"headers": [(b"host", b"localhost")]}, asyncio.Event().wait, send)  # type: ignore[arg-type]
        )
        count = await asyncio.wait_for(subscribed, 60)
        answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering
        return count

    assert asyncio.run(listen()) == 1
    assert state.num_subscribers == 0


def test_errors_are_problems(copied: Any, address: str) -> None:
    for token, call, status in (
        (None, lambda service: service.status(), 401),
        (TOKEN, lambda service: service.node("nobody"), 404),
        (TOKEN, lambda service: service.change(remove_nodes=["nobody"]), 422),
    ):
        service = copied.Client(address, token)
        with pytest.raises(copied.ServiceError) as error:
            call(service)
        assert error.value.status == status
        assert error.value.problem["detail"] in str(error.value)
        service.close()


def test_a_busy_service_is_asked_again(
    copied: Any, address: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        state.phase = "ready"

    monkeypatch.setattr(copied, "time", SimpleNamespace(sleep=sleep))
    service = copied.Client(address, TOKEN)
    state.phase = "rebuilding"
    assert service.status()["graph"]["version"] == 0
    service.close()
    assert waits == [0.2]


def test_the_file_needs_the_standard_library_only() -> None:
    command = [sys.executable, "-I", "-S", str(module.__file__)]  # without installed packages
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
