"""A real browser for tests: headless Chromium, driven as a person would, by pointer and keys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def start_chromium() -> Any:
    """The driver of a fresh browser; the test is skipped, loudly, where there is none."""
    browser = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("PAGE NOT TESTED IN A BROWSER: install Chromium (apt-get install chromium chromium-driver)")
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="PAGE NOT TESTED IN A BROWSER: pip install 'oddnode[ci]'"
    )
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # No sandbox: containers seldom allow one, and the only page it opens is ours.
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1280,900",
    ):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(driver))


class Browser:
    """What a person does with a page, and what they see."""

    def __init__(self, driver: Any):
        self.driver = driver
        self.where: tuple[Any, ...] = ()

    def stay_at(self, path: Path) -> None:
        """Open a page on a screen, unless it is the one that is open."""
        if self.where != (path, 1280, 900, False, False):
            self.open(path)

    def open(
        self, path: Path | str, width: int = 1280, height: int = 900, mobile: bool = False, dark: bool = False
    ) -> None:
        """Open a page of a file or of an address."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, calm]})
        self.driver.get(path if isinstance(path, str) else path.as_uri())
        self.where = (path, width, height, mobile, dark)
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def wait(self, condition: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60, poll_frequency=0.05).until(lambda _: self.js(f"return {condition}"))

    def settle(self) -> None:
        """Until the plots have followed."""
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def texts(self, selector: str) -> list[str]:
        return self.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector)

    def show(self, selector: str) -> Any:
        element = self.find(selector)
        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        return element

    def click(self, selector: str) -> None:
        self.show(selector).click()
        self.settle()

    def choose(self, selector: str, value: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.show(selector)).select_by_value(value)
        self.settle()

    def press(self, selector: str, *keys: str) -> None:
        self.show(selector).send_keys(*keys)
        self.settle()

    def drag(self, selector: str, by: int) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        steps = ActionChains(self.driver, duration=40).click_and_hold(self.show(selector))
        for _ in range(4):
            steps = steps.move_by_offset(by // 4, 0)
        steps.release().perform()
        self.settle()

    def pixel_of(self, plot: str, x: float, y: float) -> tuple[int, int]:
        """Where a point of a plot lies in the window."""
        self.show(f"#{plot}")
        place = self.js(
            "const plot = document.getElementById(arguments[0]), {xaxis, yaxis} = plot._fullLayout, box = "
            "plot.getBoundingClientRect(); return [box.left + xaxis._offset + xaxis.d2p(arguments[1]), "
            "box.top + yaxis._offset + yaxis.d2p(arguments[2])]",
            plot,
            x,
            y,
        )
        return round(place[0]), round(place[1])

    def move_to(self, place: tuple[int, int], click: bool = False) -> None:
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.driver, duration=60)
        actions.pointer_action.move_to_location(place[0] - 3, place[1])
        actions.pointer_action.move_to_location(*place)
        if click:
            actions.pointer_action.click()
        actions.perform()
        self.settle()

    def complaints(self) -> list[str]:
        """What the console said since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that the page asked for since the last time."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("data:", "blob:"))]
