"""Starts from what was saved, new bases while changes arrive, and readers that follow a log."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from oddnode import LiveGraph
from oddnode.service.log import NoRoomError
from oddnode.service.requests import Change, Problem
from oddnode.service.saved import SavedGraphs
from oddnode.service.state import Event, Source, State

Make = Callable[..., dict[str, Any]]
Start = Callable[..., State]


def add(state: State, row: dict[str, Any], *ends: str) -> None:
    change = Change(add_nodes=[row], add_edges=[[row["id"], end] for end in ends])
    state.write(state.change, change).result()


def kept(state: State, *ids: str) -> Any:
    return json.loads(state.read(state.kept, list(ids)).result())


def until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    last = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < last
        time.sleep(0.02)


def test_a_start_takes_the_saved_base_and_the_saved_changes(
    started: Start, row: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = started()
    for number in range(5):
        add(first, row(310 + number, f"n{number}"), "p0001")
    before = kept(first, "n0", "n4", "p0001")
    first.close()
    assert {path.name.split("-")[0] for path in (tmp_path / "state").glob("*-*-*")} == {"base", "changes"}
    # Neither the base is computed nor a change made again.
    monkeypatch.setattr(Source, "live", None)
    monkeypatch.setattr(LiveGraph, "change", None)
    assert kept(started(), "n0", "n4", "p0001") == before


def test_what_a_killed_process_left_half_written_is_removed(started: Start, tmp_path: Path) -> None:
    started().close()
    for name in (".graph-0a1b", ".base-7-0123456789abcdef.oddnode-01234567-1-89abcdef.new"):
        (tmp_path / "state" / name).mkdir()
    started()
    assert not list((tmp_path / "state").glob(".[bg]*"))


def test_arrivals_without_edges_are_saved(started: Start, row: Make) -> None:
    first = started()
    add(first, row(310, "a"))
    before = kept(first, "a")
    first.close()
    assert kept(started(), "a") == before


@pytest.mark.parametrize("kind", ["base", "changes"])
def test_damaged_caches_are_computed_again(started: Start, row: Make, tmp_path: Path, kind: str) -> None:
    first = started()
    add(first, row(310, "a"), "p0001")
    before = kept(first, "a", "p0001")
    first.close()
    [folder] = (tmp_path / "state").glob(f"{kind}-*")
    for path in folder.iterdir():
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
        path.write_bytes(raw)
    assert kept(started(), "a", "p0001") == before


def test_a_new_base_has_the_changes_made_while_it_was_computed(
    started: Start, source: Source, row: Make, tmp_path: Path
) -> None:
    state = started()
    add(state, row(310, "a"), "p0001", "p0002")
    base = state.base
    assert state.compact()
    for number in range(10):
        add(state, row(311 + number, f"n{number}"), "a")
    until(lambda: state.base != base)
    found = kept(state, "a", "n9", "p0001")
    assert found["graph"]["version"] == 11
    assert found["graph"]["base"] == state.base
    [folder] = (tmp_path / "state").glob("base-*")
    assert not folder.name.startswith("base-0-")
    # The same as a live graph that is computed anew at that version and changed in the same way.
    version = int(folder.name.split("-")[1])
    live = source.live(source.load())
    live.commit([row(310, "a")], [("a", "p0001"), ("a", "p0002")])
    for number in range(10):
        if live.version == version:
            live = live.rebased()
        live.commit([row(311 + number, f"n{number}")], [(f"n{number}", "a")])
    if live.version == version:
        live = live.rebased()
    assert found["scores"]["score"] == pytest.approx(live.scores_of(["a", "n9", "p0001"]).score, abs=1e-6)
    state.close()
    again = started()
    assert kept(again, "a", "n9", "p0001") == found


def test_a_base_on_disk_is_compacted_on_disk(source: Source, tmp_path: Path, row: Make) -> None:
    from oddnode.tables import TableModel, TrainingTables, read_schema

    schema = read_schema(source.model)
    tables = TrainingTables(source.nodes[0], source.edges[0], options=schema.with_labels("category", [], False, None))
    tables.prepare(tmp_path / "graph")
    on_disk = Source(source.model, tmp_path / "graph")
    state = State(on_disk, tmp_path / "state", compact_after=2)
    state.start()
    state.wait()
    base = state.base
    add(state, row(310, "a"), "p0001")
    add(state, row(311, "b"), "a")
    until(lambda: state.base != base)
    found = kept(state, "a", "b", "p0001")
    state.close()
    assert [path.name.split("-")[0] for path in sorted((tmp_path / "state").glob("*-2-*"))] == ["base", "graph"]
    again = State(on_disk, tmp_path / "state")
    again.start()
    again.wait()
    assert kept(again, "a", "b", "p0001") == found
    again.close()
    live = LiveGraph(TableModel.load(source.model, "cpu"), tmp_path / "graph")
    live.commit([row(310, "a")], [("a", "p0001")])
    live.commit([row(311, "b")], [("b", "a")])
    assert found["scores"]["score"] == pytest.approx(live.rebased().scores_of(["a", "b", "p0001"]).score, abs=1e-5)


def test_replicas_follow_a_log_and_its_new_bases(started: Start, row: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oddnode.service.state._SECONDS_TO_LOOK", 0.1)
    writer = started()
    add(writer, row(310, "a"), "p0001")
    replicas = [started(follow=True) for _ in range(2)]
    told: list[Event] = []
    replicas[0].subscribe(told.append)
    add(writer, row(311, "b"), "a")
    expected = kept(writer, "a", "b", "p0001")
    for replica in replicas:
        until(lambda: replica.phase == "ready" and kept(replica, "a")["graph"]["version"] == 2)  # noqa: B023
        assert kept(replica, "a", "b", "p0001") == expected
        assert (replica.num_scored, replica.num_flagged) == (2, writer.num_flagged)
        with pytest.raises(Problem, match="read replica"):
            replica.write(replica.change, Change(remove_nodes=["a"]))
    assert [(each.name, json.loads(each.data)["answer"]["id"]) for each in told] == [("arrival", "b")]
    base = writer.base
    writer.compact()
    until(lambda: writer.base != base)
    for replica in replicas:
        until(lambda: replica.phase == "ready" and replica.base == writer.base)  # noqa: B023
        assert kept(replica, "a", "b", "p0001") == kept(writer, "a", "b", "p0001")
        assert (replica.num_scored, replica.num_flagged) == (2, writer.num_flagged)


def test_a_base_with_a_change_that_was_undone_is_not_used(
    started: Start, row: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has the version of the change that took the place of the undone one, which it does not have."""
    state, snapped, resumed, returned = started(), *(threading.Event() for _ in range(3))
    assert state.log is not None
    commit, rebased, base = state.log.commit, LiveGraph.rebased, state.base

    def rebased_late(live: LiveGraph, *args: Any) -> LiveGraph:
        other = rebased(live, *args)
        snapped.set()
        assert resumed.wait(60)
        returned.set()
        return other

    def fail() -> None:
        monkeypatch.setattr(state.log, "commit", commit)
        assert state.compact()
        assert snapped.wait(60)
        raise NoRoomError("the disk is full")

    monkeypatch.setattr(LiveGraph, "rebased", rebased_late)
    monkeypatch.setattr(state.log, "commit", fail)
    with pytest.raises(Problem, match="nothing was changed"):
        add(state, row(310, "undone"), "p0001")
    until(lambda: state.phase == "ready")
    add(state, row(311, "made"), "p0001")
    resumed.set()
    until(lambda: not state._compacting.locked())
    assert returned.is_set()
    assert (state.base, kept(state, "undone", "made")["unknown"]) == (base, ["undone"])
    assert not list((tmp_path / "state").glob("base-1-*"))


