"""The report on screens of all sizes: nothing is cut, nothing scrolls inside the page, what was tapped is in sight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import Browser
from tests.paper.conftest import Report, free_node, shares, threshold_of

pytest.importorskip("plotly", reason="PAGE NOT TESTED: install plotly")

WIDTHS = (320, 390, 820, 1280)

#: Everything with text that reaches out of the window. (`innerWidth` of a phone grows with what does not fit.)
CUT = (
    "return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && e.textContent.trim()"
    "&& !e.closest('.skip')).filter((e) => { const {left, right} = e.getBoundingClientRect();"
    "return right > document.documentElement.clientWidth + 1 || left < -1; })"
    ".map((e) => e.id || e.className || e.tagName)"
)

#: Everything that scrolls, or hides a part of itself.
SCROLLS = (
    "return [...document.querySelectorAll('main, main *')].filter((e) => e.checkVisibility()"
    "&& getComputedStyle(e).overflow !== 'visible' && !e.closest('svg, select, .js-plotly-plot')"
    "&& (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)).map((e) => e.id || e.className)"
)

#: Pickers whose choice is longer than their box.
SHORT_PICKERS = (
    "const pen = document.createElement('canvas').getContext('2d');"
    "return [...document.querySelectorAll('select')].filter((e) => { const style = getComputedStyle(e);"
    "pen.font = `${style.fontSize} ${style.fontFamily}`; const text = e.selectedOptions[0]?.textContent ?? '';"
    "return e.checkVisibility() && pen.measureText(text).width + parseFloat(style.paddingLeft)"
    "+ parseFloat(style.paddingRight) > e.clientWidth; }).map((e) => e.id)"
)


def in_window(page: Browser, selector: str) -> bool:
    box, height = page.js(
        "return [document.querySelector(arguments[0]).getBoundingClientRect().toJSON(), innerHeight]", selector
    )
    return box["top"] >= -1 and box["bottom"] <= height + 1


@pytest.fixture
def phone(browser: Browser, report: Report) -> Iterator[Browser]:
    browser.open(report.path, width=390, height=844, mobile=True)
    yield browser
    assert browser.complaints() == []


def test_what_is_cut_is_found(phone: Browser) -> None:
    phone.js("document.querySelector('#about dd').style.cssText = 'width: 500px; white-space: nowrap'")
    assert "DD" in phone.js(CUT)
    phone.js("document.querySelector('#pairs').style.cssText = 'height: 40px; overflow: auto'")
    assert phone.js(SCROLLS) == ["pairs"]
    phone.js("document.querySelector('#method-a').style.cssText = 'width: 60px'")
    assert phone.js(SHORT_PICKERS) == ["method-a"]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_and_nothing_scrolls_inside_the_page(browser: Browser, report: Report, width: int) -> None:
    browser.open(report.path, width=width, height=844, mobile=width < 800)
    browser.js("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    browser.choose("#table-cell", "all")
    for method in ("nodesafe++", "nodesafe"):
        browser.choose("#method-a", method)
        browser.click("#node-next")
        assert browser.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert browser.js(CUT) == []
        assert browser.js(SCROLLS) == []
        assert browser.js(SHORT_PICKERS) == []


def test_the_panel_of_a_tapped_node_is_in_sight(phone: Browser) -> None:
    for graph in ("graph-a", "graph-b"):
        x, y = free_node(phone, graph)
        for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
            phone.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        phone.settle()
        assert phone.text("#node-title").endswith(": unknown")
        assert in_window(phone, "#node")
        covered: Any = phone.js(
            "const box = document.getElementById('node').getBoundingClientRect();"
            "return document.getElementById('node').contains("
            "document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2))"
        )
        assert covered


def test_the_first_screen_has_the_finding_and_what_is_tapped_is_in_sight(phone: Browser, report: Report) -> None:
    phone.js("window.scrollTo(0, 0)")
    for part in ("h1", ".brand", "#hero", "nav [href='#about']"):
        assert in_window(phone, part), part
    phone.show("#gallery .panel:nth-child(1) button:nth-child(3)").click()
    label = phone.find("#gallery .panel:nth-child(1) button:nth-child(3)").get_attribute("aria-label")
    assert phone.text("#image-title").lower().startswith(label.split(",")[0])
    assert in_window(phone, "#image-panel")
    known, unknown = report.scores("digits/label", "nodesafe")
    before = threshold_of(phone)
    phone.drag("#threshold", -40)
    assert threshold_of(phone) < before
    assert (phone.text("#tpr"), phone.text("#fpr")) == shares(known, unknown, threshold_of(phone))


def test_dark_colours_fill_the_picture_too(browser: Browser, report: Report) -> None:
    browser.open(report.path, width=390, height=844, mobile=True, dark=True)
    rim, panel = browser.js(
        "const style = getComputedStyle(document.documentElement);"
        "return ['--rim', '--panel'].map((name) => style.getPropertyValue(name).trim())"
    )
    lines, scale = browser.js(
        "const {marker} = document.getElementById('graph-a').data[3]; return [marker.line.color, marker.colorscale]"
    )
    assert lines == rim
    assert min(contrast(colour, panel) for _, colour in scale) > 2.5


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
