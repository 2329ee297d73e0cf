"""The live page in a real browser, by clicks and keys, against a real server and what its API answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from starlette.testclient import TestClient

from oddnode.service.app import create_app
from oddnode.service.guard import Access
from oddnode.service.state import Source, State
from oddnode.tables import TableModel
from tests.browser import Browser, start_chromium
from tests.service.processes import Running
from tests.tables.shop import WORDS, Shop, shop

Keys = pytest.importorskip("selenium.webdriver.common.keys", reason="PAGE NOT TESTED: pip install 'oddnode[ci]'").Keys

EVIL = "<img src=x onerror=alert(1)>/?#&"
TOKEN = "a-token-of-the-tests"


class Server(Running):
    """A service that listens on a port of its own."""

    def __init__(self, state: State, access: Access | None = None):
        super().__init__(create_app(state, access))
        self.address = f"http://127.0.0.1:{self.port}/"

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self.address + path, data, {"Content-Type": "application/json"}), timeout=60) as answer:
            return json.load(answer)


class Made:
    """A shop with a service, to which products can be added."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.shop: Shop = shop(300, 60, 30, seed=1)
        nodes, edges = self.shop.old
        nodes.to_parquet(folder / "nodes.parquet")
        edges.to_parquet(folder / "edges.parquet")
        model, _ = TableModel.fit(nodes, edges, id_column="id", label_column="category", epochs=20, device="cpu")
        model.save(folder / "model")
        self.source = Source(folder / "model", None, [folder / "nodes.parquet"], [folder / "edges.parquet"])
        self.state = State(self.source, folder / "state")
        self.state.start()
        self.state.wait()
        self.server = Server(self.state)
        self.rows = self.shop.nodes.astype(object).where(self.shop.nodes.notna(), None)

    def row(self, place: int, id: str) -> dict[str, Any]:
        return self.rows.iloc[place].drop("category").to_dict() | {"id": id}

    def arrive(self, place: int, id: str, links: list[str]) -> dict[str, Any]:
        change = {"add_nodes": [self.row(place, id)], "add_edges": [[id, other] for other in links]}
        return self.server.ask("v1/changes", change)["answers"][0]

    def arrive_odd(self, id: str, links: list[str]) -> dict[str, Any]:
        """A camera with every word there is, for a price and by a seller that the model has never seen."""
        place = int((self.shop.kind == "cameras").argmax())
        words = {word: 1 for group in WORDS.values() for word in group}
        odd = self.row(place, id) | words | {"price": 900.0, "seller": EVIL}
        change = {"add_nodes": [odd], "add_edges": [[id, other] for other in links]}
        [answer] = self.server.ask("v1/changes", change)["answers"]
        assert answer["is_ood"]
        return answer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    made = Made(tmp_path_factory.mktemp("live"))
    made.arrive(0, "first", ["p0000", "p0001"])
    yield made
    made.server.stop()
    made.state.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver = start_chromium()
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def page(browser: Browser, made: Made) -> Iterator[Browser]:
    """The page as it opens; afterwards nothing was complained about, and no other host was asked."""
    browser.driver.get("about:blank")
    # Where the last test left the pointer, it might hold back the list.
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 0, "y": 0})
    browser.complaints()
    browser.requests()
    browser.open(made.server.address)
    yield browser
    assert browser.complaints() == []
    assert {url for url in browser.requests() if not url.startswith((made.server.address, "about:"))} == set()


def shown(browser: Browser, id: str) -> None:
    """Until the panel of a node has it."""
    browser.wait(f"document.getElementById('node-title').textContent.startsWith({json.dumps(id)})")
    browser.wait("!document.getElementById('node').hasAttribute('aria-busy')")


def entry(id: str) -> str:
    return f"[...document.querySelectorAll('#list button')].find((b) => b.querySelector('.id').textContent === '{id}')"


