"""Who may ask what, how much, and what answers say to others."""

from __future__ import annotations

import gc
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from oddnode.service.app import Limits, create_app
from oddnode.service.guard import Access
from oddnode.service.requests import ScoreRequest, decoded
from oddnode.service.state import State
from tests.service.processes import Running

Make = Callable[..., dict[str, Any]]
WRITE, READ = "write-token-0123456789", "read-token-0123456789"


def client_of(state: State, access: Access | None = None, limits: Limits | None = None, **settings: Any) -> TestClient:
    return TestClient(create_app(state, access, limits), base_url="http://localhost", **settings)


@pytest.fixture
def closed(state: State) -> TestClient:
    """A service with both tokens."""
    return client_of(state, Access(WRITE, READ, ()))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_without_a_token_nothing_but_health_and_pages_is_answered(closed: TestClient) -> None:
    for path in ("/healthz", "/readyz", "/", "/v2/health/live"):
        assert closed.get(path).status_code == 200
    for path in ("/v1/status", "/v1/nodes/p0001", "/metrics", "/v1/events", "/v1/alerts", "/v1/arrivals"):
        for headers in ({}, bearer("wrong"), {"Authorization": f"Basic {WRITE}"}, bearer(WRITE[:-1])):
            found = closed.get(path, headers=headers)
            assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")


def test_the_read_token_reads_and_the_other_does_everything(closed: TestClient, row: Make) -> None:
    change, asked = {"add_nodes": [row(310, "a")]}, {"nodes": [row(310, "a")]}
    line = json.dumps(row(311, "b")).encode()
    lines = {"Content-Type": "application/x-ndjson"}
    assert closed.post("/v1/score", json=asked, headers=bearer(READ)).status_code == 200
    assert closed.post("/v1/batches", content=line, headers=bearer(READ) | lines).status_code == 200
    for path in ("/v1/changes", "/v1/compactions", "/v1/alerts/1/feedback"):
        assert closed.post(path, json=change, headers=bearer(READ)).status_code == 403
    assert closed.post("/v1/batches?commit=true", content=line, headers=bearer(READ) | lines).status_code == 403
    assert closed.get("/v1/status", headers=bearer(READ)).json()["graph"]["version"] == 0
    assert closed.post("/v1/changes", json=change, headers=bearer(WRITE)).status_code == 200
    assert closed.post("/v1/batches?commit=true", content=line, headers=bearer(WRITE) | lines).status_code == 200


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"read_token": READ}, "ODDNODE_TOKEN, so that anybody could write"),
        ({"hosts": ()}, "set ODDNODE_TOKEN"),
        ({"token": "short"}, "5 characters, expected 16"),
    ],
)
def test_unsafe_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Access(**settings)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "", "[::1"])
def test_other_hosts_are_refused(client: TestClient, host: str) -> None:
    """A page in a browser could reach this machine under a name of its own."""
    found = client.get("/v1/status", headers={"Host": host})
    assert (found.status_code, found.json()["type"]) == (403, "urn:oddnode:host")


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:9000", "LOCALHOST"])
def test_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/readyz", headers={"Host": host}).status_code == 200


def test_pages_of_other_sites_cannot_write(client: TestClient, row: Make) -> None:
    body = {"add_nodes": [row(310, "a")]}
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[x"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        found = client.post("/v1/changes", json=body, headers=headers)
        assert (found.status_code, found.json()["type"]) == (403, "urn:oddnode:origin")
        assert "access-control-allow-origin" not in found.headers
    plain = client.post("/v1/changes", content=json.dumps(body), headers={"Content-Type": "text/plain"})
    assert plain.status_code == 415
    own = client.post("/v1/changes", json=body, headers={"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"})
    assert own.status_code == 200


def test_every_answer_has_strict_headers_and_the_id_of_the_request(client: TestClient) -> None:
    for path in ("/v1/status", "/v1/nodes/nobody", "/nowhere", "/metrics"):
        headers = client.get(path, headers={"X-Request-Id": "abc-1"}).headers
        assert headers["x-request-id"] == "abc-1"
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
    odd = client.get("/readyz", headers={"X-Request-Id": "a b" * 100}).headers["x-request-id"]
    assert len(odd) == 32


def test_limits_of_bodies_rows_edges_and_ids(state: State, row: Make) -> None:
    client = client_of(state, limits=Limits(body=2000, nodes=2, edges=1, ids=3))
    nodes = [row(310, name) for name in "abc"]
    for body in ({"nodes": nodes}, {"nodes": nodes[:1], "edges": [["a", "p0001"], ["a", "p0002"]]}):
        assert client.post("/v1/score", json=body).status_code == 413
    assert client.post("/v1/nodes/scores", json={"ids": ["p0001"] * 4}).status_code == 413
    assert client.post("/v1/score", json={"nodes": [], "pad": "x" * 2000}).status_code == 413
    assert client.post("/v1/nodes/scores", json={"ids": ["p0001"] * 3}).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"[" * 100_000, 422, "Expected `object`"),
        (b'{"nodes": ' + b"[" * 100_000, 422, "nodes"),
        (b'{"nodes": [{"id": NaN}]}', 400, "not valid JSON"),
        (b'{"nodes": [{"id": "a", "price": 1e999}]}', 422, "out of range"),
        (b'{"nodes": [{"id": "a", "price": 1' + b"0" * 400 + b"}]}", 422, "nodes"),
        (b'{"nodes": [{"id": "\xff"}]}', 400, "not valid JSON"),
        (b'{"nodes": [], "nodez": []}', 422, "nodez"),
        (b'{"nodes": []}', 422, "there are none"),
        (b'{"nodes": [{"id": "a"}, {"id": "b", "price": 1}]}', 422, "some rows only"),
        (b'{"nodes": [{"id": "a", "price": [1]}]}', 422, "a list is no value"),
        (b'{"nodes": [{"id": true}]}', 422, "lacks 18"),
        (b'{"nodes": [{"name": "a"}], "edges": [["a", "b"]]}', 422, "no 'id', the column with the ids"),
        (b'{"nodes": [{"id": 1}, {"id": "1"}]}', 422, "the rows are no table"),
        (b'{"nodes": [{"id": "a"}], "edges": [["a"]]}', 422, "length >= 2"),
        (b'{"nodes": [{"id": "a"}], "edges": [["a", 0.5]]}', 422, ""),
        (b"", 400, "not valid JSON"),
    ],
)
def test_senseless_bodies_are_refused_with_their_field(client: TestClient, body: bytes, status: int, said: str) -> None:
    found = client.post("/v1/score", content=body, headers={"Content-Type": "application/json"})
    assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json"), found.text
    assert said in found.json()["detail"]


