"""Fixtures of the tests that open the report in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from oddnode.paper.experiments import SCOPES, choose_items
from oddnode.paper.plan import make_plan
from oddnode.paper.record import Graphs, Record
from oddnode.paper.report import make_page
from oddnode.paper.store import Store
from oddnode.paper.webpage import Page, write_html
from tests.browser import Browser, start_chromium
from tests.paper_helpers import run


@dataclass
class Report:
    """A page and the runs it was made of."""

    path: Path
    store: Store
    content: Page

    def record(self, task: str, method: str, protocol: str = "clean") -> Record:
        return next(r for r in self.store.records(task, protocol) if method in r.training.methods)

    def graphs(self, task: str, protocol: str = "clean") -> Graphs:
        return self.store.graphs(self.store.records(task, protocol)[0].training)

    def scores(self, task: str, method: str, protocol: str = "clean") -> tuple[np.ndarray, np.ndarray]:
        """Of the known and of the unknown nodes."""
        record, graphs = self.record(task, method, protocol), self.graphs(task, protocol)
        scores, test = record.scores(method), graphs.tests[0]
        return scores["id"][graphs.id_mask], scores[test][graphs.ood_mask[test]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    driver = start_chromium()
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="session")
def report(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    folder = tmp_path_factory.mktemp("report")
    scope = replace(SCOPES["smoke"], citation=("digits/label", "digits/structure"), others=(), epochs=3, seeds=1)
    plan = make_plan(scope, choose_items(["claims"]))
    run(plan, folder)
    with Store(folder) as store:
        content = make_page(store, plan)
        yield Report(write_html(content, folder / "report.html"), store, content)


#: How the pickers stand when the page opens.
START = {
    "#over-protocol": "clean",
    "#over-cell": "mean of all tasks",
    "#over-metric": "fpr95",
    "#protocol": "clean",
    "#cell": "digits/label",
    "#method-a": "nodesafe",
    "#method-b": "gnnsafe",
    "#table-protocol": "clean",
    "#table-cell": "digits/label",
}


@pytest.fixture
def page(browser: Browser, report: Report) -> Iterator[Browser]:
    """The report as it opens. Loading takes longest, so that a page that is open is put back by its own pickers."""
    browser.stay_at(report.path)
    for picker, value in START.items():
        if browser.js("return document.querySelector(arguments[0]).value", picker) != value:
            browser.choose(picker, value)
    if browser.text("#node-title").startswith("Node "):  # a chosen node is let go of with its cell
        browser.choose("#cell", "digits/structure")
        browser.choose("#cell", "digits/label")
    browser.click("#reset")
    yield browser
    assert browser.complaints() == []
    assert {url for url in browser.requests() if not url.startswith("file:")} == set()


def percent(share: float | np.floating) -> str:
    return f"{100 * share:.1f} %"


def shares(known: np.ndarray, unknown: np.ndarray, threshold: float) -> tuple[str, str]:
    """TPR and FPR as the page writes them."""
    return percent(np.mean(known.astype(float) >= threshold)), percent(np.mean(unknown.astype(float) >= threshold))


def threshold_of(page: Browser) -> float:
    return float(page.find("#threshold").get_attribute("aria-valuenow"))


def free_node(page: Browser, graph: str) -> tuple[int, int]:
    """The place of an unknown node that lies apart from the others, so that a pointer meets no other."""
    x, y = page.js(
        "const {data} = document.getElementById(arguments[0]), {x, y} = data[3];"
        "const all = [1, 2, 3].flatMap((t) => data[t].x.map((u, i) => [u, data[t].y[i]]));"
        "const gap = x.map((u, i) => all.map(([v, w]) => Math.hypot(u - v, y[i] - w)).sort((p, q) => p - q)[1]);"
        "const i = gap.indexOf(Math.max(...gap)); return [x[i], y[i]]",
        graph,
    )
    return page.pixel_of(graph, x, y)


def colour(page: Browser, name: str) -> str:
    """One of the colours that the style sheet names."""
    return page.js(
        "return getComputedStyle(document.documentElement).getPropertyValue('--' + arguments[0]).trim()", name
    )