def test_an_arrival_appears_and_opens_with_why_its_evidence_and_what_is_around_it(page: Browser, made: Made) -> None:
    links = ["p0000", "p0004", "p0009"]
    answer = made.arrive_odd("camera-1", links)
    page.wait(entry("camera-1"))
    page.wait("document.getElementById('headline').textContent.includes(' of ')")
    page.wait("document.getElementById('announce').textContent === '1 new alert: camera-1.'")
    page.js(f"{entry('camera-1')}.click()")
    shown(page, "camera-1")
    assert page.text("#node-title") == "camera-1 does not fit"
    expected = made.server.ask("v1/alerts?limit=1")["alerts"][0]["answer"]
    assert (expected["id"], expected["score"]) == ("camera-1", answer["score"])
    why = expected["why"].replace("`", "")
    assert why in page.text("#node-content")
    assert f"never seen “{EVIL}” in the column “seller”" in page.text("#node-content")
    named = {text.rpartition(" · ")[0] for text in page.texts("#node .near button")}
    assert named == set(links)
    drawn = page.js("return document.querySelectorAll('.around [data-hop=\"1\"]').length")
    assert drawn == len(links)
    # The kinds of evidence, the strongest first, with the share of known nodes that are as unusual.
    surprises = {each["kind"]: each["surprise"] for each in answer["evidence"]}
    rows = page.js(
        "return [...document.querySelectorAll('#node .bars:not(details .bars) tbody tr')].map((r) => r.innerText)"
    )
    kinds = [row.split("\t")[0] for row in rows]
    assert kinds == sorted(kinds, key=lambda kind: -surprises[kind])
    assert surprises[kinds[0]] == max(surprises.values())
    for row in rows:
        told = float(row.split()[-2]) / 100
        assert told == pytest.approx(math.exp(-surprises[row.split("\t")[0]]), rel=0.15, abs=1e-4)
    number = made.server.ask("v1/alerts?limit=1")["alerts"][0]["number"]
    assert page.find("#node .verdicts a").get_attribute("href") == f"{made.server.address}v1/alerts/{number}/page"
    page.click("#node .near button")  # its neighbours are chosen in turn, and Back returns
    page.wait("!document.getElementById('node-title').textContent.startsWith('camera-1')")
    page.driver.back()
    shown(page, "camera-1")


def test_a_node_is_found_by_its_id_and_an_unknown_id_says_so(page: Browser, made: Made) -> None:
    page.press("#search-id", "p0005", Keys.ENTER)
    shown(page, "p0005")
    found = made.server.ask("v1/nodes/p0005")
    assert f"{found['num_neighbours']}" in page.text("#node .facts")
    assert str(found["answer"]["predicted"]) in page.text("#node .facts")
    page.press("#search-id", Keys.CONTROL + "a")
    page.press("#search-id", "nobody", Keys.ENTER)
    shown(page, "nobody")
    assert page.text("#node .notice") == "There is no node with the id “nobody” in the graph."
    assert all("404" in each for each in page.complaints())


def test_an_alert_is_marked_and_the_service_keeps_it(page: Browser, made: Made) -> None:
    made.arrive_odd("camera-2", ["p0010"])
    number = made.server.ask("v1/alerts?limit=1")["alerts"][0]["number"]
    page.wait(entry("camera-2"))
    page.js("document.querySelector('[value=open]').click()")
    before = made.server.ask("v1/status")["alerts"]["open"]
    page.wait(f"document.getElementById('num-open').textContent === '{before}'")
    page.js(f"{entry('camera-2')}.click()")
    shown(page, "camera-2")
    page.press("#note", "a new <b>brand</b>")
    page.press("[data-verdict=unknown]", Keys.ENTER)
    page.wait("document.querySelector('.verdicts').innerText.includes('Marked as really unknown')")
    kept = made.server.ask(f"v1/alerts/{number}")
    assert (kept["verdict"], kept["note"]) == ("unknown", "a new <b>brand</b>")
    page.wait(f"!{entry('camera-2')}")
    page.wait(f"(document.getElementById('num-open').textContent || '0') === '{before - 1 or 0}'")
    page.js("document.querySelector('[value=checked]').click()")
    page.wait(entry("camera-2"))
    page.click("[data-verdict=known]")  # a mind that is changed
    page.wait(f"{entry('camera-2')}.innerText.includes('known after all')")
    assert made.server.ask(f"v1/alerts/{number}")["verdict"] == "known"