@pytest.mark.parametrize(
    "node", ["a/b", "../../etc/passwd", "ü/ß 日本", "<script>alert(1)</script>", "a?b#c&d=e", "n" * 4000, " ", "12"]
)
def test_ids_of_all_kinds_are_found_again(client: TestClient, row: Make, node: str) -> None:
    from urllib.parse import quote

    made = client.post("/v1/changes", json={"add_nodes": [row(310, node)], "add_edges": [[node, "p0001"]]})
    assert made.status_code == (200 if node.strip() else 422), made.text
    found = client.get(f"/v1/nodes/{quote(node, safe='')}")
    assert found.status_code == (200 if node.strip() else 404)
    if node.strip():
        assert found.headers["content-type"] == "application/json"
        assert (found.json()["answer"]["id"], found.json()["row"]["id"]) == (node, node)
        assert client.get(f"/v1/neighbourhood/{quote(node, safe='')}").status_code == 200


def test_an_integer_and_the_same_text_are_two_nodes(client: TestClient, row: Make) -> None:
    for node in (12, "12"):
        assert client.post("/v1/changes", json={"add_nodes": [row(310, node)]}).status_code == 200
    assert client.get("/v1/nodes/12").status_code == 409
    assert client.get("/v1/nodes/12?kind=integer").json()["answer"]["id"] == 12
    assert client.get("/v1/nodes/12?kind=string").json()["answer"]["id"] == "12"
    assert client.get("/v1/nodes/012").status_code == 404


def test_a_fault_says_nothing_of_the_server(state: State, monkeypatch: pytest.MonkeyPatch, source: Any) -> None:
    def fail(*_: Any) -> bytes:
        raise RuntimeError(f"in {source.model}")

    monkeypatch.setattr(state, "kept", fail)
    client = client_of(state, raise_server_exceptions=False)
    found = client.post("/v1/nodes/scores", json={"ids": []}, headers={"X-Request-Id": "abc"})
    assert (found.status_code, found.headers["content-type"]) == (500, "application/problem+json")
    assert str(source.model) not in found.text
    assert "abc" in found.json()["detail"]


@pytest.fixture
def address(state: State, request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A service that waits so many seconds for a body."""
    server = Running(create_app(state, limits=Limits(seconds=request.param, body=1 << 21)))
    yield "127.0.0.1", server.port
    server.stop()


@pytest.mark.parametrize("address", [2.0], indirect=True)
def test_slow_clients_and_hang_ups_keep_nobody_waiting(address: tuple[str, int], row: Make) -> None:
    head = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    slow = [socket.create_connection(address) for _ in range(20)]
    for each in slow:
        each.sendall(head.encode())
    for each in slow[:10]:
        each.close()
    client = http.client.HTTPConnection(*address, timeout=60)
    client.request("GET", "/v1/nodes/p0001")
    assert client.getresponse().status == 200
    client.close()
    for each in slow[10:]:
        each.settimeout(60)
        assert each.recv(4096).startswith(b"HTTP/1.1 408")
        each.close()


@pytest.mark.parametrize("address", [60.0], indirect=True)
def test_a_body_without_an_end_is_cut_off(address: tuple[str, int], state: State) -> None:
    with socket.create_connection(address) as connection:
        head = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        part = f"{1 << 20:x}\r\n".encode() + b" " * (1 << 20) + b"\r\n"
        sent = 0
        connection.settimeout(60)
        try:
            while sent < 4:
                connection.sendall(part)
                sent += 1
        except OSError:
            pass  # the server has closed the connection
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_millions_of_lists_are_decoded_without_collecting_garbage() -> None:
    """Which takes ten times as long, and nothing else is answered meanwhile."""
    begun, raw = list[Any](), b'{"nodes": [], "edges": [' + b",".join([b"[1,2]"] * 100_000) + b"]}"
    gc.collect()
    gc.callbacks.append(lambda phase, info: begun.append((phase, info)))
    try:
        found = decoded(raw, ScoreRequest)
        assert len(begun) <= 2  # the start and end of one, afterwards
    finally:
        gc.callbacks.pop()
    assert (len(found.edges), gc.isenabled()) == (100_000, True)
