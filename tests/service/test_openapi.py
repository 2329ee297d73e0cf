"""The OpenAPI document: valid, complete, with examples that work; and requests that are generated from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from starlette.testclient import TestClient

from oddnode.service.app import Limits, create_app
from oddnode.service.state import Source, State

schemathesis = pytest.importorskip("schemathesis", reason="REQUESTS NOT GENERATED: install schemathesis")


@pytest.fixture(scope="module")
def served(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Any:
    state = State(source, tmp_path_factory.mktemp("openapi") / "state")
    state.start()
    state.wait()
    app = create_app(state, limits=Limits(nodes=50, edges=50, ids=50))
    yield app
    until = time.monotonic() + 60
    while state._compacting.locked():  # a new base may have been asked for
        assert time.monotonic() < until
        time.sleep(0.01)
    state.close()


@pytest.fixture(scope="module")
def described(served: Any) -> Any:
    """The document without the stream that never ends."""
    return schemathesis.openapi.from_asgi("/openapi.json", served, headers={"Host": "localhost"}).exclude(
        path="/v1/events"
    )


def test_no_request_is_answered_with_a_fault(described: Any) -> None:
    paths = set()
    for found in described.get_all_operations():
        operation = found.ok()
        paths.add(operation.path)

        @settings(max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck])
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            answer = case.call(headers={"Host": "localhost"})
            assert answer.status_code < 500, answer.text
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == ["application/problem+json"]
            case.validate_response(answer, checks=[_conforms])

        ask()
    assert {"/v1/score", "/v1/changes", "/v1/batches", "/v2/models/{name}/infer", "/v1/replay"} <= paths


def _conforms(context: Any, answer: Any, case: Any) -> None:
    """The status and the body are those that the document has."""
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

    response_schema_conformance(context, answer, case)
    content_type_conformance(context, answer, case)


def test_the_examples_are_answered(client: TestClient, row: Callable[..., dict[str, Any]]) -> None:
    found = client.get("/openapi.json").json()
    examples = {
        path: content["application/json"]["example"]
        for path, operations in found["paths"].items()
        for operation in operations.values()
        if "application/json" in (content := operation.get("requestBody", {}).get("content", {}))
    }
    assert {"/v1/score", "/v1/changes", "/v1/nodes/query", "/v1/nodes/scores", "/v1/replay"} <= examples.keys()
    for path in ("/v1/score", "/v1/changes"):  # with the columns and the ids of this model
        body = examples[path]
        nodes = "nodes" if "nodes" in body else "add_nodes"
        edges = "edges" if "edges" in body else "add_edges"
        fitted = body | {nodes: [row(310, "new")], edges: [["new", "p0001"]]}
        assert client.post(path, json=fitted).status_code == 200
    for path in ("/v1/nodes/query", "/v1/nodes/scores", "/v1/replay"):
        assert client.post(path, json=examples[path]).status_code == 200


def test_the_page_lists_every_address_and_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "<script" not in page.text
    assert client.get("/docs/style.css").headers["content-type"].startswith("text/css")
