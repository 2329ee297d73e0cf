"""The report in a real browser, by clicks, drags and keys, against numbers computed here from the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from oddnode.evaluation import Result
from oddnode.functional import auroc, fpr_at_tpr
from oddnode.paper.experiments import choose_items
from oddnode.paper.plan import make_plan
from oddnode.paper.record import Graphs, Record
from oddnode.paper.report import make_page
from oddnode.paper.scopes import SCOPES
from oddnode.paper.store import Store
from oddnode.paper.webpage import Page, write_html
from oddnode.runner.execute import execute
from oddnode.tasks import load_task
from tests.browser import Browser, start_chromium

pytest.importorskip("plotly", reason="PAGE NOT TESTED: install plotly")


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver = start_chromium()
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="module")
def report(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    folder = tmp_path_factory.mktemp("report")
    scope = replace(SCOPES["smoke"], citation=("digits/label", "digits/structure"), others=(), epochs=3, seeds=1)
    plan = make_plan(scope, choose_items(["claims"]))
    with Store(folder) as store:
        for training in plan.trainings:
            done = execute(training, device="cpu")
            store.save(training, "test", done.facts, done.arrays)
            store.save_graphs(training, done.graph_facts, done.graph_arrays)
        content = make_page(store, plan)
        yield Report(write_html(content, folder / "report.html"), store, content)


START = {
    "#over-protocol": "clean",
    "#over-cell": "mean of all cells",
    "#over-metric": "fpr95",
    "#protocol": "clean",
    "#cell": "digits/label",
    "#method-a": "nodesafe",
    "#method-b": "gnnsafe",
    "#table-cell": "all",
}


@pytest.fixture
def page(browser: Browser, report: Report) -> Iterator[Browser]:
    """The report as it opens. Loading takes longest, so that a page that is open is put back by its own pickers."""
    browser.stay_at(report.path)
    for picker, value in START.items():
        if browser.js("return document.querySelector(arguments[0]).value", picker) != value:
            browser.choose(picker, value)
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


def test_the_page_says_what_it_is_and_is_small(page: Browser, report: Report) -> None:
    assert report.path.stat().st_size < 8e6
    assert "NODESAFE lets" in page.text("h1")
    about = page.text("#about")
    for fact in ("clean (nothing leaks", "published (as the code", "standard deviation over the seeds", "torch", "202"):
        assert fact in about
    assert "3 epochs" in page.text(".notice")


def test_the_first_threshold_gives_the_fpr_of_the_tables(page: Browser, report: Report) -> None:
    known, unknown = report.scores("digits/label", "nodesafe")
    assert page.text("#fpr") == percent(fpr_at_tpr(known, unknown))
    assert f"{report.record('digits/label', 'nodesafe').metrics('nodesafe')['fpr95']:.1f} %" == page.text("#fpr")
    assert f"AUROC {100 * auroc(known, unknown):.1f}" in page.text("#roc .legend")


def test_dragging_the_threshold_changes_the_rates_to_what_they_are_there(page: Browser, report: Report) -> None:
    known, unknown = report.scores("digits/label", "nodesafe")
    before = threshold_of(page)
    for step in (160, -420):
        page.drag("#threshold", step)
        assert (page.text("#tpr"), page.text("#fpr")) == shares(known, unknown, threshold_of(page))
        assert threshold_of(page) != before
    other_known, other_unknown = report.scores("digits/label", "gnnsafe")
    tpr = np.mean(known.astype(float) >= threshold_of(page))
    assert page.text("#fpr-b") == percent(fpr_at_tpr(other_known, other_unknown, tpr=float(tpr)))
    page.click("#reset")
    assert threshold_of(page) == before


def test_keys_move_the_threshold(page: Browser, report: Report) -> None:
    from selenium.webdriver.common.keys import Keys

    known, unknown = report.scores("digits/label", "nodesafe")
    before = threshold_of(page)
    page.press("#threshold", Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.PAGE_UP)
    assert threshold_of(page) > before
    assert (page.text("#tpr"), page.text("#fpr")) == shares(known, unknown, threshold_of(page))
    page.press("#threshold", Keys.HOME)
    assert (page.text("#tpr"), page.text("#fpr")) == ("100.0 %", "100.0 %")


def test_a_click_on_the_roc_curve_moves_the_threshold_there(page: Browser, report: Report) -> None:
    known, unknown = report.scores("digits/label", "nodesafe")
    x, y = page.js(
        "const {x, y} = document.getElementById('roc').data[0]; const i = x.length >> 2; return [x[i], y[i]]"
    )
    page.move_to(page.pixel_of("roc", x, y), click=True)
    tpr, fpr = page.text("#tpr"), page.text("#fpr")
    assert (tpr, fpr) == shares(known, unknown, threshold_of(page))
    assert float(tpr[:-2]) == pytest.approx(y, abs=3)


def test_other_cells_methods_and_protocols_show_their_own_numbers(page: Browser, report: Report) -> None:
    page.choose("#method-a", "gnnsafe")
    assert "gnnsafe on digits/label" in page.text("#dist-title")
    assert page.text("#fpr") == percent(fpr_at_tpr(*report.scores("digits/label", "gnnsafe")))
    page.choose("#cell", "digits/structure")
    assert page.text("#fpr") == percent(fpr_at_tpr(*report.scores("digits/structure", "gnnsafe")))
    page.choose("#protocol", "published")
    assert page.text("#fpr") == percent(fpr_at_tpr(*report.scores("digits/structure", "gnnsafe", "published")))
    assert "gnnsafe on digits/structure" in page.text("#dist-title")
    assert "protocol published" in page.text("#cell-note")
    page.choose("#method-b", "nodesafe++")
    assert page.text("#graph-b-title") == "nodesafe++"


def test_bars_by_degree_are_the_shares_let_through(page: Browser, report: Report) -> None:
    page.drag("#threshold", -200)
    at = threshold_of(page)
    graphs = report.graphs("digits/label")
    degree = graphs.degree["label"][graphs.ood_mask["label"]]
    _, unknown = report.scores("digits/label", "nodesafe")
    bars = page.js("const {x, y} = document.getElementById('degree').data[0]; return x.map((name, i) => [name, y[i]])")
    assert bars
    for name, height in bars:
        low, high = (int(part) for part in (name.split("\u2013") if "\u2013" in name else (name, name)))
        inside = (degree >= low) & (degree <= high)
        assert height == pytest.approx(100 * np.mean(unknown[inside].astype(float) >= at))


def test_risk_is_the_share_of_wrong_and_unknown_among_the_accepted(page: Browser, report: Report) -> None:
    graphs, record = report.graphs("digits/label"), report.record("digits/label", "nodesafe")
    known, unknown = report.scores("digits/label", "nodesafe")
    right = (record.predicted()["id"] == graphs.y["id"])[graphs.id_mask]
    at = threshold_of(page)
    accepted, let_through = known.astype(float) >= at, unknown.astype(float) >= at
    total = accepted.sum() + let_through.sum()
    risk = (np.sum(accepted & ~right) + let_through.sum()) / total
    [x], [y] = page.js("const {x, y} = document.getElementById('risk').data[2]; return [x, y]")
    assert x == pytest.approx(100 * total / (len(known) + len(unknown)))
    assert y == pytest.approx(100 * risk)


def test_hovering_a_node_shows_its_scores_class_and_neighbours(page: Browser, report: Report) -> None:
    x, y = page.js(
        # One that lies free, so that the pointer meets no other.
        "const {x, y} = document.getElementById('graph-b').data[3], picked = document.getElementById('graph-b').data;"
        "const all = [1, 2, 3].flatMap((t) => picked[t].x.map((u, i) => [u, picked[t].y[i]]));"
        "const gap = x.map((u, i) => all.map(([v, w]) => Math.hypot(u - v, y[i] - w)).sort((p, q) => p - q)[1]);"
        "const i = gap.indexOf(Math.max(...gap)); return [x[i], y[i]]"
    )
    page.move_to(page.pixel_of("graph-b", x, y))
    title = page.text("#node-title")
    assert title.endswith(": unknown")
    number = int(title.split()[1].rstrip(":"))
    info = page.text("#node-info")
    for method in ("nodesafe", "gnnsafe"):
        score = float(report.record("digits/label", method).scores(method)["label"][number])
        shown = next(line for line in info.splitlines() if line.startswith(f"{score:.3f}"[:4]))
        assert float(shown.split()[0]) == pytest.approx(score, rel=1e-3)
    edges = load_task("digits/label").tests["label"].edge_index.numpy()
    near = set(edges[1][edges[0] == number].tolist())
    drawn = {int(text.split(" · ")[0]) for text in page.texts(".near button")}
    assert drawn <= near
    assert drawn
    ringed = page.js("return document.getElementById('graph-a').data[5].x.length")
    assert ringed == 1 + len(drawn)


def test_a_cell_without_a_drawing_says_so_and_the_next_one_has_its_own(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    first, *others = report.content.cells
    assert first.task == "digits/label"
    browser.open(write_html(Page([], [replace(first, picture=None), *others]), tmp_path / "page.html"))
    assert "No drawing" in browser.text("#graph-note")
    assert not browser.find("#graph-a").is_displayed()
    browser.choose("#cell", "digits/structure")
    x, y = browser.js("const {x, y} = document.getElementById('graph-a').data[3]; return [x[0], y[0]]")
    browser.move_to(browser.pixel_of("graph-a", x, y))
    assert browser.text("#node-title").startswith("Node ")
    assert browser.complaints() == []


def test_buttons_step_through_the_nodes_from_the_oddest(page: Browser, report: Report) -> None:
    from selenium.webdriver.common.keys import Keys

    page.press("#node-next", Keys.ENTER)
    first = int(page.text("#node-title").split()[1].rstrip(":"))
    page.press("#node-back", Keys.ENTER)
    second = int(page.text("#node-title").split()[1].rstrip(":"))
    scores = report.record("digits/label", "nodesafe").scores("nodesafe")["label"]
    assert first != second
    assert scores[first] <= scores[second]
    page.click(".near button")
    assert int(page.text("#node-title").split()[1].rstrip(":")) != second


def test_images_are_those_of_the_nodes_on_the_wrong_and_right_side(page: Browser, report: Report) -> None:
    from sklearn.datasets import load_digits

    known, unknown = report.scores("digits/label", "nodesafe")
    at = threshold_of(page)
    titles = page.texts("#gallery h3")
    assert titles[0].startswith(f"Rightly flagged: {np.sum(unknown.astype(float) < at)} ")
    assert titles[1].startswith(f"False alarms: {np.sum(known.astype(float) < at)} ")
    figure = page.find("#gallery figure.known")
    node = int(figure.get_attribute("title").split()[1])
    assert node == np.flatnonzero(report.graphs("digits/label").id_mask)[known.argmin()]
    pixels = page.js(
        "const c = arguments[0].querySelector('canvas'); "
        "return [...c.getContext('2d').getImageData(0, 0, 8, 8).data].filter((_, i) => i % 4 === 0)",
        figure,
    )
    np.testing.assert_array_equal(pixels, np.minimum(255, 16 * load_digits().data[node]))
    page.choose("#cell", "digits/structure")
    assert page.find("#images").is_displayed()


def test_images_and_nodes_tell_why_they_are_flagged(browser: Browser, report: Report, tmp_path: Path) -> None:
    """With texts of our own: those of the lowest half of the unknown nodes; no other node has one."""
    first, *others = report.content.cells
    scores = first.methods["nodesafe"]["label"]
    told = scores.values < np.median(scores.values)
    why = np.where(told, [f"Reason <b>{node}</b>." for node in first.unknown["label"].ids], "").astype(object)
    methods = first.methods | {"nodesafe": first.methods["nodesafe"] | {"label": replace(scores, why=why)}}
    content = replace(report.content, cells=[replace(first, methods=methods), *others])
    browser.open(write_html(content, tmp_path / "why.html"))
    oddest = first.unknown["label"].ids[scores.values.argmin()]
    assert browser.text("#images-why") == f"Node {oddest}: Reason <b>{oddest}</b>."
    [*flagged] = browser.driver.find_elements("css selector", "#gallery figure.unknown[tabindex]")
    node = flagged[3].get_attribute("title").split()[1]
    browser.js("arguments[0].scrollIntoView({block: 'center'})", flagged[3])
    flagged[3].click()
    assert browser.text("#images-why") == f"Node {node}: Reason <b>{node}</b>."
    assert not browser.driver.find_elements("css selector", "#gallery figure.known[tabindex]")
    texts = dict(zip(first.unknown["label"].ids.tolist(), why.tolist(), strict=True))
    seen: set[bool] = set()
    for _ in range(12):
        browser.click("#node-next" if not seen else "#node-back")
        node, kind = re.findall(r"Node (\d+): (.*)", browser.text("#node-title"))[0]
        text = texts[int(node)] if kind == "unknown" else ""
        assert ("flags it" in browser.text("#node-info")) == (text != "")
        assert text in browser.text("#node-info")
        seen.add(text != "")
    assert True in seen
    browser.choose("#method-a", "gnnsafe")
    assert not browser.find("#images-why").is_displayed()
    assert "flags it" not in browser.text("#node-info")
    assert browser.complaints() == []


def cells_of(page: Browser, column: int) -> list[str]:
    return page.texts(f"#results tbody td:nth-child({column})")


def test_a_table_sorts_by_the_title_that_is_pressed(page: Browser, report: Report) -> None:
    expected = [
        report.record(task, method).metrics(method)["fpr95"]
        for task in ("digits/label", "digits/structure")
        for method in ("gnnsafe", "nodesafe", "gnnsafe++", "nodesafe++")
    ]
    page.click("#results th:nth-child(3) button")
    assert [float(text) for text in cells_of(page, 3)] == pytest.approx(sorted(expected), abs=0.051)
    assert page.find("#results th:nth-child(3)").get_attribute("aria-sort") == "ascending"
    page.click("#results th:nth-child(3) button")
    assert [float(text) for text in cells_of(page, 3)] == pytest.approx(sorted(expected, reverse=True), abs=0.051)
    page.click("#results th:nth-child(2) button")
    names = [name.rstrip(" *") for name in cells_of(page, 2)]
    assert names == sorted(names, key=str.lower)


def test_a_table_shows_what_is_asked_for(page: Browser) -> None:
    page.choose("#table-cell", "digits/label")
    assert set(cells_of(page, 1)) == {"digits/label"}
    page.press("#table-method", "++")
    assert cells_of(page, 2) == ["gnnsafe++ *", "nodesafe++ *"]


def test_a_further_table_unfolds(page: Browser) -> None:
    table = "#more-tables details"
    assert not page.find(f"{table} table").is_displayed()
    page.click(f"{table} summary")
    assert page.find(f"{table} table").is_displayed()


def test_the_overview_follows_its_pickers(page: Browser, report: Report) -> None:
    page.choose("#over-metric", "auroc")
    page.choose("#over-cell", "digits/structure")
    numbers = page.js(
        "return document.getElementById('overview').data.flatMap((t) => t.y.map((name, i) => [name, t.x[i]]))"
    )
    expected = {m: report.record("digits/structure", m).metrics(m)["auroc"] for m in ("gnnsafe", "nodesafe")}
    shown = dict(numbers)
    assert shown["nodesafe"] == pytest.approx(expected["nodesafe"], abs=1e-3)
    assert shown["gnnsafe"] == pytest.approx(expected["gnnsafe"], abs=1e-3)


def background(page: Browser) -> str:
    return page.js("return getComputedStyle(document.body).backgroundColor")


def test_dark_and_light_follow_the_system_and_the_button(page: Browser, report: Report) -> None:
    light = background(page)
    page.click("#theme")
    dark = background(page)
    assert dark != light
    assert page.find("#theme").get_attribute("aria-pressed") == "true"
    assert page.js("return document.getElementById('roc')._fullLayout.font.color") == "#e8edf2"
    page.open(report.path)
    assert background(page) == dark  # as it was left
    page.click("#theme")
    assert background(page) == light
    page.js("localStorage.clear()")
    page.open(report.path, dark=True)
    assert background(page) == dark


def test_a_phone_scrolls_down_only(page: Browser, report: Report) -> None:
    page.open(report.path, width=390, height=844, mobile=True)
    assert page.js("return document.documentElement.scrollWidth") == 390
    wide = page.js(
        "return [...document.querySelectorAll('.plot, .panel, select, button, h1')].filter((e) => e.offsetParent && "
        "!e.closest('.scroll') && !e.closest('nav') && e.getBoundingClientRect().right > 391)"
        ".map((e) => e.id || e.tagName)"
    )
    assert wide == []
    known, unknown = report.scores("digits/label", "nodesafe")
    page.drag("#threshold", -40)
    assert (page.text("#tpr"), page.text("#fpr")) == shares(known, unknown, threshold_of(page))


def test_the_keyboard_reaches_what_the_pointer_does(page: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.js(
        "window.reached = []; document.activeElement.blur(); window.scrollTo(0, 0);"
        "document.addEventListener('focusin', ({target}) => reached.push(target.id || target.textContent.trim()))"
    )
    ActionChains(page.driver, duration=0).send_keys(Keys.TAB * 60).perform()
    reached = set(page.js("return window.reached"))
    assert {"theme", "over-metric", "cell", "method-a", "threshold", "reset", "node-next", "FPR95 ↓"} <= reached


def test_printed_numbers_stand_beside_ours_and_what_is_missing_is_hidden(browser: Browser, tmp_path: Path) -> None:
    numbers = {"auroc": 93.0, "aupr": 80.0, "fpr95": 30.0, "id_acc": 80.0}
    results = [
        Result(task, method, "clean", "gcn", [numbers, {**numbers, "fpr95": 40.0 - shift}])
        for task in ("cora/structure", "cora/label")
        for method, shift in (("nodesafe", 2.0), ("gnnsafe", 0.0), ("degree", 0.0))
    ]
    browser.open(write_html(Page(results), tmp_path / "numbers.html"))
    assert "The paper prints 27.5 % and 52.0 %." in browser.text(".lead")
    assert browser.find("#against-panel").is_displayed()
    assert not browser.find("#scores").is_displayed()
    assert not browser.find("#graph").is_displayed()
    assert not browser.find("#controls").is_displayed()
    assert browser.texts("#results tbody tr")[0].startswith("cora/structure\tnodesafe")
    assert "paper 25.6" in browser.text("#results tbody tr:first-child")
    assert browser.js("return document.getElementById('against').data.flatMap((t) => t.x).length") == 2 + 4
    assert browser.complaints() == []