def test_no_new_base_is_promised_before_there_is_a_graph(source: Source, tmp_path: Path) -> None:
    state = State(source, tmp_path / "state")
    with pytest.raises(Problem, match="the graph is being loaded"):
        state.compact()
    state.close()


def blocked(state: State) -> tuple[threading.Event, Future[bool]]:
    """Keep the thread of a service busy until an event."""
    gate, runs = threading.Event(), threading.Event()

    def wait() -> bool:
        runs.set()
        return gate.wait(60)

    future = state.read(wait)
    assert runs.wait(60)
    return gate, future


def test_a_stop_lets_go_of_the_log_whoever_has_hung_up(source: Source, started: Start, tmp_path: Path) -> None:
    state = started()
    gate, _ = blocked(state)
    state._tasks.put(None)  # as `close` does
    left = state.read(int)
    assert left.cancel()
    gate.set()
    state.close()
    assert started().phase == "ready"  # it has the lock


def test_a_state_that_cannot_be_made_lets_go_of_the_log(source: Source, started: Start, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="budget"):
        State(source, tmp_path / "state", budget=0)
    assert started().phase == "ready"


def test_a_subscriber_that_fails_stops_nothing(state: State, row: Make) -> None:
    told: list[Event] = []

    def fail(event: Event) -> None:
        raise RuntimeError("Event loop is closed")

    stop = state.subscribe(fail)
    state.subscribe(told.append)
    for number in range(2):
        add(state, row(310 + number, f"a{number}"))
    until(lambda: [each.name for each in told if each.name == "arrival"] == ["arrival"] * 2)  # after the answer
    assert state.num_subscribers == 1
    stop()


