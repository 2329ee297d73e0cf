"""The page of one's own scores, in a real browser, against numbers from the table of scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from oddnode.cli.app import app
from oddnode.tables import TableError, TableModel
from oddnode.tables.webpage import make_page, write_page
from tests.browser import Browser, start_chromium
from tests.tables.shop import Shop, shop
from tests.tables.test_reasons import FIT

pytest.importorskip("plotly", reason="PAGE NOT TESTED: install plotly")
EVIL = "<img src=x onerror=alert(1)>"


@dataclass
class Made:
    folder: Path
    shop: Shop
    model: TableModel
    scores: pd.DataFrame

    @property
    def new(self) -> pd.DataFrame:
        return self.scores[self.shop.is_new]

    @property
    def tables(self) -> list[str]:
        return ["--nodes", str(self.folder / "nodes.csv"), "--edges", str(self.folder / "edges.csv")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("page")
    products = shop(800, 200, 40, seed=1)
    odd = np.flatnonzero(products.kind == "cameras")
    products.nodes.loc[odd[0], "id"] = EVIL
    products.edges = products.edges.replace(f"p{odd[0]:04d}", EVIL)
    products.nodes.loc[odd[:6], "seller"] = EVIL
    model, _ = TableModel.fit(*products.old, **FIT)  # type: ignore[arg-type]
    model.save(folder / "model")
    products.nodes.to_csv(folder / "nodes.csv", index=False)
    products.edges.to_csv(folder / "edges.csv", index=False)
    model.score(folder / "nodes.csv", folder / "edges.csv", folder / "scores.csv", explain=True)
    command = ["report", str(folder / "model"), str(folder / "scores.csv"), "--out", str(folder / "page.html")]
    result = CliRunner().invoke(app, [*command, *Made(folder, products, model, pd.DataFrame()).tables, "--json"])
    assert result.exit_code == 0, result.output
    scores = pd.read_csv(folder / "scores.csv")
    facts = json.loads(result.stdout)
    assert facts["num_flagged"] == scores["is_ood"][products.is_new].sum()
    return Made(folder, products, model, scores)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver = start_chromium()
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def page(browser: Browser, made: Made) -> Iterator[Browser]:
    browser.open(made.folder / "page.html")
    yield browser
    assert browser.complaints() == []
    assert {url for url in browser.requests() if not url.startswith("file:")} == set()


def test_the_page_opens_with_what_was_found_and_what_chance_gives(page: Browser, made: Made) -> None:
    calibration = made.model.detector.calibration_
    assert calibration is not None
    flagged, total = made.new["is_ood"].sum(), len(made.new)
    assert page.text("h1").startswith(f"{flagged} of {total} new rows do not fit.")
    assert page.text("h1").endswith(f"chance would flag about {round(0.05 * total)}.")
    assert f"{(made.scores['finding'] == 1).sum()} of the {flagged} flagged rows belong together" in page.text(".lead")
    assert page.js("return document.getElementById('hero').getBoundingClientRect().bottom") < 900


def test_the_list_is_that_of_the_file_and_sorts_searches_and_filters(page: Browser, made: Made) -> None:
    flagged = made.new[made.new["is_ood"]].sort_values("score", kind="stable")
    while page.find("#more").is_displayed():
        page.click("#more")
    assert page.texts("#table tbody td:first-child") == flagged["id"].tolist()
    assert page.texts("#table tbody td:last-child") == flagged["why"].str.replace("`", "").tolist()
    page.click("#table th:nth-child(1) button")
    assert page.texts("#table tbody td:first-child") == sorted(flagged["id"])
    page.click(".show-finding")
    while page.find("#more").is_displayed():
        page.click("#more")
    assert set(page.texts("#table tbody td:first-child")) == set(flagged["id"][flagged["finding"] == 1])
    page.choose("#finding", "all")
    page.press("#search", "tripod")
    assert page.texts("#table tbody tr") != []
    assert all("tripod" in text for text in page.texts("#table tbody td:last-child"))


def test_the_graph_around_a_row_has_its_links(page: Browser, made: Made) -> None:
    first = made.new[made.new["is_ood"]].sort_values("score", kind="stable")["id"].iloc[0]
    assert page.text("#row-title") == f"{first}: flagged"
    for _ in range(2):
        chosen = page.text("#row-title").rpartition(":")[0]
        ends = made.shop.edges
        linked = set(ends["target"][ends["source"] == chosen]) | set(ends["source"][ends["target"] == chosen])
        linked -= {chosen}
        named = {text.rpartition(" · ")[0] for text in page.texts("#row-info .near button")}
        # Of rows that are not judged, the page has the links to those that are drawn around others.
        assert named == linked if chosen in set(made.new["id"]) else named <= linked
        assert f"{len(linked)} links; {len(named)} drawn" in page.text("#row-info")
        drawn = page.js("return [...document.querySelectorAll('#around title')].map((each) => each.textContent)")
        assert {text.rpartition(", predicted ")[0] for text in drawn} == {chosen, *named}
        page.js("document.querySelector('#around g').dispatchEvent(new MouseEvent('click'))")
        assert page.text("#row-title").rpartition(":")[0] != chosen
    page.click("#next")
    page.click("#back")
    assert page.text("#row-title") != f"{first}: flagged"


def test_the_threshold_moves_by_keys_and_pointer_and_counts_again(page: Browser, made: Made) -> None:
    from selenium.webdriver.common.keys import Keys

    def expected() -> tuple[str, str]:
        at = float(page.find("#threshold").get_attribute("aria-valuenow"))
        calibration = made.model.detector.calibration_
        assert calibration is not None
        known = calibration.scores.numpy().astype(np.float32)
        scores = made.new["score"].to_numpy().astype(np.float32)
        rate = (1 + (known < at).sum()) / (1 + len(known))
        return f"{(scores < at).sum()} of {len(scores)}", f"{100 * rate:.1f} %"

    before = page.text("#num-flagged")
    assert before.split()[0] == str(made.new["is_ood"].sum())
    for move in (lambda: page.press("#threshold", Keys.PAGE_UP), lambda: page.drag("#threshold", 80)):
        move()
        assert (page.text("#num-flagged"), page.text("#rate")) == expected()
        assert page.text("#num-flagged") != before
    assert page.text("#list-note").split()[0] == page.text("#num-flagged").split()[0]
    page.click("#reset")
    assert page.text("#num-flagged") == before


def test_markup_in_ids_and_values_is_shown_as_text(page: Browser) -> None:
    page.press("#search", EVIL)
    assert EVIL in page.texts("#table tbody td:first-child")
    assert page.js("return document.querySelectorAll('main img').length") == 0
    assert EVIL in page.text("#about")


def test_changes_are_shares_of_known_and_new_rows(page: Browser, made: Made) -> None:
    known = made.shop.nodes[made.scores["split"].notna()]
    new = made.shop.nodes[made.shop.is_new]
    rows = page.texts("#changes tbody tr")
    assert rows
    cells = {row.split("\t")[0]: row.split("\t")[2:] for row in rows if row.split("\t")[1] == "is not 0"}
    assert "tripod" in cells
    for column, shown in cells.items():
        assert shown == [f"{100 * (part[column] != 0).mean():.1f} %" for part in (known, new)]


def test_the_forecast_is_that_of_the_model(page: Browser, made: Made) -> None:
    rows = [row.split("\t") for row in page.texts("#forecast tbody tr")]
    forecast = made.model.detector.forecast_
    assert len(forecast) == 8
    assert {name: shown for name, _, shown in rows} == {
        name: f"{100 * share:.0f} %" for name, share in forecast.items()
    }
    assert {name: what for name, what, _ in rows}["thinned"] == "seven in ten values set to zero"
    shares = [forecast[name] for name, _, _ in rows]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize(("width", "mobile", "dark"), [(320, True, True), (390, True, False), (820, False, True)])
def test_nothing_is_cut_on_any_screen(browser: Browser, made: Made, width: int, mobile: bool, dark: bool) -> None:
    from tests.paper.test_webpage_on_a_phone import CUT, SCROLLS

    browser.open(made.folder / "page.html", width=width, height=844, mobile=mobile, dark=dark)
    assert browser.js("return document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert browser.js(CUT) == []
    assert browser.js(SCROLLS) == []
    assert browser.complaints() == []


def test_scores_of_some_rows_or_without_reasons_make_a_page_and_other_scores_do_not(made: Made, tmp_path: Path) -> None:
    plain = made.new.drop(columns=["why", "finding"])
    page = make_page(made.model, plain, made.shop.nodes, made.shop.edges)
    assert set(page.why) <= set(np.flatnonzero(page.is_flagged))
    assert len(page.why) > 10
    assert any("are not in the table of scores" in note for note in page.notes)
    assert write_page(page, tmp_path / "page.html").stat().st_size < 8e6
    with pytest.raises(TableError, match=r"1 of 1 rows of the table of scores are not in .*first 'x'"):
        make_page(made.model, plain.head(1).assign(id="x"), made.shop.nodes, made.shop.edges)
    ranked = np.argsort(made.new["score"].to_numpy(), kind="stable")
    few = np.zeros(len(made.new), dtype=bool)
    few[ranked[:5]] = True  # as with --budget 5
    page = make_page(made.model, made.new.assign(is_ood=few), made.shop.nodes, made.shop.edges)
    assert page.headline == "5 of 240 new rows are flagged. Of these, less than one may be a false alarm."
    assert ((made.new["score"] < page.threshold) == few).all()
    none = make_page(made.model, made.scores.assign(is_ood=False), made.shop.nodes, made.shop.edges)
    assert none.headline == "0 of 240 new rows are odd enough to be flagged."
    write_page(none, tmp_path / "none.html")


def test_the_command_says_what_it_needs(made: Made, tmp_path: Path) -> None:
    from oddnode.cli.app import app

    command = ["report", str(made.folder / "model"), str(made.folder / "scores.csv")]
    for options, expected in (
        (["--out", str(tmp_path / "page.html")], "give --nodes and --edges"),
        ([*made.tables, "--out", str(tmp_path / "page.csv")], "ends in .html"),
    ):
        result = CliRunner().invoke(app, command + options)
        assert expected in str(result.exception)
