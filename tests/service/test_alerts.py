"""Alerts, feedback and draws, of arrivals in a shop."""

from __future__ import annotations

import base64
import copy
import hashlib
import html
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc
import pytest

from oddnode.functional import CalibrationError
from oddnode.online import Judgement, LiveGraph
from oddnode.service import read_alerts, read_checked, read_exposure, read_feedback
from oddnode.service.alerts import AlertLog, Arrived, Record
from oddnode.service.exports import alert_page, exposure_tables
from oddnode.tables import TableError, TableModel
from tests.docs.test_docs import run
from tests.tables.shop import Shop, shop

ROLES: dict[str, Any] = {"id_column": "id", "label_column": "category"}
DAY = 86400.0


class Stream(NamedTuple):
    """A graph in which arrivals were recorded, one every hour."""

    folder: Path
    connection: sqlite3.Connection
    log: AlertLog
    live: LiveGraph
    rows: dict[str, dict[str, Any]]
    answers: list[Judgement]

    def numbers(self, condition: Callable[[Judgement], Any]) -> list[int]:
        """The numbers of the arrivals whose answers meet a condition."""
        return [number for number, answer in enumerate(self.answers, 1) if condition(answer)]


@pytest.fixture(scope="module")
def goods() -> Shop:
    return shop(num_old=500, num_known=80, num_planted=20)


@pytest.fixture(scope="module")
def model(goods: Shop) -> TableModel:
    return TableModel.fit(*goods.old, **ROLES, epochs=10, device="cpu")[0]


