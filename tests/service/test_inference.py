"""The Open Inference Protocol on ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from oddnode import LiveGraph
from oddnode.service.app import Limits, create_app
from oddnode.service.state import State


def test_health_and_metadata(client: TestClient, state: State) -> None:
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/oddnode/ready").status_code == 200
    facts = client.get("/v2/models/oddnode").json()
    assert facts["versions"] == [state.model]
    assert facts["inputs"] == [{"name": "id", "datatype": "BYTES", "shape": [-1]}]
    assert [each["name"] for each in facts["outputs"]] == ["score", "p_value", "is_ood"]
    assert client.get("/v2/models/other").status_code == 404


def test_inference_gives_kept_scores(client: TestClient, state: State) -> None:
    live: LiveGraph = state.live
    kept = live.scores_of(["p0001", "p0002"])
    given = {"name": "id", "shape": [2, 1], "datatype": "BYTES", "data": [["p0001"], ["p0002"]]}
    found = client.post("/v2/models/oddnode/infer", json={"id": "7", "inputs": [given]}).json()
    assert (found["id"], found["model_version"]) == ("7", state.model)
    assert [each["data"] for each in found["outputs"]] == [kept.score, kept.p_value, kept.is_ood]
    some = {"inputs": [given], "outputs": [{"name": "is_ood"}]}
    [only] = client.post("/v2/models/oddnode/infer", json=some).json()["outputs"]
    assert (only["name"], only["datatype"], only["shape"]) == ("is_ood", "BOOL", [2])


def test_ids_in_lists_are_counted_too(state: State) -> None:
    client = TestClient(create_app(state, limits=Limits(ids=2)), base_url="http://localhost")
    given = {"name": "id", "shape": [1, 3], "datatype": "BYTES", "data": [["p0001"] * 3]}
    assert client.post("/v2/models/oddnode/infer", json={"inputs": [given]}).status_code == 413


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (lambda given: given | {"data": ["nobody"]}, 404, "nobody"),
        (lambda given: given | {"data": [1]}, 422, "strings only"),
        (lambda given: given | {"datatype": "FP32"}, 422, "BYTES or INT64"),
        (lambda given: given | {"data": [[[1]]]}, 422, "data"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    client: TestClient, change: Callable[[dict[str, Any]], dict[str, Any]], status: int, said: str
) -> None:
    given = change({"name": "id", "shape": [1], "datatype": "BYTES", "data": ["p0001"]})
    found = client.post("/v2/models/oddnode/infer", json={"inputs": [given]})
    assert found.status_code == status
    assert said in found.json()["detail"]