def test_a_table_of_ones_own_is_scored_and_the_graph_stays(page: Browser, made: Made, tmp_path: Path) -> None:
    rows = [made.row(310, "mine, 1"), made.row(int((made.shop.kind == "cameras").argmax()), 'mine "2"')]
    frame = made.shop.nodes.iloc[:0].drop(columns="category")
    nodes = frame.from_records(rows)[frame.columns]
    for name, table in {
        "nodes": nodes,
        "short": nodes.drop(columns=["price"]).rename(columns={"weight": "Weight"}),
    }.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    edges = [["mine, 1", "p0003"], ['mine "2"', "mine, 1"], ['mine "2"', "ghost"], ["p0001", "p0002"]]
    lines = ["source,target", *(",".join('"' + end.replace('"', '""') + '"' for end in edge) for edge in edges)]
    (tmp_path / "edges.csv").write_text("\n".join(lines))
    version = made.server.ask("v1/status")["graph"]["version"]

    page.find("#nodes-file").send_keys(str(tmp_path / "short.csv"))
    page.wait("document.getElementById('table-message').innerText.includes('lacks')")
    message = page.text("#table-message")
    assert message.startswith("short.csv lacks 2 of the ")
    assert "“price”, “weight”. It has “Weight”, which differs in case or spaces." in message
    page.find("#nodes-file").send_keys(str(tmp_path / "nodes.csv"))
    page.wait("document.querySelectorAll('#table-place tbody tr').length === 2")
    page.find("#edges-file").send_keys(str(tmp_path / "edges.csv"))
    page.wait("document.getElementById('table-message').innerText.includes('1 edge to nodes')")
    assert "1 edge of edges.csv has no end among the rows" in page.text("#table-message")
    expected = made.server.ask("v1/score", {"nodes": rows, "edges": edges[:3], "explain": True})["answers"]
    expected.sort(key=lambda each: each["score"])
    cells = page.js(
        "const rows = document.querySelectorAll('#table-place tbody tr');"
        "return [...rows].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    for cell, answer in zip(cells, expected, strict=True):
        assert cell[0].removesuffix(" flagged").strip() == answer["id"]
        assert cell[0].endswith(" flagged") == answer["is_ood"]
        assert cell[1] == answer["predicted"]
        assert cell[3] == str(answer["num_neighbours"])
    assert made.server.ask("v1/status")["graph"]["version"] == version


def test_files_are_dropped_and_say_by_their_columns_what_they_are(page: Browser, made: Made) -> None:
    nodes = [*made.row(310, "dropped")]
    row = ["" if value is None else str(value) for value in made.row(310, "dropped").values()]
    files = {"b.csv": "source;target\ndropped;p0003\n", "a.csv": ",".join(nodes) + "\n" + ",".join(row)}
    page.js(
        "const data = new DataTransfer(); for (const [name, text] of Object.entries(arguments[0]))"
        " data.items.add(new File([text], name));"
        "document.getElementById('drop').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true}))",
        files,
    )
    page.wait("document.querySelector('#table-place tbody td:nth-child(4)')?.textContent === '1'")


def test_markup_in_ids_is_text(page: Browser, made: Made) -> None:
    made.arrive_odd(EVIL, ["p0011", "p0012"])
    page.wait(f"[...document.querySelectorAll('#list .id')].some((e) => e.textContent === {json.dumps(EVIL)})")
    page.press("#search-id", EVIL, Keys.ENTER)
    shown(page, EVIL)
    page.press("#search-id", Keys.CONTROL + "a")
    page.press("#search-id", "p0011", Keys.ENTER)
    shown(page, "p0011")
    assert any(EVIL[:20] in text for text in page.texts("#node .near button"))
    assert page.js("return document.querySelectorAll('main img, main script, main [style]').length") == 0


def test_the_keyboard_reaches_everything_and_moves_in_the_list(page: Browser, made: Made) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    made.arrive(301, "typed-1", ["p0002"])
    made.arrive(302, "typed-2", ["p0002"])
    page.wait(entry("typed-2"))
    page.js(
        "window.reached = [];"
        "document.addEventListener('focusin', ({target}) => reached.push(target.id || target.name || target.className))"
    )
    ActionChains(page.driver, duration=0).send_keys(Keys.TAB * 60).perform()
    wanted = {"theme", "search-id", "pause", "filter", "follow", "nodes-file", "edges-file"}
    assert wanted <= set(page.js("return window.reached"))
    page.js("document.querySelector('#list button').focus()")
    top = page.js("return document.activeElement.querySelector('.id').textContent")
    keys = ActionChains(page.driver, duration=0)
    keys.send_keys(Keys.ARROW_DOWN).perform()
    second = page.js("return document.activeElement.querySelector('.id').textContent")
    assert (top, second) == ("typed-2", "typed-1")
    made.arrive(303, "typed-3", ["p0002"])  # a list that someone is in stands still
    page.wait("document.getElementById('held').innerText === 'Show 1 new arrival'")
    assert page.js("return document.querySelector('#list .id').textContent") == "typed-2"
    ActionChains(page.driver, duration=0).send_keys(Keys.ENTER).perform()
    shown(page, "typed-1")
    page.press("#held", Keys.ENTER)
    assert page.js("return document.querySelector('#list .id').textContent") == "typed-3"


def test_many_arrivals_keep_the_list_short_and_older_ones_are_there(page: Browser, made: Made) -> None:
    total = made.server.ask("v1/status")["counts"]["arrivals"]
    rows = [made.row(300 + number % 60, f"many-{number:04d}") for number in range(300)]
    made.server.ask("v1/changes", {"add_nodes": rows})
    page.wait("document.querySelector('#list .id').textContent.startsWith('many-')")
    page.wait(f"document.getElementById('headline').textContent.includes('{total + 300} arrivals')")
    page.wait("document.getElementById('list').children.length === 50")
    page.click("#older")
    page.wait("document.getElementById('list').children.length === 100")
    windows = made.server.ask("v1/status")["windows"]
    assert page.js("return document.querySelectorAll('#shares circle').length") == len(windows)


def test_dark_and_phone(page: Browser, made: Made) -> None:
    light = page.js("return getComputedStyle(document.body).backgroundColor")
    page.open(made.server.address, dark=True)
    assert page.js("return getComputedStyle(document.body).backgroundColor") != light
    page.open(made.server.address, 390, 844, mobile=True)
    assert page.js("return document.documentElement.scrollWidth") <= 390
    assert page.js("return getComputedStyle(document.body).backgroundColor") == light


def test_a_lost_connection_is_said_and_made_up_for(browser: Browser, made: Made) -> None:
    browser.open(made.server.address)
    browser.wait("document.getElementById('pill').textContent === 'live'")
    made.server.stop()
    browser.wait("!document.getElementById('lost').hidden")
    assert "Trying again" in browser.text("#lost-text")
    assert browser.text("#pill") == "not connected"
    made.server.start()
    made.arrive(304, "meanwhile", [])
    browser.js("document.getElementById('retry').click()")  # unless the page has tried again by itself
    browser.wait(entry("meanwhile"))
    browser.wait("document.getElementById('pill').textContent === 'live'")
    browser.wait("document.getElementById('lost').hidden")
    assert all("Failed to load" in each or "net::ERR" in each for each in browser.complaints())


def test_a_token_is_asked_for_and_kept_nowhere(browser: Browser, made: Made) -> None:
    server = Server(made.state, Access(TOKEN))
    browser.open(server.address)
    assert browser.find("#token").is_displayed()
    browser.press("#token-value", "another-token-of-the-tests", Keys.ENTER)
    browser.wait("document.getElementById('token-text').textContent.startsWith('This token is not the right one')")
    browser.press("#token-value", TOKEN, Keys.ENTER)
    browser.wait("document.getElementById('pill').textContent === 'live'")
    browser.wait("document.querySelectorAll('#list li').length > 0")
    assert not browser.find("#token").is_displayed()
    kept = "return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    assert TOKEN not in browser.js(kept)
    assert all("401" in each for each in browser.complaints())
    browser.driver.get("about:blank")
    server.stop()


def test_a_service_that_loads_is_waited_for_and_one_without_a_log_says_so(browser: Browser, made: Made) -> None:
    state = State(made.source, None)
    server = Server(state)
    browser.driver.get(server.address)
    browser.wait("document.getElementById('lost-text').textContent.includes('not ready')")
    state.start()
    browser.wait("document.getElementById('headline').textContent === 'Nothing has arrived yet.'")
    assert not browser.find("#lost").is_displayed()
    assert browser.text("#list-empty").startswith("This service takes no changes")
    browser.press("#search-id", "p0003", Keys.ENTER)
    shown(browser, "p0003")
    assert all("503" in each for each in browser.complaints())
    browser.driver.get("about:blank")
    server.stop()
    state.close()


def test_files_are_cached_by_what_they_hold(made: Made) -> None:
    client = TestClient(made.server.app, base_url="http://127.0.0.1")
    first = client.get("/")
    policy = first.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.get("/", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    names = [part.split('"')[0] for part in first.text.split('"assets/')[1:]]
    assert len(set(names)) == 5
    for name in names:
        asset = client.get(f"/assets/{name}")
        assert asset.status_code == 200
        assert "immutable" in asset.headers["cache-control"]
        assert "http://" not in asset.text.replace("http://www.w3.org/", "")
        assert "https://" not in asset.text
    assert client.get("/assets/0000/live.js").status_code == 404
    assert client.get(f"/assets/{names[0].split('/')[0]}/..%2f__init__.py").status_code == 404
