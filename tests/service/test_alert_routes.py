"""Alerts over HTTP, against the answers of the changes that raised them."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from oddnode.cli.app import app
from oddnode.service import alert_routes, read_alerts
from oddnode.service.app import create_app
from oddnode.service.requests import Change
from oddnode.service.state import Source, State
from oddnode.tables import TableModel
from tests.tables.shop import WORDS

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def odd(row: Make) -> Make:
    """A product without any words, which the model does not know."""
    words = [word for each in WORDS.values() for word in each]
    return lambda id: row(3, id) | {"price": None} | dict.fromkeys(words, 0)


@pytest.fixture
def answers(client: TestClient, row: Make, odd: Make) -> list[dict[str, Any]]:
    """What was answered to four changes, of which one adds two odd products."""
    added = [[row(310, "a")], [odd("b"), odd("<b>")], [row(311, "c")], [row(312, "d")]]
    found = [client.post("/v1/changes", json={"add_nodes": each}).json()["answers"] for each in added]
    return [answer for each in found for answer in each]


@pytest.fixture
def numbers(answers: list[dict[str, Any]]) -> list[int]:
    """The numbers of the alerts."""
    found = [number for number, each in enumerate(answers, 1) if each["is_ood"]]
    assert {2, 3} <= {*found} < {1, 2, 3, 4, 5}
    return found


def test_flagged_arrivals_are_listed_with_their_answers(
    client: TestClient, answers: list[dict[str, Any]], numbers: list[int], row: Make
) -> None:
    found = client.get("/v1/alerts").json()
    assert [each["number"] for each in found["alerts"]] == numbers[::-1]
    assert found["counts"] == {"known": 0, "unknown": 0, "open": len(numbers)}
    for each in found["alerts"]:
        expected = answers[each["number"] - 1]
        assert {name: each["answer"][name] for name in expected if name != "why"} == {
            name: value for name, value in expected.items() if name != "why"
        }
        assert each["answer"]["why"]
        assert each["row"]["id"] == expected["id"]
    first = client.get("/v1/alerts", params={"limit": 1}).json()
    assert first["next"] == numbers[-1]
    rest = client.get("/v1/alerts", params={"before": first["next"]}).json()
    assert ([each["number"] for each in rest["alerts"]], rest["next"]) == (numbers[-2::-1], None)
    arrivals = client.get("/v1/arrivals").json()["arrivals"]
    assert {each["answer"]["id"]: each["alert"] for each in arrivals} == {
        each["id"]: number if number in numbers else None for number, each in enumerate(answers, 1)
    }


def test_a_committed_batch_raises_alerts_and_a_scored_one_does_not(client: TestClient, row: Make, odd: Make) -> None:
    body = "\n".join(json.dumps(each) for each in (row(310, "a"), odd("b"), row(311, "c"), odd("d")))
    for commit in ("false", "true"):
        assert client.get("/v1/alerts").json()["alerts"] == []
        headers = {"content-type": "application/x-ndjson"}
        sent = client.post("/v1/batches", params={"commit": commit}, content=body, headers=headers)
        assert sent.status_code == 200, sent.text
    flagged = {each["id"] for each in map(json.loads, sent.text.splitlines()) if each["is_ood"]}
    found = client.get("/v1/alerts").json()["alerts"]
    assert {each["answer"]["id"] for each in found} == flagged >= {"b", "d"}
    assert {each["row"]["id"] for each in found} == flagged


def test_feedback_counts_and_is_told_to_listeners(client: TestClient, state: State, numbers: list[int]) -> None:
    events: list[Any] = []
    stop = state.subscribe(lambda event: events.append((event.name, json.loads(event.data))))
    for verdict in ("known", "unknown"):
        given = client.post(f"/v1/alerts/{numbers[0]}/feedback", json={"verdict": verdict, "note": "hm", "who": "ada"})
        assert given.status_code == 200, given.text
    state.read(int).result()  # the thread has told what it had to
    stop()
    found = client.get(f"/v1/alerts/{numbers[0]}").json()
    assert (found["verdict"], [each["verdict"] for each in found["feedback"]]) == ("unknown", ["known", "unknown"])
    said = [(data["alert"], data["verdict"]) for name, data in events if name == "feedback"]
    assert said == [(numbers[0], "known"), (numbers[0], "unknown")]
    assert client.get("/v1/alerts", params={"verdict": "open"}).json()["counts"]["unknown"] == 1
    wrong = client.post(f"/v1/alerts/{numbers[0]}/feedback", json={"verdict": "maybe"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "verdict")
    for number, status in ((999, 404), (-1, 422), (2**70, 422)):
        missing = client.post(f"/v1/alerts/{number}/feedback", json={"verdict": "known"})
        assert (missing.status_code, missing.headers["content-type"]) == (status, "application/problem+json")
        assert client.get(f"/v1/alerts/{number}").status_code == status


def test_alerts_and_feedback_outlive_a_restart(
    client: TestClient, state: State, started: Callable[..., State], numbers: list[int]
) -> None:
    client.post(f"/v1/alerts/{numbers[0]}/feedback", json={"verdict": "known"})
    before = client.get("/v1/alerts").json()
    state.close()
    with TestClient(create_app(started()), base_url="http://localhost") as again:
        assert again.get("/v1/alerts").json() == before


def test_a_change_that_is_undone_raises_no_alert(
    client: TestClient, state: State, odd: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the disk")

    with monkeypatch.context() as patch:
        patch.setattr(state, "tell", fail)
        with pytest.raises(RuntimeError, match="half-way"):
            state.write(state.change, Change(add_nodes=[odd("b")])).result()
    until = time.monotonic() + 60
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert client.get("/v1/alerts").json()["alerts"] == []
    assert client.post("/v1/changes", json={"add_nodes": [odd("b")]}).status_code == 200
    assert [each["number"] for each in client.get("/v1/alerts").json()["alerts"]] == [1]


def test_a_budget_bounds_the_alerts_of_a_day(started: Callable[..., State], odd: Make) -> None:
    with TestClient(create_app(started(budget=2)), base_url="http://localhost") as client:
        for place in range(2):
            client.post("/v1/changes", json={"add_nodes": [odd(f"{place} {each}") for each in range(3)]})
        found = client.get("/v1/alerts").json()["alerts"]
        assert len(found) in (2, 4)  # midnight may pass while this runs, and allow two more
        assert {each["rule"] for each in found} == {"budget 2"}
        assert client.get("/v1/arrivals", params={"flagged": True}).json()["arrivals"][0]["answer"]["is_ood"]


def test_exports_have_the_alerts_in_every_format(client: TestClient, tmp_path: Path, numbers: list[int]) -> None:
    client.post(f"/v1/alerts/{numbers[0]}/feedback", json={"verdict": "unknown"})
    listed = client.get("/v1/alerts").json()["alerts"][::-1]
    assert client.get("/v1/alerts/export", params={"format": "json"}).json() == listed
    assert [json.loads(line) for line in client.get("/v1/alerts/export").text.splitlines()] == listed
    raw = client.get("/v1/alerts/export", params={"format": "parquet"}).content
    table = pyarrow.parquet.read_table(io.BytesIO(raw))
    assert table.equals(read_alerts(tmp_path / "state"))
    assert table["number"].to_pylist() == numbers
    assert table["verdict"].to_pylist() == ["unknown"] + [None] * (len(numbers) - 1)
    assert [json.loads(each) for each in table["row"].to_pylist()] == [each["row"] for each in listed]


def test_answers_for_a_draw_are_exported_for_calibrate(client: TestClient, answers: list[dict[str, Any]]) -> None:
    none = client.get("/v1/feedback/export", params={"as": "checked"})
    assert (none.status_code, "no random draw" in none.json()["detail"]) == (422, True)
    drawn = client.post("/v1/draws", json={"n": 5}).json()
    assert sorted(drawn["arrivals"]) == [1, 2, 3, 4, 5]
    for number in drawn["arrivals"]:
        assert client.get(f"/v1/alerts/{number}").json()["row"]["id"] == answers[number - 1]["id"]
        client.post(f"/v1/alerts/{number}/feedback", json={"verdict": "unknown" if number in (2, 3) else "known"})
    raw = client.get("/v1/feedback/export", params={"as": "checked", "format": "csv"}).content
    table = pyarrow.csv.read_csv(io.BytesIO(raw)).to_pylist()
    assert {each["id"]: each["known"] for each in table} == {"a": "yes", "b": "no", "<b>": "no", "c": "yes", "d": "yes"}
    assert sum(each["weight"] for each in table) == 5
    nodes = client.get("/v1/feedback/export", params={"as": "exposure-nodes", "format": "ndjson"}).text.splitlines()
    assert [json.loads(each)["id"] for each in nodes] == ["b", "<b>"]
    edges = client.get("/v1/feedback/export", params={"as": "exposure-edges"}).content
    assert pyarrow.parquet.read_table(io.BytesIO(edges)).num_rows == 0
    history = client.get("/v1/feedback/export", params={"format": "csv"}).text
    assert len(history.splitlines()) == 6
    assert [each["number"] for each in client.get("/v1/draws").json()["draws"]] == [1]
    assert client.get("/v1/feedback/export", params={"as": "checked", "draw": 7}).status_code == 404


def test_the_page_is_served_with_a_policy_of_its_own(client: TestClient, numbers: list[int]) -> None:
    found = client.get("/v1/alerts/3/page")
    assert (found.status_code, found.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert found.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "<h1>Alert 3: &lt;b&gt;</h1>" in found.text
    assert client.get("/v1/alerts/999/page").status_code == 404


def test_a_period_is_replayed_by_another_rule(client: TestClient, answers: list[dict[str, Any]]) -> None:
    client.post("/v1/alerts/2/feedback", json={"verdict": "unknown"})
    scores = sorted(each["score"] for each in answers)
    found = client.post("/v1/replay", json={"threshold": scores[1]}).json()
    assert (found["arrivals"]["count"], found["arrivals"]["would_be"]) == (5, sum(each < scores[1] for each in scores))
    assert found["unknown"]["were"] == found["unknown"]["count"] == 1
    same = client.post("/v1/replay", json={}).json()["arrivals"]
    assert same["were"] == same["would_be"] == same["both"] == sum(each["is_ood"] for each in answers)
    assert client.post("/v1/replay", json={"until": 5.0, "rate": 0.1}).json()["arrivals"]["count"] == 0
    for wrong in ({"rate": 2}, {"rate": 0.1, "budget": 3}, {"budget": 0}, {"other": 1}):
        assert client.post("/v1/replay", json=wrong).status_code == 422


def test_a_service_without_a_log_has_no_alerts(started: Callable[..., State]) -> None:
    with TestClient(create_app(started(None)), base_url="http://localhost") as client:
        assert client.get("/v1/alerts").status_code == 409


@pytest.fixture
def replica(state: State, started: Callable[..., State], answers: Any) -> Iterator[TestClient]:
    with TestClient(create_app(started(follow=True)), base_url="http://localhost") as client:
        yield client


def test_a_replica_shows_alerts_and_takes_no_feedback(
    client: TestClient, replica: TestClient, numbers: list[int]
) -> None:
    assert replica.get("/v1/alerts").json() == client.get("/v1/alerts").json()
    refused = replica.post(f"/v1/alerts/{numbers[0]}/feedback", json={"verdict": "known"})
    assert refused.status_code == 409


# --- on the command line ---


@pytest.fixture
def stricter(source: Source, tmp_path: Path) -> Path:
    """The same network with a false-alarm rate of 40 %."""
    model = TableModel.load(source.model, "cpu")
    model.set_false_alarm_rate(0.4)
    model.save(tmp_path / "stricter")
    return tmp_path / "stricter"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def test_another_model_scores_the_arrivals_again_in_the_graph_as_it_was(
    client: TestClient, state: State, stricter: Path, answers: list[dict[str, Any]], row: Make, tmp_path: Path
) -> None:
    client.post("/v1/alerts/2/feedback", json={"verdict": "unknown"})
    client.post("/v1/changes", json={"remove_nodes": ["a"]})
    last = {"add_nodes": [row(315, "e")], "add_edges": [["e", "b"], ["e", "p0003"]]}
    everything = [*answers, *client.post("/v1/changes", json=last).json()["answers"]]
    where = ["--state", state.log.folder, "--nodes", *state.source.nodes, "--edges", *state.source.edges]  # type: ignore[union-attr]
    out = tmp_path / "replay.parquet"
    found = run(stricter, *where, "--out", out, "--json")
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    expected = {number for number, each in enumerate(everything, 1) if each["p_value"] <= 0.4}
    assert facts["arrivals"]["count"] == 6
    assert (facts["arrivals"]["would_be"], facts["unknown"]["would_be"]) == (len(expected), 1)
    table = pyarrow.parquet.read_table(out).to_pylist()
    assert {each["number"] for each in table if each["would_be_alert"]} == expected
    for each in table:
        assert each["score"] == pytest.approx(everything[each["number"] - 1]["score"], abs=1e-6)
    words = run("--state", state.log.folder, "--rate", 0.4)  # type: ignore[union-attr]
    assert f"{len(expected)} would have been (p-values of at most 0.4)" in words.stdout


def test_replays_that_make_no_sense_are_refused(client: TestClient, state: State, stricter: Path, answers: Any) -> None:
    folder = state.log.folder  # type: ignore[union-attr]
    other = ["--nodes", state.source.nodes[0], "--edges", state.source.nodes[0]]
    for arguments, message in (
        ([stricter], "give a model together with --graph"),
        ([stricter, *other], "were made with another base"),
        (["--since", "yesterday"], "--since is 'yesterday', expected a day or a time"),
        (["--rate", 0.1, "--budget", 3], "rate and budget are different rules"),
    ):
        found = run("--state", folder, *arguments)
        assert found.exit_code != 0
        assert message in str(found.exception)


def test_a_period_ends_with_its_last_day(client: TestClient, state: State, answers: Any) -> None:
    today = datetime.fromtimestamp(client.get("/v1/arrivals").json()["arrivals"][-1]["time"], UTC).date()
    counts = [
        json.loads(run("--state", state.log.folder, "--json", "--until", day).stdout)["arrivals"]["count"]  # type: ignore[union-attr]
        for day in (today - timedelta(days=1), today + timedelta(days=1))
    ]
    assert counts == [0, 5]


def test_a_draw_reads_each_change_once(client: TestClient, row: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(place, f"n{place}") for place in range(20)]
    for some in (rows[:10], rows[10:]):
        client.post("/v1/changes", json={"add_nodes": some})
    read, decoded = list[int](), alert_routes.decoded_change

    def watched(entry: Any) -> Any:
        read.append(entry.version)
        return decoded(entry)

    monkeypatch.setattr(alert_routes, "decoded_change", watched)
    drawn = client.post("/v1/draws", json={"n": 20}).json()["arrivals"]
    assert (sorted(drawn), sorted(read)) == ([*range(1, 21)], [1, 2])
    for number in drawn:
        assert client.get(f"/v1/alerts/{number}").json()["row"] == rows[number - 1]


def test_numbers_that_are_whole_or_not_are_one_column_of_exposure(client: TestClient, row: Make) -> None:
    rows = [row(310, "a") | {"price": 2**53 + 1}, row(311, "b") | {"price": 1.5}]
    for each in rows:
        assert client.post("/v1/changes", json={"add_nodes": [each]}).status_code == 200
    for number in client.post("/v1/draws", json={"n": 2}).json()["arrivals"]:
        client.post(f"/v1/alerts/{number}/feedback", json={"verdict": "unknown"})
    raw = client.get("/v1/feedback/export", params={"as": "exposure-nodes"})
    assert sorted(pyarrow.parquet.read_table(io.BytesIO(raw.content))["price"].to_pylist()) == [1.5, 2.0**53]
