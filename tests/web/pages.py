"""What tests ask of a page in a browser, and how they look at it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PATIENCE_S = 120.0
CELLS = """return Object.fromEntries([...document.querySelectorAll('.cell')].map(c =>
    [c.dataset.partition,
     [c.dataset.state, c.querySelector('.shape').dataset.state, c.querySelector('.position').textContent]]))"""
ROWS = """return Object.fromEntries([...document.querySelectorAll('#query-rows tr')].map(r =>
    [r.children[0].textContent, [...r.children].slice(1).map(c => c.textContent)]))"""
NODES = """return Object.fromEntries([...document.querySelectorAll('#node-list li')].map(n =>
    [n.children[0].textContent, n.children[1].textContent]))"""


def show(driver: WebDriver, width: int = 1440, height: int = 1000, **features: str) -> None:
    """The size of the window, and media features such as prefers_color_scheme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chosen = {"prefers_color_scheme": "light", "prefers_reduced_motion": "reduce"} | features
    media = [{"name": name.replace("_", "-"), "value": value} for name, value in chosen.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def until(driver: WebDriver, condition: Callable[[WebDriver], Any], what: str) -> Any:
    return WebDriverWait(driver, PATIENCE_S, 0.1, ignored_exceptions=[]).until(condition, what)


def picture(driver: WebDriver, name: str, width: int = 1440) -> None:
    """The whole page."""
    folder = os.environ.get("REPRISE_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        height = driver.execute_script("return document.documentElement.scrollHeight")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.save_screenshot(f"{folder}/{name}.png")


def accessible(driver: WebDriver) -> None:
    """axe finds nothing: names, roles, contrast, focusable regions, landmarks."""
    driver.execute_script(AXE.read_text(encoding="utf-8"))
    found = driver.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(r => done(r.violations))"
    )
    assert [(v["id"], v["help"], [n["html"][:160] for n in v["nodes"]][:2]) for v in found] == []


def assert_shows(driver: WebDriver, said: dict[str, Any]) -> None:
    """Every partition, query and node on the page is what the document says."""
    cells = {
        p["id"]: [p["state"], p["state"], "–" if p["position"] is None else str(p["position"])]
        for p in said["partitions"]
    }
    assert driver.execute_script(CELLS) == cells
    rows = {
        q["id"]: [q["state"], str(q["priority"]), str(q["lag"]), q["reason"]]
        for q in said["queries"]["items"]
    }
    assert driver.execute_script(ROWS) == rows
    assert driver.execute_script(NODES) == {n["id"].removesuffix("#1"): n["state"] for n in said["nodes"]}