def arrive(goods: Shop, model: TableModel, folder: Path, budget: int | None = None) -> Stream:
    """Let the new products arrive with their links to what is there."""
    live = LiveGraph(model, model.read(*goods.old))
    connection = sqlite3.connect(folder / "changes.sqlite", isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    log, answers, present = AlertLog(lambda: connection, budget=budget), [], set(goods.old[0]["id"])
    new = goods.nodes[goods.is_new]
    rows = {row["id"]: row for row in new.astype(object).where(new.notna(), None).to_dict("records")}
    pairs = goods.edges[["source", "target"]].to_numpy().tolist()
    for hour, (name, row) in enumerate(rows.items()):
        present.add(name)
        links = [pair for pair in pairs if name in pair and present.issuperset(pair)]
        connection.execute("begin")
        found = live.commit([row], links)
        log.record(live, found, [row], 3600.0 * hour)
        connection.execute("commit")
        answers += found
    return Stream(folder, connection, log, live, rows, answers)


@pytest.fixture(scope="module")
def streamed(goods: Shop, model: TableModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    found = arrive(goods, model, tmp_path_factory.mktemp("state"))
    yield found
    found.connection.close()


@pytest.fixture
def stream(streamed: Stream, tmp_path: Path) -> Iterator[Stream]:
    """A copy of the log, to write to."""
    connection = sqlite3.connect(tmp_path / "changes.sqlite", isolation_level=None)
    streamed.connection.backup(connection)
    connection.execute("pragma journal_mode = wal")
    yield streamed._replace(folder=tmp_path, connection=connection, log=AlertLog(lambda: connection))
    connection.close()


def draw(stream: Stream, n: int, **period: Any) -> Any:
    def rows_of(drawn: Sequence[Arrived]) -> dict[int, dict[str, Any]]:
        return {each.number: stream.rows[str(each.id)] for each in drawn}

    return stream.log.draw(stream.live, rows_of, n, time=10.0, **period)


def test_a_flagged_arrival_is_recorded_as_it_was_and_others_are_not(
    goods: Shop, model: TableModel, stream: Stream
) -> None:
    records = {each.number: each for each in stream.log.records()}
    flagged = stream.numbers(lambda answer: answer.is_ood)
    assert sorted(records) == flagged
    assert len(flagged) > 5
    live, present = LiveGraph(model, model.read(*goods.old)), {*goods.old[0]["id"]}
    pairs = goods.edges[["source", "target"]].to_numpy().tolist()
    for number, (name, row) in enumerate(list(stream.rows.items())[: flagged[5]], 1):
        present.add(name)
        links = [pair for pair in pairs if name in pair and present.issuperset(pair)]
        [expected] = live.commit([row], links, explain=number in records)
        if number not in records:
            continue
        record = records[number]
        ends = sorted({end for pair in links for end in pair} - {name})
        assert record.answer == expected
        assert record.row == row
        assert (record.time, record.graph.version, record.rule) == (3600.0 * (number - 1), number, "rate")
        assert sorted(str(each.id) for each in record.neighbours) == ends
        kept = live.scores_of([each.id for each in record.neighbours])
        assert [(each.predicted, each.is_ood) for each in record.neighbours] == [
            *zip(kept.predicted, kept.is_ood, strict=True)
        ]


def test_a_record_stays_while_the_graph_goes_on(model: TableModel, stream: Stream) -> None:
    before = stream.log.records()
    again = LiveGraph(model, model.read(*shop(num_old=40, num_known=5, num_planted=5).old))
    found = again.commit([stream.rows["p0500"]], [])
    stream.log.record(again, found, [stream.rows["p0500"]], DAY)
    assert stream.log.records()[-len(before) :] == before


def test_a_change_that_fails_leaves_no_alert(goods: Shop, model: TableModel, stream: Stream) -> None:
    rows = [{**row, "id": f"again {row['id']}"} for row in stream.rows.values()][:40]
    live = LiveGraph(model, model.read(*goods.old))
    count = len(stream.log.records())
    stream.connection.execute("begin")
    new = stream.log.record(live, live.commit(rows, []), rows, DAY)
    assert len(stream.log.records()) == count + len(new)
    stream.connection.execute("rollback")
    assert len(stream.log.records()) == count
    assert len([*stream.log.arrivals()]) == len(stream.rows)


def test_alerts_are_found_by_page_verdict_and_version(stream: Stream) -> None:
    flagged = stream.numbers(lambda answer: answer.is_ood)
    newest = stream.log.records(limit=3)
    assert [each.number for each in newest] == flagged[::-1][:3]
    assert [each.number for each in stream.log.records(limit=2, before=newest[-1].number)] == flagged[::-1][3:5]
    stream.log.give_feedback(flagged[0], "known", time=1.0)
    stream.log.give_feedback(flagged[1], "unknown", time=2.0)
    assert [each.number for each in stream.log.records(verdict="known")] == flagged[:1]
    assert [each.number for each in stream.log.records(verdict="open")] == flagged[:1:-1]
    assert stream.log.counts() == {"known": 1, "unknown": 1, "open": len(flagged) - 2}
    other = next(number for number in range(1, 99) if number not in flagged)
    assert stream.log.numbers(flagged[0]) == {stream.answers[flagged[0] - 1].id: flagged[0]}
    assert stream.log.numbers(other) == {}


def test_feedback_can_change_and_keeps_its_history(stream: Stream) -> None:
    number = stream.log.records()[0].number
    for time, verdict in ((1.0, "known"), (2.0, "unknown")):
        stream.log.give_feedback(number, verdict, f"note {time}", "ada", time=time)  # type: ignore[arg-type]
    assert [(each.time, each.verdict, each.note, each.who) for each in stream.log.feedback(number)] == [
        (1.0, "known", "note 1.0", "ada"),
        (2.0, "unknown", "note 2.0", "ada"),
    ]
    assert {each.number: each.verdict for each in stream.log.arrivals()}[number] == "unknown"
    table = read_feedback(stream.folder)
    assert table["verdict"].to_pylist() == ["known", "unknown"]
    assert set(table["id"].to_pylist()) == {stream.answers[number - 1].id}


def test_feedback_that_makes_no_sense_is_refused(stream: Stream) -> None:
    unflagged = stream.numbers(lambda answer: not answer.is_ood)[0]
    number = stream.log.records()[0].number
    with pytest.raises(KeyError, match=f"no alert with the number {unflagged}"):
        stream.log.give_feedback(unflagged, "known", time=1.0)
    with pytest.raises(ValueError, match="verdict is 'maybe', expected 'known'"):
        stream.log.give_feedback(number, "maybe", time=1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="note has 5000 characters, expected 4000 at most"):
        stream.log.give_feedback(number, "known", "x" * 5000, time=1.0)
    assert stream.log.feedback() == []


def test_feedback_on_alerts_alone_is_no_random_draw(goods: Shop, model: TableModel, stream: Stream) -> None:
    for record in stream.log.records():
        stream.log.give_feedback(record.number, "known", time=1.0)
    with pytest.raises(TableError, match="no arrivals were drawn"):
        read_checked(stream.folder)
    draw(stream, 40)  # but nobody looks at what was not flagged
    tables = copy.deepcopy(model)
    with pytest.raises(CalibrationError, match="no answer for a row that was not flagged"):
        tables.calibrate(goods.nodes, goods.edges, checked=read_checked(stream.folder))


def test_answers_for_a_draw_calibrate_with_its_weights(goods: Shop, model: TableModel, stream: Stream) -> None:
    found = draw(stream, 40, seed=3)
    flagged = len(stream.numbers(lambda answer: answer.is_ood))
    others = len(stream.answers) - flagged
    is_ood = np.array(found.is_ood)
    assert is_ood.tolist() == [bool(stream.answers[number - 1].is_ood) for number in found.arrivals]
    assert len(found.arrivals) == len(set(found.arrivals)) == 40
    assert sum(weight for weight, each in zip(found.weight, is_ood, strict=True) if each) == pytest.approx(flagged)
    assert sum(weight for weight, each in zip(found.weight, is_ood, strict=True) if not each) == pytest.approx(others)
    kind = dict(zip(goods.nodes["id"], goods.kind, strict=True))
    is_camera = np.array([kind[stream.answers[number - 1].id] == "cameras" for number in found.arrivals])
    for number, each in zip(found.arrivals, is_camera, strict=True):
        stream.log.give_feedback(number, "unknown" if each else "known", time=20.0)
    checked = read_checked(stream.folder)
    assert checked["known"].to_pylist() == ["no" if each else "yes" for each in is_camera]
    tables = copy.deepcopy(model)
    batch, alone = (
        copy.deepcopy(model).calibrate(goods.nodes, goods.edges, false_alarm_rate=0.1, checked=checked, batch=each)
        for each in (True, False)
    )
    assert "depend on each other" in batch.notes[0]
    assert alone.notes == []
    report = tables.calibrate(goods.nodes, goods.edges, false_alarm_rate=0.1, checked=checked, batch=False)
    scores = np.array([stream.answers[number - 1].score for number in found.arrivals])
    assert (scores[is_camera] < report.threshold).mean() > 0.8  # it fits what the service answers
    assert report.checked is not None
    caught, missed = (float((is_camera & each).sum() / each.sum()) for each in (is_ood, ~is_ood))
    assert report.checked.precision == pytest.approx(caught)
    assert report.checked.recall == pytest.approx(caught * flagged / (caught * flagged + missed * others))


def test_draws_are_random_repeatable_and_bounded(stream: Stream) -> None:
    first = draw(stream, 20, seed=1, since=20 * 3600.0, until=60 * 3600.0)
    again, other = (draw(stream, 20, seed=seed, since=20 * 3600.0, until=60 * 3600.0) for seed in (1, 2))
    assert (first.arrivals, first.number, again.number) == (again.arrivals, 1, 2)
    assert first.arrivals != other.arrivals
    assert {*first.arrivals, *other.arrivals} <= {*range(21, 61)}
    assert {each.cause for each in map(stream.log.record_of, first.arrivals)} == {"alert", "draw"}
    assert [each.number for each in stream.log.records()] == stream.numbers(lambda answer: answer.is_ood)[::-1]
    assert read_checked(stream.folder, "product", draw=1)["product"].to_pylist() == [
        stream.answers[number - 1].id for number in first.arrivals
    ]
    with pytest.raises(KeyError, match="no draw with the number 9, expected 1 to 3"):
        read_checked(stream.folder, draw=9)
    with pytest.raises(TableError, match="there are 0 judged arrivals to draw from"):
        draw(stream, 20, since=999 * DAY)


def test_nodes_that_are_gone_are_not_drawn(goods: Shop, model: TableModel, stream: Stream) -> None:
    live, ids = LiveGraph(model, model.read(*goods.old)), [*stream.rows]
    live.commit([stream.rows[node] for node in ids[40:]], [])
    found = draw(stream._replace(live=live), 100)
    assert sorted(found.arrivals) == [*range(41, 101)]
    assert {*found.weight} == {1.0}


def test_what_is_really_unknown_becomes_exposure(goods: Shop, model: TableModel, stream: Stream) -> None:
    with pytest.raises(TableError, match="no arrival was said to be really unknown"):
        read_exposure(stream.folder)
    kind = dict(zip(goods.nodes["id"], goods.kind, strict=True))
    cameras = [each for each in stream.log.records() if kind[each.answer.id] == "cameras"]
    for record in cameras:
        stream.log.give_feedback(record.number, "unknown", time=1.0)
    stream.log.give_feedback(cameras[0].number, "known", time=2.0)  # after all
    nodes, edges = read_exposure(stream.folder)
    ids = {each.answer.id for each in cameras[1:]}
    assert nodes.to_pylist() == [stream.rows[str(each.answer.id)] for each in cameras[:0:-1]]
    expected = {
        frozenset(pair) for pair in goods.edges[["source", "target"]].to_numpy().tolist() if ids.issuperset(pair)
    }
    assert {frozenset((each["source"], each["target"])) for each in edges.to_pylist()} == expected
    assert len(edges) == len(expected) > 0
    exposed: dict[str, Any] = {"exposure_nodes": nodes, "exposure_edges": edges}
    _, report = TableModel.fit(goods.old[0], goods.old[1], **ROLES, **exposed, epochs=2, device="cpu")
    assert report.num_exposed == len(cameras) - 1


def test_tables_are_read_while_the_service_writes(stream: Stream) -> None:
    stream.connection.execute("begin")
    number = stream.log.records()[0].number
    stream.log.give_feedback(number, "known", time=1.0)
    before = read_alerts(stream.folder)
    stream.connection.execute("commit")
    after = read_alerts(stream.folder)
    assert before["verdict"].null_count == len(before)
    assert after.filter(pc.is_valid(after["verdict"]))["number"].to_pylist() == [number]
    answers = [stream.answers[number - 1] for number in after["number"].to_pylist()]
    assert after["score"].to_pylist() == [each.score for each in answers]
    kinds = [each.kind for each in answers[0].evidence]
    for place, kind in enumerate(kinds):
        assert after[f"surprise_{kind.replace(' ', '_')}"].to_pylist() == [
            each.evidence[place].surprise for each in answers
        ]
    assert [each.as_py().timestamp() for each in after["time"]] == [
        3600.0 * (each - 1) for each in after["number"].to_pylist()
    ]


def test_the_program_of_the_page_on_alerts_runs(stream: Stream, capsys: pytest.CaptureFixture[str]) -> None:
    for number in draw(stream, 20).arrivals:
        stream.log.give_feedback(number, "unknown", time=1.0)
    alerts, feedback, checked, (nodes, _) = run("alerts.md")["report"](stream.folder)
    assert (len(feedback), len(checked), len(nodes)) == (20, 20, 20)
    assert f"{len(alerts)} of {len(stream.rows)} arrivals were alerts" in capsys.readouterr().out


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no log of changes; give the folder that `oddnode serve`"):
        read_alerts(tmp_path)


# --- the page ---


def texts(page: str) -> str:
    """What a reader sees."""
    body = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(body).split())


def test_the_page_has_the_numbers_of_the_record(stream: Stream) -> None:
    record = max(stream.log.records(), key=lambda each: len(each.neighbours))
    stream.log.give_feedback(record.number, "unknown", "a new kind", "ada", time=0.0)
    shown, answer = texts(alert_page(record, stream.log.feedback(record.number))[0]), record.answer
    assert answer.p_value is not None
    assert f"Of 1,000 known nodes, about {1000 * answer.p_value:.3g} score as low." in shown
    flagged = sum(bool(each.is_ood) for each in record.neighbours)
    assert f"{flagged} of {len(record.neighbours)} neighbours" in shown
    notable = sum(math.exp(-each.surprise) <= 0.1 for each in answer.evidence)
    assert f"{notable} of {len(answer.evidence)} kinds of evidence" in shown
    strongest = max(answer.evidence, key=lambda each: each.surprise)
    assert f"{strongest.kind} {100 * math.exp(-strongest.surprise):.2g} %" in shown
    assert str(answer.why) in shown
    assert "1970-01-01 00:00:00 UTC ada really unknown a new kind" in shown
    assert all(f"{name} {'' if value is None else value}".strip() in shown for name, value in record.row.items())


def test_the_page_shows_markup_as_text_and_runs_nothing(stream: Stream) -> None:
    evil = '<script>alert(1)</script><img src=x onerror="x">'
    record = stream.log.records()[0]
    answer = msgspec.structs.replace(record.answer, id=evil, why=evil, unseen={evil: evil}, predicted=evil)
    record = msgspec.structs.replace(record, row={evil: evil}, answer=answer)
    page, policy = alert_page(record, [])
    assert "<script" not in page
    assert "<img" not in page
    assert texts(page).count(evil) >= 6
    [style] = re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]
    assert not re.search(r"<[^>]* (?:src|href|style|on\w+)=|url\(|@import", page)


def test_an_exposure_of_features_keeps_their_numbers(stream: Stream) -> None:
    records = [
        msgspec.structs.replace(each, row={"id": each.answer.id, "x": [0.5, float(place)]})
        for place, each in enumerate(stream.log.records()[:2])
    ]

    class Log(AlertLog):
        def __init__(self) -> None:
            pass

        def records(self, **_: Any) -> list[Record]:
            return records

        def feedback(self, number: int | None = None) -> Any:
            return [msgspec.structs.replace(given, arrival=each.number) for each in records]

    given = stream.log.give_feedback(records[0].number, "unknown", time=0.0)
    assert exposure_tables(Log())[0]["x"].to_pylist() == [[0.5, 1.0], [0.5, 0.0]]