def test_a_compaction_that_fails_is_not_tried_again_at_once(
    started: Start, row: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, tried = started(compact_after=3), []

    def fail(*_: Any) -> None:
        tried.append(state.live.version)
        raise OSError("the disk is full")

    assert state.saved is not None
    monkeypatch.setattr(state.saved, "compacted", fail)
    for number in range(7):
        add(state, row(300 + number, f"a{number}"))
        until(lambda: not state._compacting.locked())
    assert tried == [3, 6]


def test_without_a_folder_changes_are_refused(started: Start) -> None:
    state = started(None)
    with pytest.raises(Problem, match="--state FOLDER"):
        state.write(state.change, Change(remove_nodes=["p0001"]))
    with pytest.raises(Problem, match="takes changes"):
        state.compact()


def test_requests_that_wait_too_long_or_are_too_many_are_refused(started: Start) -> None:
    state = started(None, max_waiting=2)
    gate, first = blocked(state)
    state.max_seconds = 0.05
    waiting = [state.read(int) for _ in range(2)]
    with pytest.raises(Problem, match="2 requests are waiting") as refused:
        state.read(int)
    assert refused.value.status == 503
    time.sleep(0.06)
    gate.set()
    assert first.result()
    for each in waiting:
        with pytest.raises(Problem, match=r"waited for more than 0\.05 seconds"):
            each.result()


def test_a_replica_tries_a_base_that_cannot_be_opened_once(
    started: Start, row: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oddnode.service.state._SECONDS_TO_LOOK", 0.05)
    writer = started()
    add(writer, row(310, "a"), "p0001")
    assert writer.compact()
    until(lambda: writer._base_version == 1 and not writer._compacting.locked())
    before = kept(writer, "a")["scores"]
    [folder] = (tmp_path / "state").glob("base-1-*")
    (folder / "live.json").write_text("{")
    opened, open_saved = list[Any](), SavedGraphs.open

    def watched(*given: Any) -> Any:
        opened.append(open_saved(*given))
        return opened[-1]

    monkeypatch.setattr(SavedGraphs, "open", watched)
    replica = started(follow=True)
    until(lambda: len(opened) >= 2)
    until(lambda: replica.phase == "ready" and replica.live.version == 1)
    time.sleep(0.5)
    assert opened == [None, None]
    assert kept(replica, "a")["scores"]["score"] == pytest.approx(before["score"], abs=1e-6)
