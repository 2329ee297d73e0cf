"""What is acknowledged stays, and nothing else: kills, full disks, damaged logs, swapped models."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oddnode.service.log import LogError, NoRoomError
from oddnode.service.metrics import Metrics
from oddnode.service.requests import Change, Problem
from oddnode.service.state import Source, State
from tests.service.processes import Served

Make = Callable[..., dict[str, Any]]
Start = Callable[..., State]


def add(state: State, row: dict[str, Any], *ends: str, key: str | None = None) -> dict[str, Any]:
    change = Change(add_nodes=[row], add_edges=[[row["id"], end] for end in ends])
    return json.loads(state.write(state.change, change, key).result()[0])


def kept(state: State, *ids: str) -> Any:
    return json.loads(state.read(state.kept, list(ids)).result())


def until_ready(state: State) -> None:
    until = time.monotonic() + 60
    while state.phase != "ready":
        assert state.failure is None
        assert time.monotonic() < until
        time.sleep(0.01)


@contextlib.contextmanager
def held_back(state: State) -> Iterator[None]:
    """What is asked in this block waits together; its end lets it run, also if a check in it fails."""
    gate = threading.Event()
    blocked = state.read(gate.wait, 60)
    try:
        yield
    finally:
        gate.set()
    assert blocked.result()


def test_a_restart_has_every_change_and_the_same_scores(started: Start, row: Make) -> None:
    first = started()
    add(first, row(310, "a"), "p0001", "p0002")
    add(first, row(311, "b"), "a", "p0003", key="k")
    first.write(first.change, Change(remove_edges=[["a", "p0001"]], change_nodes=[row(20, "p0002")])).result()
    ids = ["a", "b", "p0001", "p0002", "p0003", "p0004"]
    before = kept(first, *ids)
    first.close()
    assert kept(started(), *ids) == before


def test_a_key_makes_a_change_once_also_after_a_restart(started: Start, row: Make) -> None:
    first = started()
    answer = add(first, row(310, "a"), "p0001", key="k")
    assert add(first, row(310, "a"), "p0001", key="k") == answer
    first.close()
    second = started()
    assert add(second, row(310, "a"), "p0001", key="k") == answer
    with pytest.raises(Problem, match="was used for another change") as refused:
        add(second, row(311, "a"), "p0001", key="k")
    assert (refused.value.status, refused.value.kind) == (422, "key-reused")
    assert kept(second, "a")["graph"]["version"] == 1


def test_kills_under_load_lose_nothing_that_was_acknowledged(source: Source, row: Make, tmp_path: Path) -> None:
    """Each change names its key, so that a change of which no answer came is made at most once."""
    given = [source.model, "--nodes", source.nodes[0], "--edges", source.edges[0], "--state", tmp_path / "state"]
    acknowledged: dict[str, Any] = {}

    def write(served: Served, name: str) -> None:
        for number in range(200):
            node = f"{name}-{number}"
            body = {"add_nodes": [row(310, node)], "add_edges": [[node, "p0001"]]}
            try:
                status, answer = served.ask("/v1/changes", body, Idempotency_Key=node)
            except (OSError, http.client.HTTPException, ValueError):  # killed, perhaps in the middle of an answer
                return
            assert status == 200
            acknowledged[node] = answer

    for kill in range(3):
        served = Served(tmp_path, *given).wait()
        writers = [threading.Thread(target=write, args=(served, f"{kill}-{each}")) for each in range(4)]
        for each in writers:
            each.start()
        try:
            while len(acknowledged) < 12 * (kill + 1):
                assert served.process.is_alive()
                assert any(each.is_alive() for each in writers)
                time.sleep(0.005)
        finally:
            served.kill()
            for each in writers:
                each.join()
    served = Served(tmp_path, *given).wait()
    _, found = served.ask("/v1/nodes/scores", {"ids": [*acknowledged]})
    assert found["unknown"] == []
    assert found["graph"]["version"] >= max(each["version"] for each in acknowledged.values())
    for node in list(acknowledged)[::7]:
        body = {"add_nodes": [row(310, node)], "add_edges": [[node, "p0001"]]}
        assert served.ask("/v1/changes", body, Idempotency_Key=node) == (200, acknowledged[node])
    assert served.stop() == 0


def test_changes_that_wait_together_share_a_transaction_and_answers_follow_it(
    state: State, row: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state.log is not None
    commits, commit = list[int](), state.log.commit

    def counted() -> None:
        commits.append(state.live.version)
        commit()

    monkeypatch.setattr(state.log, "commit", counted)
    monkeypatch.setattr("oddnode.service.state._SECONDS_TO_SHARE", 30.0)
    with held_back(state):
        changes = [Change(add_nodes=[row(310, f"n{number}")]) for number in range(3)]
        made = [state.write(state.change, change) for change in changes]
        seen = state.read(lambda: (list(commits), "n2" in state.live))
    assert [json.loads(each.result()[0])["version"] for each in made] == [1, 2, 3]
    assert seen.result() == ([], True)  # it was computed before the commit, and told after it
    assert commits == [3]


def test_a_full_disk_refuses_changes_and_the_graph_is_as_before(state: State, row: Make) -> None:
    assert state.log is not None
    add(state, row(310, "a"), "p0001")
    pages = state.log.connection.execute("PRAGMA page_count").fetchone()[0]
    state.read(lambda: state.log.connection.execute(f"PRAGMA max_page_count = {pages}")).result()  # type: ignore[union-attr]
    big = Change(add_nodes=[row(310, f"n{number}") for number in range(40)])
    with pytest.raises(Problem) as refused:
        state.write(state.change, big).result()
    assert refused.value.status == 507
    until_ready(state)
    assert kept(state, "a", "n0")["unknown"] == ["n0"]
    assert add(state, row(310, "n0"), "a")["version"] == 2  # there is room again


def test_a_change_that_fails_half_way_is_undone_with_those_that_share_its_transaction(
    state: State, row: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oddnode.service.state._SECONDS_TO_SHARE", 30.0)
    add(state, row(310, "a"), "p0001")
    before = kept(state, "a", "p0001", "p0002")

    tell = state.tell

    def fail(name: str, data: Any) -> None:
        if data["answer"].id == "bad":
            raise OSError("a fault")
        tell(name, data)

    monkeypatch.setattr(state, "tell", fail)
    with held_back(state):
        good = state.write(state.change, Change(add_nodes=[row(310, "good")]))
        bad = state.write(state.change, Change(add_nodes=[row(310, "bad")], add_edges=[["bad", "p0002"]]))
    with pytest.raises(RuntimeError, match="half-way"):
        bad.result()
    with pytest.raises(Problem, match="try again"):
        good.result()
    until_ready(state)
    assert kept(state, "a", "p0001", "p0002") == before
    assert add(state, row(310, "good"))["version"] == 2


def counts(state: State) -> tuple[Any, ...]:
    """What is said of how much arrived: of the nodes in memory, the numbers for Prometheus, those of the page."""
    numbers = dict(line.split() for line in Metrics(state).text().decode().splitlines() if line[0] != "#")
    facts = json.loads(state.read(state.status).result())
    scored = [float(numbers[f"oddnode_{name}"]) for name in ("scored_arrivals", "flagged_arrivals")]
    assert scored == [facts["counts"]["arrivals"], facts["counts"]["flagged"]]
    windows = [(each["count"], each["flagged"]) for each in facts["windows"]]
    return *scored, float(numbers["oddnode_nodes"]), windows, facts["drift"]["count"]


def test_what_was_undone_is_not_counted_and_a_restart_counts_the_same(
    started: Start, row: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = started()
    assert state.log is not None
    for number in range(25):
        add(state, row(300 + number, f"n{number}"))
    state.write(state.change, Change(remove_nodes=["n0"], change_nodes=[row(20, "p0002")])).result()
    add(state, row(300, "n0"))
    before = counts(state)
    with closing(sqlite3.connect(state.log.folder / "changes.sqlite")) as log:
        answers = "from changes, json_each(cast(answer as text), '$.answers')"
        [[answered, flagged]] = log.execute(f"select count(*), sum(value -> '$.is_ood' = 'true') {answers}")
        [[arrived]] = log.execute("select count(*) from arrived")
    assert before == (answered, flagged, 300 + 25, before[3], arrived)
    assert flagged
    rollback, during = state.log.rollback, list[str]()

    def fail() -> None:
        monkeypatch.undo()
        raise NoRoomError("no room")

    def watched() -> None:
        during.append(Metrics(state).text().decode())
        rollback()

    state.log.rollback = watched  # type: ignore[method-assign]
    monkeypatch.setattr(state.log, "commit", fail)
    with pytest.raises(Problem, match="no room"):
        add(state, row(310, "undone"))
    until_ready(state)
    assert counts(state) == before
    assert "oddnode_nodes 326.0" not in during[0]
    state.close()
    assert counts(started())[:4] == before[:4]


def test_a_refused_change_leaves_the_others_of_its_transaction(state: State, row: Make) -> None:
    with held_back(state):
        made = [state.write(state.change, Change(add_nodes=[row(310, node)])) for node in ("a", "a", "b")]
    assert json.loads(made[0].result()[0])["version"] == 1
    with pytest.raises(Problem, match="already a node"):
        made[1].result()
    assert json.loads(made[2].result()[0])["version"] == 2


def test_a_second_writer_is_refused(state: State, source: Source, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="another process writes"):
        State(source, tmp_path / "state")


@pytest.fixture
def closed(started: Start, row: Make, tmp_path: Path) -> Path:
    """The folder of a service with twenty changes that has stopped."""
    state = started()
    for number in range(20):
        add(state, row(310, f"n{number}"), "p0001")
    state.close()
    return tmp_path / "state"


def damage(path: Path, old: bytes, new: bytes) -> None:
    raw = path.read_bytes()
    assert old in raw
    path.write_bytes(raw.replace(old, new))


def test_a_changed_byte_in_the_log_is_refused_and_nothing_is_touched(closed: Path, started: Start) -> None:
    path = closed / "changes.sqlite"
    damage(path, b'"add_edges":[["n7","p0001"]]', b'"add_edges":[["n7","p0002"]]')
    before = path.read_bytes()
    with pytest.raises(LogError, match=r"change 8 of .* is damaged"):
        started()
    assert path.read_bytes() == before


def test_a_lost_page_a_removed_row_and_no_database_are_refused(closed: Path, started: Start) -> None:
    path = closed / "changes.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LogError, match="damaged"):
        started()
    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM changes WHERE version = 5")
    with pytest.raises(LogError, match="change 5"):
        started()
    path.write_bytes(b"something else" * 1000)
    with pytest.raises(LogError, match="damaged"):
        started()


def test_a_log_without_its_last_changes_is_refused(source: Source, started: Start, row: Make, tmp_path: Path) -> None:
    """As after a power cut on a disk that lies, or if somebody deletes the write-ahead log of a killed service."""
    state = started()
    add(state, row(310, "a"))
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "state", copy)
    for file in copy.glob("*-wal"):
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(LogError, match="ends with change 0, but 1 were acknowledged"):
        State(source, copy)


def test_another_model_or_graph_under_a_log_is_refused(closed: Path, source: Source, tmp_path: Path) -> None:
    shutil.copytree(source.model, tmp_path / "model")
    model = source.load()
    model.set_false_alarm_rate(0.1)
    model.save(tmp_path / "model")
    with pytest.raises(LogError, match=r"another model: \w{12}, now \w{12}"):
        State(Source(tmp_path / "model", None, source.nodes, source.edges), closed)
    with pytest.raises(LogError, match="another base"):
        State(Source(source.model, None, source.nodes, [*source.edges, *source.edges]), closed)
    with pytest.raises(LogError, match="another max_neighbours"):
        State(Source(source.model, None, source.nodes, source.edges, 7), closed)


def test_a_first_start_with_a_typo_does_not_bind_the_folder(source: Source, tmp_path: Path, started: Start) -> None:
    State(Source(source.model, None, source.nodes, source.nodes), tmp_path / "state").close()
    assert started().phase == "ready"


def test_a_clock_that_was_wrong_does_not_stop_the_time(
    state: State, row: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1.8e9
    monkeypatch.setattr("oddnode.service.state.time.time", lambda: now)
    times = []
    for number, later in enumerate((0, 3e8, 60, -60, 120)):
        now = 1.8e9 + later
        add(state, row(310, f"n{number}"))
        assert state.log is not None
        times.append(state.log.last_time - 1.8e9)
    assert times == [0, 3e8, 60, 60, 120]
    assert caplog.text.count("minutes ahead") == 1


def test_a_folder_that_was_deleted_refuses_changes(state: State, row: Make, tmp_path: Path) -> None:
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    with pytest.raises(Problem, match="No such file") as refused:
        add(state, row(310, "a"))
    assert (refused.value.status, str(tmp_path) in refused.value.detail) == (507, False)
    (tmp_path / "elsewhere").rename(tmp_path / "state")
    assert add(state, row(310, "a"))["version"] == 1
