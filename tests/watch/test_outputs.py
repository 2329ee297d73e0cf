"""Where a watch tells what it found: a webhook, metrics, a page."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from oddnode.watch import State, Watch, send, write_metrics, write_page
from tests.browser import Browser, start_chromium
from tests.watch.conftest import DAY, Scores

MONITORING = resources.files("oddnode.watch") / "monitoring"


class Hook(HTTPServer):
    """A server that remembers what was posted and answers as it was told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[int] = []
        self.posts: list[tuple[dict[str, Any], str | None]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/secret"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts.append((body, self.headers["Idempotency-Key"]))
        status = self.server.answers.pop(0) if self.server.answers else 204
        if not status:  # something else than HTTP
            self.wfile.write(b"secret\r\n\r\n")
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.server.url)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def alarmed(watch: Callable[..., Watch], known: np.ndarray) -> Watch:
    """A watch with an alarm in its third window."""
    rng, made = np.random.default_rng(0), watch()
    days = {day: rng.choice(known, 40) + 1e-9 * rng.normal(size=40) for day in (0, 1)}
    made.run(Scores(days | {2: np.full(40, known.min() - 1) + 1e-3 * np.arange(40)}))
    return made


def test_a_webhook_is_told_of_an_alarm_once(alarmed: Watch, hook: Hook) -> None:
    assert send(alarmed, hook.url) == (True, "")
    assert send(alarmed, hook.url) == (False, "")
    [(body, key)] = hook.posts
    alarm = alarmed.state().alarm
    assert alarm is not None
    assert (body["id"], key) == (alarm.id, alarm.id)
    assert (body["alarm"]["window"], body["window"]["name"]) == ("1970-01-03", "1970-01-03")
    assert "no longer score as known ones" in body["text"]
    # Another address has not been told.
    assert send(alarmed, hook.url + "/other") == (True, "")


def test_a_webhook_that_fails_is_tried_a_few_times_and_again_by_the_next_run(alarmed: Watch, hook: Hook) -> None:
    before = alarmed.state()
    hook.answers = [500, 302, 404]
    sent, problem = send(alarmed, hook.url, pause=0.0)
    assert not sent
    assert "at 127.0.0.1 was not told" in problem
    assert "it answered 404" in problem
    assert "secret" not in problem
    assert len(hook.posts) == 3
    assert alarmed.state() == before
    hook.answers = [0, 0, 0]
    assert send(alarmed, hook.url, pause=0.0)[1].endswith(": BadStatusLine; the next run tries again")
    assert send(alarmed, hook.url) == (True, "")


def test_a_webhook_that_is_not_there_loses_nothing(alarmed: Watch) -> None:
    before = alarmed.state()
    sent, problem = send(alarmed, "http://127.0.0.1:9/x", pause=0.0)
    assert (sent, alarmed.state()) == (False, before)
    assert "tries again" in problem


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://host/x", "host/x", "http://", "http://[::1", "http://h:abc/x", "http://h/a b"]
)
def test_only_web_addresses_are_taken(alarmed: Watch, url: str) -> None:
    with pytest.raises(ValueError, match="expected an address like https"):
        send(alarmed, url)


def test_without_an_alarm_nothing_is_sent(watch: Callable[..., Watch], known: np.ndarray, hook: Hook) -> None:
    quiet = watch()
    quiet.run(Scores({0: np.random.default_rng(0).permutation(known)[:20]}))
    assert send(quiet, hook.url) == (False, "")
    assert hook.posts == []


def samples(path: Path) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The metrics of a file, as Prometheus' own client reads them."""
    parser = pytest.importorskip("prometheus_client.parser")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parser.text_string_to_metric_families(path.read_text(encoding="utf-8")):
        for each in family.samples:
            found.setdefault(each.name, []).append((each.labels, each.value))
    return found


def test_metrics_say_what_the_state_says(alarmed: Watch, tmp_path: Path) -> None:
    state = alarmed.state()
    found = samples(write_metrics(state, tmp_path / "watch.prom", now=1000.5))
    value = {name: each[0][1] for name, each in found.items()}
    assert value["oddnode_watch_rows_total"] == 120
    assert value["oddnode_watch_alarm"] == value["oddnode_watch_alarms_total"] == 1
    assert value["oddnode_watch_window_flagged_share"] == 1
    assert value["oddnode_watch_evidence_alarm_log10"] == 2
    assert value["oddnode_watch_evidence_highest_log10"] > 2
    assert value["oddnode_watch_window_end_timestamp_seconds"] == 3 * DAY
    assert value["oddnode_watch_run_timestamp_seconds"] == 1000.5
    assert {labels["model"] for each in found.values() for labels, _ in each} == {state.model}


def test_alert_rules_and_dashboard_name_metrics_that_are_written(alarmed: Watch, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    written = set(samples(write_metrics(alarmed.state(), tmp_path / "watch.prom")))
    [group] = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    rules = [rule["expr"] for rule in group["rules"]]
    dashboard = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [each["query"] for each in dashboard["templating"]["list"]]
    named = {name for text in (*rules, *shown, *variables) for name in re.findall(r"oddnode_\w+", text)}
    assert len(rules) == 2
    assert named <= written
    # What is written, but the interval of which only the ends are drawn, is shown or alerts.
    assert written - named <= {"oddnode_watch_flagged_rows_total", "oddnode_watch_window_end_timestamp_seconds"}


def test_the_page_is_one_file_that_shows_the_alarm_and_lets_a_window_be_chosen(alarmed: Watch, tmp_path: Path) -> None:
    state = alarmed.state()
    state.windows[-1].oddest[0] = type(state.windows[-1].oddest[0])("<b>1</b>", 0.0, 0.01, True, "<i>", "`x` is <b>.")
    path = write_page(state, tmp_path / "watch.html")
    driver = start_chromium()
    try:
        browser = Browser(driver)
        browser.open(path, width=390, height=844, mobile=True, dark=True)
        assert browser.js("return document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.text("h1").startswith("Since 1970-01-03 at the latest")
        assert browser.text("#num-rows") == "40"
        assert "<b>1</b>" in browser.text("#oddest")
        browser.choose("#which", "0")
        assert browser.text("#flagged") != "100.0 %"
        assert "alarm" not in browser.text("#capital")
        assert browser.complaints() == []
        assert all(url.startswith("file:") for url in browser.requests())
    finally:
        driver.quit()


@pytest.mark.parametrize("width", [390, 1280])
def test_names_of_windows_do_not_overlap(alarmed: Watch, tmp_path: Path, width: int) -> None:
    state = alarmed.state()
    state.windows = [replace(state.windows[0], name=f"2026-05-04T{hour:02d}:00") for hour in range(24)]
    path = write_page(state, tmp_path / "watch.html")
    driver = start_chromium()
    try:
        browser = Browser(driver)
        browser.open(path, width=width, height=844, mobile=width < 800)
        boxes = browser.js(
            "return [...document.querySelectorAll('#share-plot .xtick')].map((tick) => tick.getBoundingClientRect())"
            ".map((box) => [box.left, box.right]).sort((a, b) => a[0] - b[0])"
        )
        assert len(boxes) >= 2
        assert all(right < left for (_, right), (left, _) in pairwise(boxes))
    finally:
        driver.quit()


def test_a_page_without_windows_says_so(watch: Callable[..., Watch], tmp_path: Path) -> None:
    state: State = watch().state()
    assert "No window has ended yet." in write_page(state, tmp_path / "empty.html").read_text(encoding="utf-8")
