"""Questions and changes over HTTP, against the live graph asked directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from oddnode import LiveGraph
from oddnode.service.state import Source, State

Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def live(source: Source) -> LiveGraph:
    """The same graph, without a service."""
    return source.live(source.load())


def plain(judgements: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(judgements))


def test_an_arrival_is_answered_as_by_the_live_graph(client: TestClient, live: LiveGraph, row: Make) -> None:
    edges = [["new", "p0003"], ["new", "p0004"]]
    found = client.post("/v1/score", json={"nodes": [row(310, "new")], "edges": edges, "explain": True})
    assert found.status_code == 200, found.text
    expected = plain(live.score([row(310, "new")], edges, explain=True))
    assert found.json()["answers"] == [expected[0] | {"unknown_neighbours": []}]
    assert found.json()["graph"]["version"] == 0


def test_a_change_is_answered_with_new_scores_and_stays(client: TestClient, source: Source, row: Make) -> None:
    live = source.live(source.load())
    edges = [["new", "p0003"], ["new", "p0004"]]
    made = client.post("/v1/changes", json={"add_nodes": [row(310, "new")], "add_edges": edges})
    assert made.status_code == 200, made.text
    assert made.json()["answers"] == plain(live.commit([row(310, "new")], edges))
    assert made.json()["touched"] == plain(live.scores_of(["p0003", "p0004"]))
    assert made.json()["version"] == live.version == 1
    kept = client.post("/v1/nodes/scores", json={"ids": ["new", "p0001", "nobody"]}).json()
    assert kept["scores"] == plain(live.scores_of(["new", "p0001"]))
    assert kept["unknown"] == ["nobody"]
    removed = client.post("/v1/changes", json={"remove_nodes": ["new"]}).json()
    assert removed["version"] == 2
    assert client.get("/v1/nodes/new").status_code == 404
    [arrival] = client.get("/v1/arrivals").json()["arrivals"]
    assert (arrival["version"], arrival["answer"]) == (1, made.json()["answers"][0])


def test_unknown_neighbours_are_reported_by_score_and_refused_by_a_change(client: TestClient, row: Make) -> None:
    body = {"nodes": [row(310, "new")], "edges": [["new", "p0003"], ["ghost", "new"]]}
    [answer] = client.post("/v1/score", json=body).json()["answers"]
    assert (answer["unknown_neighbours"], answer["num_neighbours"]) == (["ghost"], 1)
    refused = client.post("/v1/changes", json={"add_nodes": body["nodes"], "add_edges": body["edges"]})
    assert refused.status_code == 422
    assert "ghost" in refused.json()["detail"]
    assert client.get("/v1/status").json()["graph"]["version"] == 0


def test_a_node_has_its_row_neighbours_and_score(client: TestClient, live: LiveGraph, row: Make) -> None:
    found = client.get("/v1/nodes/p0003", params={"explain": True}).json()
    assert found["answer"] == plain(live.explain(["p0003"])[0])
    assert found["row"] == live.row("p0003")
    assert [(each["id"], each["weight"]) for each in found["neighbours"]] == live.neighbours("p0003")
    assert found["num_neighbours"] == len(live.neighbours("p0003"))
    around = client.get("/v1/neighbourhood/p0003", params={"hops": 1, "limit": 5}).json()["neighbourhood"]
    assert around == plain(live.neighbourhood(["p0003"], hops=1, limit=5))
    asked = client.post("/v1/nodes/query", json={"ids": ["p0003", "nobody"]}).json()
    assert (asked["answers"], asked["unknown"]) == (plain(live.rescore(["p0003"])), ["nobody"])
    alone = client.post("/v1/changes", json={"add_nodes": [row(310, "alone")]}).json()["answers"][0]
    found = client.get("/v1/nodes/alone").json()
    assert (found["neighbours"], found["num_neighbours"], found["answer"]["score"]) == ([], 0, alone["score"])


def test_facts_and_health(client: TestClient, state: State, live: LiveGraph) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    facts = client.get("/v1/status").json()
    assert facts["graph"] == {"base": state.base, "version": 0, "nodes": live.num_nodes, "directed": False}
    assert facts["model"]["classes"] == ["books", "garden", "kitchen", "toys"]
    assert "oddnode_ready 1.0" in client.get("/metrics").text


def test_requests_are_counted_by_address_and_status(client: TestClient, row: Make) -> None:
    for node in ("p0001", "p0002", "nobody"):
        client.get(f"/v1/nodes/{node}")
    client.post("/v1/changes", json={"add_nodes": [row(310, "new")]})
    lines = client.get("/metrics").text.splitlines()
    name = "oddnode_request_total"
    assert f'{name}{{endpoint="/v1/nodes/{{id:path}}",method="GET",status="200"}} 2.0' in lines
    assert f'{name}{{endpoint="/v1/nodes/{{id:path}}",method="GET",status="404"}} 1.0' in lines
    assert 'oddnode_request_duration_seconds_count{endpoint="/v1/changes"} 1.0' in lines
    for each in (
        "oddnode_request_in_progress",
        "oddnode_log_version",
        "oddnode_graph_version",
        "oddnode_scored_arrivals",
    ):
        assert f"{each} 1.0" in lines
