"""A model without tables: nodes are features, and ids are integers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from torch_geometric.data import Data

from oddnode import Detector, LiveGraph
from oddnode.large import folder_from_data
from oddnode.service.app import create_app
from oddnode.service.state import State


@pytest.fixture
def served(two_groups: Data, tmp_path: Path) -> Iterator[tuple[TestClient, LiveGraph]]:
    """A service, and the same live graph without one."""
    detector = Detector.from_recipe("energy", epochs=5, device="cpu").fit(two_groups)
    detector.calibrate(two_groups, 0.2, two_groups.test_mask)
    detector.save(tmp_path / "model")
    folder_from_data(two_groups, tmp_path / "graph")
    state = State.open(tmp_path / "model", tmp_path / "state", graph=tmp_path / "graph")
    with TestClient(create_app(state), base_url="http://localhost") as client:
        yield client, LiveGraph(Detector.load(tmp_path / "model"), tmp_path / "graph")
    state.close()


def test_features_are_scored_and_added(served: tuple[TestClient, LiveGraph], two_groups: Data) -> None:
    client, live = served
    x = two_groups.x[:2]
    nodes = [{"id": 100, "x": x[0].tolist()}, {"id": "b", "x": x[1].tolist()}]
    edges: list[list[Any]] = [[100, 3], ["b", 100], ["b", 7], [999, "b"]]
    expected = live.score(x, edges[:3], ids=[100, "b"])
    scored = client.post("/v1/score", json={"nodes": nodes, "edges": edges}).json()["answers"]
    assert [each["score"] for each in scored] == pytest.approx([each.score for each in expected], abs=1e-6)
    assert [each["unknown_neighbours"] for each in scored] == [[], [999]]
    lines = "\n".join(
        json.dumps(node | {"neighbours": [b if a == node["id"] else a for a, b in edges if a == node["id"]]})
        for node in nodes
    )
    batch = client.post("/v1/batches", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert [json.loads(line)["score"] for line in batch.text.splitlines()] == pytest.approx(
        [each.score for each in expected], abs=1e-6
    )
    made = client.post("/v1/changes", json={"add_nodes": nodes, "add_edges": edges[:3]}).json()
    assert made["answers"][1]["score"] == pytest.approx(expected[1].score, abs=1e-6)
    row = client.get("/v1/nodes/100").json()["row"]
    assert row == {"id": 100, "x": pytest.approx(x[0].tolist())}


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([{"id": 100}], "expected an id and features"),
        ([{"id": 100, "x": [1, 2]}], "of shape [1, 2]"),
        ([{"id": 100, "x": [1] * 6}, {"id": 101, "x": [1]}], "1 to 6 features"),
        ([{"id": 100, "x": [1e300] * 6}], "expected a finite number"),
        ([{"id": 100, "x": [1] * 6, "price": 3}], "expected an id and features"),
        ([{"id": 3, "x": [1] * 6}], "already a node"),
        ([{"id": 2**80, "x": [1] * 6}], "nodes"),
    ],
)
def test_features_that_do_not_fit_are_refused(
    served: tuple[TestClient, LiveGraph], nodes: list[dict[str, object]], said: str
) -> None:
    found = served[0].post("/v1/score", json={"nodes": nodes})
    assert found.status_code == 422, found.text
    assert said in found.json()["detail"]


def test_tables_are_refused_without_columns(served: tuple[TestClient, LiveGraph]) -> None:
    found = served[0].post("/v1/batches", content="id,x\n1,2\n", headers={"Content-Type": "text/csv"})
    assert (found.status_code, "send application/x-ndjson" in found.json()["detail"]) == (415, True)
