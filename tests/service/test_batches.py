"""Batches in three formats, against the same rows as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from oddnode.service.batches import read_batch
from oddnode.service.requests import Problem
from oddnode.service.state import State
from tests.tables.shop import Shop

Make = Callable[..., dict[str, Any]]
NDJSON, CSV, PARQUET = "application/x-ndjson", "text/csv", "application/vnd.apache.parquet"


@pytest.fixture(scope="module")
def frame(goods: Shop) -> pd.DataFrame:
    """Ten arrivals with neighbours: old products, each other, and one that nobody knows."""
    nodes = goods.nodes[goods.is_new][:10].reset_index(drop=True)
    ids = nodes["id"].tolist()
    neighbours = [["p0001", "p0002"], [ids[0]], [], ["p0003", "ghost"], *[[f"p{n:04d}"] for n in range(10, 16)]]
    return nodes.assign(neighbours=neighbours)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def body_of(frame: pd.DataFrame, kind: str) -> bytes:
    if kind == NDJSON:
        return "\n".join(map(json.dumps, rows_of(frame))).encode()
    if kind == PARQUET:
        sink = io.BytesIO()
        frame.to_parquet(sink)
        return sink.getvalue()
    return frame.assign(neighbours=frame["neighbours"].map(";".join)).to_csv(index=False).encode()


def table_of(raw: bytes, kind: str) -> pd.DataFrame:
    if kind == NDJSON:
        return pd.DataFrame([json.loads(line) for line in raw.splitlines()])
    return pd.read_parquet(io.BytesIO(raw)) if kind == PARQUET else pd.read_csv(io.BytesIO(raw))


@pytest.fixture(scope="module")
def expected_body(frame: pd.DataFrame) -> dict[str, Any]:
    rows = rows_of(frame)
    edges = [[row["id"], end] for row in rows for end in row.pop("neighbours")]
    return {"nodes": rows, "edges": edges}


@pytest.mark.parametrize("target", [NDJSON, CSV, PARQUET])
@pytest.mark.parametrize("kind", [NDJSON, CSV, PARQUET])
def test_a_batch_scores_as_the_same_rows_in_json(
    client: TestClient, frame: pd.DataFrame, expected_body: dict[str, Any], kind: str, target: str
) -> None:
    expected = client.post("/v1/score", json=expected_body).json()["answers"]
    found = client.post("/v1/batches", content=body_of(frame, kind), headers={"Content-Type": kind, "Accept": target})
    assert found.status_code == 200, found.text
    assert found.headers["content-type"].startswith(target)
    table = table_of(found.content, target)
    for name in ("id", "predicted", "is_ood", "num_neighbours", "exact"):
        assert table[name].tolist() == [each[name] for each in expected]
    assert table["score"].tolist() == pytest.approx([each["score"] for each in expected], abs=1e-6)
    ghosts = table["unknown_neighbours"][3]
    assert (ghosts if target == NDJSON else json.loads(ghosts)) == ["ghost"]


@pytest.mark.parametrize("kind", [NDJSON, CSV, PARQUET])
def test_a_committed_batch_is_one_change(client: TestClient, frame: pd.DataFrame, kind: str) -> None:
    whole = frame[frame["neighbours"].map(lambda each: "ghost" not in each)]
    headers = {"Content-Type": kind, "Idempotency-Key": "batch"}
    refused = client.post("/v1/batches?commit=true", content=body_of(frame, kind), headers=headers)
    assert (refused.status_code, "ghost" in refused.json()["detail"]) == (422, True)
    made = client.post("/v1/batches?commit=true", content=body_of(whole, kind), headers=headers)
    assert made.status_code == 200, made.text
    kept = client.post("/v1/nodes/scores", json={"ids": whole["id"].tolist()}).json()
    assert kept["graph"]["version"] == 1
    assert table_of(made.content, kind)["score"].tolist() == pytest.approx(kept["scores"]["score"], abs=1e-6)
    again = client.post("/v1/batches?commit=true", content=body_of(whole, kind), headers=headers)
    assert again.content == made.content
    [neighbour] = client.get(f"/v1/nodes/{whole['id'].iloc[1]}").json()["neighbours"]
    assert neighbour["id"] == whole["id"].iloc[0]


@pytest.mark.parametrize(
    ("kind", "body", "status", "said"),
    [
        (NDJSON, b'{"id": "a"}\n[1]', 422, "Expected `object`"),
        (NDJSON, b'{"id": "a"', 400, "not lines of JSON"),
        (NDJSON, b'{"id": "a", "neighbours": "p0001"}', 422, "expected a list of ids"),
        (CSV, b"price\n3\n", 422, "'id' with the ids is missing"),
        (CSV, b"id,price\n", 422, "no rows"),
        (CSV, b"id,price\na\n", 422, "the body cannot be read as csv"),
        (CSV, b"\xff\xfe\x00\x01", 422, "text"),
        (CSV, b"", 422, "the body is empty"),
        (PARQUET, b"PAR1 not really", 422, "the body cannot be read as parquet"),
        ("application/json", b"[]", 415, "expected application/x-ndjson or text/csv"),
    ],
)
def test_bodies_that_are_no_tables_are_refused(
    client: TestClient, kind: str, body: bytes, status: int, said: str
) -> None:
    found = client.post("/v1/batches", content=body, headers={"Content-Type": kind})
    assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json")
    assert said in found.json()["detail"]
    assert "/tmp" not in found.text


def parquet_of(frame: pd.DataFrame, **columns: Any) -> bytes:
    """The first row with other columns."""
    table = pa.Table.from_pandas(frame[:1], preserve_index=False).drop_columns(list(columns.keys() & set(frame)))
    sink = io.BytesIO()
    pq.write_table(pa.table({**dict(zip(table.column_names, table.columns, strict=True)), **columns}), sink)
    return sink.getvalue()


@pytest.mark.parametrize("kind", [NDJSON, PARQUET])
def test_what_could_not_be_read_from_the_log_again_is_refused(
    client: TestClient, state: State, frame: pd.DataFrame, kind: str
) -> None:
    """A change of which the log cannot make the graph again would stop the next start, and every replica."""
    before, long = state.live, "a" * 5000
    body = parquet_of(frame, price=pa.array([2**64 - 1], pa.uint64()))
    if kind == NDJSON:
        body = json.dumps(rows_of(frame)[0] | {"id": long, "neighbours": ["p0001"]}).encode()
    found = client.post("/v1/batches?commit=true", content=body, headers={"Content-Type": kind})
    assert (found.status_code, "add_" in found.json()["detail"]) == (422, True), found.text
    assert (state.live is before, state.live.version) == (True, 0)


def test_values_of_two_types_do_not_have_the_graph_computed_again(
    client: TestClient, state: State, frame: pd.DataFrame
) -> None:
    rows = [
        {**row, "seller": seller}
        for row, seller in zip(rows_of(frame[:2].drop(columns="neighbours")), (1, "a"), strict=True)
    ]
    before = state.live
    found = client.post("/v1/changes", json={"add_nodes": rows})
    assert (found.status_code, "no table" in found.json()["detail"]) == (422, True)
    assert state.live is before


@pytest.mark.parametrize("commit", ["true", "false"])
@pytest.mark.parametrize(
    ("column", "value"), [("id", [1]), ("id", {"a": 1}), ("neighbours", [["p0001"]]), ("neighbours", [{"a": 1}])]
)
def test_ids_that_are_lists_are_refused(
    client: TestClient, frame: pd.DataFrame, column: str, value: Any, commit: str
) -> None:
    body = parquet_of(frame, **{column: pa.array([value])})
    found = client.post(f"/v1/batches?commit={commit}", content=body, headers={"Content-Type": PARQUET})
    assert (found.status_code, "expected" in found.json()["detail"]) == (422, True), found.text


def test_the_column_of_ids_is_not_that_of_neighbours(client: TestClient, frame: pd.DataFrame) -> None:
    headers = {"Content-Type": CSV, "Accept": NDJSON}
    found = client.post("/v1/batches?neighbours=id", content=body_of(frame, CSV), headers=headers)
    assert [json.loads(line)["num_neighbours"] for line in found.text.splitlines()] == [0] * len(frame)


def test_integers_and_other_ids_of_a_csv_are_not_mixed(state: State, frame: pd.DataFrame) -> None:
    mixed = frame[:2].assign(id=["12", "a"])
    with pytest.raises(Problem, match="integers and other ids"):
        read_batch(bytearray(body_of(mixed, CSV)), CSV, state.schema, "neighbours", True, 10)


def test_a_small_body_with_many_rows_is_not_read_to_its_end(state: State) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.DictionaryArray.from_arrays(np.zeros(10**7, dtype=np.int8), ["a"])}), sink)
    assert sink.tell() < 10**6
    with pytest.raises(Problem, match="more than 50000 rows"):
        read_batch(bytearray(sink.getvalue()), PARQUET, state.schema, "neighbours", False, 50_000)


def test_ids_of_nineteen_digits_are_integers_in_csv_too(state: State, frame: pd.DataFrame) -> None:
    ids = [2**63 - 1, -(2**63), 1234567890123456789, 2**53 + 1]
    body = body_of(frame[:4].assign(id=ids), CSV).replace(b"ghost", b"1234567890123456789")
    read = read_batch(bytearray(body), CSV, state.schema, "neighbours", True, 10)
    assert read.ids == ids
    assert [ids[3], ids[2]] in read.edges
    with pytest.raises(Problem, match="integers and other ids"):
        read_batch(
            bytearray(body.replace(b"9223372036854775807", b"9223372036854775808")), CSV, state.schema, "", True, 10
        )


def test_columns_without_names_are_no_fault(client: TestClient) -> None:
    found = client.post("/v1/batches", content=b"id,,\n1,,\n", headers={"Content-Type": CSV})
    assert (found.status_code, "lacks" in found.json()["detail"]) == (422, True), found.text
