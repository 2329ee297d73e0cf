"""Every state of the report that clicks can reach shows what belongs to it, and nothing of the state before."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oddnode.functional import fpr_at_tpr
from oddnode.paper.webpage import Cell, write_html
from oddnode.tasks import load_task
from tests.browser import Browser
from tests.paper.conftest import Report, free_node, percent, shares, threshold_of

pytest.importorskip("plotly", reason="PAGE NOT TESTED: install plotly")
Keys = pytest.importorskip("selenium.webdriver.common.keys", reason="PAGE NOT TESTED: pip install 'oddnode[ci]'").Keys

PROTOCOLS = ("clean", "published")
TASKS = ("digits/label", "digits/structure")
METHODS = ("gnnsafe", "nodesafe", "gnnsafe++", "nodesafe++")
HINT = "Point at a node"


def node_of(page: Browser) -> tuple[int, str]:
    [(number, kind)] = re.findall(r"^Node (\d+): (known|unknown|not judged)$", page.text("#node-title"))
    return int(number), kind


def chosen_ring(page: Browser, graph: str) -> int:
    """How many nodes have the ring of what is chosen."""
    return page.js("return document.getElementById(arguments[0]).data[5].x.length", graph)


def own_threshold(page: Browser, report: Report, task: str, method: str, beside: str, protocol: str) -> float:
    """The threshold of the second method: the one with the same TPR as the first."""
    known, other = (np.sort(report.scores(task, name, protocol)[0]) for name in (method, beside))
    accepted = int(np.sum(known.astype(float) >= threshold_of(page)))
    return float(other[len(other) - accepted]) if accepted else np.inf


def check_node(page: Browser, report: Report, task: str, method: str, beside: str, protocol: str) -> None:
    """The panel of the chosen node has the scores, decisions and neighbours of this cell and these methods."""
    number, kind = node_of(page)
    graph = "id" if kind == "known" else task.split("/")[1]
    info = page.text("#node-info")
    at = {beside: own_threshold(page, report, task, method, beside, protocol), method: threshold_of(page)}
    for name, threshold in at.items():
        score = float(report.record(task, name, protocol).scores(name)[graph][number])
        line = rf"^{re.escape(name)}: above (\d+) % of the known\n(\S+), (flagged|accepted)$"
        [(rank, shown, decision)] = re.findall(line, info, flags=re.MULTILINE)
        known = report.scores(task, name, protocol)[0]
        assert float(rank) == pytest.approx(100 * np.mean(known <= np.float32(score)), abs=0.51)
        assert float(shown) == pytest.approx(score, rel=1e-3)
        assert decision == ("flagged" if score < threshold else "accepted")
    taken = report.record(task, method, protocol).predicted()[graph][number]
    assert f", taken for {taken}" in info
    data = load_task(task, seed=0, protocol=protocol)
    edges = (data.id_test.data if graph == "id" else data.tests[graph]).edge_index.numpy()
    drawn = {int(text.split(" · ")[0]) for text in page.texts(".near button")}
    assert drawn <= set(edges[1][edges[0] == number].tolist())
    assert chosen_ring(page, "graph-a") == 1 + len(drawn)


def check_cell(page: Browser, report: Report, task: str, method: str, beside: str, protocol: str) -> None:
    """Titles, rates, images and both drawings are those of this cell and these methods."""
    known, unknown = report.scores(task, method, protocol)
    at = threshold_of(page)
    assert page.text("#dist-title") == f"Scores of {method} on {task}"
    assert f"Rules {protocol}," in page.text("#cell-note")
    assert (page.text("#tpr"), page.text("#fpr")) == shares(known, unknown, at)
    assert page.find("#fpr-b").is_displayed() == (beside != method)
    tpr = float(np.mean(known.astype(float) >= at))
    passed = fpr_at_tpr(*report.scores(task, beside, protocol), tpr=tpr) if tpr else 0.0
    assert page.js("return document.getElementById('fpr-b').textContent") == percent(passed)
    for plot in ("roc", "risk"):
        named = page.js("return document.getElementById(arguments[0]).data.map((t) => t.visible && t.name)", plot)
        assert [name.split(",")[0] for name in named if name] == list(dict.fromkeys([method, beside]))
    assert page.text("#graph-a-title") == method
    assert page.find("#graph-b-panel").is_displayed() == (beside != method)
    if beside != method:
        assert page.text("#graph-b-title") == beside
    assert task in page.text("#graph-note")
    caught, alarms = np.sum(unknown.astype(float) < at), np.sum(known.astype(float) < at)
    assert page.texts("#gallery h3") == [
        f"Rightly flagged: {caught:,} unknown nodes",
        f"False alarms: {alarms:,} known nodes",
        f"Missed: {len(unknown) - caught:,} unknown nodes taken for known",
    ]
    check_image(page, report, task, method, protocol)


def check_image(page: Browser, report: Report, task: str, method: str, protocol: str) -> None:
    [(number, kind)] = re.findall(r"^Node (\d+): (known|unknown)$", page.text("#image-title"))
    graph = "id" if kind == "known" else task.split("/")[1]
    score = float(report.record(task, method, protocol).scores(method)[graph][int(number)])
    shown = re.findall(rf"^{re.escape(method)}\n(\S+), (?:flagged|accepted)$", page.text("#image-info"), re.MULTILINE)
    assert float(shown[0]) == pytest.approx(score, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_choice_of_cell_and_methods_shows_its_own_numbers(page: Browser, report: Report, protocol: str) -> None:
    page.choose("#protocol", protocol)
    for task in TASKS:
        page.choose("#cell", task)
        for place, method in enumerate(METHODS):
            beside = METHODS[(place + 1 + place // 2) % len(METHODS)]
            page.choose("#method-a", method)
            page.choose("#method-b", beside)
            check_cell(page, report, task, method, beside, protocol)
            page.press("#node-next", Keys.ENTER)
            check_node(page, report, task, method, beside, protocol)


def test_another_cell_or_protocol_lets_go_of_the_node_and_the_image(page: Browser, report: Report) -> None:
    for picker, value in (("#cell", "digits/structure"), ("#protocol", "published"), ("#cell", "digits/label")):
        page.press("#node-next", Keys.ENTER)
        node_of(page)
        assert chosen_ring(page, "graph-a") == chosen_ring(page, "graph-b") > 0
        page.choose(picker, value)
        assert page.text("#node-title") == HINT
        assert "above" not in page.text("#node-info")
        assert page.texts(".near button") == []
        assert chosen_ring(page, "graph-a") == chosen_ring(page, "graph-b") == 0
        task, protocol = page.find("#cell").get_attribute("value"), page.find("#protocol").get_attribute("value")
        check_cell(page, report, task, "nodesafe", "gnnsafe", protocol)


def test_another_method_shows_the_same_node_by_its_own_scores(page: Browser, report: Report) -> None:
    page.move_to(free_node(page, "graph-b"))
    node = node_of(page)
    assert node[1] == "unknown"
    check_node(page, report, "digits/label", "nodesafe", "gnnsafe", "clean")
    page.choose("#method-a", "gnnsafe++")
    assert node_of(page) == node
    check_node(page, report, "digits/label", "gnnsafe++", "gnnsafe", "clean")
    page.choose("#method-b", "nodesafe")
    assert node_of(page) == node
    check_node(page, report, "digits/label", "gnnsafe++", "nodesafe", "clean")
    page.choose("#method-b", "gnnsafe++")
    check_cell(page, report, "digits/label", "gnnsafe++", "gnnsafe++", "clean")
    check_node(page, report, "digits/label", "gnnsafe++", "gnnsafe++", "clean")
    drawn, place = page.js(
        "const plot = document.getElementById('graph-a');"
        "return [plot.querySelector('svg').getBoundingClientRect().width, plot.getBoundingClientRect().width]"
    )
    assert drawn == pytest.approx(place, abs=2)


def with_method(cell: Cell, name: str) -> Cell:
    """The cell with one more method, which has the scores of nodesafe."""
    assert cell.picture is not None
    scores, predicted = ({name: part["nodesafe"], **part} for part in (cell.picture.scores, cell.picture.predicted))
    picture = replace(cell.picture, scores=scores, predicted=predicted)
    return replace(cell, methods={name: cell.methods["nodesafe"], **cell.methods}, picture=picture)


def test_a_protocol_without_the_method_shows_two_others(browser: Browser, report: Report, tmp_path: Path) -> None:
    cells = [with_method(cell, "new") if cell.protocol == "clean" else cell for cell in report.content.cells]
    content = replace(report.content, cells=cells, featured=("new", "nodesafe"))
    browser.open(write_html(content, tmp_path / "new.html"))
    pickers = ("#method-a", "#method-b")
    assert [browser.find(picker).get_attribute("value") for picker in pickers] == ["new", "nodesafe"]
    browser.choose("#protocol", "published")
    assert [browser.find(picker).get_attribute("value") for picker in pickers] == ["nodesafe", "gnnsafe"]
    assert browser.complaints() == []


def test_the_threshold_changes_the_decisions_the_rings_and_the_colours(page: Browser, report: Report) -> None:
    page.press("#node-next", Keys.ENTER)
    assert ", flagged" in page.text("#node-info")
    for key in (Keys.HOME, Keys.END):
        page.press("#threshold", key)
        check_cell(page, report, "digits/label", "nodesafe", "gnnsafe", "clean")
        check_node(page, report, "digits/label", "nodesafe", "gnnsafe", "clean")
        drawn, wrong, colours = page.js(
            "const {data} = document.getElementById('graph-a');"
            "return [data[2].x.length, data[4].x.length, [...data[2].marker.color, ...data[3].marker.color]]"
        )
        if key == Keys.HOME:  # every node is accepted
            assert wrong == len(colours) - drawn
            assert all(0 <= value <= 1 for value in colours)
        else:  # every node is flagged
            assert wrong == drawn
            assert all(-1 <= value <= 0 for value in colours)


def test_colours_lie_between_the_oddest_and_the_best_known(page: Browser, report: Report) -> None:
    known, _ = report.scores("digits/label", "nodesafe")
    at = threshold_of(page)
    below = np.mean(known < at)
    colours, texts = page.js(
        "const {text, marker} = document.getElementById('graph-a').data[2]; return [marker.color, text]"
    )
    scores = report.record("digits/label", "nodesafe").scores("nodesafe")["label"]
    seen = set()
    for value, text in zip(colours, texts, strict=True):
        score = scores[int(re.findall(r"^node (\d+),", text)[0])]
        rank = np.mean(known <= score)
        assert value == pytest.approx(rank / below - 1 if score < at else (rank - below) / (1 - below), abs=1e-6)
        seen.add(score < at)
    assert seen == {False, True}


def test_images_are_shown_by_pointer_and_keys(page: Browser, report: Report) -> None:
    for selector in (
        "#gallery .panel:nth-child(2) button:nth-child(2)",
        "#gallery .panel:nth-child(1) button:nth-child(5)",
    ):
        page.press(selector, Keys.ENTER)
        label = page.find(selector).get_attribute("aria-label")
        assert page.text("#image-title").split(":")[0] == label.split(",")[0].capitalize()
        assert page.texts("[data-image].chosen") == [page.find(selector).text]
        check_image(page, report, "digits/label", "nodesafe", "clean")
    page.choose("#method-a", "gnnsafe")
    oddest = report.scores("digits/label", "gnnsafe")[1].argmin()
    number = np.flatnonzero(report.graphs("digits/label").ood_mask["label"])[oddest]
    assert page.text("#image-title") == f"Node {number}: unknown"


def test_every_choice_above_the_overview_shows_its_numbers(page: Browser, report: Report) -> None:
    for protocol, task, metric in itertools.product(
        PROTOCOLS, ("mean of all tasks", *TASKS), ("fpr95", "auroc", "id_acc")
    ):
        for picker, value in (("protocol", protocol), ("cell", task), ("metric", metric)):
            if page.find(f"#over-{picker}").get_attribute("value") != value:
                page.choose(f"#over-{picker}", value)
        shown = dict(
            page.js("return document.getElementById('overview').data.flatMap((t) => t.y.map((n, i) => [n, t.x[i]]))")
        )
        tasks = TASKS if task.startswith("mean") else (task,)
        for method in METHODS:
            numbers = [report.record(name, method, protocol).metrics(method)[metric] for name in tasks]
            assert shown[f"{method} *" if "++" in method else method] == pytest.approx(np.mean(numbers), abs=1e-3)
        assert task in page.text("#over-title")


def test_every_choice_above_the_results_shows_its_rows(page: Browser, report: Report) -> None:
    for protocol, task in itertools.product(PROTOCOLS, ("all", *TASKS)):
        page.choose("#table-protocol", protocol)
        page.choose("#table-cell", task)
        rows = [row.split("\n") for row in page.texts("#results tbody tr")]
        assert len(rows) == len(METHODS) * (len(TASKS) if task == "all" else 1)
        names = (page.texts(f"#results tbody td:nth-child({column})") for column in (1, 2))
        shown = [(cell, name.rstrip(" *")) for cell, name in zip(*names, strict=True)]
        fprs = [float(text) for text in page.texts("#results tbody td:nth-child(3)")]
        expected = [report.record(cell, name, protocol).metrics(name)["fpr95"] for cell, name in shown]
        assert fprs == pytest.approx(expected, abs=0.051)


def test_every_title_of_the_results_sorts_both_ways_and_a_further_table_unfolds(page: Browser) -> None:
    page.choose("#table-cell", "all")
    for column in range(1, 7):
        for direction in ("first", "second"):
            page.click(f"#results th:nth-child({column}) button")
            texts = page.texts(f"#results tbody td:nth-child({column})")
            values = [float(text) for text in texts] if column > 2 else [text.rstrip(" *").lower() for text in texts]
            order = page.find(f"#results th:nth-child({column})").get_attribute("aria-sort")
            assert order in ("ascending", "descending")
            assert values == sorted(values, reverse=order == "descending"), (column, direction)
    page.choose("#table-cell", "digits/label")
    assert not page.find("#more-tables details table").is_displayed()
    page.click("#more-tables details summary")
    assert page.find("#more-tables details table").is_displayed()


def test_every_link_of_the_menu_lands_with_its_heading_in_sight(page: Browser) -> None:
    links = page.driver.find_elements("css selector", ".bar nav a")
    assert [link.text for link in links] == ["Methods", "Scores", "Graph", "Images", "Tables", "About"]
    for link in links:
        page.js("window.scrollTo(0, 0)")
        link.click()
        page.settle()
        top, bar, shown = page.js(
            "const heading = document.querySelector(new URL(arguments[0]).hash + ' h2').getBoundingClientRect();"
            "const bar = document.getElementById('controls').getBoundingClientRect();"
            "return [heading.top, bar.top <= 1 && bar.bottom > 0 ? bar.bottom : 0,"
            "document.elementFromPoint(heading.left + 5, heading.top + heading.height / 2)?.tagName]",
            link.get_attribute("href"),
        )
        assert max(bar, 0) - 1 <= top < 700, link.text
        assert shown == "H2"
