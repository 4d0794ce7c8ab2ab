"""The page of a real run: nodes are killed while a browser looks, and what it shows stays what the controller says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By

from reprise.controller.cli import exits
from tests.web.browser import complaints, requests, window
from tests.web.pages import accessible, assert_shows, picture, show
from tools.testbed.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.wide]
FAULTS = """
- {on: checkpoint, count: 8, kill: [n3, n4], name: burst}
- {after: burst, add: 2}
"""
SEEN = "seen"
_COMMAND = """
import sys
from pathlib import Path
from reprise.controller.cli import main
from reprise.controller.local.faults.schedule import Schedule
seen, reached = Path(sys.argv.pop(1)), Schedule._reached
Schedule._reached = lambda self, of, now: reached(self, of, now) and (of.kind != "after" or seen.exists())
main()
"""
"""The command line, where faults `after` another one wait for a file: nodes come when the browser has seen the incident."""
START_S, RECOVERY_S = 180.0, 180.0
"""Seconds; several times what they take on an idle machine."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A run of Topology 2 on four nodes whose stream outlasts the test, and the URL of its page."""
    (tmp_path / "faults.yaml").write_text(FAULTS)
    values = (
        "nodes.cpu=500m", "sources[source].with.batches=5000", "sources[source].with.rate=100",
        "checkpoint.interval=4s",
    )  # fmt: skip
    command = [
        sys.executable, "-c", _COMMAND, str(tmp_path / SEEN), "run", "-f", "examples/topology2.yaml", "--nodes", "4",
        "--faults", str(tmp_path / "faults.yaml"), "--out", str(tmp_path / "out"), "--web", "0",
        *(word for value in values for word in ("--set", value)),
    ]  # fmt: skip
    said = tmp_path / "said.log"
    with said.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        address = lambda: re.search(r"http://127\.0\.0\.1:\d+\S*", said.read_text())  # noqa: E731
        yield process, until(address, "its address", 60, said.read_text)[0]  # type: ignore[index]
    finally:
        process.terminate()
        process.wait(150)


def document(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url.replace("/t/", "/api/v1/topologies/"), timeout=300) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def assert_same_moment(driver: WebDriver, url: str) -> None:
    """Page and document of one moment are equal; several a second pass by, so the same one must be caught first."""

    def caught() -> dict[str, Any] | None:
        said = document(url)
        shown = driver.execute_script("return Number(document.body.dataset.time)")
        if shown != said["time"]:
            return None
        try:
            assert_shows(driver, said)
        except AssertionError:
            if driver.execute_script("return Number(document.body.dataset.time)") == shown:
                raise
            return None  # the page has gone on while it was read
        return said

    until(caught, "page and document of one moment")


def test_the_page_follows_a_real_incident_from_the_kill_to_the_end(
    run: tuple[subprocess.Popen[bytes], str], tmp_path: Path
) -> None:
    process, url = run
    with window() as driver:
        show(driver)
        driver.get(url)

        def headline() -> str:
            return str(driver.find_element(By.ID, "headline").text)

        until(
            lambda: "15 of 15 queries available, no incident" in headline(),
            "the topology runs",
            START_S,
            headline,
        )
        driver.execute_script("window.mark = 1")
        assert_same_moment(driver, url)
        until(
            lambda: "Correlated incident" in headline() and "2 nodes lost (n3, n4)" in headline(),
            "it is told",
            90,
            headline,
        )
        until(lambda: driver.find_elements(By.CSS_SELECTOR, '.cell[data-state="waiting"]'), "partitions wait")
        assert_same_moment(driver, url)
        until(lambda: "Leaves out" in driver.find_element(By.ID, "plan-body").text, "a plan with reasons")
        accessible(driver)
        picture(driver, "run-incident")
        (tmp_path / SEEN).touch()
        until(
            lambda: "15 of 15 queries available, no incident" in headline(),
            "it is over",
            RECOVERY_S,
            headline,
        )
        assert "closed" in driver.find_element(By.ID, "story-title").text
        assert_same_moment(driver, url)
        picture(driver, "run-over")
        assert driver.execute_script("return window.mark") == 1, "it was never loaded again"
        assert complaints(driver) == []
        server = url.partition("/t/")[0]
        assert [asked for asked in requests(driver) if not asked.startswith((server, "data:"))] == []
    process.terminate()
    assert process.wait(300) == exits.INTERRUPTED
