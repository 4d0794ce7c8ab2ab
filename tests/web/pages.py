"""What tests ask of a page in a browser, and how they look at it."""

from __future__ import annotations

import math
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


def lag_of(said: dict[str, Any]) -> str:
    """As the page writes it: batches, and what they are in seconds where that is known."""
    lag, seconds = said["lag"], said["lag_s"]
    batches = f"{lag} batch" if lag == 1 else f"{lag} batches"
    if seconds is None:
        return batches
    whole = nearest(seconds)
    short = f"{nearest(seconds * 10) / 10:.1f}".removesuffix(".0") if seconds < 10 else f"{whole}"
    minutes = f"{whole // 60} min {whole % 60}"
    return f"{batches} ({minutes if whole >= 60 else short} s)"


def notes_of(query: dict[str, Any], said: dict[str, Any]) -> list[str]:
    """What is below the reason of a query: the wish to skip it, and batches that may lack rows."""
    wishes = [
        f"does without what it has missed: {', '.join(skip['partitions'])} begin anew"
        if skip["taken"]
        else "is to do without what it has missed; nobody has taken that up yet"
        for skip in said["skips"]
        if skip["query"] == query["id"]
    ]
    spans = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in query["gaps"])
    more = query["gaps_total"] - len(query["gaps"])
    earlier = f", and in {more} earlier spans" if more else ""
    word = "batch" if spans.isdecimal() and not more else "batches"
    return [*wishes, *([f"may lack rows in {word} {spans}{earlier}"] if spans else [])]


def nearest(value: float) -> int:
    """As a browser rounds: a half goes up, where `round` goes to the even neighbour."""
    return math.floor(value + 0.5)


def assert_shows(driver: WebDriver, said: dict[str, Any]) -> None:
    """Every partition, query and node on the page is what the document says."""
    cells = {
        p["id"]: [p["state"], p["state"], "–" if p["position"] is None else str(p["position"])]
        for p in said["partitions"]
    }
    assert driver.execute_script(CELLS) == cells
    rows = {
        q["id"]: [q["state"], str(q["priority"]), lag_of(q), q["reason"] + "".join(notes_of(q, said))]
        for q in said["queries"]["items"]
    }
    assert driver.execute_script(ROWS) == rows
    assert driver.execute_script(NODES) == {n["id"].removesuffix("#1"): n["state"] for n in said["nodes"]}
